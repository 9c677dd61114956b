"""Run the command line as ``python -m memfiles``."""

from __future__ import annotations

from memfiles.cli import run

if __name__ == "__main__":
    run()
