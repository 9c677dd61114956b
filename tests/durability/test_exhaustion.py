"""A process that the system gives no more threads, or no more memory: what it does is acknowledged and kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest

import memfiles
from tests.support import ROOT
from tests.support.another_process import another_process
from tests.support.records import no_thread_starts
from tests.support.workflows import write_workflow

pytestmark = pytest.mark.slow

WORKFLOW = """
    name: desk
    memory:
      directory: .memory
      mirror: {{url: "file://{mirror}"}}
      entries: {{}}
      files: [{{uid: notes, name: notes, description: What is known., max_size_bytes: 8388608}}]
    agents:
      assistant: {{memory: [{{id: notes, mode: rw}}]}}
"""

FORGETS = """
import sys, memfiles

with memfiles.open(sys.argv[1], watch=False) as memory:
    print(memory.entries.forget(memory.session("assistant"), key="bob").count)
"""

RUNS_OUT = """
import ctypes, os, resource, signal, sys, time

signal.alarm(120)  # ends it, whatever the interpreter does
ctypes.CDLL(None).mallopt(-8, 1)  # one arena: what threads have in reserve is no longer there for them
import memfiles

memory = memfiles.open(sys.argv[1], watch=False)
session = memory.session("assistant")
for number in range(100):  # of which the journal is overwritten at once
    memory.entries.save(session, f"entry {number}", f"{number} " + 60_000 * "x")
pages = int(open("/proc/self/statm").read().split()[0])
limits = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGESIZE"), limits[1]))
taken = []
try:
    while True:
        taken.append(bytes(200_000))
except MemoryError:
    del taken[-12:]  # less than the zeros for the journal; without small objects, CPython 3.11 loops for ever
    time.sleep(2.5)
resource.setrlimit(resource.RLIMIT_AS, limits)
memory.entries.save(session, "last", "y")
print("written")
input()
"""


def test_all_is_done_and_acknowledged_though_no_thread_can_be_started(tmp_path: Path) -> None:
    """A change was made, but raised an error: who repeated it doubled the text. The mirror got nothing."""
    workflow = write_workflow(tmp_path, WORKFLOW.format(mirror=tmp_path / "mirror"))
    (tmp_path / "mirror").mkdir()
    with no_thread_starts(), memfiles.open(workflow) as memory:
        session = memory.session("assistant")
        for line in "ab":
            memory.manager.append("notes", line)
        memory.entries.save(session, "bob", "Bob is on Free.")
        found = memory.entries.search(session, "Bob").matches
        memory.manager.redact("notes", "a")
        was_pushed, pulled = memory.sync.flush(60), memory.sync.pull(60).outcomes

    assert ["bob"] == [match.found.key for match in found]
    assert was_pushed
    assert "failed" not in pulled.values()
    mirrored = json.loads((tmp_path / "mirror" / "notes.json").read_text())
    assert "b" == mirrored["content"]


def test_others_can_forget_while_a_process_can_start_no_thread(tmp_path: Path) -> None:
    """Its journal stayed as it was: each forget of another process waited for it half a minute, and failed."""
    workflow = write_workflow(tmp_path, WORKFLOW.format(mirror=tmp_path / "mirror"))
    (tmp_path / "mirror").mkdir()
    with no_thread_starts(), memfiles.open(workflow, watch=False) as memory:
        session = memory.session("assistant")
        for text in ("Bob is on Free.", "Bob is on Pro."):
            memory.entries.save(session, "bob", text)
        with another_process(FORGETS, workflow) as other:
            forgotten = other.hear()

    assert "1" == forgotten


def test_a_journal_is_emptied_after_the_process_was_short_of_memory(tmp_path: Path) -> None:
    """The thread that empties it ended for good, and each forget of another process waited for it in vain."""
    workflow = write_workflow(tmp_path, WORKFLOW.format(mirror=tmp_path / "mirror"))
    (tmp_path / "mirror").mkdir()
    with memfiles.open(workflow, watch=False) as memory, another_process(RUNS_OUT, workflow) as other:
        memory.entries.save(memory.session("assistant"), "bob", "Bob is on Free.")
        heard = other.hear()
        begun = monotonic()
        forgotten = memory.entries.forget(memory.session("assistant"), key="bob").count
        took = monotonic() - begun
        other.tell()

    assert ("written", 1) == (heard, forgotten)
    assert took < 20


def test_a_command_that_runs_out_of_memory_says_so(tmp_path: Path) -> None:
    """It was called a bug in memfiles; nothing is changed."""
    workflow = write_workflow(tmp_path, WORKFLOW.format(mirror=tmp_path / "mirror"))
    given = ["-m", "memfiles", "--json", "append", "notes", "-", "-w", str(workflow)]
    command = ["prlimit", f"--as={150 * 1024**2}", sys.executable, *given]

    ended = subprocess.run(
        command, input=b"x" * 300_000_000, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )

    error = json.loads(ended.stderr)["error"]
    assert (1, b"", "out_of_memory", True) == (ended.returncode, ended.stdout, error["code"], error["transient"])


@pytest.mark.parametrize("command", ["restore", "doctor", "sync push"])
def test_a_command_does_its_work_though_no_thread_can_be_started(tmp_path: Path, command: str) -> None:
    """The mirror is asked without one, and the doctor finds nothing wrong with it."""
    write_workflow(tmp_path, WORKFLOW.format(mirror=tmp_path / "mirror"))
    (tmp_path / "mirror").mkdir()
    with memfiles.open(tmp_path / "workflow.yaml", watch=False) as memory:
        memory.manager.append("notes", "a")
    program = "import threading; threading.stack_size(1 << 47); from memfiles.cli import main; main()"

    ended = subprocess.run(
        [sys.executable, "-c", program, *command.split()],
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    assert (0, False) == (ended.returncode, b"fail" in ended.stdout), ended
