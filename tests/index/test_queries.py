"""Queries answer as a plain list of entries would: visibility, then shadowing, then filters, order and limit."""

from __future__ import annotations

import ast
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from memfiles.entries.callers import SessionProvenance
from memfiles.entries.drafts import EntryRules
from memfiles.entries.entries import Entries
from memfiles.files.manager import MemoryManager
from memfiles.index import database, groups
from memfiles.index import queries as reading
from memfiles.index.database import Counted
from memfiles.index.queries import Filters, PagePlace, place_of
from memfiles.index.rows import Row, row_of
from memfiles.records.entry import Entry, Provenance, Retired, block_bytes
from memfiles.records.levels import Levels
from memfiles.storage.events import Subscribers
from memfiles.storage.store import Store
from memfiles.tools.session import Session
from tests.index.indexed import SUPPORT, Memory, many
from tests.support import ROOT
from tests.support.saved import buried, saved, tombstone

NOW = "2026-11-22T00:00:00.000Z"
TIMES = ["2026-11-21T09:00:00.000Z", "2026-11-21T09:00:01.000Z", "2026-11-23T00:00:00.000Z"]
SCOPES = ["support", "@workspace"]
LEVELS = ["PUBLIC", "INTERNAL", "RESTRICTED"]
RUNS = ["", "r1", "r2"]
VIEW = [
    ("support", "INTERNAL", "r1"),
    ("support", "INTERNAL", ""),
    ("@workspace", "INTERNAL", ""),
    ("support", "PUBLIC", ""),
    ("@workspace", "PUBLIC", ""),
]
SAVED_AT, COUNTED_AT = "2026-11-21T09:00:00.000Z", "2026-11-21T10:00:00.000Z"
KEYS = ["a", "ab", "abc", "b", "é", "z\U0010ffff", "\U0001f600"]


@st.composite
def _entries(draw: st.DrawFn) -> list[Entry]:
    facets: dict[str, Any] = {
        "level": st.sampled_from(LEVELS),
        "run": st.sampled_from(RUNS),
        "at": st.sampled_from(TIMES),
        "tags": st.sampled_from([(), ("x",), ("x", "y"), ('"',)]),
        "category": st.sampled_from(["general", "core", "daily"]),
        "kind": st.sampled_from(["fact", "note"]),
        "pinned": st.booleans(),
        "importance": st.sampled_from([0.1, 0.5]),
        "expires_at": st.sampled_from([None, None, *TIMES]),
        "retired": st.sampled_from([None, None, None, Retired("deleted", TIMES[0], "plan-1")]),
        "provenance": st.builds(Provenance, run=st.sampled_from([None, "r1"]), ordinal=st.integers(0, 3)),
    }
    drawn = st.tuples(
        st.sampled_from(SCOPES), st.sampled_from(KEYS), st.text("no", max_size=2), st.fixed_dictionaries(facets)
    )
    found = [
        saved(key, content, agent=scope, **said) for scope, key, content, said in draw(st.lists(drawn, max_size=25))
    ]
    return list({entry.path: entry for entry in found}.values())


_filters = st.builds(
    Filters,
    tags=st.sampled_from([(), ("x",), ("y", "x"), ('"',)]),
    category=st.sampled_from([None, "general"]),
    kind=st.sampled_from([None, "fact"]),
    prefix=st.sampled_from(["", "a", "ab", "é", "z"]),
    tags_any=st.sampled_from([(), (), ("y", "z"), ('"', "x")]),
    kinds=st.sampled_from([(), (), ("note",), ("fact", "episode", "note")]),
    since=st.sampled_from(["", "", *TIMES]),
)


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    memory = Memory(tmp_path_factory.mktemp("reading") / "memory")
    yield memory
    memory.close()


def _fill(memory: Memory, entries: list[Entry]) -> None:
    for path in memory.directory.glob("entries/*/*.json"):
        os.unlink(path)
    memory.index.verify()
    memory.save(*entries)
    memory.index.catch_up()


