"""The support desk of the demo: its workflow, the script of its model, and the writer that is killed.

Run as ``python -m memfiles.cli.demo.support_desk WORKFLOW`` it appends to the ticket log as fast as it can. A number on
stdout acknowledges that append.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import memfiles

NOTES, LOG = "customer-notes-7f3a", "ticket-log-55e0"  # uids in workflow.yaml


def workflow_text(mirror: Path) -> str:
    """The workflow, with a mirror in the directory ``mirror``."""
    return Path(__file__).with_name("workflow.yaml").read_text(encoding="utf-8") % mirror.absolute().as_uri()


TASK = "Ada writes: I moved to Pro yesterday, and my card was charged twice."


def call(number: int, tool: str, **arguments: str) -> dict[str, Any]:
    """A tool call in Anthropic's format."""
    return {"type": "tool_use", "id": f"toolu_{number:02}", "name": tool, "input": arguments}


def _edit(number: int, old: str, new: str) -> dict[str, Any]:
    return call(number, "edit_memory", file="customer-notes", old_string=old, new_string=new)


# The answers of the model, turn by turn: content blocks, as its API returns them.
SCRIPT: tuple[list[dict[str, Any]], ...] = (
    [call(1, "read_memory", file="playbook")],
    [call(2, "append_memory", file="customer-notes", content="- Ada was charged twice in May; refunded.\n")],
    [_edit(3, "is on Free", "is on Pro")],
    [_edit(4, "Bob is on Pro", "Bob is on Free"), _edit(5, "Ada is on Free", "Ada is on Pro")],
    [
        call(
            6,
            "append_memory",
            file="handover",
            content="Ada wrote this morning that she had moved from Free to Pro and that her card was charged twice. "
            "I refunded the second charge and wrote back. Please see in a week whether it has arrived.\n",
        )
    ],
    [call(7, "append_memory", file="handover", content="- Ada: second charge refunded, see in a week.\n")],
    [{"type": "text", "text": "Ada, the second charge is refunded. It will be back on your card within a week."}],
)
REFUSED = "toolu_06"
AMBIGUOUS = "toolu_03"
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
                print(number, flush=True)
            except BrokenPipeError:
                return


if __name__ == "__main__":
    try:
        write(sys.argv[1])
    except memfiles.MemfilesError as error:
        sys.exit(f"error: {error}")
