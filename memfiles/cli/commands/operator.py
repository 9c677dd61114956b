"""``audit``, ``stats``, ``users`` and ``ui``: commands for the operator, across agents, users and levels."""

from __future__ import annotations

import getpass
import json
import logging
import os
import sys
import time
import webbrowser
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import click
from msgspec.structs import replace

from memfiles.cli import opening, output
from memfiles.cli.commands.entries import ask, end_with_forgotten, has_every_entry
from memfiles.cli.commands.read import author
from memfiles.cli.failures import NotFound, end_on_signals, listening_on
from memfiles.cli.options import argument, command, current, filled, group, on_disk, option
from memfiles.errors import ExtraMissing
from memfiles.files.restore_report import FileView
from memfiles.memory import look
from memfiles.records.file_changes import share_of
from memfiles.records.record import Actor
from memfiles.secrets.gate import check_label
from memfiles.storage.events import OUTCOMES, AuditEvent
from memfiles.sync.status import SyncStatus
from memfiles.tools.oversight import AUDITED_MAX, EVERY, Stats
from memfiles.workflow.workflow import Workflow

UI_PORT = 8710
WATCH_SECONDS = 1.0
_UP_TO = option("--level", help="Nothing above this level.")
_WHEN = "a date, a time in UTC, or a span such as 24h."


@command("audit", "memfiles audit --since 7d --op forget", "memfiles audit --record customer-notes --outcome refused")
@option("--since", metavar="WHEN", help=f"Only from then on: {_WHEN}")
@option("--until", metavar="WHEN", help="Only before then, or from where a page ended.")
@option("--agent", metavar="NAME", callback=filled, help="Only what this agent did.")
@option("--user", metavar="NAME", help="Only what was done for this user, or to what is kept for this user.")
@option("--actor", metavar="NAME", callback=filled, help="Only what this human or program did.")
@option("--op", metavar="NAME", callback=filled, help="Only this operation, such as save, append or forget.")
@option(
    "--record", metavar="NAME", callback=filled, help="Only this memory file (name or uid) or entry (key, uid or path)."
)
@option("--outcome", type=click.Choice(OUTCOMES), help="Only what ended like this.")
@_UP_TO
@option(
    "-n", "--max-count", "limit", type=click.IntRange(1, AUDITED_MAX), default=100, show_default=True,
    help="Maximum number of events.",
)  # fmt: skip
def audit_command(limit: int, **asked: Any) -> None:
    """Show who did what to which record, newest first.

    It shows events of all levels, and no content. An entry is shown by the path of its record, as the audit holds no
    keys; --record finds it by its key, as long as it has this key. Damaged lines are counted and left out.
    """
    workflow = opening.load_workflow()
    with look(workflow, warn=output.warn) as memory:
        trail = memory.audit(**asked, limit=limit)
    if output.as_json(trail.to_dict()):
        return
    rows = ((it.at, _what(it), it.level or "-", _who(it), _record(workflow, it)) for it in trail.events)
    output.table(("AT", "WHAT", "LEVEL", "BY", "RECORD"), rows, nothing="no such event in the audit")
    if trail.more:
        larger = " or a larger -n" if limit < AUDITED_MAX else ""
        output.note(f"there are older events: add --until {trail.older}{larger}")
    if trail.damaged:
        output.warn(f"{output.count(trail.damaged, 'line')} of the audit cannot be read: {'; '.join(trail.places)}")


@command("stats", "memfiles stats --since 7d", "memfiles stats --since 24h --every hour --json")
@option("--since", metavar="WHEN", default="30d", show_default=True, help=f"Activity from then on: {_WHEN}")
@option("--every", type=click.Choice(EVERY), default="day", show_default=True, help="Length of a period.")
@_UP_TO
def stats_command(**asked: Any) -> None:
    """Show how much the memory holds, and how it grew and was used.

    It covers all levels, agents and users. USED is the share of the fullest budget. Activity is counted from the
    audit; reads are in it only with `audit: {reads: true}`.
    """
    workflow = opening.load_workflow()
    with look(workflow, warn=output.warn) as memory:
        found = memory.stats(**asked)
    if output.as_json(found.to_dict()):
        return
    show_attention(found)
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


def show_attention(found: Stats) -> None:
    """Print what a person should look at, if there is anything."""
    for it in found.attention:
        mark = click.style("! ", fg="red" if it.state == "bad" else "yellow")
        output.line(" ".join(output.one_line(word) for word in (it.about, it.name) if word) + f": {it.text}", mark=mark)
    if found.attention:
        output.line("")


