"""Two machines on one mirror, a directory: commands run on ``here``, and with the options ``other`` on the other."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command_line import WORKFLOW
from tests.mirrors.servers import BUCKET, aws_environment  # noqa: F401 (a fixture)
from tests.support.workflows import write_workflow


def machine(folder: Path, url: str, *, settings: str = "") -> Path:
    """A folder with the workflow, mirrored at ``url``."""
    folder.mkdir()
    mirror = f'memory:\n  mirror: {{url: "{url}"{settings}}}\n'
    write_workflow(folder, WORKFLOW.replace("memory:\n", mirror, 1))
    return folder


def away(there: Path) -> Path:
    """Take the mirror away; where it is now."""
    return there.rename(there.with_name("away"))


def back(there: Path) -> None:
    """Bring the mirror back."""
    there.with_name("away").rename(there)
