"""``memfiles mcp``, where it ends before it serves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from command_line import WORKFLOW, run


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a workflow that was never restored; commands run there."""
    (tmp_path / "workflow.yaml").write_text(WORKFLOW)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (["--agent", "nobody"], 3, "desk, idle"),
        ([], 2, "--agent NAME"),
        (["--agent", "desk", "--level", "SECRET"], 2, "SECRET"),
        (["--agent", "desk", "--http", "--token", "short"], 2, "16 characters"),
        (["--agent", "desk", "--http", "--port", "70000"], 2, "70000"),
    ],
)
def test_what_cannot_be_served(args: list[str], code: int, told: str) -> None:
    """A person is told in one line what is wrong, on stderr; stdout stays empty for the protocol."""
    ran = run("mcp", *args)

    assert (code, "") == (ran.code, ran.out)
    assert told in ran.err


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who did not install the extra is told which."""
    monkeypatch.setitem(sys.modules, "mcp", None)

    ran = run("mcp", "--agent", "desk")

    assert (1, "") == (ran.code, ran.out)
    assert "pip install 'memfiles[mcp]'" in ran.err
