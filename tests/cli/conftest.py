"""The folder that most tests of the command line work in, and two machines on one mirror."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command_line import WORKFLOW, run
from tests.cli.two_machines import machine
from tests.support.workflows import write_workflow


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a workflow that was never restored; commands run there."""
    write_workflow(tmp_path, WORKFLOW)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A restored memory directory, its workflow next to it; commands run there."""
    run("init", str(tmp_path))
    write_workflow(tmp_path, "# yaml-language-server: $schema=schemas/workflow.schema.json\n" + WORKFLOW)
    monkeypatch.chdir(tmp_path)
    run("restore")
    return tmp_path / ".memory"


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The directory that is the mirror."""
    (tmp_path / "there").mkdir()
    return tmp_path / "there"


@pytest.fixture
def here(tmp_path: Path, there: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose memory is mirrored there; commands run on it."""
    monkeypatch.chdir(machine(tmp_path / "here", f"file://{there}"))
    return tmp_path / "here"


@pytest.fixture
def other(tmp_path: Path, there: Path) -> list[str]:
    """Another machine on the same mirror: the options that make a command run on it."""
    return ["-w", str(machine(tmp_path / "other", f"file://{there}") / "workflow.yaml")]
