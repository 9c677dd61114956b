"""The process that the demo kills: it appends to the ticket log as fast as it can and says so each time.

Run as ``python -m memfiles.cli.demo.writer WORKFLOW``. A number on stdout means: that append was acknowledged.
"""

from __future__ import annotations

import sys

import memfiles
from memfiles.cli.demo.support_desk import LOG, ticket

MOST = 20_000


def write(workflow: str) -> None:
    """Append until killed, or until nobody listens any more."""
    with memfiles.open(workflow, watch=False) as memory:
        for number in range(1, MOST):
            memory.manager.append(LOG, ticket(number), by=memfiles.Actor(agent="closer"))
            try:
                print(number, flush=True)
            except BrokenPipeError:
                return


if __name__ == "__main__":
    try:
        write(sys.argv[1])
    except memfiles.MemfilesError as error:
        sys.exit(f"error: {error}")
