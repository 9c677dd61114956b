"""The end of a session: it saves nothing any more, and what belongs to its run goes with the last one."""

from __future__ import annotations

import gc

import pytest

import memfiles
from memfiles.errors import InvalidArgument
from memfiles.tools.session import Session
from tests.tools.entry_calls import save

WORKFLOW = """\
memory:
  durability: os
  files: [{uid: notes-1, name: notes, description: What is known., level: INTERNAL}]
  entries: {max_entries: 100}
agents:
  support: {level: INTERNAL, memory: [{id: notes-1, mode: rw}]}
  other: {level: INTERNAL}
"""


@pytest.fixture
def session(memory: memfiles.Memory) -> Session:
    return memory.session("support", run="monday")


def test_a_closed_session_saves_nothing(session: Session) -> None:
    """As for files."""
    session.close()

    assert "session_closed" == session.call("memory_save", {"key": "k", "content": "x"}).code


def test_a_closed_session_has_no_entries_in_python_either(memory: memfiles.Memory, session: Session) -> None:
    """Its run is over: what it saved for that would be removed by nobody."""
    session.close()

    for use in (memory.entries.get, memory.entries.explain, memory.entries.delete):
        with pytest.raises(InvalidArgument, match="is closed"):
            use(session, "k")


def test_what_belongs_to_a_run_goes_when_its_last_session_closes(memory: memfiles.Memory, session: Session) -> None:
    """Unless that session only joined the run of others: then it expires."""
    save(session, category="conversation")
    joining = memory.session("support", run="monday", ends_run=False)
    joining.close()
    another = memory.session("support", run="monday")
    another.close()
    another.close()
    seen = memory.entries.get(session, "plan")
    session.close()

    assert seen is not None
    assert memory.entries.get(memory.session("support", run="monday"), "plan") is None


def test_a_run_goes_on_at_the_levels_of_its_open_sessions(memory: memfiles.Memory, session: Session) -> None:
    """Sessions of other levels come and go unnoticed; one that was raised counts at both of its levels."""
    save(session, category="conversation")
    high, raised = (memory.session("support", run="monday", level=level) for level in ("RESTRICTED", "INTERNAL"))
    save(high, key="high", category="conversation")
    raised.raise_level("RESTRICTED")
    high.close()
    seen_after_high = [memory.entries.get(raised, key) is not None for key in ("plan", "high")]
    session.close()
    seen_after_low = [memory.entries.get(raised, key) is not None for key in ("plan", "high")]
    raised.close()
    late = memory.session("support", run="monday", level="RESTRICTED")

    assert ([True, True], [True, True]) == (seen_after_high, seen_after_low)
    assert [None, None] == [memory.entries.get(late, key) for key in ("plan", "high")]


@pytest.mark.slow
def test_a_run_does_not_wait_for_sessions_of_other_runs_and_agents(memory: memfiles.Memory, session: Session) -> None:
    """Nor for a session that was let go of without closing it."""
    save(session, category="conversation")
    others = [
        memory.session("support", run="tuesday"),
        memory.session("support"),
        memory.session("other", run="monday"),
    ]
    memory.session("support", run="monday")
    gc.collect()
    session.close()

    assert memory.entries.get(memory.session("support", run="monday"), "plan") is None
    assert 3 == len(others)
