"""``append``, ``edit``, ``undo`` and ``redact``: the changes a person makes, checked like an agent's."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from memfiles.cli import output
from memfiles.cli.help_text import example
from memfiles.cli.opening import writing
from memfiles.cli.settings import current, shared_options
from memfiles.errors import InvalidArgument, MirrorUnavailable
from memfiles.records.file_changes import Receipt, Redaction
from memfiles.records.keys import record_path
from memfiles.sync.status import pending_records

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])
APPEND_EXAMPLE = example(
    'memfiles append customer-notes --line "- Bob is on Pro"',
    "git log --oneline -5 | memfiles append customer-notes -",
)
_BULLET = re.compile(r"-+\s")


class TextCommand(click.Command):
    """A command whose last argument is text: one that starts like a bullet ("- Bob") is no option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put an argument that begins with a dash and a space behind ``--``, where click takes it as it is."""
        bullets = [arg for arg in args if _BULLET.match(arg)] if "--" not in args else []
        rest = [arg for arg in args if arg not in bullets]
        try:
            return super().parse_args(ctx, [*rest, "--", *bullets] if bullets else args)
        except click.NoSuchOption as error:
            hint = "Text that starts with a dash goes behind --."
            raise click.UsageError(f"{error.format_message()} {hint}", ctx) from None


def checked_options(function: _Decorated) -> _Decorated:
    """Add the two options that make a write safe to repeat and to base on what was read."""
    for option in (
        click.option(
            "--call-id", metavar="ID", help="Name this change: made again with the same name, it changes nothing."
        ),
        click.option(
            "--expected-revision",
            type=click.IntRange(min=1),
            metavar="REVISION",
            help="Refuse the change if the file is at another revision.",
        ),
    ):
        function = option(function)
    return function


@click.command("append", cls=TextCommand, epilog=APPEND_EXAMPLE)
@click.argument("name")
@click.argument("text", required=False)
@click.option("-n", "--line", is_flag=True, help="End TEXT with a newline if it does not end with one.")
@checked_options
@shared_options
def append_command(name: str, text: str | None, line: bool, expected_revision: int | None, call_id: str | None) -> None:
    """Append text to a memory file, exactly as given.

    No newline is added, unless --line asks for it. With - for TEXT, or no TEXT and a pipe, it is read from
    stdin (UTF-8). A text that starts with a dash and no space after it goes behind --.
    """
    added = given_text(text, what="append")
    added += "\n" if line and not added.endswith("\n") else ""
    with writing(name, call_id=call_id) as file:
        confirm(file.manager.append(file.uid, added, expected_revision=expected_revision, **file.caller))


@click.command("edit", epilog=example('memfiles edit customer-notes --old "Bob is on Free" --new "Bob is on Pro"'))
@click.argument("name")
@click.option("--old", required=True, help="The text to replace: its first occurrence, exactly as it stands there.")
@click.option("--new", required=True, help="What to put in its place; empty removes it.")
@checked_options
@shared_options
def edit_command(name: str, old: str, new: str, expected_revision: int | None, call_id: str | None) -> None:
    """Replace the first occurrence of a text in a memory file."""
    with writing(name, call_id=call_id) as file:
        receipt = file.manager.edit(file.uid, old, new, expected_revision=expected_revision, **file.caller)
        confirm(receipt)


@click.command("undo", epilog=example("memfiles undo customer-notes --to 3"))
@click.argument("name")
@click.option(
    "--to", "to_revision", type=click.IntRange(min=1), metavar="REVISION", help="Go back to the content at this one."
)
@checked_options
@shared_options
def undo_command(name: str, to_revision: int | None, expected_revision: int | None, call_id: str | None) -> None:
    """Take back the last change of a memory file, or go back to a revision.

    The way back is a new revision: nothing is lost, and an undo can be undone.
    """
    with writing(name, call_id=call_id) as file:
        receipt = file.manager.undo(
            file.uid, to_revision=to_revision, expected_revision=expected_revision, **file.caller
        )
        confirm(receipt)


@click.command("redact", cls=TextCommand, epilog=example("memfiles redact customer-notes -"))
@click.argument("name")
@click.argument("text", required=False)
@shared_options
def redact_command(name: str, text: str | None) -> None:
    """Remove a text from a memory file and from its history.

    Every occurrence goes, for good. Give - for TEXT to type or pipe it in: on the command line it would
    stay in your shell's history. One newline at the end of what is read is not part of the text.

    It is done when the mirror's copy is clean, too; until then the exit code is 7. A bucket with versioning
    still keeps its old versions: delete those there.
    """
    unwanted = given_text(text, what="redact")
    if text is None or text == "-":
        unwanted = unwanted.removesuffix("\n")
    with writing(name, call_id=None) as file:
        redaction = file.manager.redact(file.uid, unwanted, by=file.caller["by"])
    is_clean = record_path(file.uid) not in pending_records(file.workflow)
    show_redaction(redaction, is_clean_there=is_clean)
    if not is_clean:
        output.warn("the mirror's copy is not clean yet: repeat `memfiles sync push` until it ends with code 0")
        click.get_current_context().exit(MirrorUnavailable.exit_code)


def show_redaction(redaction: Redaction, *, is_clean_there: bool) -> None:
    """Tell what a redaction did."""
    if current().json:
        counts = {"in_content": redaction.in_content, "in_history": redaction.in_history}
        output.data({"receipt": redaction.receipt.to_dict()} | counts | {"mirror_is_clean": is_clean_there})
    elif redaction.in_content or redaction.in_history:
        places = output.count(redaction.in_content, "place")
        changes = output.count(redaction.in_history, "change")
        output.note(f"{redaction.receipt.name}: removed from {places} in the content and {changes} in the history")
    else:
        output.note(f"{redaction.receipt.name}: the text occurs neither in the content nor in the history")


def given_text(text: str | None, *, what: str) -> str:
    """The text given as an argument, or read from stdin."""
    if text is not None and text != "-":
        return text
    if text is None and sys.stdin.isatty():
        raise click.UsageError(f"nothing to {what}: give TEXT, or - to read it from stdin", click.get_current_context())
    if sys.stdin.isatty():
        output.note(f"Type the text to {what}, then Ctrl-D on a line of its own:")
    read = sys.stdin.buffer.read()
    try:
        given = read.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            f"stdin is not UTF-8: byte {error.start} is 0x{read[error.start]:02x}; convert it first (iconv -t UTF-8)"
        ) from None
    if text is None and not given:
        raise click.UsageError(f"nothing to {what}: stdin is empty", click.get_current_context())
    return given


def confirm(receipt: Receipt) -> None:
    """Tell what a write did."""
    if current().json:
        output.data(receipt.to_dict())
        return
    output.note(f"{receipt.name}: {_done(receipt)}; {receipt.size_bytes} of {receipt.max_size_bytes} bytes used")
    if receipt.warning:
        output.warn(receipt.warning)


def _done(receipt: Receipt) -> str:
    if receipt.replayed:
        return f"this change was made before, as revision {receipt.revision}; nothing changed now"
    done = f"now at revision {receipt.revision}"
    if receipt.matches is not None and receipt.matches > 1:
        return f"{done}, the first of {receipt.matches} matches replaced (line {receipt.line})"
    if receipt.undone_revision is not None:
        return f"{done}, revision {receipt.undone_revision} undone"
    return done
