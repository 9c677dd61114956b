"""``entries forget``: have the text of entries gone for good, here and in the mirror."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from memfiles.cli import output
from memfiles.cli.commands.entries_opening import As, as_session, changing_entries, looking_at_entries
from memfiles.cli.help_text import example
from memfiles.cli.settings import current, shared_options
from memfiles.entries.results import Forgotten
from memfiles.errors import MirrorUnavailable
from memfiles.records.entry import KINDS
from memfiles.records.keys import ENTRIES
from memfiles.sync.status import pending_records
from memfiles.workflow.workflow import Workflow

SHOWN = 20
ORIGINS = ("agent", "session", "run", "channel", "thread", "call", "source")
_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_SELECTORS = (
    click.option("--key", help="The entry saved under this key."),
    click.option("--uid", help="The entry whose record has this uid."),
    click.option("--tag", help="Entries with this tag."),
    click.option("--kind", type=click.Choice(KINDS), help="Entries of this kind."),
    click.option("--category", help="Entries of this category."),
    *(click.option(f"--from-{name}", metavar="ID", help=f"Entries that came from this {name}.") for name in ORIGINS),
)


def selecting(function: _Decorated) -> _Decorated:
    """Add the options that say which entries are meant."""
    for option in reversed(_SELECTORS):
        function = option(function)
    return function


@click.command(
    "forget",
    epilog=example(
        "memfiles entries forget --key customers/ada/plan --agent support",
        "memfiles entries forget --from-thread T-17 --agent support --dry-run",
    ),
)
@selecting
@click.option("--why", default="", metavar="TEXT", help="The reason; it stays when the entry is gone.")
@click.option("--dry-run", is_flag=True, help="Only count and name what would be forgotten.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@as_session
@shared_options
def forget_command(dry_run: bool, yes: bool, why: str, **given: Any) -> None:
    """Forget entries for good.

    Only entries at the session's own level are meant, and those that all given options fit. Their text
    goes from the record, its history, the index, every copy that was kept, and the mirror; who forgot it,
    when and why is what remains. There is no way back.

    It is done when the mirror's copies are gone, too; until then the exit code is 7. A bucket with versioning
    still keeps its old versions: delete those there.
    """
    who = As(given.pop("agent"), given.pop("level"), given.pop("run"))
    selector = selector_of(given)
    if dry_run or not yes:
        with looking_at_entries(who) as opened:
            found = opened.entries.forget(opened.session, **selector, dry_run=True)
        if dry_run or not found.count:
            show_forgotten(found, mirror_is_clean=None)
            return
        ask(found)
    with changing_entries(who) as opened:
        forgotten = opened.entries.forget(opened.session, **selector, why=why)
    is_clean = not pending_entries(opened.workflow)
    show_forgotten(forgotten, mirror_is_clean=is_clean)
    if not is_clean:
        output.warn("the mirror's copies are not gone yet: repeat `memfiles sync push` until it ends with code 0")
        click.get_current_context().exit(MirrorUnavailable.exit_code)


def selector_of(given: dict[str, Any]) -> dict[str, Any]:
    """What was said of the entries that are meant, as the library takes it; a usage error if that is nothing."""
    provenance = {name: value for name in ORIGINS if (value := given.pop(f"from_{name}")) is not None}
    selector = {name: value for name, value in given.items() if value is not None}
    if provenance:
        selector["provenance"] = provenance
    if not selector:
        raise click.UsageError(
            "say what to forget: --key, --tag, --kind, --uid or --from-...", click.get_current_context()
        )
    return selector


def ask(found: Forgotten) -> None:
    """Have a person say yes; without one to ask it is a usage error."""
    if current().json or not sys.stdin.isatty():
        raise click.UsageError(
            f"this forgets {entries(found.count)} for good: say --yes, or --dry-run to see which",
            click.get_current_context(),
        )
    name_them(found)
    click.confirm(f"Forget {entries(found.count)} for good?", abort=True, err=True)


def show_forgotten(forgotten: Forgotten, *, mirror_is_clean: bool | None) -> None:
    """Tell what a forget did, or would do."""
    if current().json:
        there = {} if mirror_is_clean is None else {"mirror_is_clean": mirror_is_clean}
        output.data(forgotten.to_dict() | there)
    elif not forgotten.count:
        output.note("there is no such entry at this session's level")
    elif forgotten.dry_run:
        output.note(f"{entries(forgotten.count)} would be forgotten")
        name_them(forgotten)
    else:
        output.note(f"forgot {entries(forgotten.count)}")


def name_them(found: Forgotten) -> None:
    """The keys, or the first of them."""
    for key in found.keys[:SHOWN]:
        output.note(f"  {output.one_line(key)}")
    if found.count > SHOWN:
        output.note(f"  and {found.count - SHOWN} more")


def entries(number: int) -> str:
    """A number of entries."""
    return output.count(number, "entry", "entries")


def pending_entries(workflow: Workflow) -> list[str]:
    """The records of entries that the mirror lacks as they are now."""
    return [path for path in pending_records(workflow) if path.startswith(f"{ENTRIES}/")]
