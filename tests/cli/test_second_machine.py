"""Two machines and a mirror, from the command line: what one forgets is gone from both, whatever its key was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import memfiles
from tests.cli.command_line import run
from tests.support.saved import files_holding
from tests.support.workflows import write_workflow

pytestmark = pytest.mark.slow

WORKFLOW = "memory: {{durability: os, entries: {{}}{mirror}}}\nagents: {{desk: {{level: INTERNAL}}}}\n"
SECRET = "a zebrafish in Riga"
Desk = Callable[..., Any]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Runs a command on a machine, which is a folder; ``rename`` and what is done ``apart`` know of no mirror."""

    (tmp_path / "bucket").mkdir()

    def call(name: str, *args: str, rename: dict[str, str] | None = None, apart: bool = False) -> Any:
        folder = tmp_path / name
        mirror = f", mirror: {{url: {(tmp_path / 'bucket').as_uri()}}}" if rename is None and not apart else ""
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        path = write_workflow(folder, WORKFLOW.format(mirror=mirror))
        if rename is not None:
            with memfiles.open(path, watch=False) as memory:
                memory.entries.relocate(memory.session("desk"), rename)
            return None
        ran = run(*args, "--json")
        assert 0 == ran.code, ran.err
        return ran.data if ran.out else None

    return call


def keys(desk: Desk, name: str) -> list[str]:
    return [each["key"] for each in desk(name, "entries", "list")["memories"]]


def test_an_entry_that_is_forgotten_does_not_return_under_another_key(desk: Desk, tmp_path: Path) -> None:
    """One machine forgets it and saves its key anew, while another one, offline, gives it another key."""
    desk("a", "entries", "save", "L", SECRET)
    desk("a", "sync", "push")
    desk("b", "sync", "pull")
    desk("b", rename={"L": "O"})
    desk("a", "entries", "forget", "--key", "L", "--yes")
    desk("a", "entries", "save", "L", "new")
    desk("a", "sync", "push")
    for name in ("b", "a", "b"):
        desk(name, "sync", "pull")

    assert (["L"], ["L"]) == (keys(desk, "a"), keys(desk, "b"))
    assert [] == files_holding(tmp_path, SECRET, "zebrafish")


@pytest.mark.parametrize("order", ["ab", "ba"])
@pytest.mark.parametrize("is_renamed_first", [True, False])
def test_a_key_that_two_machines_saved_keeps_nothing_of_what_is_forgotten(
    desk: Desk, tmp_path: Path, is_renamed_first: bool, order: str
) -> None:
    """Not in the history or the conflicts of the key that it was saved under, nor in the notes on the mirror."""
    for name in order:  # the later one is the newer
        desk(name, "entries", "save", "K", {"a": "tea at four", "b": SECRET}[name])
    desk("a", "sync", "push")
    if not is_renamed_first:
        desk("b", "sync", "pull")
    desk("b", rename={"K": "N"})
    for name in ("b", "a", "b"):
        desk(name, "sync", "pull")
    desk("a", "entries", "forget", "--key", "N", "--yes")
    for name in ("a", "b", "a"):
        desk(name, "sync", "pull")

    assert keys(desk, "a") == keys(desk, "b")
    assert [] == files_holding(tmp_path, SECRET, "zebrafish")


@pytest.mark.parametrize("name", ["out", "out.jsonl"])
@pytest.mark.parametrize("is_used_again", [True, False])
def test_an_import_by_one_who_does_not_know_that_it_was_forgotten(
    desk: Desk, tmp_path: Path, is_used_again: bool, name: str
) -> None:
    """It is forgotten there, too, as soon as the machine hears of it."""
    export = tmp_path / name
    desk("a", "entries", "save", "K", SECRET)
    desk("a", "export", str(export))
    desk("a", "entries", "forget", "--key", "K", "--yes")
    if is_used_again:
        desk("a", "entries", "save", "K", "new")
        desk("a", rename={"K": "L"})
    desk("a", "sync", "push")
    assert 1 == desk("b", "import", str(export), apart=True)["added"]
    for machine in ("b", "a", "b"):
        desk(machine, "sync", "pull")
    for file in [export] if export.is_file() else list(export.iterdir()):
        file.unlink()

    expected = ["L"] if is_used_again else []
    assert (expected, expected) == (keys(desk, "a"), keys(desk, "b"))
    assert [] == files_holding(tmp_path, SECRET, "zebrafish")
