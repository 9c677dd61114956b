"""Whatever is passed, wherever: it is done, or refused in words, and nothing is half done."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from memfiles.entries.entries import Entries
from memfiles.errors import InvalidArgument, MemfilesError
from tests.support.saved import Visitor, entries_in

ODD: list[Any] = [
    *(None, True, 7, -1, 2.5, float("nan"), "", " ", "\x00", "\ud800", "x" * 300, b"x", 10**30, ...),
    *([], [1], ["a", None], ["\ud800"], [[]], {}, {"a": 1}, {1: 2}, {"run": 7}, {"run": None}, (), ("a",), set()),
    *(object(), ValueError, print),
]
USUAL: dict[str, dict[str, Any]] = {
    "save": {"key": "k", "content": "c"},
    "save_many": {"drafts": []},
    "get": {"key": "k"},
    "search": {"query": "q"},
    "list": {},
    "update": {"key": "k"},
    "delete": {"key": "k"},
    "delete_many": {"keys": []},
    "restore": {"key": "k"},
    "forget": {"key": "none such"},
    "hydrate": {},
    "explain": {"key": "k"},
    "plan": {},
    "apply": {"plan": None},
    "undo": {"plan_id": "plan-0"},
    "export": {"target": "out"},
    "import_": {"source": "in"},
}
PARAMETERS = [
    (method, name)
    for method in USUAL
    for name in inspect.signature(getattr(Entries, method)).parameters
    if name not in ("self", "session")
]
FIELDS = [*inspect.signature(Entries.update).parameters, "source"][2:]


def refused_or_done(method: Any, *args: Any, **said: Any) -> None:
    """Anything but an error in words fails the test."""
    try:
        method(*args, **said)
    except MemfilesError as error:
        assert str(error)


@pytest.mark.parametrize(("method", "name"), PARAMETERS, ids=str)
def test_an_odd_value_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, name: str
) -> None:
    """And what was there can be read as before."""
    monkeypatch.chdir(tmp_path)
    with entries_in(tmp_path / "memory") as entries:
        entries.save(Visitor(), "safe", "as it was")
        for value in ODD:
            refused_or_done(getattr(entries, method), Visitor(), **{**USUAL[method], name: value})
    with entries_in(tmp_path / "memory") as entries:
        assert "as it was" == getattr(entries.get(Visitor(), "safe"), "content", None)
        assert "safe" in [found.key for found in entries.list(Visitor()).memories]


@pytest.mark.parametrize("name", FIELDS)
def test_an_odd_field_of_a_draft_is_refused_in_words(tmp_path: Path, name: str) -> None:
    """Of several that are saved together, too."""
    with entries_in(tmp_path) as entries:
        for value in ODD:
            refused_or_done(entries.save_many, Visitor(), [{"key": "k", "content": "c", name: value}])
            refused_or_done(entries.save_many, Visitor(), [value])


@pytest.mark.parametrize("method", [*USUAL, "end_run"])
def test_what_is_no_session_is_refused(tmp_path: Path, method: str) -> None:
    """With what one is."""
    with entries_in(tmp_path) as entries:
        for value in ODD:
            with pytest.raises(InvalidArgument, match="session"):
                getattr(entries, method)(value, **USUAL.get(method, {}))


@pytest.mark.parametrize("provenance", [{"run": None}, {"run": ""}, {"run": 7}, {"run": "\udc80"}])
def test_an_origin_that_is_nothing_means_no_entry(tmp_path: Path, provenance: Any) -> None:
    """A program whose run is not known does not forget everything that has none."""
    with entries_in(tmp_path) as entries:
        entries.save(Visitor(), "safe", "x")
        with pytest.raises(InvalidArgument):
            entries.forget(Visitor(), provenance=provenance)

        assert entries.get(Visitor(), "safe") is not None


@pytest.mark.parametrize("dry_run", ["false", 0, None])
def test_a_switch_is_no_text(tmp_path: Path, dry_run: Any) -> None:
    """What is not True or False is neither taken for the one nor for the other."""
    with entries_in(tmp_path) as entries:
        entries.save(Visitor(), "safe", "x")
        with pytest.raises(InvalidArgument, match="dry_run"):
            entries.forget(Visitor(), key="safe", dry_run=dry_run)

        assert entries.get(Visitor(), "safe") is not None
