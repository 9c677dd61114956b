"""The power goes: no acknowledged change is lost, records are whole, and commits are all there or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from memfiles.storage.atomic import sync_folder, sync_published
from memfiles.storage.home import NoteFiles
from tests.durability.conftest import Program, Programs
from tests.durability.disks import disk
from tests.durability.loss_sweep import STORIES
from tests.durability.losses import states
from tests.durability.operations import opened
from tests.durability.recorder import record
from tests.support.another_process import another_process

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("MEMFILES_POWER_SECONDS", "4"))  # of random cuts on all file systems at once
KINDS = ["ext4", "ext4-writeback", "xfs"]
ONE_BY_ONE = ["journaled appends", "append to three files at once", "first restore", "checkpoint", "saves"]
FAILING = "a flush that fails once"
FEWEST_STATES = 300


def _harmful(cuts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [cut for cut in cuts if cut["problems"]]


def _sync_many(directory: int) -> None:
    sync_published(directory, [f"file-{number}" for number in range(100)])


@pytest.mark.power
@pytest.mark.usefixtures("require_disks", "require_tracing")
def test_a_power_cut_before_any_call_does_no_harm(program: Program, images: Path) -> None:
    """A mounted file system is shut down before each system call that can change it, and mounted again.

    Two kinds share the calls, unless MEMFILES_EVERY_CALL is set.
    """
    cuts = program("tests.durability.power_sweep", images, *ONE_BY_ONE, "--on", *KINDS)

    assert [] == _harmful(cuts)
    assert set(product(KINDS, ONE_BY_ONE)) == {(cut["kind"], cut["operation"]) for cut in cuts if cut["call"] == ""}


@pytest.mark.power
@pytest.mark.usefixtures("require_disks")
def test_a_power_cut_at_any_time_does_no_harm(programs: Programs, images: Path) -> None:
    """Cut at random moments under three threads that append, edit, and change fifty records at once."""
    found = programs([("tests.durability.power_cuts", images / kind, kind, SECONDS, 2026) for kind in KINDS])

    for kind, cuts in zip(KINDS, found, strict=True):
        assert (kind, []) == (kind, _harmful(cuts))
        assert all(count > 0 for count in cuts[-1]["acknowledged"].values())


@pytest.mark.power
@pytest.mark.usefixtures("require_disks", "require_tracing")
def test_the_power_cuts_find_a_missing_flush(program: Program, images: Path) -> None:
    """With a flush that does nothing, the same cuts find acknowledged changes lost."""
    # an append is written directly, and a loop mount has no cache that could lose it: see the recordings below
    cuts = program("tests.durability.power_sweep", images, "checkpoint", "--on", "ext4", "--without", "fsync")

    assert _harmful(cuts)


@pytest.mark.usefixtures("require_tracing")
@pytest.mark.parametrize("story", ["from nothing", "journaled changes", "redeploy and undo"])
def test_no_legal_loss_does_harm(story: str, program: Program, scratch: Path) -> None:
    """From the recorded system calls: whatever was not flushed may be missing or torn, in every combination tried."""
    moments = program("tests.durability.loss_sweep", scratch, story)

    assert [] == _harmful(moments)
    assert len(STORIES[story].steps) == moments[-1]["acknowledged"]
    assert sum(moment["states"] for moment in moments) > FEWEST_STATES


@pytest.mark.usefixtures("require_tracing")
def test_a_flush_that_failed_is_not_believed_later(program: Program, scratch: Path) -> None:
    """A failed fsync may have dropped the data, and the next one says yes: the file is written anew instead."""
    moments = program("tests.durability.loss_sweep", scratch, FAILING, "--lost-flush", "facts.json")

    assert [] == _harmful(moments)
    assert len(STORIES[FAILING].steps) == moments[-1]["acknowledged"]


@pytest.mark.usefixtures("require_tracing")
@pytest.mark.parametrize("missing", ["fdatasync", "fsync"])
def test_the_losses_find_a_missing_flush(missing: str, program: Program, scratch: Path) -> None:
    """With a flush that does nothing, there are states in which acknowledged changes are lost."""
    moments = program("tests.durability.loss_sweep", scratch, "two appends", "--pretended", missing)

    assert _harmful(moments)


@pytest.mark.usefixtures("require_tracing")
def test_no_loss_takes_the_note_of_a_redaction(tmp_path: Path) -> None:
    """Not even of the first one, for which the folders of the notes are made."""
    recording = record(lambda: NoteFiles(tmp_path).note_forgets({"notes.json": 3}), tmp_path)
    trees = [tree for _, tree in states(recording, recording.clock + 1)]

    assert [True] * len(trees) == [".state/redactions/notes.json 3" in tree for tree in trees]
    assert trees


@pytest.mark.power
@pytest.mark.usefixtures("require_disks")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("flush", [sync_folder, _sync_many], ids=["a folder", "many files"])
def test_a_flush_that_was_not_done_is_an_error(kind: str, flush: Callable[[int], None], images: Path) -> None:
    """On a file system that shut down after a rename the flush of the names fails, also where fsync says nothing."""
    with disk(kind, images / "ground") as ground:
        folder = ground.path / "folder"
        folder.mkdir()
        (folder / "old").touch()
        ground.flush()
        descriptor = os.open(folder, os.O_RDONLY)
        (folder / "old").rename(folder / "new")
        ground.cut_power()
        with pytest.raises(OSError, match="Input/output error"):
            flush(descriptor)
        os.close(descriptor)


_DROPPED = """
import gc, sys
from tests.durability.operations import opened, warm
from tests.support.records import wait_until

manager = warm(sys.argv[1])
(journal,) = (manager.directory / ".journal").iterdir()
del manager
gc.collect()
other = opened(sys.argv[2])  # its directory may get the number that the first one's had
other.append("notes", "- elsewhere\\n")
wait_until(lambda: not journal.exists() or not journal.read_bytes()[4096:].strip(b"\\0"))
print("empty")
input()
"""


@pytest.mark.power
def test_a_memory_that_was_dropped_without_close_flushes_its_own_directory(
    require_disks: None, images: Path, tmp_path: Path
) -> None:
    """Its journal is emptied only once its files are on the disk, also after another memory was opened."""
    with disk("ext4", images / "ground") as ground:
        directory = ground.path / "memory"
        with another_process(_DROPPED, directory, tmp_path / "other") as other:
            said = other.hear()
            ground.cut_power()
            other.tell()
        ground.power_up()
        with opened(directory) as manager:
            content = manager.read("notes")

    assert "empty" == said
    assert "# Start\n- first\n- second\n" == content
