"""Where the demo works: a temporary directory, or one that is empty or its own.

The rule this file guards: nothing is removed that the demo did not write itself.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memfiles.cli.demo.support_desk import workflow_text
from memfiles.errors import MemfilesError
from memfiles.tools.json_schemas import workflow_schema

MARK = ".memfiles-demo"
_OWN_FILES = {MARK, "workflow.yaml"}
_OWN_FOLDERS = {".memory", "mirror", "schemas"}


class NotOurs(MemfilesError):
    """The directory holds something that the demo did not write."""

    code = "already_there"
    exit_code = 4


@contextmanager
def prepared(directory: Path | None) -> Iterator[Path]:
    """The path of the demo's fresh workflow; without a directory it goes with the block."""
    if directory is not None:
        _empty(directory)
        yield _written(directory)
        return
    with tempfile.TemporaryDirectory(prefix="memfiles-demo-") as made:
        yield _written(Path(made))


def _empty(directory: Path) -> None:
    """Make the directory, or remove what an earlier demo left in it."""
    directory.mkdir(parents=True, exist_ok=True)
    there = {path.name for path in directory.iterdir()}
    foreign = there - _OWN_FILES - _OWN_FOLDERS if MARK in there else there
    if foreign:
        raise NotOurs(f"{directory} is not empty ({sorted(foreign)[0]} is there): give the demo a new directory")
    for name in sorted(there & _OWN_FOLDERS):
        path = directory / name
        path.unlink() if path.is_symlink() else shutil.rmtree(path)
    for name in sorted(there & _OWN_FILES):
        (directory / name).unlink()


def _written(directory: Path) -> Path:
    workflow, schema = directory / "workflow.yaml", directory / "schemas" / "workflow.schema.json"
    (directory / MARK).write_text("made by memfiles demo, which empties this directory when it runs here again\n")
    schema.parent.mkdir()
    schema.write_text(json.dumps(workflow_schema(), indent=2) + "\n", encoding="utf-8")
    mirror = directory / "mirror"
    mirror.mkdir(mode=0o700)
    workflow.write_text(workflow_text(mirror), encoding="utf-8")
    return workflow
