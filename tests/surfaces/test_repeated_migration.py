"""A migration that is repeated: what was done in the target since stays, and what was forgotten on one side is gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import memfiles
from memfiles.records.entry import Entry
from memfiles.records.keys import entry_path, entry_uid
from memfiles.storage import migration
from memfiles.storage.home import MemoryHome, home_of
from memfiles.storage.migration import Migrated, migrate
from memfiles.storage.record_copy import decoded_at
from memfiles.tools.session import Session
from tests.support.postgres import PostgresServer
from tests.support.workflows import write_workflow

pytestmark = pytest.mark.slow

TEXT = """
name: desk
memory: {{{place}, files: [{{uid: notes, name: notes, content: "# Notes\\n", max_size_bytes: 1000000}}], entries: {{}}}}
agents: {{desk: {{memory: [{{id: notes, mode: rw}}]}}}}
"""
AT = "2026-11-21T09:00:00.000Z"
SECRET = "quagmire"


class Memories:
    """A memory in a directory, and the one that it is migrated to."""

    def __init__(self, folder: Path, place: str) -> None:
        self._source = write_workflow(folder / "source", TEXT.format(place="directory: .memory"))
        self._target = write_workflow(folder / "target", TEXT.format(place=place))

    def source(self) -> memfiles.Memory:
        return memfiles.open(self._source, watch=False)

    def target(self) -> memfiles.Memory:
        return memfiles.open(self._target, watch=False)

    def homes(self) -> list[MemoryHome]:
        return [home_of(memfiles.Workflow.load(path).place) for path in (self._source, self._target)]

    def migrate(self) -> Migrated:
        return migrate(*self.homes(), now=lambda: AT)


@pytest.fixture(params=["directory", "postgresql"])
def memories(request: pytest.FixtureRequest, tmp_path: Path) -> Memories:
    """The target is a directory, or in PostgreSQL."""
    if request.param == "directory":
        return Memories(tmp_path, "directory: .memory")
    server: PostgresServer = request.getfixturevalue("server")
    return Memories(tmp_path, f"store: {json.dumps(server.url(server.workspace()))}")


def desk(memory: memfiles.Memory) -> Session:
    return memory.session("desk")


def path_of(key: str) -> str:
    return entry_path("desk", entry_uid("desk", "PUBLIC", key))


def seen(memory: memfiles.Memory) -> dict[str, str]:
    return {each.key: each.content for each in memory.entries.list(desk(memory)).memories}


def append_often(memory: memfiles.Memory) -> None:
    for number in range(105):  # more than a history holds
        memory.manager.append("notes", f"- {number}\n")


def append_much(memory: memfiles.Memory) -> None:
    memory.manager.append("notes", "x" * 70_000)  # more than a history holds
    memory.manager.append("notes", "\n- 104\n")


@pytest.mark.parametrize("change", [append_often, append_much])
@pytest.mark.parametrize("there", ["redact", "append", "nothing"])
def test_a_file_that_was_changed_there_stays(
    memories: Memories, there: str, change: Callable[[memfiles.Memory], None]
) -> None:
    """Also if the source's history does not reach back any more; one that was not changed there is replaced."""
    with memories.source() as memory:
        memory.manager.append("notes", f"- the number is {SECRET}\n")
    memories.migrate()
    with memories.target() as memory:
        if there == "redact":
            memory.manager.redact("notes", SECRET)
        elif there == "append":
            memory.manager.append("notes", "- acknowledged there\n")
        before = memory.manager.read("notes")
    with memories.source() as memory:
        change(memory)
    done = memories.migrate()
    with memories.target() as memory:
        after = memory.manager.read("notes")

    assert done.is_complete
    if there == "nothing":
        assert ([], True) == (done.newer, after.endswith("- 104\n"))
    else:
        assert (["notes.json"], before) == (done.newer, after)


def test_an_entry_that_was_changed_there_stays_alone(memories: Memories) -> None:
    """Where the source renamed it, the target has it under one key, as it was acknowledged there."""
    with memories.source() as memory:
        memory.entries.save_many(desk(memory), [{"key": key, "content": "one"} for key in ("k", "moved", "m", "calm")])
    memories.migrate()
    with memories.target() as memory:
        memory.entries.save(desk(memory), "k", "acknowledged there")
        memory.entries.relocate(desk(memory), {"moved": "moved there"})
        for number in range(5):
            memory.entries.update(desk(memory), "m", content=f"there {number}")
    with memories.source() as memory:
        for content in ("two", "three"):
            memory.entries.save(desk(memory), "k", content)
        memory.entries.relocate(desk(memory), {"k": "k2", "moved": "moved here", "m": "m2", "calm": "calm2"})
    done = memories.migrate()
    with memories.target() as memory:
        found = seen(memory)

    assert {"k": "acknowledged there", "moved there": "one", "m": "there 4", "calm2": "one"} == found
    assert {path_of(key) for key in ("k", "k2", "moved", "moved here", "m", "m2")} <= {*done.newer}
    assert path_of("calm2") not in done.newer and done.is_complete


