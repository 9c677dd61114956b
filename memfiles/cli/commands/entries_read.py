"""The group ``entries``, and those of its commands that only read: a session's view of the entries."""

from __future__ import annotations

from typing import Any

import click

from memfiles.cli import output
from memfiles.cli.opening import As, as_session, filtering, reading_entries
from memfiles.cli.options import command, group
from memfiles.entries.results import Found
from memfiles.errors import EntryNotFound
from memfiles.records.entry import RECALL_BYTES
from memfiles.tools.entry_definitions import DEFAULT_PAGE, DEFAULT_RESULTS, LEAST_SEARCH_BYTES, MAX_PAGE, MAX_RESULTS

_SNIPPET_WIDTH = 60


@group(
    "entries",
    'memfiles entries save plan "Ada is on Pro" --agent support',
    "memfiles entries search ada --agent support --level INTERNAL",
)
def entries_command() -> None:
    """Save, find and forget the entries of agents.

    A session reads entries at or below its level, and changes those at its level.
    """


@command("get", "memfiles entries get customers/ada/plan --agent support", of=entries_command)
@click.argument("key")
@as_session
def get_command(key: str, who: As) -> None:
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
@click.argument("query")
@click.option(
    "-n",
    "--max-results",
    type=click.IntRange(1, MAX_RESULTS),
    help=f"Maximum number of results.  [default: {DEFAULT_RESULTS}; {MAX_RESULTS} with a budget]",
)
@click.option(
    "--budget-bytes",
    type=click.IntRange(min=LEAST_SEARCH_BYTES),
    metavar="BYTES",
    help="Maximum size of the results as compact JSON; each is then followed by its neighbours.",
)
@click.option(
    "--association/--no-association",
    default=True,
    show_default=True,
    help="Pass part of a match's score to related entries.",
)
@filtering
@as_session
def search_command(query: str, association: bool, who: As, **given: Any) -> None:
    """Search the entries, best match first.

    Any text is a query; there is no query syntax. FOUND BY shows which method matched.
    """
    with reading_entries(who) as (memory, session):
        results = memory.entries.search(session, query, associate=association, **given)
    if output.as_json(results.to_dict()):
        return
    if results.note is not None:
        output.warn(results.note)
    if results.matches:
        rows = (
            (each.found.key, each.found.level, f"{each.score:.3f}", "+".join(each.legs),
             each.snippet or each.found.content[:_SNIPPET_WIDTH])
            for each in results.matches
        )  # fmt: skip
        with output.paged():
            output.table(("KEY", "LEVEL", "SCORE", "FOUND BY", "SNIPPET"), rows, numeric=("SCORE",))
    else:
        output.note("nothing found")


@command("recall", 'memfiles entries recall "which plan is Ada on?" --agent support', of=entries_command)
@click.argument("query")
@click.option(
    "--budget",
    "budget_bytes",
    type=click.IntRange(min=0),
    metavar="BYTES",
    default=RECALL_BYTES,
    show_default=True,
    help="Maximum size of the block.",
)
@click.option("--include", multiple=True, metavar="KEY", help="Key of an entry that must be in; may be repeated.")
@as_session
def recall_command(query: str, budget_bytes: int, include: tuple[str, ...], who: As) -> None:
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
        output.note("nothing recalled: nothing answers, or nothing fits")


@command("list", "memfiles entries list --agent support --prefix customers/", of=entries_command)
@click.option("--prefix", metavar="TEXT", help="Only keys that start with this text.")
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_PAGE),
    default=DEFAULT_PAGE,
    show_default=True,
    help="Maximum number of entries.",
)
@click.option("--cursor", metavar="CURSOR", help="Continue where an earlier list ended.")
@filtering
@as_session
def list_command(who: As, **given: Any) -> None:
    """List entries by key, without their text."""
    with reading_entries(who) as (memory, session):
        page = memory.entries.list(session, **given)
    if output.as_json(page.to_dict()):
        return
    if not page.memories:
        output.note("no such entry")
        return
    headers = ("KEY", "LEVEL", "CATEGORY", "KIND", "BYTES", "UPDATED", "TAGS")
    output.table(headers, map(_listed_row, page.memories), numeric=("BYTES",))
    if page.next is not None:
        output.note(f"more entries: --cursor {page.next}")


@command("hydrate", "memfiles entries hydrate --agent support --budget 4096", of=entries_command)
@click.option("--budget", type=click.IntRange(min=0), metavar="BYTES", help="Byte budget.  [default: as declared]")
@as_session
def hydrate_command(budget: int | None, who: As) -> None:
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
@click.argument("key")
@as_session
def explain_command(key: str, who: As) -> None:
    """Explain why an agent sees an entry, or does not."""
    with reading_entries(who) as (memory, session):
        explanation = memory.entries.explain(session, key)
    if explanation.reason == "unknown":
        raise unseen(key)
    if output.as_json(explanation.to_dict()):
        return
    for each in (explanation, *explanation.others):
        output.line(output.one_line(f"{each.key} ({each.level}): {each.sentence}"))


def unseen(key: str) -> EntryNotFound:
    """The error for a key that the session does not see; hidden and missing look the same."""
    return EntryNotFound(f"no entry {ascii(key[:80])} at this level; see `memfiles entries list`")


def _listed_row(found: Found) -> tuple[object, ...]:
    pinned = f"{found.category}, pinned" if found.pinned else found.category
    return found.key, found.level, pinned, found.kind, found.size_bytes, found.updated_at, " ".join(found.tags)
