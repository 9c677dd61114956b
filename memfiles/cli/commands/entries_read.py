"""The group ``entries``, and those of its commands that only read: a session's view of the entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from memfiles.cli import output
from memfiles.cli.commands.read import author
from memfiles.cli.opening import SessionOptions, as_session, filtering, reading_entries
from memfiles.cli.options import argument, command, group, option
from memfiles.entries.drafts import MAX_GONE
from memfiles.entries.questions import ORDERS
from memfiles.errors import EntryNotFound
from memfiles.records.entry import (
    DEFAULT_PAGE,
    DEFAULT_RESULTS,
    KINDS,
    LEAST_SEARCH_BYTES,
    MAX_PAGE,
    MAX_RESULTS,
    RECALL_BYTES,
)
from memfiles.records.graphemes import as_word

if TYPE_CHECKING:
    from memfiles.entries.log import EntryChange
    from memfiles.entries.results import Found

_SNIPPET_WIDTH = 60


@group(
    "entries",
    'memfiles entries save plan "Ada is on Pro" --agent support',
    "memfiles entries search ada --agent support --level INTERNAL",
    more="memfiles.cli.commands.entries",
)
def entries_command() -> None:
    """Save, find and forget the entries of agents.

    A session reads entries at or below its level, and changes those at its level.
    """


@command("get", "memfiles entries get customers/ada/plan --agent support", of=entries_command)
@argument("key")
@as_session
def get_command(key: str, who: SessionOptions) -> None:
    """Print the entry saved under KEY.

    A file or pipe gets its text byte for byte; --json shows every field.
    """
    with reading_entries(who) as (memory, session):
        found = memory.entries.get(session, key)
    if found is None:
        raise unseen(key)
    if not output.as_json(found.to_dict()):
        output.content(found.content)


@command("search", 'memfiles entries search "which plan is Ada on?" --agent support', of=entries_command)
@argument("query")
@option(
    "-n",
    "--max-results",
    type=click.IntRange(1, MAX_RESULTS),
    help=f"Maximum number of results.  [default: {DEFAULT_RESULTS}; {MAX_RESULTS} with a budget]",
)
@option(
    "--budget-bytes",
    type=click.IntRange(min=LEAST_SEARCH_BYTES),
    metavar="BYTES",
    help="Maximum size of the results as compact JSON; each is then followed by its neighbours.",
)
@option(
    "--association/--no-association",
    default=True,
    show_default=True,
    help="Pass part of a match's score to related entries.",
)
@filtering
@option("--kind", type=click.Choice(KINDS), help="Only entries of this kind.")
@option("--since", metavar="WHEN", help="Only what changed from then on: a date, a time in UTC or a span.")
@as_session
def search_command(query: str, association: bool, who: SessionOptions, **given: Any) -> None:
    """Search the entries, best match first.

    Any text is a query; there is no query syntax. FOUND BY shows which method matched.
    """
    with reading_entries(who) as (memory, session):
        results = memory.entries.search(session, query, associate=association, **given)
    if output.as_json(results.to_dict()):
        return
    if results.note is not None:
        output.warn(results.note)
    rows = (
        (each.found.key, each.found.level, f"{each.score:.3f}", "+".join(each.legs),
         each.snippet or each.found.content[:_SNIPPET_WIDTH])
        for each in results.matches
    )  # fmt: skip
    with output.paged():
        headers = ("KEY", "LEVEL", "SCORE", "FOUND BY", "SNIPPET")
        output.table(headers, rows, numeric=("SCORE",), nothing="nothing found")


@command("recall", 'memfiles entries recall "which plan is Ada on?" --agent support', of=entries_command)
@argument("query")
@option(
    "--budget",
    "budget_bytes",
    type=click.IntRange(min=0),
    metavar="BYTES",
    default=RECALL_BYTES,
    show_default=True,
    help="Maximum size of the block.",
)
@option("--include", multiple=True, metavar="KEY", help="Key of an entry that must be in; may be repeated.")
@as_session
def recall_command(query: str, budget_bytes: int, include: tuple[str, ...], who: SessionOptions) -> None:
    """Print what an agent's memory holds about QUERY, as a block for one turn.

    Pinned entries come first, then those of --include, then the answers, each with its neighbours.
    """
    with reading_entries(who) as (memory, session):
        found = memory.entries.recall(session, query, budget_bytes=budget_bytes, include=include)
    if output.as_json({**found.data, "text": found.text}):
        return
    if found.note is not None:
        output.warn(found.note)
    if found.text:
        output.content(found.text + "\n")
    else:
        output.note("nothing recalled: no entry answers, or none fits")


@command("list", "memfiles entries list --agent support --prefix customers/", of=entries_command)
@option("--prefix", metavar="TEXT", help="Only keys that start with this text.")
@option(
    "--limit",
    type=click.IntRange(1, MAX_PAGE),
    default=DEFAULT_PAGE,
    show_default=True,
    help="Maximum number of entries.",
)
@option("--cursor", metavar="CURSOR", help="Continue where an earlier list ended.")
@filtering
@option("--tag-any", "tags_any", multiple=True, metavar="TAG", help="Only entries with one of these; repeatable.")
@option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Only entries of this kind; repeatable.")
@option("--since", metavar="WHEN", help="Only entries whose text changed since a date, time or span such as 24h.")
@option("--order", type=click.Choice(ORDERS), default="key", show_default=True, help="By key, or newest first.")
@as_session
def list_command(who: SessionOptions, **given: Any) -> None:
    """List entries without their text, by key or the last changed first.

    --cursor continues a list with the same order and filters.
    """
    with reading_entries(who) as (memory, session):
        page = memory.entries.list(session, **given)
    if output.as_json(page.to_dict()):
        return
    headers = ("KEY", "LEVEL", "CATEGORY", "KIND", "BYTES", "UPDATED", "TAGS")
    output.table(headers, map(_listed_row, page.memories), numeric=("BYTES",), nothing="no such entry")
    if page.next is not None:
        import shlex  # late: most lists are on one page

        output.note(f"more entries: --cursor {shlex.quote(page.next)}")


@command("log", "memfiles entries log customers/ada/plan --agent support -n 5", of=entries_command)
@argument("key")
@option("-n", "--max-count", type=click.IntRange(min=1), help="Maximum number of changes.")
@as_session
def log_command(key: str, max_count: int | None, who: SessionOptions) -> None:
    """List what happened to an entry, newest first.

    KEY may also be a key that the entry had before. Changes made where the session could not see the entry are left
    out.
    """
    with reading_entries(who) as (memory, session):
        log = memory.entries.log(session, key)
    log = replace(log, changes=log.changes[:max_count])
    if output.as_json(log.to_dict()):
        return
    headers = ("REVISION", "AT", "CHANGE", "BYTES", "BY", "ABOUT")
    rows = ((it.revision or "", it.at, it.op, _grown(it), author(it.by), _about(it)) for it in log.changes)
    with output.paged():
        output.table(headers, rows, numeric=("REVISION",))
    made = {"made of": log.made_of, "made into": log.made_into}
    for what, keys in made.items():
        if keys:
            output.note(output.one_line(f"{what}: {', '.join(map(as_word, keys.values()))}"))
    if log.found.key != key or log.state != "live":
        output.note(
            output.one_line(f"now: {as_word(log.found.key)} at level {log.found.level}, {log.state}; id {log.found.id}")
        )


def _grown(change: EntryChange) -> str:
    return "" if change.bytes is None else f"+{change.bytes} -{change.removed_bytes or 0}"


def _about(change: EntryChange) -> str:
    """The facts of a change apart from the content."""
    renamed = f"{as_word(change.from_key)} -> {as_word(change.key)}" if change.from_key else None
    moved = f"{change.from_scope} -> {change.scope}" if change.from_scope else None
    undone = f"revision {change.undone_revision}" if change.undone_revision else None
    return ", ".join(part for part in (renamed, moved, undone, change.cause) if part)


@command("diff", "memfiles entries diff customers/ada/plan 1 3 --agent support", of=entries_command)
@argument("key")
@argument("from_revision", metavar="[FROM]", required=False, type=click.IntRange(min=1))
@argument("to_revision", metavar="[TO]", required=False, type=click.IntRange(min=1))
@as_session
def diff_command(key: str, from_revision: int | None, to_revision: int | None, who: SessionOptions) -> None:
    """Show what changed between two revisions of an entry.

    Without TO it compares with the current revision; without both it shows the last change of the content.
    """
    with reading_entries(who) as (memory, session):
        log = memory.entries.log(session, key)
        if from_revision is None:
            changed = (it.revision for it in log.changes[:-1] if it.revision and (it.bytes or it.removed_bytes))
            to = next(changed, log.changes[-1].revision or 1)
            since = max((it.revision for it in log.changes if it.revision and it.revision < to), default=to)
        else:
            since, to = from_revision, log.found.revision if to_revision is None else to_revision
        text = memory.entries.diff(session, key, since, to)
    shown = {"key": log.found.key, "id": log.found.id, "from_revision": since, "to_revision": to, "diff": text}
    if output.as_json(shown):
        return
    with output.paged():
        output.diff(text)
    if not text:
        output.note(output.one_line(f"{as_word(log.found.key)}: revisions {since} and {to} have the same content"))


_gone_limit = click.IntRange(1, MAX_GONE)
_at_most = option("--limit", type=_gone_limit, default=DEFAULT_PAGE, show_default=True, help="Maximum number.")


@command("deleted", "memfiles entries deleted --agent support", of=entries_command)
@_at_most
@as_session
def deleted_command(limit: int, who: SessionOptions) -> None:
    """List deleted, evicted and expired entries, newest first.

    `memfiles entries restore` brings back those at the session's level.
    """
    with reading_entries(who) as (memory, session):
        gone = memory.entries.deleted(session, limit=limit)
    if output.as_json(gone.to_dict()):
        return
    rows = ((it.found.key, it.found.level, it.state, it.at, author(it.by), it.cause) for it in gone.entries)
    output.table(("KEY", "LEVEL", "STATE", "AT", "BY", "CAUSE"), rows, nothing="no such entry")
    _mention_more(gone.more, limit)


@command("tombstones", "memfiles entries tombstones --agent support", of=entries_command)
@_at_most
@as_session
def tombstones_command(limit: int, who: SessionOptions) -> None:
    """List what is left of forgotten entries, newest first.

    That is the id of the entry, when and by whom it was forgotten, and why; never its key or its text.
    """
    with reading_entries(who) as (memory, session):
        found = memory.entries.tombstones(session, limit=limit)
    if output.as_json(found.to_dict()):
        return
    rows = ((it.id, it.agent, it.level, it.at, author(it.by), it.why) for it in found.tombstones)
    output.table(("ID", "AGENT", "LEVEL", "AT", "BY", "WHY"), rows, nothing="no tombstone")
    _mention_more(found.more, limit)


def _mention_more(more: bool, limit: int) -> None:
    if more:
        output.note("there are more: raise --limit" if limit < MAX_GONE else "there are more")


@command("hydrate", "memfiles entries hydrate --agent support --budget 4096", of=entries_command)
@option("--budget", type=click.IntRange(min=0), metavar="BYTES", help="Byte budget.  [default: as declared]")
@as_session
def hydrate_command(budget: int | None, who: SessionOptions) -> None:
    """Print the entries in an agent's system prompt.

    This is the block as it is in the prompt: pinned entries first, then the newest that fit.
    """
    with reading_entries(who) as (memory, session):
        hydration = memory.entries.hydrate(session, budget_bytes=budget)
    shown = {name: getattr(hydration, name) for name in ("text", "keys", "size_bytes", "budget_bytes")}
    shown["entries"] = [each.to_line() for each in hydration.entries]
    if output.as_json(shown):
        return
    if hydration.text:
        output.content(hydration.text + "\n")
    else:
        output.note("no entries shown: there are none, or none fit")


@command("explain", "memfiles entries explain customers/ada/plan --agent support", of=entries_command)
@argument("key")
@as_session
def explain_command(key: str, who: SessionOptions) -> None:
    """Explain why an agent sees an entry, or does not."""
    with reading_entries(who) as (memory, session):
        explanation = memory.entries.explain(session, key)
    if explanation.reason == "unknown":
        raise unseen(key)
    if output.as_json(explanation.to_dict()):
        return
    for each in (explanation, *explanation.others):
        output.line(output.one_line(f"{as_word(each.key)} ({each.level}): {each.sentence}"))


def unseen(key: str) -> EntryNotFound:
    """The error for a key that the session does not see; hidden and missing look the same."""
    return EntryNotFound(f"no entry {ascii(key[:80])} at this level; see `memfiles entries list`")


def _listed_row(found: Found) -> tuple[object, ...]:
    pinned = f"{found.category}, pinned" if found.pinned else found.category
    return found.key, found.level, pinned, found.kind, found.size_bytes, found.updated_at, " ".join(found.tags)