@pytest.mark.parametrize("moves", [False, True], ids=["", "renamed there"])
def test_what_the_source_forgot_is_gone_also_where_it_was_changed_there(memories: Memories, *, moves: bool) -> None:
    """Wherever it is by then: a look at the record says so, without the index."""
    with memories.source() as memory:
        memory.entries.save(desk(memory), "k", SECRET)
    memories.migrate()
    with memories.target() as memory:
        for number in range(5):
            memory.entries.update(desk(memory), "k", content=f"{SECRET} {number}")
        if moves:
            memory.entries.relocate(desk(memory), {"k": "k2"})
    with memories.source() as memory:
        memory.entries.forget(desk(memory), key="k")
    memories.migrate()
    with memories.homes()[1].reading() as records:
        assert records is not None
        left = [path for path in records.paths("entries/desk/") if isinstance(decoded_at(records, path), Entry)]
    with memories.target() as memory:
        found = [memory.entries.get(desk(memory), key) for key in ("k", "k2")]

    assert ([], [None, None]) == (left, found)


def test_runs_of_a_user_who_came_back_stay_in_the_audit(memories: Memories) -> None:
    """Those before the forget are gone on both sides; nothing is done again by the target, or by the source's index."""
    for run in ("before", "after"):
        with memories.source() as memory:
            memory.entries.save(memory.session("desk", user="ada", run=run), "tea", "green")
            memories.migrate()
            if run == "before":
                memory.users.forget("ada")
    memories.migrate()
    source, _ = memories.homes()
    assert source.directory is not None
    (source.directory / ".state/index.sqlite").unlink()
    runs = []
    for opened in (memories.source, memories.target):
        with opened() as memory:
            memory.entries.search(memory.session("desk", user="ada"), "tea")
            runs.append({event.run for event in memory.audit(op="save").events})

    assert [{"", "after"}] * 2 == runs


def test_a_kept_copy_of_what_was_forgotten_there_is_not_copied_again(
    memories: Memories, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even for a moment: a kill before the end leaves none."""
    with memories.source() as memory:
        memory.entries.save(desk(memory), "k", SECRET)
        memory.entries.save(desk(memory), "stays", "one")
    source, target = memories.homes()
    with source.reading() as records:
        assert records is not None
        for key in ("k", "stays"):
            body, _ = records.find(path_of(key)) or (b"", None)
            source.kept.keep(path_of(key), body, reason="why", at=AT, folder="conflicts")
    first = memories.migrate()
    with memories.target() as memory:
        memory.entries.forget(desk(memory), key="k")
    with monkeypatch.context() as patched:
        patched.setattr(migration, "_audit_copied", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            memories.migrate()
    kept = [target.kept.read(note.kept) or b"" for note in target.kept.notes("conflicts")]

    assert (2, 0) == (first.kept, memories.migrate().kept)
    assert (1, []) == (len(kept), [body for body in kept if SECRET.encode() in body])


def test_without_notes_nothing_is_replaced_that_may_have_been_changed_there(tmp_path: Path) -> None:
    """They are derived, and may be gone: what the source's history has in full goes on, and the rest is left."""
    memories = Memories(tmp_path, "directory: .memory")
    with memories.source() as memory:
        memory.manager.append("notes", "- one\n")
        memory.entries.save_many(desk(memory), [{"key": key, "content": "one"} for key in ("often", "once")])
    memories.migrate()
    (tmp_path / "target/.memory/.state/migrated").unlink()
    with memories.source() as memory:
        memory.manager.append("notes", "- two\n")
        memory.entries.update(desk(memory), "once", content="two")
        for number in range(120):
            memory.entries.update(desk(memory), "often", content=f"{number}")
    done, again = memories.migrate(), memories.migrate()
    with memories.target() as memory:
        found, notes = seen(memory), memory.manager.read("notes")

    assert ({"often": "one", "once": "two"}, "# Notes\n- one\n- two\n") == (found, notes)
    assert ([path_of("often")] * 2, True) == ([*done.newer, *again.newer], again.is_complete)
