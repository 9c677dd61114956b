"""``entries save``, ``delete`` and ``restore``: the changes a person makes, checked like an agent's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from memfiles.cli import output
from memfiles.cli.commands.entries_opening import As, as_session, changing_entries
from memfiles.cli.commands.write import TextCommand, given_text
from memfiles.cli.help_text import example
from memfiles.cli.opening import AUTHOR
from memfiles.cli.settings import current, shared_options
from memfiles.entries.results import Saved
from memfiles.records.entry import KINDS
from memfiles.workflow.fields import seconds_in

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])
SAVE_EXAMPLE = example(
    'memfiles entries save customers/ada/plan "Ada is on Pro" --agent support --tag ada',
    "memfiles entries save how-to/refund - --agent support --kind procedure < refund.md",
)


def _in_seconds(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """A time span such as 90s, 5m, 72h or 30d."""
    try:
        return None if value is None else seconds_in(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


_SHARE = click.FloatRange(0, 1)
_FACETS = (
    click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag; may be given several times."),
    click.option("--category", help="core, daily, workspace, or a name of your own.  [default: general]"),
    click.option("--kind", type=click.Choice(KINDS), help="What it is.  [default: note]"),
    click.option(
        "--importance", type=_SHARE, metavar="0..1", help="How much would be lost without it.  [default: 0.5]"
    ),
    click.option("--confidence", type=_SHARE, metavar="0..1", help="How sure it is.  [default: 1]"),
    click.option("--pinned/--not-pinned", default=None, help="Whether agents see it at the start of every run."),
    click.option("--link", "links", multiple=True, metavar="KEY", help="An entry that belongs to it; may be repeated."),
    click.option(
        "--ttl", callback=_in_seconds, metavar="TIME", help="Expire so long after the last change, such as 72h."
    ),
    click.option(
        "--expected-revision",
        type=click.IntRange(min=0),
        metavar="REVISION",
        help="Refuse it if the entry is at another revision; 0: if there is one at all.",
    ),
    click.option("--call-id", metavar="ID", help="Name this save: made again with the same name, it changes nothing."),
)


def facets(function: _Decorated) -> _Decorated:
    """Add the options that say what an entry is, and that make it safe to save."""
    for option in reversed(_FACETS):
        function = option(function)
    return function


@click.command("save", cls=TextCommand, epilog=SAVE_EXAMPLE)
@click.argument("key")
@click.argument("text", required=False)
@facets
@as_session
@shared_options
def save_command(key: str, text: str | None, **given: Any) -> None:
    """Save TEXT under KEY, at the session's level.

    What is there under the key is replaced, and what is not said stays as it was. With - for TEXT, or no
    TEXT and a pipe, it is read from stdin (UTF-8).
    """
    who = As(given.pop("agent"), given.pop("level"), given.pop("run"))
    content = given_text(text, what="save")
    said = {name: value for name, value in given.items() if value is not None and value != ()}
    with changing_entries(who) as opened:
        confirm_saved(opened.entries.save(opened.session, key, content, source=AUTHOR, **said), done="saved")


@click.command("delete", epilog=example("memfiles entries delete customers/ada/plan --agent support"))
@click.argument("key")
@as_session
@shared_options
def delete_command(key: str, **who: str | None) -> None:
    """Hide an entry; it can be restored.

    To have its text gone for good, everywhere, use `memfiles entries forget`.
    """
    with changing_entries(As(**who)) as opened:
        deleted = opened.entries.delete(opened.session, key)
    if current().json:
        output.data(deleted.to_dict())
    else:
        output.note(
            output.one_line(f"{key}: deleted at level {deleted.level}; `memfiles entries restore` brings it back")
        )


@click.command("restore", epilog=example("memfiles entries restore customers/ada/plan --agent support"))
@click.argument("key")
@as_session
@shared_options
def restore_command(key: str, **who: str | None) -> None:
    """Bring back a deleted, evicted or expired entry."""
    with changing_entries(As(**who)) as opened:
        confirm_saved(opened.entries.restore(opened.session, key), done="restored")


def confirm_saved(saved: Saved, *, done: str) -> None:
    """Tell what a save, an update or a restore did."""
    if current().json:
        output.data(saved.to_dict())
        return
    now = f"revision {saved.revision}, {saved.size_bytes} bytes"
    said = (
        f"this call was made before, as {now}; nothing changed now"
        if saved.replayed
        else f"{done} at level {saved.level}, {now}"
    )
    output.note(output.one_line(f"{saved.key}: {said}"))
    if saved.evicted:
        output.warn(output.one_line(f"evicted over a budget: {', '.join(saved.evicted)}"))
    for warning in saved.warnings:
        output.warn(output.one_line(warning))
