"""Lists: in which order, of what, and how a cursor continues one and no other."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memfiles.entries.entries import Entries
from memfiles.errors import InvalidArgument
from tests.support.saved import Clock, Visitor, entries_in

VISITOR = Visitor()


@pytest.fixture
def entries(tmp_path: Path, clock: Clock) -> Iterator[Entries]:
    """Five entries, saved a minute apart, of which the first changed last."""
    with entries_in(tmp_path / "memory", now=clock) as opened:
        for key, kind, tags in (
            ("e", "fact", ["ada"]),
            ("d", "note", ["bob"]),
            ("c", "procedure", ["ada", "plan"]),
            ("b", "episode", []),
            ("a, b", "fact", ["plan"]),
        ):
            clock.go_on(60)
            opened.save(VISITOR, key, f"text of {key}", kind=kind, tags=tags)  # type: ignore[arg-type]
        clock.go_on(60)
        opened.save(VISITOR, "e", "another text", pinned=True)
        clock.go_on(60)
        opened.update(VISITOR, "c", tags=["ada", "plan", "late"])
        yield opened


def keys(entries: Entries, **asked: Any) -> list[str]:
    return [each.key for each in entries.list(VISITOR, **asked).memories]


def walked(entries: Entries, limit: int, **asked: Any) -> list[str]:
    """The keys of all pages."""
    found, cursor = list[str](), None
    while True:
        page = entries.list(VISITOR, limit=limit, cursor=cursor, **asked)
        found += [each.key for each in page.memories]
        if (cursor := page.next) is None:
            return found


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_the_last_changed_come_first(entries: Entries, limit: int) -> None:
    """By the content: another tag is no change of it. By key otherwise; on pages of any size."""

    assert ["e", "a, b", "b", "c", "d"] == walked(entries, limit, order="updated")
    assert ["a, b", "b", "c", "d", "e"] == walked(entries, limit) == walked(entries, limit, order="key")


def test_a_list_of_what_is_asked_for(entries: Entries) -> None:
    """One of several tags, or of several kinds; all that is asked for must fit."""

    assert ["c", "d", "e"] == keys(entries, tags_any=["ada", "bob"])
    assert ["a, b", "c"] == keys(entries, tags_any=["plan"])
    assert ["c"] == keys(entries, tags=["plan"], tags_any=["ada", "bob"])
    assert ["b", "d"] == keys(entries, kinds=["note", "episode"])
    assert ["e", "d"] == keys(entries, kinds=["fact", "note"], tags_any=["ada", "bob"], order="updated")
    assert [] == keys(entries, kinds=["note"], kind="fact")


@pytest.mark.parametrize("since", ["2m", "2026-11-21T09:05:00Z", datetime(2026, 11, 21, 9, 5, tzinfo=UTC)])
def test_what_changed_since_a_moment(entries: Entries, since: Any) -> None:
    """A time, or a span before now."""

    assert ["a, b", "e"] == keys(entries, since=since) == walked(entries, 1, since=since)
    assert (
        ["e", "a, b"] == keys(entries, since=since, order="updated") == walked(entries, 1, since=since, order="updated")
    )
    assert ["a, b", "e"] == sorted(it.found.key for it in entries.search(VISITOR, "text", since=since).matches)


def test_a_span_counts_from_the_first_page(entries: Entries, clock: Clock) -> None:
    """However long it takes to ask for the second one."""
    first = entries.list(VISITOR, since="3m", order="updated", limit=1)
    clock.go_on(3600)
    second = entries.list(VISITOR, since="3m", order="updated", limit=9, cursor=first.next)

    assert (["e"], ["a, b", "b"]) == tuple([each.key for each in page.memories] for page in (first, second))


@pytest.mark.parametrize(
    "bad",
    ["e", "a\nb", "key", "key,00000000,", "key,zzzzzzzz,,e", "latest,00000000,,e", 7, b"key", "x" * 100_000, ["e"]],
    ids=lambda bad: repr(bad)[:20],
)
def test_what_is_no_cursor_is_refused(entries: Entries, bad: Any) -> None:
    """With what to do, and instead of a page that leaves something out."""
    for order in ("key", "updated"):
        with pytest.raises(InvalidArgument, match="this is not a cursor of a list: pass the next of the last page"):
            entries.list(VISITOR, cursor=bad, order=order)


def test_a_cursor_continues_its_own_list_alone(entries: Entries) -> None:
    """Neither one in another order nor one with other filters; the number of entries a page may be another."""
    asked: list[dict[str, Any]] = [
        *({}, {"tags": ["ada"]}, {"tags_any": ["ada"]}, {"kind": "fact"}, {"kinds": ["fact"]}, {"prefix": "e"}),
        *({"category": "general"}, {"since": "1h"}, {"since": "2h"}),
    ]
    for order, other in (("key", "updated"), ("updated", "key")):
        for number, given in enumerate(asked):
            cursor = cursor_of(entries, order, given)
            entries.list(VISITOR, order=order, cursor=cursor, limit=3, **given)  # type: ignore[arg-type]
            with pytest.raises(InvalidArgument, match=f"this cursor is of a list by {order}: pass the same order"):
                entries.list(VISITOR, order=other, cursor=cursor, **given)  # type: ignore[arg-type]
            for wrong in (*asked[:number], *asked[number + 1 :]):
                with pytest.raises(InvalidArgument, match="this cursor is of a list with other filters"):
                    entries.list(VISITOR, order=order, cursor=cursor, **wrong)  # type: ignore[arg-type]


def cursor_of(entries: Entries, order: str, given: dict[str, Any]) -> str:
    """The cursor after the first entry of a list, made longer by one for the test."""
    entries.save(VISITOR, "e2", "more", tags=["ada"], kind="fact")
    cursor = entries.list(VISITOR, order=order, limit=1, **given).next  # type: ignore[arg-type]
    assert cursor is not None
    return cursor


def test_an_order_that_is_none_is_refused(entries: Entries) -> None:
    """With those there are; and a moment that is none, or tags and kinds that are not lists of them."""
    for asked in (
        {"order": "size"},
        {"order": None},
        {"since": "soon"},
        {"since": 7},
        {"kinds": "fact"},
        {"kinds": ["x"]},
    ):
        with pytest.raises(InvalidArgument):
            entries.list(VISITOR, **asked)
    with pytest.raises(InvalidArgument, match="order must be one of key, updated, not 'size'"):
        entries.list(VISITOR, order="size")  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("order", ["key", "updated"])
def test_a_list_is_stable_while_others_save(tmp_path: Path, order: Any) -> None:
    """What does not change meanwhile is listed exactly once; of what changes, nothing is listed twice."""
    with entries_in(tmp_path) as entries:
        steady = {f"steady {number:03}" for number in range(90)}
        there = [*steady, *(f"busy {number}" for number in range(30))]
        entries.save_many(VISITOR, [{"key": key, "content": "x"} for key in there])
        for turn in range(3):
            cursor, found = None, list[str]()
            while True:
                page = entries.list(VISITOR, order=order, limit=7, cursor=cursor)
                found += [each.key for each in page.memories if not each.key.startswith("new")]
                if (cursor := page.next) is None:
                    break
                for number in range(4):
                    entries.save(VISITOR, f"busy {(len(found) + 7 * number) % 30}", f"text {turn} {len(found)}")
                entries.save(VISITOR, f"new {turn} {len(found)}", "y")
                entries.delete(VISITOR, f"new {turn} {len(found)}")

            assert (steady, len(found)) == ({key for key in found if key in steady}, len(set(found)))
