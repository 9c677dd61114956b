"""The folder that most tests of the command line work in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command_line import WORKFLOW
from tests.support.workflows import write_workflow


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a workflow that was never restored; commands run there."""
    write_workflow(tmp_path, WORKFLOW)
    monkeypatch.chdir(tmp_path)
    return tmp_path
