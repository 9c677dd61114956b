"""``entries get``, ``search``, ``list``, ``hydrate`` and ``explain``: what a session sees. They change no record."""

from __future__ import annotations

import click

from memfiles.cli import output
from memfiles.cli.commands.entries_opening import As, as_session, filtering, looking_at_entries
from memfiles.cli.help_text import example
from memfiles.cli.settings import current, shared_options
from memfiles.entries.results import Found, Match, Page, Results
from memfiles.errors import EntryNotFound
from memfiles.records.entry import Kind
from memfiles.tools.entry_definitions import DEFAULT_PAGE, DEFAULT_RESULTS, MAX_PAGE, MAX_RESULTS

_SNIPPET_WIDTH = 60


@click.command("get", epilog=example("memfiles entries get customers/ada/plan --agent support"))
@click.argument("key")
@as_session
@shared_options
def get_command(key: str, agent: str | None, level: str | None, run: str | None) -> None:
    """Print the entry saved under KEY.

    To a file or pipe its text goes byte for byte; --json shows all that is known of it.
    """
    with looking_at_entries(As(agent, level, run)) as opened:
        found = opened.entries.get(opened.session, key)
    if found is None:
        raise unseen(key)
    if current().json:
        output.data(found.to_dict())
    else:
        output.content(found.content)


@click.command("search", epilog=example('memfiles entries search "which plan is Ada on?" --agent support'))
@click.argument("query")
@click.option(
    "-n",
    "--max-results",
    type=click.IntRange(1, MAX_RESULTS),
    default=DEFAULT_RESULTS,
    show_default=True,
    help="How many results at most.",
)
@click.option(
    "--association/--no-association", default=True, show_default=True, help="Whether a match lends weight to its kin."
)
@filtering
@as_session
@shared_options
def search_command(  # noqa: PLR0913
    query: str,
    max_results: int,
    association: bool,
    tags: tuple[str, ...],
    category: str | None,
    kind: Kind | None,
    **who: str | None,
) -> None:
    """Search the entries, the best match first.

    FOUND BY says what found it. Any text is a query; there is no syntax to get wrong.
    """
    with looking_at_entries(As(**who)) as opened:
        results = opened.entries.search(
            opened.session,
            query,
            max_results=max_results,
            tags=tags,
            category=category,
            kind=kind,
            associate=association,
        )
    show_results(results)


@click.command("list", epilog=example("memfiles entries list --agent support --prefix customers/"))
@click.option("--prefix", metavar="TEXT", help="Only keys that begin with this text.")
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_PAGE),
    default=DEFAULT_PAGE,
    show_default=True,
    help="How many at most.",
)
@click.option("--cursor", metavar="CURSOR", help="Go on where an earlier list ended.")
@filtering
@as_session
@shared_options
def list_command(  # noqa: PLR0913
    prefix: str | None,
    limit: int,
    cursor: str | None,
    tags: tuple[str, ...],
    category: str | None,
    kind: Kind | None,
    **who: str | None,
) -> None:
    """List the entries by key, without their texts."""
    with looking_at_entries(As(**who)) as opened:
        page = opened.entries.list(
            opened.session, prefix=prefix, tags=tags, category=category, kind=kind, limit=limit, cursor=cursor
        )
    show_page(page)


@click.command("hydrate", epilog=example("memfiles entries hydrate --agent support --budget 4096"))
@click.option(
    "--budget", type=click.IntRange(min=0), metavar="BYTES", help="Fill so many bytes.  [default: as declared]"
)
@as_session
@shared_options
def hydrate_command(budget: int | None, **who: str | None) -> None:
    """Print the entries in an agent's system prompt.

    They are printed as the block that stands there: what is pinned first, then the newest that fit.
    """
    with looking_at_entries(As(**who)) as opened:
        hydration = opened.entries.hydrate(opened.session, budget_bytes=budget)
    if current().json:
        shown = {name: getattr(hydration, name) for name in ("text", "keys", "size_bytes", "budget_bytes")}
        output.data(shown)
    elif hydration.text:
        output.content(hydration.text + "\n")
    else:
        output.note("no entry is shown: there is none, or none fits")


@click.command("explain", epilog=example("memfiles entries explain customers/ada/plan --agent support"))
@click.argument("key")
@as_session
@shared_options
def explain_command(key: str, **who: str | None) -> None:
    """Say in numbers why an agent is shown an entry, or not."""
    with looking_at_entries(As(**who)) as opened:
        explanation = opened.entries.explain(opened.session, key)
    if explanation.reason == "unknown":
        raise unseen(key)
    if current().json:
        output.data(explanation.to_dict())
        return
    for told in (explanation, *explanation.others):
        output.line(output.one_line(f"{told.key} ({told.level}): {told.sentence}"))


def unseen(key: str) -> EntryNotFound:
    """The error for a key under which the session sees nothing, hidden or not."""
    return EntryNotFound(f"this session sees no entry {ascii(key[:80])}: `memfiles entries list` shows what it sees")


def show_results(results: Results) -> None:
    """Print what a search found."""
    if current().json:
        output.data(results.to_dict())
    elif results.matches:
        headers = ("KEY", "LEVEL", "SCORE", "FOUND BY", "SNIPPET")
        output.table(headers, map(_match_row, results.matches), numeric=("SCORE",))
    else:
        output.note("nothing found")


def show_page(page: Page) -> None:
    """Print one page of a list, and how to get the next."""
    if current().json:
        output.data(page.to_dict())
        return
    if not page.memories:
        output.note("there is no such entry")
        return
    headers = ("KEY", "LEVEL", "CATEGORY", "KIND", "BYTES", "UPDATED", "TAGS")
    output.table(headers, map(_listed_row, page.memories), numeric=("BYTES",))
    if page.next is not None:
        output.note(f"there are more: --cursor {page.next}")


def _match_row(match: Match) -> tuple[object, ...]:
    found = match.found
    return (
        found.key,
        found.level,
        f"{match.score:.3f}",
        "+".join(match.legs),
        match.snippet or found.content[:_SNIPPET_WIDTH],
    )


def _listed_row(found: Found) -> tuple[object, ...]:
    pinned = f"{found.category}, pinned" if found.pinned else found.category
    return found.key, found.level, pinned, found.kind, found.size_bytes, found.updated_at, " ".join(found.tags)
