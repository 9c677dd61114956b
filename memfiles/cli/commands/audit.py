"""``audit``: what was done by whom, for the operator of a memory directory."""

from __future__ import annotations

from typing import Any

import click

from memfiles.cli import opening, output
from memfiles.cli.commands.read import author
from memfiles.cli.options import command
from memfiles.memory import AUDITED_MAX, look
from memfiles.records.record import Actor
from memfiles.storage.events import OUTCOMES, AuditEvent
from memfiles.workflow.workflow import Workflow

SINCE = click.option("--since", metavar="WHEN", help="Only from then on: a date, a time in UTC, or a span such as 24h.")


@command("audit", "memfiles audit --since 7d --op forget", "memfiles audit --record customer-notes --outcome refused")
@SINCE
@click.option("--until", metavar="WHEN", help="Only before then.")
@click.option("--agent", metavar="NAME", help="Only what this agent did.")
@click.option("--actor", metavar="NAME", help="Only what this human or program did.")
@click.option("--op", metavar="NAME", help="Only this operation, such as save, append or forget.")
@click.option("--record", metavar="NAME", help="Only this memory file (name or uid) or entry (key, uid or path).")
@click.option("--outcome", type=click.Choice(OUTCOMES), help="Only what ended like this.")
@click.option(
    "-n", "--max-count", "limit", type=click.IntRange(1, AUDITED_MAX), default=100, show_default=True,
    help="Maximum number of events.",
)  # fmt: skip
def audit_command(**asked: Any) -> None:
    """Show who did what to which record, newest first.

    It shows events of all levels, and no content. An entry is shown by the path of its record, as the audit holds no
    keys; --record finds it by its key, as long as it has this key. Damaged lines are counted and left out.
    """
    workflow = opening.load_workflow()
    with look(workflow, warn=output.warn) as memory:
        trail = memory.audit(**asked)
    if output.as_json(trail.to_dict()):
        return
    rows = ((it.at, _what(it), it.level or "-", _who(it), _record(workflow, it)) for it in trail.events)
    if trail.events:
        output.table(("AT", "WHAT", "LEVEL", "BY", "RECORD"), rows)
    else:
        output.note("no such event in the audit")
    if trail.more:
        output.note(f"there are older events: add --until {trail.events[-1].at} or a larger -n")
    if trail.damaged:
        output.warn(f"{output.count(trail.damaged, 'line')} of the audit cannot be read: {'; '.join(trail.places)}")


def _what(event: AuditEvent) -> str:
    return event.op if event.outcome == "ok" else f"{event.op} {event.outcome}: {event.code}"


def _who(event: AuditEvent) -> str:
    user = f", user {event.user[:12]}" if event.user else ""
    return author(Actor(event.agent, event.run, None, event.actor)) + user


def _record(workflow: Workflow, event: AuditEvent) -> str:
    """The name of a file or the path of an entry, or how many records there were."""
    if event.path is not None:
        return opening.name_of(workflow, event.path)
    return "-" if event.count is None else output.count(event.count, "record")
