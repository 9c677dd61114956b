"""Processes and forks on one index: each sees what the others saved, also what a killed one left."""

from __future__ import annotations

import os

import pytest

from tests.index.indexed import SUPPORT, Memory
from tests.support.another_process import another_process
from tests.support.saved import buried, saved


def test_a_row_that_waits_in_another_process_does_not_come_back(memory: Memory) -> None:
    """When it is written at last, it is compared with the file."""
    other = Memory(memory.directory)
    secret = saved("secret", "needle")
    other.save(secret)
    memory.save(buried(secret))
    memory.index.forget([secret.path])
    other.index.catch_up()

    assert [] == other.texts()
    assert 0 == other.index.totals(SUPPORT).count
    other.close()


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.index.indexed import Memory
from tests.support.saved import saved
memory = Memory(Path(sys.argv[1]))
memory.save(saved("first"))
if sys.argv[2] == "asked":
    memory.keys()
token = memory.index.intend([saved("second").path])
print("announced")
input()
memory.write(saved("second"))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["asked", "not asked"])
def test_a_process_killed_between_record_and_index_is_seen_by_another(memory: Memory, asked: str) -> None:
    """It announced the change, so the record is read again until the change is known to be over."""
    memory.save(saved("mine"))
    with another_process(KILLED, memory.directory, asked) as other:
        assert "announced" == other.hear()
        assert ["first", "mine"] == memory.keys()
        other.tell()
        other.process.wait(60)

    assert ["first", "mine", "second"] == memory.keys()


@pytest.mark.slow
def test_a_process_killed_alone_is_seen_by_the_next(memory: Memory) -> None:
    """The next to open the index finds what it announced."""
    with another_process(KILLED, memory.directory, "asked") as other:
        other.hear()
        other.tell()
        other.process.wait(60)
    again = Memory(memory.directory)

    assert ["first", "second"] == again.keys()
    assert 2 == again.index.totals(SUPPORT).count
    again.close()


SAVER = """
import sys
from pathlib import Path
from tests.index.indexed import Memory
from tests.support.saved import saved
memory = Memory(Path(sys.argv[1]))
for number in range(40):
    memory.save(saved(f"{sys.argv[2]}-{number:03}"))
    if number % 7 == 0:
        memory.keys()
print(len(memory.keys()))
input()
print(len(memory.keys()))
memory.close()
"""


@pytest.mark.slow
def test_processes_that_save_at_once_see_all(memory: Memory) -> None:
    """None of them loses a row to another."""
    with another_process(SAVER, memory.directory, "a") as one, another_process(SAVER, memory.directory, "b") as two:
        for each in (one, two):
            each.hear()
        for each in (one, two):
            each.tell()
        found = [one.hear(), two.hear()]

    assert ["80", "80"] == found
    assert 80 == len(memory.keys()) == memory.index.totals(SUPPORT).count


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_leaves_the_parent_s_rows_and_connection_alone(memory: Memory) -> None:
    """Parent and child go on as two processes do."""
    memory.save(saved("stored"))
    memory.keys()
    memory.save(saved("pending"))
    child = os.fork()
    if child == 0:
        try:
            memory.save(saved("child"))
            is_right = memory.keys() in (["child", "pending", "stored"], ["child", "stored"])
            memory.index.close()
            os._exit(0 if is_right else 1)
        except BaseException:
            os._exit(2)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert 0 == code
    assert ["child", "pending", "stored"] == memory.keys()