def watch_status(workflow: Workflow) -> None:
    """Print the overview whenever it changes, until the command is interrupted; with ``--json`` each on one line."""
    shown: object = None
    with look(workflow, warn=output.warn) as memory:
        while True:
            found = memory.stats(None)
            views = [memory.manager.view(it, memory.report[it.uid]) for it in workflow.shared_files]
            sync = memory.sync.status()
            seen = found, views, replace(sync, lag_seconds=0.0)
            if seen != shown:
                shown = seen
                _show_overview(found, views, sync, workflow)
            time.sleep(WATCH_SECONDS)


def _show_overview(found: Stats, views: Sequence[FileView], sync: SyncStatus, workflow: Workflow) -> None:
    if current().json:
        output.line(json.dumps(found.to_dict() | {"mirror": sync.to_dict()}, ensure_ascii=False))
        sys.stdout.flush()
        return
    click.clear()  # only on a terminal
    show_attention(found)
    if sync.mirror is not None:
        from memfiles.cli.commands.sync import mirror_lines  # late: it loads what syncs

        output.labelled(mirror_lines(sync, workflow=workflow))
        output.line("")
    rows = ((it.card.name, it.card.level, *opening.sizes_of(it), *_last(it)) for it in views)
    numbers = ("REVISION", "BYTES", "CAP", "USED", "ENTRIES")
    output.table(("FILE", "LEVEL", *numbers[:4], "CHANGED", "BY"), rows, numeric=numbers)
    output.line("")
    budgets = (
        (it.agent, it.level, it.users, it.entries, it.size_bytes, output.percent(it.share)) for it in found.entries
    )
    output.table(("AGENT", "LEVEL", "USERS", "ENTRIES", "BYTES", "USED"), budgets, numeric=("USERS", *numbers))
    sys.stdout.flush()


def _last(view: FileView) -> tuple[str, str]:
    """When a file changed last, and who changed it."""
    return (view.changes[0].at, author(view.changes[0].by)) if view.changes else ("-", "-")


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


@group("users", "memfiles users list", "memfiles users forget ada --why 'asked to'")
def users_command() -> None:
    """List, export and forget the users for whom agents keep memory.

    These commands are for the operator of a memory directory: they go across all agents and levels.
    """


@command("list", "memfiles users list --json", "memfiles users list --order updated -n 20", of=users_command)
@option(
    "--order", type=click.Choice(("name", "updated", "share")), default="name", show_default=True,
    help="Order: by name, the last changed first, or the fullest budget first.",
)  # fmt: skip
@_UP_TO
@option("-n", "--max-count", "limit", type=click.IntRange(min=1), help="Maximum number of users.  [default: all]")
def list_command(**asked: Any) -> None:
    """List the users for whom something is kept.

    USED is the share of the user's fullest budget.
    """
    with look(opening.load_workflow(), warn=output.warn) as memory:
        found = memory.users.list(**asked)
    if output.as_json({"users": [each.to_dict() for each in found]}):
        return
    rows = (
        (it.user, it.entries, it.size_bytes, output.percent(it.share), it.updated_at, ", ".join(it.agents))
        for it in found
    )
    headers = ("USER", "ENTRIES", "BYTES", "USED", "LAST CHANGE", "AGENTS")
    output.table(headers, rows, numeric=("ENTRIES", "BYTES", "USED"), nothing="nothing is kept for any user")


@command("tombstones", "memfiles users tombstones ada", of=users_command)
@argument("user", required=False)
def tombstones_command(user: str | None) -> None:
    """Show what is left of users who were forgotten, newest first.

    A tombstone holds a hash of the name: give the name to see whether this USER was forgotten, when, by whom and why.
    """
    with look(opening.load_workflow(), warn=output.warn) as memory:
        found = memory.users.tombstones(user)
    if output.as_json({"tombstones": [each.to_dict() for each in found]}):
        return
    nothing = "no user was forgotten" if user is None else "this user was not forgotten"
    rows = ((it.at, it.user[:12], author(it.by), it.why) for it in found)
    output.table(("AT", "USER", "BY", "WHY"), rows, nothing=nothing)


