"""``audit`` and ``stats``: what was done by whom, and how much there is, for the operator of a memory directory."""

from __future__ import annotations

from typing import Any

import click

from memfiles.cli import opening, output
from memfiles.cli.commands.read import author
from memfiles.cli.options import command
from memfiles.memory import look
from memfiles.records.file_changes import share_of
from memfiles.records.record import Actor
from memfiles.storage.events import OUTCOMES, AuditEvent
from memfiles.tools.oversight import AUDITED_MAX, EVERY
from memfiles.workflow.workflow import Workflow

_WHEN = "a date, a time in UTC, or a span such as 24h."


@command("audit", "memfiles audit --since 7d --op forget", "memfiles audit --record customer-notes --outcome refused")
@click.option("--since", metavar="WHEN", help=f"Only from then on: {_WHEN}")
@click.option("--until", metavar="WHEN", help="Only before then.")
@click.option("--agent", metavar="NAME", help="Only what this agent did.")
@click.option("--user", metavar="NAME", help="Only what was done for this user, or to what is kept for this user.")
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


@command("stats", "memfiles stats --since 7d", "memfiles stats --since 24h --every hour --json")
@click.option("--since", metavar="WHEN", default="30d", show_default=True, help=f"Activity from then on: {_WHEN}")
@click.option("--every", type=click.Choice(EVERY), default="day", show_default=True, help="Length of a period.")
def stats_command(**asked: Any) -> None:
    """Show how much the memory holds, and how it grew and was used.

    It covers all levels, agents and users. USED is how much of a budget is used where it is used most. Activity is
    counted from the audit; reads are in it only with `audit: {reads: true}`.
    """
    workflow = opening.load_workflow()
    with look(workflow, warn=output.warn) as memory:
        found = memory.stats(**asked)
    if output.as_json(found.to_dict()):
        return
    numbers = ("BYTES", "CAP", "USERS", "ENTRIES", "EXPIRED", "DELETED", "USED", "WRITES", "READS", "REFUSED", "GROWN")
    files = (
        (it.name, it.level, it.size_bytes, it.max_size_bytes, share_of(it.max_size_bytes, used=it.size_bytes))
        for it in found.files
    )
    shown = ((*cells, output.percent(share)) for *cells, share in files)
    output.table(("FILE", "LEVEL", "BYTES", "CAP", "USED"), shown, numeric=numbers)
    if found.entries:
        output.line("")
        rows = (
            (it.agent, it.level, it.users, it.entries, it.size_bytes, it.expired, it.retired, output.percent(it.share))
            for it in found.entries
        )
        headers = ("AGENT", "LEVEL", "USERS", "ENTRIES", "BYTES", "EXPIRED", "DELETED", "USED")
        output.table(headers, rows, numeric=numbers)
    output.line("")
    done = ((it.at, it.writes, it.reads, it.refused, f"{it.bytes:+}") for it in found.periods)
    output.table(("SINCE", "WRITES", "READS", "REFUSED", "GROWN"), done, numeric=numbers)


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