def _seen(entries: list[Entry]) -> list[Entry]:
    """What the view shows, by the rules and nothing else."""
    found: dict[str, Entry] = {}
    for place in VIEW:
        for entry in entries:
            is_live = entry.is_live(NOW)
            if (entry.agent, entry.level, entry.run) == place and is_live:
                found.setdefault(entry.key, entry)
    return list(found.values())


def _fits(entry: Entry, filters: Filters) -> bool:
    return (
        set(filters.tags) <= set(entry.tags)
        and filters.category in (None, entry.category)
        and filters.kind in (None, entry.kind)
        and entry.key.startswith(filters.prefix)
        and (not filters.tags_any or not set(filters.tags_any).isdisjoint(entry.tags))
        and (not filters.kinds or entry.kind in filters.kinds)
        and entry.updated_at >= filters.since
    )


def _ask(memory: Memory, question: Callable[[sqlite3.Connection, list[int]], Any]) -> Any:
    return memory.index.ask(lambda connection: question(connection, reading.parts(connection, VIEW)))


def _paths(rows: list[Row]) -> list[str]:
    return [row.path for row in rows]


_against_a_model = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@_against_a_model
@given(entries=_entries(), filters=_filters, limit=st.integers(1, 5), order=st.sampled_from(["key", "updated"]))
def test_pages_hold_what_a_plain_list_holds(
    memory: Memory, entries: list[Entry], filters: Filters, limit: int, order: str
) -> None:
    """Page after page, by key or the last changed first."""
    _fill(memory, entries)
    asked = reading.page if order == "key" else reading.latest

    def page(after: PagePlace | None) -> list[Row]:
        found: list[Row] = _ask(
            memory,
            lambda connection, parts: asked(connection, parts, now=NOW, filters=filters, after=after, limit=limit),
        )
        return found

    found: list[str] = []
    rows = page(None)
    while rows:
        found += _paths(rows)
        rows = page(place_of(rows[-1]))
    expected = sorted((entry for entry in _seen(entries) if _fits(entry, filters)), key=lambda entry: entry.key)
    if order == "updated":
        expected.sort(key=lambda entry: (entry.updated_at, entry.provenance.ordinal, entry.key), reverse=True)

    assert [entry.path for entry in expected] == found


@_against_a_model
@given(entries=_entries(), filters=_filters)
def test_the_visible_ones_are_those_of_a_plain_list(memory: Memory, entries: list[Entry], filters: Filters) -> None:
    """Asked for all ids there are, and for some that are not."""
    _fill(memory, entries)
    ids = dict(memory.index.ask(lambda connection: connection.execute("SELECT id, path FROM entry").fetchall()))
    found = _ask(
        memory,
        lambda connection, parts: reading.visible_ids(connection, parts, [*ids, 10**9], now=NOW, filters=filters),
    )

    assert {entry.path for entry in _seen(entries) if _fits(entry, filters)} == {ids[id] for id in found}


@_against_a_model
@given(entries=_entries(), pinned=st.sampled_from([None, True, False]), room=st.sampled_from([None, 0, 55, 64, 10**6]))
def test_the_recent_ones_are_those_of_a_plain_list(
    memory: Memory, entries: list[Entry], pinned: bool | None, room: int | None
) -> None:
    """Newest content first; core counts as pinned. With a room, only blocks that it holds."""
    _fill(memory, entries)
    asked = None if room is None else lambda: room
    found = _ask(
        memory, lambda connection, parts: list(reading.recent(connection, parts, now=NOW, pinned=pinned, room=asked))
    )
    expected = [entry for entry in _seen(entries) if pinned in (None, entry.pinned or entry.category == "core")]
    expected = [entry for entry in expected if room is None or block_bytes(entry) <= room]
    expected.sort(key=lambda entry: (entry.updated_at, entry.provenance.ordinal, entry.key), reverse=True)

    assert [entry.path for entry in expected] == _paths(found)


