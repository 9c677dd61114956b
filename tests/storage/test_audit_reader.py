"""The reader of the audit: newest first, filtered, in bounded memory, whatever the log holds."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from memfiles.records.keys import agent_folder, entry_path, entry_uid
from memfiles.storage.audit_reader import AuditFiles, AuditFilter, AuditReader
from memfiles.storage.events import AuditEvent, AuditLog


def trail(directory: Path, *, limit: int = 100, **wanted: Any) -> list[str]:
    """The times of the events that fit."""
    return [event.at for event in AuditReader(directory, AuditFilter(**wanted)).trail(limit=limit).events]


def written(directory: Path, *events: AuditEvent) -> None:
    """Log events at the times they have."""
    for event in events:
        AuditLog(directory, now=lambda at=event.at: at).record(event)  # type: ignore[misc]


def at(moment: str) -> str:
    """A timestamp from ``11-21T09`` and the like."""
    return f"2026-{moment}" + "-01T00:00:00.000Z"[len(moment) - 2 :]


SAVED = AuditEvent("save", path="entries/a/" + "1" * 40 + ".json", agent="a", run="r", actor="ada", at=at("09"))
REFUSED = AuditEvent("append", "refused", level="INTERNAL", agent="b", code="read_only", at=at("10"))
READ = AuditEvent("get", paths=("notes-1.json",), count=1, agent="b", user="5" * 40, at=at("11"))


def test_events_come_back_as_they_were_logged_newest_first(tmp_path: Path) -> None:
    """Over several months, each event with its time."""
    written(tmp_path, SAVED, REFUSED, READ)

    assert (READ, REFUSED, SAVED) == AuditReader(tmp_path).trail(limit=10).events


def test_without_a_log_there_is_nothing(tmp_path: Path) -> None:
    """Also without a memory directory; nothing is made."""
    assert [] == trail(tmp_path) + trail(tmp_path / "nowhere")
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"agent": "b"}, [READ, REFUSED]),
        ({"actor": "ada"}, [SAVED]),
        ({"op": "get"}, [READ]),
        ({"outcome": "refused"}, [REFUSED]),
        ({"user": "5" * 40}, [READ]),
        ({"records": ["notes-1"]}, [READ]),
        ({"records": ["1" * 40]}, [SAVED]),
        ({"records": [SAVED.path]}, [SAVED]),
        ({"since": at("10")}, [READ, REFUSED]),
        ({"until": at("10")}, [SAVED]),
        ({"since": at("10"), "until": at("11"), "agent": "a"}, []),
    ],
)
def test_each_filter(tmp_path: Path, wanted: dict[str, Any], found: list[AuditEvent]) -> None:
    """An event fits if it fits every filter."""
    written(tmp_path, SAVED, REFUSED, READ)

    assert [event.at for event in found] == trail(tmp_path, **wanted)


@pytest.mark.parametrize("run", ["", "monday"])
def test_a_key_finds_its_entry_of_any_agent_and_level(tmp_path: Path, run: str) -> None:
    """The log holds no key, but the path follows from it; a read logs the session's level, not the entry's."""
    folder = agent_folder("Support")
    path = entry_path(folder, entry_uid(folder, "LOW", "plan/ada", run))
    written(tmp_path, AuditEvent("save", path=path, run=run or None, at=at("09")))
    written(tmp_path, AuditEvent("search", paths=(path,), level="HIGH", run=run or None, at=at("10")))

    assert [at("10"), at("09")] == trail(tmp_path, records=["plan/ada"], levels=["LOW", "HIGH"])
    assert [] == trail(tmp_path, records=["plan/bob"], levels=["LOW", "HIGH"])


def test_a_limit_says_that_there_is_more(tmp_path: Path) -> None:
    """The last event shown is where the next page ends."""
    written(tmp_path, SAVED, REFUSED, READ)
    found = AuditReader(tmp_path).trail(limit=2)

    assert (True, (READ, REFUSED)) == (found.more, found.events)
    assert [SAVED.at] == trail(tmp_path, until=found.older)
    assert not AuditReader(tmp_path).trail(limit=3).more


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 20])
def test_pages_cut_through_events_of_one_time(tmp_path: Path, limit: int) -> None:
    """As those of an import: whatever the size of a page, no event is left out, and none comes twice."""
    same = [
        AuditEvent("save", path=f"entries/a/{number:040}.json", agent="ab"[number % 2], at=at("10"))
        for number in range(16)
    ]
    written(tmp_path, SAVED, *same, READ)
    for agent in (None, "a"):
        paged, wanted = list[AuditEvent](), AuditFilter(agent=agent)
        while (page := AuditReader(tmp_path, wanted).trail(limit=limit)).more:
            paged += page.events
            until, _, seen = page.older.partition("#")
            wanted = AuditFilter(until=until, seen=int(seen) if seen else None, agent=agent)

        assert AuditReader(tmp_path, AuditFilter(agent=agent)).trail(limit=100).events == (*paged, *page.events)


DAMAGE = [b'{"at":"2026-11-21T09:0', b"\xff\x00", b"[]", b'{"at":"soon","op":"save"}', b'{"op":"save"}', b"1" * 300_000]


@pytest.mark.parametrize("damage", DAMAGE, ids=range(len(DAMAGE)))
def test_a_damaged_line_is_told_and_hides_no_other(tmp_path: Path, damage: bytes) -> None:
    """The place is named, so that someone can look at it."""
    written(tmp_path, SAVED)
    file = tmp_path / "audit" / "2026-09.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole + damage + b"\n" + whole)
    found = AuditReader(tmp_path).trail(limit=10)

    assert ((SAVED, SAVED), 1) == (found.events, found.damaged)
    assert (f"audit/2026-09.jsonl: the line at byte {len(whole)} is damaged",) == found.places


def test_a_field_of_a_later_version_does_no_harm(tmp_path: Path) -> None:
    """It is left out."""
    written(tmp_path, SAVED)
    file = tmp_path / "audit" / "2026-09.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"op"', b'"later":[1],"op"'))

    assert (SAVED,) == AuditReader(tmp_path).trail(limit=10).events


def test_a_late_line_finds_its_place(tmp_path: Path) -> None:
    """Another process may write its line a moment after later ones."""
    times = [at(f"11-21T09:00:{second:02}") for second in (1, 4, 2, 3, 9, 5)]
    written(tmp_path, *(AuditEvent("save", at=moment) for moment in times))

    assert sorted(times, reverse=True) == trail(tmp_path)


def test_no_link_is_followed_and_no_pipe_waited_for(tmp_path: Path) -> None:
    """They are told, like damage; the other months are read."""
    written(tmp_path, SAVED)
    (tmp_path / "elsewhere").write_bytes((tmp_path / "audit" / "2026-09.jsonl").read_bytes())
    (tmp_path / "audit" / "2026-10.jsonl").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "audit" / "2026-11.jsonl")
    found = AuditReader(tmp_path).trail(limit=10)

    assert ((SAVED,), 2) == (found.events, found.damaged)


@pytest.mark.directory("other stores have no files")
@pytest.mark.parametrize("dropped", ["2026-09", "2026-10"])
def test_a_month_that_is_dropped_meanwhile_ends_no_blanking(tmp_path: Path, dropped: str) -> None:
    """The months after it name the runs of a forgotten user as well; what else is in the folder is left alone."""
    written(tmp_path, *(AuditEvent("get", user="5" * 40, run="of-ada", at=at(month)) for month in ("09", "10", "11")))
    (tmp_path / "audit" / "older").mkdir()
    (tmp_path / "audit" / os.fsdecode(b"\xff.jsonl")).touch()

    def user_of(_: str) -> str:  # asked once it is known which months there are
        (tmp_path / f"audit/{dropped}.jsonl").unlink()
        return "5" * 40

    AuditFiles(tmp_path).blank(["tombstone"], user_of)

    assert [""] * 2 == [event.run for event in AuditReader(tmp_path).trail(limit=10).events]


@pytest.mark.slow
def test_a_long_log_takes_little_memory(tmp_path: Path) -> None:
    """Neither the log nor what does not fit is held; the newest are found without reading all of it."""
    line = b'{"at":"2026-%02d-21T09:00:00.000Z","op":"save","outcome":"ok","path":"entries/a/1.json","agent":"a"}\n'
    (tmp_path / "audit").mkdir()
    for month in range(1, 5):
        (tmp_path / "audit" / f"2026-{month:02}.jsonl").write_bytes(line % month * 15_000)
    trail(tmp_path, limit=1)
    tracemalloc.start()
    newest = trail(tmp_path, limit=3)
    _, least = tracemalloc.get_traced_memory()
    assert [] == trail(tmp_path, agent="nobody")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert ["2026-04-21T09:00:00.000Z"] * 3 == newest
    assert (True, True) == (least < 2_500_000, most < 4_000_000), (least, most)
