"""A workflow in a folder of its own, and the memory that it opens."""

from __future__ import annotations

import json
import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import memfiles
from tests.support.stores import place_of


def write_workflow(folder: Path, text: str) -> Path:
    """Write ``text``, which may be indented, to the folder's ``workflow.yaml``; a missing folder is created."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "workflow.yaml"
    path.write_text(_placed(dedent(text), folder), encoding="utf-8")
    return path


def _placed(text: str, folder: Path) -> str:
    """The text as it is, or with the store that the tests are to run on, if it does not say where its memory is."""
    is_said = re.search(r"\b(store|directory):", text) is not None
    if is_said or isinstance(place := place_of(folder / ".memory"), Path):
        return text
    text = re.sub(r"(?m)^memory: *\{", f"memory: {{store: {json.dumps(place)}, ", text, count=1)
    return re.sub(r"(?m)^memory:\n( +)", rf"memory:\n\1store: {json.dumps(place)}\n\1", text, count=1)


def opened(folder: Path, text: str, *, watch: bool = False, **options: Any) -> memfiles.Memory:
    """Open the memory of this workflow in ``folder``; a test closes it. The options are those of ``memfiles.open``."""
    return memfiles.open(write_workflow(folder, text), watch=watch, **options)