@pytest.mark.slow
@_against_a_model
@given(entries=_entries(), category=st.sampled_from([None, "general"]), limit=st.integers(1, 30))
def test_the_least_worthy_come_first(memory: Memory, entries: list[Entry], category: str | None, limit: int) -> None:
    """Pinned and core ones last, then by importance, confidence, last read and time of the content."""
    _fill(memory, entries)
    found = memory.index.ask(
        lambda connection: groups.least_worthy(connection, SUPPORT, limit=limit, category=category)
    )
    live = [
        entry
        for entry in entries
        if (entry.agent, entry.level, entry.run, entry.retired) == (*SUPPORT, None)
        and category in (None, entry.category)
    ]
    worth = sorted(_worth(row_of(entry, None)) for entry in live)

    assert worth[:limit] == [_worth(row) for row in found]


def _worth(row: Row) -> tuple[object, ...]:
    kept = row.pinned or row.category == "core"
    return kept, row.importance, row.confidence, row.updated_at, row.provenance.ordinal


@_against_a_model
@given(entries=_entries())
def test_totals_are_those_of_a_plain_list(memory: Memory, entries: list[Entry]) -> None:
    """As often as entries come and go."""
    _fill(memory, entries)
    own = [entry for entry in entries if (entry.agent, entry.level, entry.run) == SUPPORT]
    live = [entry for entry in own if entry.retired is None]
    totals = memory.index.totals(SUPPORT)

    assert (len(live), sum(entry.size_bytes for entry in live)) == (totals.count, totals.size)
    assert len(own) - len(live) == sum(totals.retired.values())


def test_a_row_comes_back_as_it_was_put(memory: Memory) -> None:
    """All but the content, which is the text index's, and the id, by which it is only looked for."""
    entry = saved("k", "text", tags=("a", 'b"'), links=("l",), pinned=True, provenance=Provenance("support", run="r"))
    _fill(memory, [entry])
    (found,) = _ask(
        memory,
        lambda connection, parts: reading.page(connection, parts, now=NOW, filters=Filters(), after=None, limit=9),
    )

    assert row_of(entry, found.signature)._replace(content="", lineage="", said="") == found


def test_a_selector_finds_what_all_its_fields_fit(memory: Memory) -> None:
    """Whatever state it is in, but never a tombstone."""
    mine = saved("a", tags=("t",), provenance=Provenance("support", call="c1"))
    gone = saved("b", tags=("t",), retired=Retired("evicted", TIMES[0], "plan-1"))
    _fill(memory, [mine, gone, saved("c")])
    memory.save(buried(saved("c")))
    memory.index.catch_up()

    def keys(**said: Any) -> list[str]:
        found = _ask(memory, lambda connection, parts: reading.matching(connection, parts, Filters(**said)))
        return [row.key for row in found]

    assert ["a", "b"] == keys() == keys(tags=["t"])
    assert ["b"] == keys(keys=["b"], tags=["t"]) == keys(keys=["b"])
    assert ["a"] == keys(provenance={"call": "c1"}) == keys(kind="note", provenance={"agent": "support", "call": "c1"})
    assert [] == keys(keys=["a"], tags=["u"])


def test_what_was_forgotten_is_found_by_its_ids(memory: Memory) -> None:
    """By its own and by those that it was joined with, also where an earlier build left the tombstone."""
    own, other = "1" * 32, "2" * 32
    joined = [saved("a", given_id=own), saved("b", given_id="3" * 32, aliases=(own,)), saved("c", given_id=other)]
    _fill(memory, [*joined, saved("d")])
    memory.save(tombstone(own))
    memory.save(replace(buried(saved("e")), moved=(saved("d").path,)))
    memory.index.catch_up()

    assert {saved(key).path for key in "abd"} == {path for _, path in memory.index.ask(database.buried)}
    assert [joined[2].path] == memory.index.ask(lambda connection: reading.of_ids(connection, {other}))


