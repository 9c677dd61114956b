"""What the paths of Anthropic's memory tool mean."""

from __future__ import annotations

import pytest

from memfiles.adapters.shapes.paths import folders_of, is_hidden, name_of, names_of
from memfiles.errors import InvalidArgument


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/memories", ""),
        ("/memories/", ""),
        ("/memories/a.md", "a.md"),
        ("/memories/notes/a.md", "notes/a.md"),
        ("/memories/notes/", "notes"),
        ("/memories//notes///a.md", "notes/a.md"),
        ("/memories/./notes/./a.md", "notes/a.md"),
        ("/memories/notes/../a.md", "a.md"),
        ("/memories/notes/..", ""),
        ("/memories/%2e%2e/a", "%2e%2e/a"),
        ("/memories/..\\a", "..\\a"),
        ("/memories/.hidden", ".hidden"),
        ("/memories/ä b", "ä b"),
    ],
)
def test_what_a_path_means(path: str, name: str) -> None:
    """As on a disk; what is not a slash or a whole part of dots is a letter like any other."""

    assert name == name_of(path)


@pytest.mark.parametrize("path", ["/memories/..", "/memories/../etc/passwd", "/memories/a/../../b", "/memories/./.."])
def test_nothing_leads_out(path: str) -> None:
    """In the vendor's words."""
    with pytest.raises(InvalidArgument, match="would escape /memories directory"):
        name_of(path)


@pytest.mark.parametrize("path", ["", "/", "memories", "/memoriesque", "/etc/passwd", "C:\\memories", "/Memories/a"])
def test_other_roots_are_refused(path: str) -> None:
    """Also one that only begins alike."""
    with pytest.raises(InvalidArgument, match="Path must start with /memories, got: "):
        name_of(path)


def test_the_very_text_is_looked_for_first() -> None:
    """An entry may be called what no file can be; a refused path may be one as well."""

    assert ["https://a//b/", "https:/a/b"] == list(names_of("/memories/https://a//b/"))
    assert ["a"] == list(names_of("/memories/a"))
    assert "../a" == next(names_of("/memories/../a"))


def test_the_folders_of_a_name() -> None:
    """The outermost first; what lies at the root has none."""

    assert (["a", "a/b"], []) == (folders_of("a/b/c"), folders_of("a"))


def test_what_is_hidden() -> None:
    """A dot at the beginning of any part, and nowhere else."""

    assert [True, True, False, False] == [is_hidden(name) for name in (".a", "a/.b/c", "a.b", "a./b")]
