"""Items are objects in namespaces, each kept as an entry of one session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import memfiles
from memfiles.adapters.shapes.items import ItemChange, Items
from memfiles.errors import InvalidArgument, LevelDenied
from memfiles.tools.session import Session

WORKFLOW = """\
memory: {durability: os, entries: {max_entries: 100}}
agents:
  support: {level: INTERNAL}
"""


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    (tmp_path / "workflow.yaml").write_text(WORKFLOW)
    with memfiles.open(tmp_path / "workflow.yaml", watch=False) as memory:
        yield memory.session("support")


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