@command("export", "memfiles users export ada ada-export", of=users_command)
@argument("user")
@argument("target", type=click.Path(), callback=on_disk)
@opening.ACTOR
def export_command(user: str, target: str, actor: str | None) -> None:
    """Write all that is kept for a user to a folder.

    Each agent's entries become one JSON Lines file, which `memfiles import` reads. Entries that the user's sessions
    saved for others are in files of their own, and so is each memory file of the user.
    """
    with look(opening.load_workflow(), warn=output.warn) as memory, output.progress("Exporting") as shown:
        exported = memory.users.export(user, target, actor=actor, progress=shown)
    if not exported.count:
        raise NotFound("nothing is kept for this user")
    if not output.as_json(exported.to_dict()):
        output.note(f"wrote {output.records(exported.count)} to {output.one_line(exported.target)}")


@command(
    "forget",
    "memfiles users forget ada --dry-run",
    "memfiles users forget ada --why 'asked to' --actor grace --yes",
    of=users_command,
)
@argument("user")
@option("--why", default="", metavar="TEXT", help="Reason; it stays when the user is forgotten.")
@opening.ACTOR
@option("--dry-run", is_flag=True, help="Show what would be forgotten.")
@option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
def forget_command(user: str, why: str, actor: str | None, dry_run: bool, yes: bool) -> None:
    """Forget a user for good.

    All that is kept for the user goes: every entry of every agent at every level, with its history, every kept
    copy, and the mirror's copies; and every entry for others in which the user's sessions wrote, as a whole.
    Machines that were offline forget it when they meet the mirror. A hash of the name, who forgot it, when and why
    remain. This cannot be undone.

    The exit code is 3 if nothing is kept for the user, and 7 until the mirror's copies are gone as well.
    """
    workflow = opening.load_workflow()
    end = partial(end_with_forgotten, counted=output.records, nothing="nothing is kept for this user")
    if dry_run or not yes:
        with look(workflow, warn=output.warn) as memory:
            found = memory.users.forget(user, dry_run=True)
        if dry_run or not found.count:
            end(found)
        ask(found, counted=output.records)
    with opening.mirrored(workflow) as memory, output.progress("Forgetting") as shown:
        forgotten = memory.users.forget(user, why=why, actor=actor, progress=shown)
    end(forgotten, mirror_is_clean=has_every_entry(workflow))


@command("ui", "memfiles ui", "memfiles ui -w support/workflow.yaml --read-only --level INTERNAL")
@option(
    "--port", type=click.IntRange(0, 65535), default=UI_PORT, show_default=True, help="Port on 127.0.0.1; 0 picks one."
)
@option("--read-only", is_flag=True, help="Refuse every action of the page.")
@option("--level", help="Show and change nothing above this level.")
@option("--actor", metavar="NAME", help="Who acts, recorded in histories and the audit.  [default: your login]")
@option("--no-browser", is_flag=True, help="Only print the link.")
def ui_command(port: int, read_only: bool, level: str | None, actor: str | None, no_browser: bool) -> None:
    """Open the inspector, a local web page on the live memory.

    It shows what agents, users and levels hold, what the model sees and who changed what, and corrects, exports and
    forgets. The link on stdout works once; the page is on this machine alone, until you interrupt the command.
    """
    if any(find_spec(needed) is None for needed in ("jinja2", "starlette", "uvicorn")):
        raise ExtraMissing("The inspector needs an extra: pip install 'memfiles[ui]'")
    workflow = opening.load_workflow()
    if level is not None:
        workflow.levels.rank(level)
    check_label(actor, what="actor")
    output.log_on_stderr(logging.WARNING)
    from memfiles.inspector.server import Inspector  # late: only this command needs the libraries of a page
    from memfiles.memory import open as open_memory

    listening = listening_on(port)
    end_on_signals()
    with open_memory(current().workflow) as memory:
        opening.mention_trouble(memory.report)
        shown = partial(Inspector, operator=actor or _login(), ceiling=level, read_only=read_only)
        inspector = shown(memory, listening=listening)
        if not output.as_json({"url": inspector.link}):
            output.line(inspector.link)
            output.note("the link works once, in a browser on this machine; Ctrl-C ends the inspector")
        sys.stdout.flush()
        if not no_browser and (sys.platform == "darwin" or os.environ.keys() & {"DISPLAY", "WAYLAND_DISPLAY"}):
            webbrowser.open(inspector.link)
        try:
            inspector.serve()
        except KeyboardInterrupt:
            output.note("the inspector ended")


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "operator"
