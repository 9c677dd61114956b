"""The group ``entries``, and those of its commands that only read: a session's view of the entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from memfiles.cli import output
from memfiles.cli.opening import As, as_session, filtering, reading_entries
from memfiles.cli.options import command, group
from memfiles.entries.results import Found
from memfiles.errors import EntryNotFound
from memfiles.tools.entry_definitions import DEFAULT_PAGE, DEFAULT_RESULTS, MAX_PAGE, MAX_RESULTS

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


def _number_of(
    what: str, *names: str, largest: int, default: int
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option that limits how many are shown."""
    number = click.IntRange(1, largest)
    return click.option(*names, type=number, default=default, show_default=True, help=f"Maximum number of {what}.")


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
@_number_of("results", "-n", "--max-results", largest=MAX_RESULTS, default=DEFAULT_RESULTS)
@click.option(
    "--association/--no-association",
    default=True,
    show_default=True,
    help="Pass part of a match's score to related entries.",
)
@filtering
@as_session
def search_command(query: str, max_results: int, association: bool, who: As, **filters: Any) -> None:
    """Search the entries, best match first.

    Any text is a query; there is no query syntax. FOUND BY shows which method matched.
    """
    with reading_entries(who) as (memory, session):
        results = memory.entries.search(session, query, max_results=max_results, associate=association, **filters)
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
        output.table(("KEY", "LEVEL", "SCORE", "FOUND BY", "SNIPPET"), rows, numeric=("SCORE",))
    else:
        output.note("nothing found")


@command("list", "memfiles entries list --agent support --prefix customers/", of=entries_command)
@click.option("--prefix", metavar="TEXT", help="Only keys that start with this text.")
@_number_of("entries", "--limit", largest=MAX_PAGE, default=DEFAULT_PAGE)
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
