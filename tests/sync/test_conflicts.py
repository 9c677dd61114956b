"""The losing copies of merges: what is told of them, and how each is settled, but never against a redaction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memfiles import Memory
from memfiles.errors import InvalidArgument, ReadOnly, RevisionConflict, SecretRefused, SizeExceeded
from memfiles.memory import look
from memfiles.records.record import Actor
from memfiles.sync.conflicts import Conflict
from memfiles.sync.mirror import Stored
from mirrors.memory import MemoryMirror
from tests.support.saved import files_holding
from tests.support.workflows import opened

WORKFLOW = """
memory:
  levels: [LOW, HIGH]
  files: [{uid: notes-1, name: notes, level: HIGH, max_size_bytes: 200, content: "# Notes\\n"}]
  entries: {}
agents: {desk: {level: HIGH, memory: [{id: notes-1, mode: rw}]}}
"""
NOTHING = Stored(b"", "")
CREDENTIAL = "sk-ant-api03-" + "A1b2C3d4" * 12
TEXT = {"notes": ("# Ours\n", "# Theirs of three\n"), "plan": ("Pro", "Free"), "team": ("9-5", "9-6")}


@pytest.fixture
def mirror() -> MemoryMirror:
    """The mirror of both machines."""
    return MemoryMirror()


@pytest.fixture
def machines(tmp_path: Path, mirror: MemoryMirror) -> Iterator[tuple[Memory, Memory]]:
    """Two machines on one mirror."""
    with (
        opened(tmp_path / "one", WORKFLOW, mirror=mirror) as one,
        opened(tmp_path / "two", WORKFLOW, mirror=mirror) as two,
    ):
        yield one, two


@pytest.fixture
def one(machines: tuple[Memory, Memory]) -> Memory:
    """The first machine, whose changes of a file and two entries met those of the other one."""
    one, two = machines
    for number, memory in ((1, two), (0, one)):
        memory.manager.replace("notes-1", TEXT["notes"][number])
        for key, category in (("plan", None), ("team", "workspace")):
            memory.entries.save(memory.session("desk"), key, TEXT[key][number], category=category)
        memory.sync.flush(60)
    one.sync.pull()
    return one


def text_of(memory: Memory, name: str) -> str:
    """The content of the file or entry now."""
    if name == "notes":
        return memory.manager.read("notes-1")
    found = memory.entries.get(memory.session("desk"), name)
    assert found is not None
    return found.content


def conflict_of(memory: Memory, name: str) -> Conflict:
    """The only conflict of that name."""
    (found,) = (each for each in memory.sync.conflicts() if each.name == name)
    return found


@pytest.mark.parametrize("name", TEXT)
def test_what_lost_is_told(one: Memory, name: str) -> None:
    """Which record, which side lost, when and why, the sizes, and what the record lacks; with the text."""
    ours, theirs = TEXT[name]
    found = conflict_of(one, name)

    assert (ours, theirs) == (text_of(one, name), found.content)
    assert ("remote", "open", "HIGH") == (found.lost, found.state, found.level)
    assert (len(theirs), len(ours), len(theirs.splitlines())) == (found.size_bytes, found.record_bytes, found.new_lines)
    assert (True, True) == (found.is_of_use, "local copy won" in found.why)
    assert found.path in one.sync.status().conflicts
    assert "content" not in found.to_dict()


def test_the_side_that_lost_follows_the_policy(tmp_path: Path) -> None:
    """With on_conflict: remote it is the local text that is kept as a copy."""
    (tmp_path / "mirror").mkdir()
    url = (tmp_path / "mirror").as_uri()
    declared = WORKFLOW.replace("memory:\n", f'memory:\n  mirror: {{url: "{url}", on_conflict: remote}}\n', 1)
    with opened(tmp_path / "one", declared) as one, opened(tmp_path / "two", declared) as two:
        for text, memory in (("# Theirs\n", two), ("# Ours\n", one)):
            memory.manager.replace("notes-1", text)
            memory.sync.flush(60)

        assert ("# Theirs\n", "# Ours\n") == (one.manager.read("notes-1"), conflict_of(one, "notes").content)
        assert "local" == conflict_of(one, "notes").lost


@pytest.mark.parametrize("name", TEXT)
def test_the_text_of_the_copy_is_taken(one: Memory, machines: tuple[Memory, Memory], name: str) -> None:
    """As a new revision, which reaches the other machine; the copy is gone."""
    before = conflict_of(one, name)
    settled = one.sync.resolve(name, take="copy", by=Actor(session="desk", actor="grace"))
    one.sync.flush(60)
    machines[1].sync.pull()

    assert (TEXT[name][1], TEXT[name][1]) == (text_of(one, name), text_of(machines[1], name))
    assert (before.path, (before.revision or 0) + 1) == (settled.path, settled.revision)
    assert name not in [each.name for each in one.sync.conflicts()]
    assert not (one.workflow.directory / before.path).exists()
    assert "grace" == one.audit(op="resolve").events[0].actor == one.audit(op="resolve", record=name).events[0].actor


def test_a_text_that_was_taken_can_be_undone(one: Memory) -> None:
    """It is a change like any other."""
    one.sync.resolve("notes", take="copy")
    one.manager.undo("notes-1")

    assert TEXT["notes"][0] == text_of(one, "notes")


@pytest.mark.parametrize("name", TEXT)
def test_another_text_is_taken(one: Memory, name: str) -> None:
    """One that the operator put together."""
    one.sync.resolve(conflict_of(one, name).path, text="both\n")

    assert ("both\n", 2) == (text_of(one, name), len(one.sync.conflicts()))


@pytest.mark.parametrize("name", TEXT)
def test_the_record_stays(one: Memory, name: str) -> None:
    """Only the copy is removed."""
    before = conflict_of(one, name)
    settled = one.sync.resolve(name, take="record")

    assert (None, TEXT[name][0]) == (settled.revision, text_of(one, name))
    assert not (one.workflow.directory / before.path).exists()


def test_a_refused_text_changes_nothing(one: Memory) -> None:
    """A credential, a text over the cap, another revision: the record and the copy stay as they are."""
    before = {name: text_of(one, name) for name in TEXT}
    for name in TEXT:
        with pytest.raises(SecretRefused):
            one.sync.resolve(name, text=f"key: {CREDENTIAL}")
        with pytest.raises(SizeExceeded):
            one.sync.resolve(name, text="x" * 100_000)
        with pytest.raises(RevisionConflict):
            one.sync.resolve(name, take="copy", expected_revision=99)

    assert (before, 3) == ({name: text_of(one, name) for name in TEXT}, len(one.sync.conflicts()))


def put_back(memory: Memory, name: str) -> Path:
    """The copy, as from a backup: it returns with the next call of ``restore`` in the tests below."""
    return memory.workflow.directory / conflict_of(memory, name).path


def test_a_copy_with_redacted_text_is_not_brought_back(one: Memory) -> None:
    """Also if it comes from a backup: it is not shown and not taken, and nothing changes."""
    copy = put_back(one, "notes")
    kept = copy.read_bytes()
    one.manager.append("notes-1", "of three\n")
    one.manager.redact("notes-1", "of three")
    assert not copy.exists()
    copy.write_bytes(kept)
    before, found = one.manager.snapshot("notes-1"), conflict_of(one, "notes")

    assert ("redacted", "", False) == (found.state, found.content, found.is_of_use)
    with pytest.raises(ReadOnly, match="redacted"):
        one.sync.resolve("notes", take="copy")
    assert before == one.manager.snapshot("notes-1")
    one.sync.resolve("notes", take="record")
    assert not copy.exists()


def test_a_redaction_elsewhere_takes_the_text_that_was_taken_meanwhile(
    one: Memory, machines: tuple[Memory, Memory], mirror: MemoryMirror
) -> None:
    """The other machine redacts it at the same time: then it is in no file of either machine, nor in the mirror."""
    two = machines[1]
    one.sync.flush(60)
    two.sync.pull()
    redaction = two.manager.redact("notes", "of three")
    one.sync.resolve("notes", take="copy")
    for memory in (one, two, one, two):
        memory.sync.flush(60)
        memory.sync.pull()

    directories = [each.workflow.directory for each in machines]
    assert (True, one.manager.read("notes")) == (redaction.in_history > 0, two.manager.read("notes"))
    assert [] == [found for each in directories for found in files_holding(each, "of three")]
    assert [] == [key for key, _ in mirror.list() if b"of three" in (mirror.get(key) or NOTHING).body]


def test_a_copy_of_a_forgotten_entry_is_not_brought_back(one: Memory) -> None:
    """Not even if another entry has its key by now; the copy can only be removed."""
    copy = put_back(one, "plan")
    kept, session = copy.read_bytes(), one.session("desk")
    one.entries.forget(session, key="plan")
    assert not copy.exists()
    copy.write_bytes(kept)
    one.entries.save(session, "plan", "none")
    found = conflict_of(one, "plan")

    assert ("forgotten", "") == (found.state, found.content)
    for taken in ({"take": "copy"}, {"text": "Free"}):
        with pytest.raises(ReadOnly, match="forgotten"):
            one.sync.resolve("plan", **taken)  # type: ignore[arg-type]
    assert "none" == text_of(one, "plan")
    one.sync.resolve("plan", take="record")
    assert not copy.exists()


def test_an_entry_that_moved_takes_its_text_where_it_is_now(one: Memory) -> None:
    """The copy follows the id, not the key."""
    session = one.session("desk")
    one.entries.relocate(session, {"plan": "plans/ada"})
    one.entries.save(session, "plan", "another entry")
    one.sync.resolve("plan", take="copy")

    assert ("Free", "another entry") == (text_of(one, "plans/ada"), text_of(one, "plan"))


def test_a_copy_that_says_nothing_new_is_told_as_such(one: Memory) -> None:
    """All its lines are in the record by now."""
    one.manager.append("notes-1", TEXT["notes"][1])
    found = conflict_of(one, "notes")

    assert ("contained", False, 0) == (found.state, found.is_of_use, found.new_lines)


def test_an_unreadable_copy_can_only_be_removed(one: Memory) -> None:
    """It is listed with what its name says."""
    copy = put_back(one, "notes")
    copy.write_bytes(b"{")
    (found,) = (each for each in one.sync.conflicts() if each.state == "unreadable")

    assert ("notes-1.json", "") == (found.record, found.name)
    with pytest.raises(ReadOnly, match="cannot be read"):
        one.sync.resolve(found.path, take="copy")
    one.sync.resolve(found.path, take="record")
    assert not copy.exists()


def test_a_name_that_is_not_one_conflict_is_refused(one: Memory) -> None:
    """So is a call that does not say what to take, or says it twice."""
    for name in ("nothing", "../notes-1.json", "conflicts/../notes-1.json"):
        with pytest.raises(InvalidArgument, match="name one of"):
            one.sync.resolve(name, take="record")
    for given in ({}, {"take": "copy", "text": "x"}, {"take": "ours"}):
        with pytest.raises(InvalidArgument, match="say what to take"):
            one.sync.resolve("notes", **given)  # type: ignore[arg-type]


def test_without_a_mirror_the_conflicts_are_still_there(one: Memory, tmp_path: Path) -> None:
    """Those of an earlier one; a memory that is only looked at settles none."""
    one.close()
    with opened(tmp_path / "one", WORKFLOW) as memory:
        with look(memory.workflow) as seen, pytest.raises(ReadOnly):
            assert 3 == len(seen.sync.conflicts())
            seen.sync.resolve("notes", take="record")
        memory.sync.resolve("notes", take="copy")

        assert TEXT["notes"][1] == text_of(memory, "notes")
