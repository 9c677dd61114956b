"""Run the command line, as ``python -m memfiles`` or as the script ``memfiles``."""

from __future__ import annotations

import sys

_INTERRUPTED = 130  # as of ``cli.failures``


def run() -> None:
    """Run the command line and end the process."""
    try:
        from memfiles.cli import run as run_command  # here, as Python itself would show a traceback for an interrupt

        run_command()
    except KeyboardInterrupt:  # during an import or at the end; click takes care of the others
        raise interrupted() from None


def interrupted() -> SystemExit:
    """The end of a command that was interrupted where nothing else reports errors: it is reported here."""
    said = "error: interrupted"
    if "--json" in sys.argv:
        said = '{"error": {"code": "interrupted", "message": "interrupted", "transient": false}}'
    print(said, file=sys.stderr)
    return SystemExit(_INTERRUPTED)


if __name__ == "__main__":
    run()
