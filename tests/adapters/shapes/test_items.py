"""Items are objects in namespaces, each kept as an entry of one session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfiles.adapters.shapes.items import (
    ROOT,
    ItemChange,
    Items,
    begins_with,
    ends_with,
    from_text,
    item_key,
    item_of,
    matches_filter,
    namespace_prefix,
    to_text,
)
from memfiles.entries.drafts import Category, EntryRules, later
from memfiles.entries.entries import Entries
from memfiles.errors import InvalidArgument, LevelDenied
from memfiles.records.keys import check_key
from memfiles.tools.session import Session
from tests.adapters.memory_desk import Opening
from tests.support.saved import Clock, Visitor, entries_in

WORKFLOW = """\
memory: {durability: os, entries: {max_entries: 100}}
agents:
  support: {level: INTERNAL}
"""


@pytest.fixture
def session(open_memory: Opening) -> Session:
    return open_memory(WORKFLOW).session("support")


@pytest.fixture
def items(session: Session) -> Items:
    return Items(session)


def put(items: Items, *keys: str, **value: Any) -> None:
    items.change([ItemChange(("a",), key, value) for key in keys])


def test_an_item_is_an_entry_that_a_person_can_read(items: Items, session: Session) -> None:
    """Under a key made of its namespace and its key, as JSON."""
    items.change([ItemChange(("users", "ada"), "prefs", {"theme": "dark", "é": [1, None]})])
    assert session.entries is not None
    found = session.entries.get(session, "langgraph/users/ada/prefs")

    assert found is not None
    assert '{"theme": "dark", "é": [1, null]}' == found.content


def test_several_changes_are_one(items: Items, session: Session) -> None:
    """All that is put is there at once, then all goes that is deleted; of two of one item the last counts alone."""
    put(items, "gone", n=0)
    seen: list[int] = []
    session.manager.subscribe(lambda _: seen.append(sum(1 for _ in items.search(()))))
    items.change(
        [
            ItemChange(("b",), "k", {"n": 1}),
            ItemChange(("a",), "k", {"n": 1}),
            ItemChange(("a",), "k", {"n": 2}),
            ItemChange(("a",), "gone", {"n": 3}),
            ItemChange(("a",), "gone", None),
            ItemChange(("a",), "k" * 300, None),
        ]
    )
    assert session.entries is not None
    found = session.entries.get(session, "langgraph/a/k")

    assert [("k", {"n": 2})] == [(item.key, item.value) for item in items.search(("a",))]
    assert found is not None
    assert 1 == found.revision
    assert [3, 3, 2] == seen


def test_a_change_that_cannot_be_made_takes_the_others_with_it(items: Items, session: Session) -> None:
    """Whatever is wrong with it."""
    put(items, "low", n=1)
    for bad in (ItemChange(("a",), "x", {"n": object()}), ItemChange(("a",), "k" * 300, {}), ItemChange((1,), "k", {})):  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument):
            items.change([ItemChange(("a",), "new", {"n": 1}), ItemChange(("a",), "low", None), bad])
    session.raise_level("CONFIDENTIAL")
    with pytest.raises(LevelDenied):
        items.change([ItemChange(("a",), "new", {"n": 1}), ItemChange(("a",), "low", None)])

    assert ["low"] == [item.key for item in items.search(("a",))]


def test_what_cannot_be_there_is_not_there(items: Items) -> None:
    """A key that is too long is no error of whoever looks for it."""

    assert None is items.get(("a",), "k" * 300)
    assert None is items.get((), "k")


def test_a_search_gives_all_that_fits_the_best_first(items: Items) -> None:
    """Then the others with nothing, then those that are not searched."""
    put(items, "1", "2", text="green tea", n=1)
    items.change([ItemChange(("a",), "0", {"text": "green tea", "n": 1}, is_searched=False)])
    put(items, "3", text="bread", n=1)
    put(items, "4", text="green green tea", n=2)
    found = list(items.search((), query="green", wanted={"n": 1}))

    assert ["1", "2", "3", "0"] == sorted(item.key for item in found[:2]) + [item.key for item in found[2:]]
    assert [True, True, 0.0, None] == [bool(item.score) for item in found[:2]] + [item.score for item in found[2:]]


def test_more_than_is_ranked_is_found_as_well(items: Items) -> None:
    """Each once, behind what was ranked."""
    put(items, *(f"{number:02}" for number in range(60)), text="tea")
    found = list(items.search((), query="tea"))

    assert [f"{number:02}" for number in range(60)] == sorted(item.key for item in found)
    assert [True] * 50 + [False] * 10 == [bool(item.score) for item in found]


def test_namespaces_are_those_with_items(items: Items) -> None:
    """Other entries make none."""
    put(items, "k", n=1)
    items.change([ItemChange(("b", "c"), "k", {"n": 1}), ItemChange(("a",), "k", None)])

    assert {("b", "c")} == items.namespaces()


TEXTS = st.text(alphabet=st.characters(codec=None, categories=None), max_size=4) | st.text("/%.:* 2fF", max_size=5)
NAMESPACES = st.lists(TEXTS, max_size=4).map(tuple)


def test_a_plain_item_can_be_read_in_the_key() -> None:
    """A person finds it with `memfiles entries list --prefix langgraph/users/`."""

    assert "langgraph/users/ada/prefs" == item_key(("users", "ada"), "prefs")
    assert "langgraph/users/ada/%2fmemories%2fnotes.md" == item_key(("users", "ada"), "/memories/notes.md")
    assert "langgraph/a/100%25%0a" == item_key(("a",), "100%\n")


@given(NAMESPACES, TEXTS)
def test_what_was_put_together_comes_apart_again(namespace: tuple[str, ...], key: str) -> None:
    """Also empty labels, separators, control characters and half surrogate pairs; and an entry may be so called."""
    found = check_key(item_key(namespace, key))

    assert (namespace, key) == item_of(found)
    assert found.startswith(namespace_prefix(namespace))


@given(NAMESPACES, TEXTS, NAMESPACES, TEXTS)
def test_two_items_never_share_an_entry(one: tuple[str, ...], first: str, other: tuple[str, ...], second: str) -> None:
    """However alike their labels are."""

    assert ((one, first) == (other, second)) == (item_key(one, first) == item_key(other, second))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((("a", "b.c"), "k"), (("a.b", "c"), "k")),
        ((("a",), "b/c"), (("a", "b"), "c")),
        ((("a", ""), "c"), (("a",), "c")),
        ((("a",), "%2f"), (("a",), "/")),
    ],
)
def test_what_looks_alike_is_kept_apart(one: tuple[tuple[str, ...], str], other: tuple[tuple[str, ...], str]) -> None:
    """Where separators stand inside labels."""

    assert item_key(*one) != item_key(*other)


@pytest.mark.parametrize("key", ["users/ada", "langgraph", ROOT + "a%2F", ROOT + "%41", ROOT + "%ff", ROOT + "a%"])
def test_other_entries_are_no_items(key: str) -> None:
    """Neither those that lie elsewhere, nor what no item is written as."""

    assert None is item_of(key)


def test_what_is_too_long_is_refused() -> None:
    """With its size, and never cut."""
    longest = "k" * (255 - len("langgraph/a/"))
    item_key(("a",), longest)
    with pytest.raises(InvalidArgument, match="of 256 bytes, and 255 are allowed"):
        item_key(("a",), longest + "k")


@pytest.mark.parametrize("namespace", [(1,), ("a", None), (b"a",)])
def test_a_label_that_is_no_text_is_refused(namespace: tuple[str, ...]) -> None:
    """1 and "1" would be one."""
    with pytest.raises(InvalidArgument, match="must be text"):
        item_key(namespace, "k")


def test_namespaces_are_matched_at_either_end() -> None:
    """Label by label; a star stands for one of any name, and for no missing one."""
    namespace = ("users", "ada", "notes")

    assert [True] * 4 == [begins_with(namespace, path) for path in [(), ("users",), ("*", "ada"), ("users", "*", "*")]]
    assert [False] * 3 == [begins_with(namespace, path) for path in [("ada",), ("user",), ("*", "*", "*", "*")]]
    assert [True] * 3 == [ends_with(namespace, path) for path in [("notes",), ("ada", "*"), ("*", "*", "notes")]]
    assert [False] * 2 == [ends_with(namespace, path) for path in [("ada",), ("*", "users", "ada", "notes")]]


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))


@pytest.mark.slow
@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_an_object_comes_back_as_it_was(value: dict[str, Any]) -> None:
    """Whatever JSON can hold."""

    assert value == from_text(to_text(value))


@pytest.mark.parametrize(
    "value", [{"x": object()}, {"x": float("nan")}, {"x": {1: "a"}}, {"x": [{None: 1}]}, {2: "a"}, {"x": b"bytes"}]
)
def test_what_json_cannot_hold_is_refused(value: dict[str, Any]) -> None:
    """Rather than kept as something else."""
    with pytest.raises(InvalidArgument, match="a JSON-serialisable object"):
        to_text(value)


def test_what_is_nested_too_deeply_is_refused() -> None:
    """And ends no program."""
    value: dict[str, Any] = {}
    for _ in range(100_000):
        value = {"x": value}
    with pytest.raises(InvalidArgument):
        to_text(value)


@pytest.mark.parametrize("text", ["Ada is on Pro.", "[1]", "12", '{"broken": ', "[" * 100_000])
def test_what_somebody_made_of_it_is_shown_as_text(text: str) -> None:
    """An agent or a person may change the entry: nothing is lost, and nothing raises."""

    assert {"content": text} == from_text(text)


VALUE = {
    "plan": "pro",
    "seats": 7,
    "since": "2024",
    "open": True,
    "tags": ["a", "b"],
    "owner": {"name": "Ada", "id": 1},
}


@pytest.mark.parametrize(
    "wanted",
    [
        None,
        {},
        {"plan": "pro"},
        {"plan": "pro", "seats": 7},
        {"missing": None},
        {"tags": ["a", "b"]},
        {"tags": ("a", {"$ne": "x"})},
        {"owner": {"name": "Ada"}},
        {"owner": {"id": {"$lt": 2}}},
        {"plan": {"$eq": "pro"}},
        {"plan": {"$ne": "free"}},
        {"missing": {"$ne": "free"}},
        {"seats": {"$gt": 6.5, "$lte": 7}},
        {"seats": {"$gte": 7, "$lt": "8"}},
        {"since": {"$gt": 2023}},
    ],
)
def test_what_matches_filter(wanted: dict[str, Any] | None) -> None:
    """All that is asked for must hold; a missing field is as null, and numbers may be written as text."""

    assert matches_filter(VALUE, wanted)


@pytest.mark.parametrize(
    "wanted",
    [
        {"plan": "free"},
        {"plan": "pro", "seats": 8},
        {"tags": ["a"]},
        {"tags": ["b", "a"]},
        {"plan": {"name": "Ada"}},
        {"plan": {"$gt": 1}},
        {"missing": {"$lt": 1}},
        {"seats": {"$gt": 7}},
        {"seats": {"$gt": 1, "$lt": 2}},
    ],
)
def test_what_does_not_fit(wanted: dict[str, Any]) -> None:
    """What is no number is neither more nor less than one."""

    assert not matches_filter(VALUE, wanted)


DOTTED: dict[str, dict[str, Any]] = {
    "1": {"a": {"b": 1}},
    "2": {"a": {"b": 2}},
    "3": {"a.b": 1},
    "4": {"a.b": 2, "a": {"b": 1}},
    "5": {"a": [1]},
    "6": {"a": {"b": None}},
    "7": {"a": {"b": "2024-05-01"}},
    "8": {"n": 1},
    "9": {"a": {"b": {"c": 1}}},
    "x": {"a": {"b": [1, 2]}},
    "y": {"a-b": {"c d": 1}, ".": 1, "": 1, "a": "b"},
}


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"a.b": 1}, "1 3"),
        ({"a.b": {"$eq": 1}}, "1 3"),
        ({"a.b": 2}, "2 4"),
        ({"a.b": {"$ne": 1}}, "2 4 7 9 x"),
        ({"a.b": {"$ne": None}}, "1 2 3 4 7 9 x"),
        ({"a.b": None}, "5 6 8 y"),
        ({"a.b": {"$eq": None}}, "5 6 8 y"),
        ({"a.b": {"$gt": 1}}, "2 4"),
        ({"a.b": {"$gte": 1, "$lt": 2}}, "1 3"),
        ({"a.b": {"$gt": 0, "$ne": 2}}, "1 3"),
        ({"a.b": {"$gt": "2024-04-30", "$lte": "2024-05-01"}}, "7"),
        ({"a.b": {"$lt": "2024"}, "a": {"b": {"$gt": 0}}}, "1 2 4"),
        ({"a.b.c": 1}, "9"),
        ({"a.b": {"c": 1}}, "9"),
        ({"a.b": [1, 2]}, "x"),
        ({"a.0": 1}, ""),
        ({"a-b.c d": 1}, "y"),
        ({".": 1}, "y"),
        ({"": 1}, "y"),
        ({"a.": 1}, ""),
        ({"a..b": 1}, ""),
        ({"." * 100_000: 1}, ""),
        ({"a') OR 1=1 --": 1}, ""),
        ({"a.__class__": {"$ne": 1}}, ""),
        ({1: 1}, ""),
    ],
)
def test_a_name_with_dots_is_a_field_or_else_a_path(wanted: dict[Any, Any], expected: str) -> None:
    """As PostgreSQL's store or SQLite's has it; what nobody can be called finds nothing, and harms nothing."""

    assert expected.split() == [name for name, value in DOTTED.items() if matches_filter(value, wanted)]


def test_an_unknown_comparison_is_an_error() -> None:
    """It is the program's mistake, and silence would hide it."""
    with pytest.raises(InvalidArgument, match=r"unknown comparison '\$in': use \$eq, \$ne"):
        matches_filter(VALUE, {"plan": {"$in": ["pro"]}})
    with pytest.raises(InvalidArgument, match=r"unknown comparison '\$in'"):
        matches_filter(VALUE, {"owner.id": {"$in": ["pro"]}})


