"""Suites of files, entries, levels and users, run once more on the PostgreSQL store; ``make stores`` runs them all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.stores import STORE

SUITES = (
    *("tests/files/test_manager.py", "tests/files/test_manager_redaction.py", "tests/entries/test_users.py"),
    *("tests/surfaces/test_support_bot.py", "tests/surfaces/test_noninterference.py"),
)


@pytest.mark.slow
@pytest.mark.skipif(STORE in os.environ, reason="they run on it already")
def test_the_suites_hold_on_another_store(tmp_path: Path) -> None:
    """None of them fails, and those of files themselves are left out."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--basetemp={tmp_path / 'base'}",
        *SUITES,
    ]
    environment = os.environ | {STORE: "postgresql", "MEMFILES_WORLDS": "8", "CI": "false"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert 0 == done.returncode, done.stdout[-4000:]
    assert "passed" in done.stdout and "skipped" in done.stdout
