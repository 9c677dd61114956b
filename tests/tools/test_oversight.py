"""The operator's view: what was done for whom, and how much there is; no session has it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from memfiles import Memory, Session
from memfiles.errors import InvalidArgument
from memfiles.memory import look
from memfiles.storage.events import AuditEvent, AuditLog
from memfiles.storage.home import home_of
from tests.support.records import files_under
from tests.support.stores import place_of

WORKFLOW = """
memory:
  levels: [LOW, HIGH]
  audit: {reads: true}
  files: [{uid: notes-1, name: notes, level: LOW, max_size_bytes: 100, content: "# Notes\\n"}]
  entries: {max_entries: 4, max_bytes: 1000, categories: {playbook: {scope: agent, from_users: true}}}
agents: {desk: {level: LOW, memory: [{id: notes-1, mode: rw}]}, other: {level: LOW}}
"""


def ops(memory: Memory, **asked: str) -> list[str]:
    """The operations, newest first."""
    return [event.op for event in memory.audit(**asked).events]  # type: ignore[arg-type]


def test_what_was_done_for_a_user_is_found_by_the_name(memory: Memory, tmp_path: Path) -> None:
    """Changes, reads and refusals, also of what other users see; the log holds a hash and not the name."""
    ada, bob = memory.session("desk", user="ada"), memory.session("desk", user="bob")
    memory.entries.save(ada, "plan", "Pro")
    memory.entries.save(ada, "how", "calmly", category="playbook")
    memory.entries.get(ada, "plan")
    ada.call("append_memory", {"file": "nowhere", "content": "x"})
    memory.entries.save(bob, "plan", "Free")
    memory.entries.forget(ada, key="plan")
    log = "".join(map(bytes.decode, files_under(tmp_path / ".memory/audit").values()))

    assert ["forget", "get", "save", "save"] == ops(memory, user="ada")
    assert ["save"] == ops(memory, user="bob")
    assert ["forget", "get", "save"] == ops(memory, user="ada", record="plan")
    assert ["save"] == ops(memory, user="ada", record="how")
    assert [] == ops(memory, user="Ada")
    assert [] == re.findall(r"\b(?:ada|bob)\b", log)  # as a word: an id in hexadecimal may hold the letters


def test_a_refusal_says_for_whom(memory: Memory) -> None:
    """A write that other users would see."""
    refused = memory.session("desk", user="ada").call(
        "memory_save", {"key": "k", "content": "x", "category": "workspace"}
    )

    assert "read_only" == refused.code
    assert ["save"] == ops(memory, user="ada", outcome="refused")


def test_the_user_of_a_change_is_in_no_history(memory: Memory, tmp_path: Path) -> None:
    """A change in what all users see does not say for whom it was made: the audit does, as a hash.

    The record says who wrote in it, so that their text is found when they are forgotten.
    """
    memory.entries.save(memory.session("desk", user="ada"), "how", "calmly", category="playbook")
    event = memory.audit(user="ada").events[0]
    record = json.loads(files_under(tmp_path / ".memory")[str(event.path)])

    assert event.user
    assert [event.user] == record.pop("authors")
    assert event.user not in json.dumps(record)


def test_how_much_there_is(memory: Memory) -> None:
    """By agent and level, users together; the share is that of the fullest budget."""
    for number in range(3):
        memory.entries.save(memory.session("desk", user="ada"), f"k{number}", "12345")
    memory.entries.save(memory.session("desk", user="bob"), "k", "1234")
    memory.entries.save(memory.session("desk", level="HIGH"), "k", "x" * 900)
    memory.entries.save(memory.session("other"), "k", "12", category="workspace")
    memory.entries.delete(memory.session("desk", user="bob"), "k")
    stats = memory.stats()

    assert [
        ("@workspace", "LOW", 0, 1, 2, 0, 0, 0.25),
        ("desk", "HIGH", 0, 1, 900, 0, 0, 0.9),
        ("desk", "LOW", 2, 3, 15, 0, 1, 0.75),
    ] == [tuple(getattr(each, name) for name in each.__struct_fields__) for each in stats.entries]
    assert [("notes", 8, 100)] == [(card.name, card.size_bytes, card.max_size_bytes) for card in stats.files]
    assert 8 + 917 == stats.size_bytes


def test_how_it_grew_and_was_used(memory: Memory) -> None:
    """Writes, reads and refusals of this day; a delete takes away what agents no longer see, a restore brings it."""
    session = memory.session("desk")
    memory.manager.append("notes", "12345\n")
    memory.manager.edit("notes", "12345", "1")
    memory.entries.save(session, "plan", "Free")
    memory.entries.save(session, "plan", "Pro, paid")
    memory.entries.delete(session, "plan")
    memory.entries.get(session, "plan")
    memory.session("other").call("memory_save", {"key": "k", "content": "sk-ant-api03-" + "A1b2C3d4" * 12})
    (period,) = memory.stats().periods

    assert (5, 1, 1, 2) == (period.writes, period.reads, period.refused, period.bytes)
    memory.entries.restore(session, "plan")
    assert 2 + 9 == memory.stats().periods[0].bytes
    memory.entries.forget(session, key="plan")
    assert 2 == memory.stats().periods[0].bytes


@pytest.mark.directory("only files can be changed by hand")
def test_a_change_by_hand_counts(memory: Memory) -> None:
    """As far as it is known what was there before."""
    file = memory.workflow.directory / "notes-1.json"
    file.write_text(file.read_text().replace("# Notes", "# Notes by hand"))
    assert memory.manager.notice("notes-1") is not None
    memory.manager.append("notes", "!")

    assert len(" by hand") + 1 == memory.stats().periods[0].bytes


@pytest.mark.parametrize(
    ("every", "since", "expected"),
    [
        ("day", "2026-11-20", [("2026-11-21T00:00:00.000Z", 2), ("2026-11-20T00:00:00.000Z", 1)]),
        ("day", "2026-11-21", [("2026-11-21T00:00:00.000Z", 2)]),
        ("hour", "2026-11-21T00:00:00Z", [("2026-11-21T09:00:00.000Z", 1), ("2026-11-21T08:00:00.000Z", 1)]),
    ],
)
def test_periods(memory: Memory, every: str, since: str, expected: list[tuple[str, int]]) -> None:
    """Of an hour or a day, newest first; empty ones are left out."""
    for at in ("20T23:59", "21T08:00", "21T09:59"):
        now = f"2026-11-{at}:00.000Z".strip
        AuditLog(memory.workflow.place, now=now).record(AuditEvent("save", path="x"))

    found = memory.stats(since, every=every).periods  # type: ignore[arg-type]
    assert expected == [(each.at, each.writes) for each in found if each.at < "2026-11-22"]


def test_what_cannot_be_asked_is_refused(memory: Memory) -> None:
    """With what can."""
    with pytest.raises(InvalidArgument, match="hour, day"):
        memory.stats(every="week")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="since"):
        memory.stats("last week")
    with pytest.raises(InvalidArgument, match="outcome"):
        memory.audit(outcome="bad")
    with pytest.raises(InvalidArgument, match="user"):
        memory.audit(user="")
    for record in (5, "\ud800"):
        with pytest.raises(InvalidArgument, match="record"):
            memory.audit(record=record)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="limit"):
        memory.audit(limit=0)


def test_a_memory_that_is_looked_at_tells_the_same(memory: Memory) -> None:
    """Also before anything is restored."""
    memory.entries.save(memory.session("desk"), "plan", "Pro")
    with look(memory.workflow) as seen:
        one, other = memory.stats("2026-11-21"), seen.stats("2026-11-21")

    assert one == other


def test_no_session_has_a_way_to_it() -> None:
    """Neither the audit, nor the statistics, nor the conflicts."""
    assert set() == {"audit", "stats", "sync", "conflicts", "resolve"} & set(dir(Session))


def test_nothing_above_a_level_is_told(memory: Memory) -> None:
    """Neither by the audit, where an event of no level may be about any, nor by the statistics and the users."""
    for level in ("LOW", "HIGH"):
        memory.entries.save(memory.session("desk", level=level, user=f"u-{level}"), "plan", "Pro")
    memory.users.forget("nobody")
    low, whole = memory.stats(level="LOW"), memory.stats()

    assert ["save"] == ops(memory, level="LOW")
    assert ["forget-user", "save", "save"] == ops(memory)
    assert [{"LOW"}, {"LOW", "HIGH"}] == [{each.level for each in it.entries} for it in (low, whole)]
    assert [1, 3] == [it.periods[0].writes for it in (low, whole)]
    assert [["u-LOW"], ["u-HIGH", "u-LOW"]] == [[it.user for it in memory.users.list(level=up)] for up in ("LOW", None)]


def test_what_needs_attention(memory: Memory, tmp_path: Path) -> None:
    """A file near its cap, a budget that is nearly used, and copies that are kept; the audit is not read for it."""
    assert () == memory.stats(None).attention

    memory.manager.append("notes", "x" * 80)
    session = memory.session("other", level="HIGH")
    memory.entries.save_many(session, [{"key": f"k{number}", "content": "c"} for number in range(4)])
    kept = home_of(place_of(tmp_path / ".memory")).kept
    kept.keep("a.json", b"{", reason="test", at="2026-11-21T09:00:00.000Z", folder="quarantine")
    found = memory.stats(None)

    assert [("file", "notes"), ("entries", "other"), ("quarantine", "")] == [
        (it.about, it.name) for it in found.attention
    ]
    assert ("", ()) == (found.since, found.periods)
    assert "entries" not in [it.about for it in memory.stats(None, level="LOW").attention]