class Desk(Visitor):
    """A session with a clock that is set by hand."""

    def __init__(self, entries: Entries, **who: Any) -> None:
        super().__init__(**who)
        self.entries = entries
        self.agent = self.provenance.agent


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def entries(tmp_path: Path, clock: Clock) -> Iterator[Entries]:
    categories = {"brief": Category("brief", ttl=100), "ours": Category("ours", scope="agent", from_users=True)}
    rules = EntryRules(categories=categories, readers=frozenset({"guest"}))
    with entries_in(tmp_path / "memory", rules=rules, now=clock) as opened:
        yield opened


def of(entries: Entries, category: str | None = None, **who: Any) -> Items:
    return Items(Desk(entries, **who), category=category)  # type: ignore[arg-type]


def expiring(items: Items, key: str) -> str | None:
    item = items.get(("a",), key)
    return item.found.expires_at if item is not None else None


def test_an_item_expires_when_it_says(entries: Entries, clock: Clock) -> None:
    """To the millisecond, from each put on, whether it changes the value or not; without a ttl as its category says."""
    items, begun = of(entries), clock()
    items.change([ItemChange(("a",), "k", {"n": 1}, ttl=60.5)])
    first = expiring(items, "k")
    clock.go_on(60)
    items.change([ItemChange(("a",), "k", {"n": 1}, ttl=60.5)])
    second = expiring(items, "k")
    clock.go_on(60)
    items.change([ItemChange(("a",), "k", {"n": 1})])
    of(entries, "brief").change([ItemChange(("a",), "own", {}, ttl=7), ItemChange(("a",), "its", {})])

    assert (later(begun, 60.5), later(begun, 120.5), None) == (first, second, expiring(items, "k"))
    assert (later(clock(), 7), later(clock(), 100)) == (expiring(items, "own"), expiring(items, "its"))
    clock.go_on(8)
    assert [None, True] == [items.get(("a",), "own"), items.get(("a",), "its") is not None]


