"""A namespace and a key become one entry key and come back out of it, whatever they are made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfiles.adapters.shapes.item_keys import ROOT, begins_with, ends_with, item_key, item_of, namespace_prefix
from memfiles.errors import InvalidArgument
from memfiles.records.keys import check_key

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
    with pytest.raises(InvalidArgument, match="made of texts"):
        item_key(namespace, "k")


def test_namespaces_are_matched_at_either_end() -> None:
    """Label by label; a star stands for one of any name, and for no missing one."""
    namespace = ("users", "ada", "notes")

    assert [True] * 4 == [begins_with(namespace, path) for path in [(), ("users",), ("*", "ada"), ("users", "*", "*")]]
    assert [False] * 3 == [begins_with(namespace, path) for path in [("ada",), ("user",), ("*", "*", "*", "*")]]
    assert [True] * 3 == [ends_with(namespace, path) for path in [("notes",), ("ada", "*"), ("*", "*", "notes")]]
    assert [False] * 2 == [ends_with(namespace, path) for path in [("ada",), ("*", "users", "ada", "notes")]]
