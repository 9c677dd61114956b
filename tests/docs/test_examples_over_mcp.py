"""The examples of frameworks that have memory over MCP run with the real framework, each in its own environment.

They need pip, which fetches the frameworks once into pytest's cache, and the ``memfiles`` of this interpreter.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import unavailable
from tests.support import ROOT

pytestmark = pytest.mark.frameworks
PACKAGES = {
    "agent_framework": ["agent-framework-core>=1.23,<2", "mcp>=2.2,<3", "tenacity>=9,<10"],
    "google_adk": ["google-adk[mcp]>=2.13,<3"],
    "strands": ["strands-agents>=1.62,<2"],
}


@pytest.fixture(scope="session")
def python_with(request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """The interpreter of an environment that has nothing but this framework."""

    def installed(framework: str) -> Path:
        folder = Path(request.config.cache.mkdir("frameworks")) / framework
        if not (folder / "installed").exists():
            venv.create(folder, with_pip=True, clear=True)
            wanted = [str(folder / "bin" / "pip"), "install", "--quiet", *PACKAGES[framework]]
            ran = subprocess.run(wanted, capture_output=True, text=True, timeout=600)
            if ran.returncode:
                unavailable(f"pip could not install {framework}: {ran.stderr[-500:]}")
            (folder / "installed").touch()
        return folder / "bin" / "python"

    return installed


@pytest.mark.parametrize("framework", PACKAGES)
def test_an_agent_keeps_a_note(python_with: Callable[[str], Path], framework: str, tmp_path: Path) -> None:
    """It is offered the session's tools, is told what its call did, and what it kept is in the file."""
    python = python_with(framework)
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns(".memory"))
    program = tmp_path / "memfiles"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m memfiles "$@"\n')
    program.chmod(0o755)
    told = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    told["PATH"] = f"{tmp_path}{os.pathsep}{os.environ.get('PATH', os.defpath)}"

    example = str(tmp_path / "examples" / f"{framework}_offline.py")
    ran = subprocess.run([str(python), example], env=told, capture_output=True, text=True, timeout=120)

    assert 0 == ran.returncode, ran.stderr
    assert "'append_memory', 'edit_memory'" in ran.stdout
    assert "Added to the end of customer-notes. Now at revision 2: 47 of 16384 bytes used" in ran.stdout
    assert ran.stdout.endswith("I have refunded the second charge, Ada.\n")
    assert "- Ada was charged twice; refunded." in next(tmp_path.glob("examples/.memory/customer-*")).read_text()
