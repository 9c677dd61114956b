"""Few of our files are passed through by one call of a tool: so many must be opened by whoever wants to follow it."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import pytest

import memfiles
from memfiles import Session
from tests.support import ROOT
from tests.support.workflows import write_workflow

WORKFLOW = """
memory:
  mirror: {url: "MIRROR"}
  files: [{uid: notes, name: notes, description: Notes., max_size_bytes: 16384, level: PUBLIC, content: "# Notes"}]
  entries: {}
agents: {support: {level: PUBLIC, memory: [{id: notes, mode: rw}]}}
"""
OURS = tuple(str(ROOT / package) + "/" for package in ("memfiles", "mirrors"))
MOST = {"append_memory": 21, "memory_save": 32, "memory_search": 35}
"""One is ``records`` itself, for tuples and kept values. A save also erases what is due, and evicts; a search reads
what a text says of its language, its time and its run, and tries again what could not be read or listed."""
ROUNDS = 3


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[memfiles.Memory]:
    (tmp_path / "mirror").mkdir()
    text = WORKFLOW.replace("MIRROR", (tmp_path / "mirror").as_uri())
    with memfiles.open(write_workflow(tmp_path, text), watch=False) as opened:
        yield opened


@pytest.mark.directory("what a call passes through there")
def test_a_warm_call_passes_through_few_files(memory: memfiles.Memory) -> None:
    """In the calling thread, after the same calls were made before and everything was pushed."""
    session, found = memory.session("support"), defaultdict[str, list[int]](list)
    for number in range(2 * ROUNDS):
        for tool in MOST:
            memory.sync.flush(60)
            passed = _files_of(session, tool, _arguments(tool, number), call_id=f"{tool} {number}")
            found[tool] += [len(passed)] if number >= ROUNDS else []

    assert {} == {tool: counts for tool, counts in found.items() if not 10 < median(counts) <= MOST[tool]}


def _arguments(tool: str, number: int) -> dict[str, Any]:
    return {
        "append_memory": {"file": "notes", "content": f"- {number}\n"},
        "memory_save": {"key": f"person {number}", "content": f"Person {number} is on the Pro plan."},
        "memory_search": {"query": "which plan is a person on"},
    }[tool]


def _files_of(session: Session, tool: str, arguments: dict[str, Any], *, call_id: str) -> set[str]:
    """The files of ours in which functions are called."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            found.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        result = session.call(tool, arguments, call_id=call_id)
    finally:
        sys.setprofile(None)
    assert not result.is_error, result.text
    return found