def test_expired_and_retired_ones_are_listed_earliest_first(memory: Memory) -> None:
    """They are the ones to become marks."""
    _fill(
        memory,
        [
            saved("a", expires_at=TIMES[1]),
            saved("b", expires_at=TIMES[0]),
            saved("c", expires_at=TIMES[2]),
            saved("d", retired=Retired("deleted", TIMES[1])),
            saved("e", retired=Retired("evicted", TIMES[0])),
        ],
    )
    expired = memory.index.ask(lambda connection: groups.expired(connection, SUPPORT, now=NOW, limit=9))
    retired = memory.index.ask(lambda connection: groups.retired(connection, SUPPORT, limit=9))

    assert (["b", "a"], ["e", "d"]) == ([row.key for row in expired], [row.key for row in retired])


QUESTIONS: dict[str, Callable[[sqlite3.Connection, list[int]], object]] = {
    "page": lambda connection, parts: reading.page(
        connection, parts, now=NOW, filters=Filters(), after=PagePlace("key-000100", "", 0), limit=10
    ),
    "prefix": lambda connection, parts: reading.page(
        connection, parts, now=NOW, filters=Filters(prefix="key-0002"), after=None, limit=200
    ),
    "latest": lambda connection, parts: reading.latest(
        connection, parts, now=NOW, filters=Filters(), after=None, limit=10
    ),
    "latest of few": lambda connection, parts: reading.latest(
        connection, parts, now=NOW, filters=Filters(since="2027-01-01T00:00:00.000Z"), after=None, limit=10
    ),
    "visible": lambda connection, parts: reading.visible_ids(connection, parts, range(50), now=NOW, filters=Filters()),
    "recent": lambda connection, parts: next(reading.recent(connection, parts, now=NOW)),
    "too large": lambda connection, parts: list(reading.recent(connection, parts, now=NOW, room=lambda: 40)),
    "least worthy": lambda connection, parts: groups.least_worthy(connection, SUPPORT, limit=5),
    "least worthy among": lambda connection, parts: groups.least_worthy(
        connection, SUPPORT, limit=5, among={"general", "core"}
    ),
    "expired": lambda connection, parts: groups.expired(connection, SUPPORT, now=NOW, limit=5),
}


@pytest.mark.slow
def test_no_answer_costs_more_with_more_entries(tmp_path: Path) -> None:
    """Each comes from the beginning of an index: the steps that SQLite takes are counted."""
    steps: dict[int, dict[str, int]] = {}
    memory = Memory(tmp_path / "memory")
    for already, size in ((0, 300), (300, 1500)):
        memory.save(*many(size - already, start=already))
        memory.save(saved("key-000001", "shadowed", level="PUBLIC"))
        memory.index.catch_up()
        steps[size] = {name: _steps(memory, question) for name, question in QUESTIONS.items()}
    memory.close()

    assert {} == {name: (few, steps[1500][name]) for name, few in steps[300].items() if steps[1500][name] > few + 50}


def test_the_newest_of_many_that_fit_are_found_without_sorting_all_that_do(tmp_path: Path) -> None:
    """A prompt shows the newest hundred: with 1,000 entries it took longer than with 100,000, as all were sorted."""
    memory = Memory(tmp_path / "memory")
    memory.save(*many(600))
    asked: list[str] = []

    def newest(connection: sqlite3.Connection, parts: list[int]) -> list[str]:
        connection.set_trace_callback(asked.append)
        found = [each.path for each in islice(reading.recent(connection, parts, now=NOW, room=lambda: 10**6), 100)]
        connection.set_trace_callback(None)
        return [*found, *(row[3] for each in asked for row in connection.execute(f"EXPLAIN QUERY PLAN {each}"))]

    plan = _ask(memory, newest)[100:]
    memory.close()

    assert any("entry_by_time" in step for step in plan)
    assert [] == [step for step in plan if "TEMP B-TREE" in step or step.startswith("SCAN e")]


