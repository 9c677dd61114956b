"""A workflow in a folder of its own, and the memory that it opens."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import memfiles


def write_workflow(folder: Path, text: str) -> Path:
    """Write ``text``, which may be indented, to the folder's ``workflow.yaml``; a missing folder is created."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "workflow.yaml"
    path.write_text(dedent(text), encoding="utf-8")
    return path


def opened(folder: Path, text: str, *, watch: bool = False, **options: Any) -> memfiles.Memory:
    """Open the memory of this workflow in ``folder``; a test closes it. The options are those of ``memfiles.open``."""
    return memfiles.open(write_workflow(folder, text), watch=watch, **options)