def test_a_read_renews_what_has_a_lifetime(entries: Entries, clock: Clock) -> None:
    """Once a hundredth of it is over, in one commit; neither another item nor the category's time is renewed."""
    items = of(entries)
    items.change([ItemChange(("a",), name, {}, ttl=ttl) for name, ttl in (("1", 1000), ("2", 0.5), ("3", None))])
    of(entries, "brief").change([ItemChange(("a",), "4", {})])
    begun = clock()
    clock.go_on(9)
    items.renew(items.search(()))
    early = expiring(items, "1")
    clock.go_on(1)
    items.renew([*items.search(()), *items.search(())])
    history = [(found.key, found.revision) for found in entries.list(Desk(entries)).memories]

    assert (later(begun, 1000), later(clock(), 1000)) == (early, expiring(items, "1"))
    assert (None, later(begun, 100)) == (expiring(items, "3"), expiring(items, "4"))
    assert [("langgraph/a/1", 2), ("langgraph/a/3", 1), ("langgraph/a/4", 1)] == history


def test_what_changed_since_it_was_read_is_not_renewed(entries: Entries, clock: Clock) -> None:
    """Neither with its old time, nor back to life."""
    items = of(entries)
    items.change([ItemChange(("a",), name, {}, ttl=1000) for name in ("put", "deleted", "expired")])
    read = list(items.search(()))
    clock.go_on(100)
    items.change([ItemChange(("a",), "put", {}), ItemChange(("a",), "deleted", None)])
    clock.go_on(900)
    items.renew(read)

    assert [("put", None)] == [(item.key, item.found.expires_at) for item in items.search(())]


