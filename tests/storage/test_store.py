"""The store of a memory directory: what a process holds of it, and what becomes of it without a close."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
