"""``memfiles mcp``, where it ends before it serves."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from memfiles.cli.commands.agents import NEEDED
from tests.cli.command_line import run
from tests.support import ROOT

pytestmark = pytest.mark.usefixtures("project")


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (["--agent", "nobody"], 3, "desk, idle"),
        ([], 2, "--agent NAME"),
        (["--agent", "desk", "--level", "SECRET"], 2, "SECRET"),
        (["--agent", "desk", "--http", "--token", "short"], 2, "16 characters"),
        (["--agent", "desk", "--http", "--port", "70000"], 2, "70000"),
        (["--agent", "desk", "--user-header", "X-User"], 2, "--user-header needs --http"),
        (["--agent", "desk", "--port", "8848"], 2, "--port needs --http: without it, the client talks over stdin"),
        (["--agent", "desk", "--token", "t" * 20], 2, "--token needs --http"),
        (["--agent", "desk", "--http", "--user-header", "X-User", "--user", "ada"], 2, "excludes --user"),
        (["--agent", "desk", "--http", "--user-header", "X User"], 2, "cannot be the header"),
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


@pytest.mark.parametrize("installed", ["1.30.0", "2.1.9", "3.0.0b1"])
def test_with_another_version_of_the_protocol_s_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: str
) -> None:
    """Another program may have wanted it; who starts the server is told what is needed and what is there."""
    about = tmp_path / "site" / f"mcp-{installed}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: mcp\nVersion: {installed}\n")
    monkeypatch.syspath_prepend(about.parent)

    ran = run("mcp", "--agent", "desk")

    assert (1, "") == (ran.code, ran.out)
    assert (
        f"needs mcp 2.2 or a later 2.x, but {installed} is installed: pip install --upgrade 'memfiles[mcp]'" in ran.err
    )


def test_the_version_that_is_needed_is_the_one_that_is_declared() -> None:
    """It is written here and in pyproject.toml."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (declared,) = extras["optional-dependencies"]["mcp"]

    assert f"mcp>={NEEDED[0]}.{NEEDED[1]},<{NEEDED[0] + 1}" == declared
