"""The support desk of the demo: its workflow, the script of its model, and the writer that is killed.

Run as ``python -m memfiles.cli.demo.support_desk WORKFLOW`` it appends to the ticket log as fast as it can. A number on
stdout acknowledges that append.
"""

from __future__ import annotations

import os
import sys
from importlib.resources import files
from pathlib import Path

import memfiles

NOTES, LOG = "customer-notes-7f3a", "ticket-log-55e0"  # uids in workflow.yaml


def workflow_text(mirror: Path) -> str:
    """The workflow, with a mirror in the directory ``mirror``."""
    return files("memfiles.cli.demo").joinpath("workflow.yaml").read_text("utf-8") % mirror.absolute().as_uri()


TASK = "Ada writes: I moved to Pro yesterday, and my card was charged twice."


ScriptedCall = tuple[str, dict[str, str]]  # a tool and its arguments


def _append(file: str, content: str) -> ScriptedCall:
    return "append_memory", {"file": file, "content": content}


def _edit(old: str, new: str) -> ScriptedCall:
    return "edit_memory", {"file": "customer-notes", "old_string": old, "new_string": new}


# The calls of the model, and what it says at the end.
SCRIPT: tuple[ScriptedCall, ...] = (
    ("read_memory", {"file": "playbook"}),
    _append("customer-notes", "- Ada was charged twice in May; refunded.\n"),
    _edit("is on Free", "is on Pro"),
    _edit("Bob is on Pro", "Bob is on Free"),
    _edit("Ada is on Free", "Ada is on Pro"),
    _append(
        "handover",
        "Ada wrote this morning that she had moved from Free to Pro and that her card was charged twice. I refunded "
        "the second charge and wrote back. Please see in a week whether it has arrived.\n",
    ),
    _append("handover", "- Ada: second charge refunded, see in a week.\n"),
)
AMBIGUOUS, REFUSED = 2, 5  # calls in the script, from 0
ANSWER = "Ada, the second charge is refunded. It will be back on your card within a week."
ADA = "customers/ada"
KNOWN = "Ada moved from Free to Pro in November and was charged twice."
DELICATE = "Ada is about to order 500 seats; she was offered 20 % off."


def ticket(number: int) -> str:
    """The line of the log for one closed ticket."""
    return f"- ticket {number:05} closed: the customer is content\n"


MOST = 20_000


def write(workflow: str) -> None:
    """Append until killed, or until nobody reads the output."""
    with memfiles.open(workflow, watch=False) as memory:
        for number in range(1, MOST):
            memory.manager.append(LOG, ticket(number), by=memfiles.Actor(agent="closer"))
            try:
                os.write(sys.stdout.fileno(), b"%d\n" % number)  # bytes, whatever PYTHONIOENCODING says
            except BrokenPipeError:
                return


if __name__ == "__main__":
    try:
        write(sys.argv[1])
    except memfiles.MemfilesError as error:
        sys.exit(f"error: {error}")
