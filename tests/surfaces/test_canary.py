"""A canary in every text that is stored, sought or refused: neither the log nor the audit log ever holds it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from memfiles import MemfilesError, Memory
from memfiles.tools.session import Session
from tests.support.records import files_under
from tests.support.workflows import opened

CANARY = "canaryinthemine"
WORKFLOW = """\
name: desk
memory:
  files:
    - {uid: notes-1, name: notes, max_size_bytes: 400, content: "# canaryinthemine\\n"}
    - {uid: other-1, name: other}
  entries: {max_bytes: 2000}
agents:
  support: {memory: [{id: notes-1, mode: rw}, {id: other-1, mode: r}]}
"""
KEY = "AKIA" + "IOSFODNN7EXAMPLE".replace("EXAMPLE", "Q2WERTY")
CALLS: dict[str, Callable[[Memory, Session], object]] = {
    "append": lambda memory, session: memory.manager.append("notes-1", f"- {CANARY}\n"),
    "over the cap": lambda memory, session: memory.manager.append("notes-1", CANARY * 100),
    "half a surrogate": lambda memory, session: memory.manager.append("notes-1", f"{CANARY}\ud800"),
    "bytes": lambda memory, session: memory.manager.append("notes-1", CANARY.encode()),  # type: ignore[arg-type]
    "a secret": lambda memory, session: memory.manager.append("notes-1", f"{CANARY} {KEY}"),
    "no match": lambda memory, session: memory.manager.edit("notes-1", f"{CANARY}!", CANARY),
    "stale": lambda memory, session: memory.manager.edit("notes-1", CANARY, "x", expected_revision=99),
    "a revision": lambda memory, session: memory.manager.undo("notes-1", to_revision=CANARY),  # type: ignore[arg-type]
    "redact": lambda memory, session: memory.manager.redact("notes-1", CANARY),
    "save": lambda memory, session: memory.entries.save(session, "plan", CANARY),
    "save too much": lambda memory, session: memory.entries.save(session, "plan", CANARY * 9000),
    "save over the budget": lambda memory, session: memory.entries.save(session, "plan", CANARY * 200),
    "save what is a secret": lambda memory, session: memory.entries.save(session, "plan", f"{CANARY} {KEY}"),
    "save bytes": lambda memory, session: memory.entries.save(session, "plan", CANARY.encode()),  # type: ignore[arg-type]
    "search": lambda memory, session: memory.entries.search(session, f'"{CANARY}" OR ('),
    "forget": lambda memory, session: memory.entries.forget(session, key="plan"),
    "read only": lambda memory, session: session.call("append_memory", {"file": "other", "content": CANARY}),
    "arguments": lambda memory, session: session.call("append_memory", {"file": "notes", "content": [CANARY]}),
    "no arguments": lambda memory, session: session.call("edit_memory", f'{{"file": "notes", "{CANARY}": 1'),
    "another tool": lambda memory, session: session.call("append_memory", {"file": "notes", "text": CANARY * 50}),
    "a broken record": lambda memory, session: break_record(memory),
    "a broken entry": lambda memory, session: break_entry(memory, session),
    "a full disk": lambda memory, session: in_the_way(memory),
}


def break_record(memory: Memory) -> None:
    """Someone saves half a record by hand."""
    path = memory.manager.directory / "notes-1.json"
    path.write_text(path.read_text().replace('"revision"', f'"{CANARY}')[:-9])
    memory.manager.restore(memory.workflow)


def break_entry(memory: Memory, session: Session) -> None:
    """Someone saves half an entry by hand."""
    memory.entries.save(session, "plan", CANARY)
    (path,) = memory.manager.directory.glob("entries/support/*.json")
    path.write_text(path.read_text()[:-9])
    memory.entries.get(session, "plan")


def in_the_way(memory: Memory) -> None:
    """A folder lies where the next version is staged."""
    (memory.manager.directory / ".notes-1.json.tmp/x").mkdir(parents=True)
    memory.manager.append("notes-1", CANARY)


@pytest.mark.parametrize("name", CALLS)
def test_nothing_that_is_stored_is_told(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever becomes of the call."""
    with caplog.at_level(logging.DEBUG):
        memory = opened(tmp_path, WORKFLOW)
        session = memory.session("support", run="evt-1")
        with suppress(MemfilesError):
            CALLS[name](memory, session)
        session.system_prompt()
        memory.close()
    audit = b"".join(files_under(tmp_path / ".memory/audit").values())

    assert CANARY not in caplog.text
    assert CANARY.encode() not in audit
    assert KEY not in caplog.text + audit.decode()