@pytest.mark.parametrize(
    "reader", [{"user": "ada"}, {"user": "bob"}, {"level": "CONFIDENTIAL"}, {"agent": "guest"}, {"agent": "billing"}]
)
def test_a_read_of_what_others_see_renews_nothing(entries: Entries, clock: Clock, reader: dict[str, str]) -> None:
    """It changes nothing that another level, user or agent observes, also where the reader may write."""
    for category, who in (("ours", {"user": "ada"}), ("workspace", {}), (None, {"agent": "guest"})):
        items = of(entries, category, **who)
        if category is not None:
            items.change([ItemChange(("a",), category, {}, ttl=1000)])
    before = {name: expiring(of(entries), name) for name in ("ours", "workspace")}
    clock.go_on(100)
    theirs = of(entries, **reader)
    theirs.renew(theirs.search(()))

    assert before == {name: expiring(of(entries), name) for name in ("ours", "workspace")}


@pytest.mark.parametrize("query", ["300 euros", "5 minutes", "300000", "in 300 s"])
def test_the_tag_of_a_lifetime_is_found_by_no_question(entries: Entries, query: str) -> None:
    """It would put items of that lifetime among the answers."""
    of(entries).change([ItemChange(("a",), "k", {"text": "tea"}, ttl=300)])

    assert () == entries.search(Desk(entries), query).matches
