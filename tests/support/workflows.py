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
    """The text as it is, or with the store that the tests are to run on."""
    place = place_of(folder / ".memory")
    if isinstance(place, Path) or "store:" in text or "\nmemory:\n" not in f"\n{text}":
        return text
    indent = text.partition("memory:\n")[2]
    spaces = indent[: len(indent) - len(indent.lstrip(" "))]
    text = re.sub(r"(?m)^ +directory: .*\n", "", text)
    return text.replace("memory:\n", f"memory:\n{spaces}store: {json.dumps(place)}\n", 1)


def opened(folder: Path, text: str, *, watch: bool = False, **options: Any) -> memfiles.Memory:
    """Open the memory of this workflow in ``folder``; a test closes it. The options are those of ``memfiles.open``."""
    return memfiles.open(write_workflow(folder, text), watch=watch, **options)
