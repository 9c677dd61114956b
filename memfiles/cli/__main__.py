"""Run the command line as ``python -m memfiles.cli``."""

from __future__ import annotations

from memfiles.cli import main

if __name__ == "__main__":
    main()
