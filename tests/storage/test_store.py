"""The store of a memory directory: what a process holds of it, and what becomes of it without a close."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import memfiles
from tests.support.another_process import another_process
from tests.support.workflows import write_workflow

WORKFLOW = """
    name: desk
    memory:
      mirror: {{url: "{mirror}"}}
      entries: {{}}
      files: [{{uid: notes, name: notes, description: What is known.}}]
    agents:
      assistant: {{memory: [{{id: notes, mode: rw}}]}}
"""

CYCLES = """
import gc, json, os, sys, threading

handlers = []
register = os.register_at_fork
os.register_at_fork = lambda **given: (handlers.append(given), register(**given))[1]
import memfiles

def cycle():
    with memfiles.open(sys.argv[1]) as memory:
        session = memory.session("assistant", run="r")
        session.call("append_memory", {"file": "notes", "content": "-\\n"})
        session.call("memory_save", {"key": "k", "content": "c"})

def held():
    gc.collect()
    resident = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return [len(os.listdir("/proc/self/fd")), threading.active_count(), len(handlers), resident]

print("ready")
for count in map(int, iter(input, "")):
    for _ in range(count):
        cycle()
    print(json.dumps(held()))
"""


@pytest.mark.slow
def test_a_memory_that_was_closed_leaves_nothing_in_the_process(tmp_path: Path) -> None:
    """After 500 rounds of open, change and close there are the descriptors, threads and fork handlers of the first."""
    (tmp_path / "mirror").mkdir()
    workflow = write_workflow(tmp_path, WORKFLOW.format(mirror=f"file://{tmp_path}/mirror"))
    with another_process(CYCLES, workflow) as other:
        assert "ready" == other.hear()
        counted: list[list[int]] = []
        for cycles in (1, 99, 400):
            other.tell(str(cycles))
            counted.append(json.loads(other.hear()))
        other.tell()
    *first, _ = counted[0]
    *last, resident = counted[-1]

    assert first == last
    assert resident < counted[1][-1] + 8 * 2**20


EARLY = """
import os, sys, time

early = -300 * 86400 * 10**9  # from a machine without a battery, or with a wrong one
begun = time.time_ns()
time.time_ns = lambda now=time.time_ns: early + now() - begun
time.time = lambda: time.time_ns() / 1e9
import memfiles
from tests.cli.command_line import run

workflow = sys.argv[1]
memory = memfiles.open(workflow, watch=False)
session = memory.session("assistant", run="r")
for turn in range(3):
    assert not session.call("append_memory", {"file": "notes", "content": f"- {turn}\\n"}).is_error
    memory.entries.save(session, "k", f"tea {turn}", ttl=3600)
assert not session.call("memory_search", {"query": "tea"}).is_error
assert "tea 2" in session.system_prompt()
memory.status()
for command in ("log notes", "read notes", "entries list", "status", "sync status"):
    assert 0 == run("-w", workflow, *command.split()).code, command
print("killed", flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_clock_before_1970_fails_nothing(tmp_path: Path) -> None:
    """Changes are journaled, recovered and found, also by a process whose clock is right."""
    (tmp_path / "mirror").mkdir()
    workflow = write_workflow(tmp_path, WORKFLOW.format(mirror=f"file://{tmp_path}/mirror"))
    with another_process(EARLY, workflow) as other:
        assert "killed" == other.hear()
    with memfiles.open(workflow, watch=False) as memory:
        session = memory.session("assistant", run="r")
        found = session.call("memory_get", {"key": "k"})
        notes = session.call("read_memory", {"file": "notes"}).text

    assert "- 0\n- 1\n- 2\n" == notes
    assert {"found": False, "key": "k"} == found.data  # its hour is long over