def _steps(memory: Memory, question: Callable[[sqlite3.Connection, list[int]], object]) -> int:
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    def ask(connection: sqlite3.Connection, parts: list[int]) -> None:
        connection.set_progress_handler(count, 10)
        question(connection, parts)
        connection.set_progress_handler(None, 10)

    _ask(memory, ask)
    return counted


class Clock:
    """A clock that is set by hand."""

    now = SAVED_AT

    def __call__(self) -> str:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def entries(tmp_path: Path, clock: Clock) -> Iterator[Entries]:
    store = Store(tmp_path / "memory", now=clock, durability="os")
    entries = Entries(store, rules=EntryRules(), subscribers=Subscribers(), now=clock)
    yield entries
    entries.close()
    store.close()


def session(
    agent: str = "support", *, run: str | None = None, level: str = "INTERNAL", user: str | None = None
) -> Session:
    manager = MemoryManager("nowhere")
    return Session(SessionProvenance(agent, run=run, user=user), refs=[], manager=manager, levels=Levels(), level=level)


def test_nothing_saved_nothing_counted(entries: Entries) -> None:
    """An empty memory has no partitions."""

    assert [] == list(entries.counts())


def test_every_partition_is_counted_apart(entries: Entries) -> None:
    """Agents, levels, runs and what all share."""
    entries.save(session(), "a", "12345")
    entries.save(session(), "b", "1", category="workspace")
    entries.save(session(run="r"), "c", "12", category="conversation")
    entries.save(session("Other", level="PUBLIC"), "d", "123")

    assert [
        Counted("=4fther", "PUBLIC", "", 1, 3, 0, 0, 0, 1, 3),
        Counted("@workspace", "INTERNAL", "", 1, 1, 0, 0, 0, 1, 1),
        Counted("support", "INTERNAL", "", 1, 5, 0, 0, 0, 1, 5),
        Counted("support", "INTERNAL", "r", 1, 2, 0, 0, 0, 1, 2),
    ] == list(entries.counts())


def test_all_users_of_an_agent_are_counted_together(entries: Entries) -> None:
    """By level, with their number, and what the fullest of them has: ten thousand lines would tell nobody more."""
    for user, content in ("ada", "12345"), ("bob", "1"), ("bob", "12"):
        entries.save(session(user=user), content, content)
    entries.save(session(user="eve", run="r"), "c", "1234", category="conversation")
    entries.save(session(user="ada", level="PUBLIC"), "a", "1")
    entries.save(session(), "a", "1")

    assert [
        Counted("support", "INTERNAL", "", 1, 1, 0, 0, 0, 1, 1),
        Counted("support/users", "INTERNAL", "", 4, 12, 0, 0, 3, 2, 5),
        Counted("support/users", "PUBLIC", "", 1, 1, 0, 0, 1, 1, 1),
    ] == list(entries.counts())


def test_what_cannot_be_seen_is_counted_apart(entries: Entries, clock: Clock) -> None:
    """Expired by time alone, deleted, and forgotten, of which nothing is counted."""
    entries.save(session(), "stays", "12345")
    entries.save(session(), "expires", "1", ttl=60)
    entries.save(session(), "deleted", "1")
    entries.save(session(), "forgotten", "1")
    entries.delete(session(), "deleted")
    entries.forget(session(), key="forgotten")
    clock.now = COUNTED_AT

    assert [Counted("support", "INTERNAL", "", 1, 5, 1, 1, 0, 1, 5)] == list(entries.counts())


def test_no_statement_numbers_its_parameters() -> None:
    """Python 3.12 before 3.12.4 warns of ``?1``, so each search failed in a program that takes warnings for errors."""
    sources = [path.read_text("utf-8") for path in (ROOT / "memfiles").rglob("*.py")]
    statements = [
        node.value
        for source in sources
        if "import sqlite3" in source
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]

    assert [] == [statement for statement in statements if re.search(r"\?\d", statement)]
