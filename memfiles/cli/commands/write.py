"""``append``, ``edit``, ``open``, ``undo`` and ``redact``: changes by a person, checked like an agent's."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memfiles.cli import output
from memfiles.cli.failures import NotFound, failure_of
from memfiles.cli.opening import FILE_USER, as_person, view, writing
from memfiles.cli.options import Decorated, PlainCommand, argument, command, filled, option, options, usage_error
from memfiles.errors import InvalidArgument, MemfilesError, MirrorRefused, MirrorUnavailable

if TYPE_CHECKING:
    from memfiles.records.file_changes import Receipt
    from memfiles.records.record import Actor, Record

CALL_ID = option(
    "--call-id", metavar="ID", callback=filled,
    help="Idempotency key: repeating the change with the same ID has no effect.",
)  # fmt: skip


def expected_revision(help: str, *, least: int) -> Callable[[Decorated], Decorated]:
    """The option for the revision that a change must find, ``least`` or more."""
    return option("--expected-revision", type=click.IntRange(min=least), metavar="REVISION", help=help)


checked_options = options(expected_revision("Fail unless the file is at this revision.", least=1), CALL_ID)
"""Options of a change, by the names under which the manager takes them."""

_BULLET = re.compile(r"-+\s")


class TextCommand(PlainCommand):
    """A command whose last argument is text: a bullet such as "- Bob" is not an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move arguments that begin with a dash and a space behind ``--``, where click takes them literally.

        The value of an option stays where it is.
        """
        named = {name for it in self.params if isinstance(it, click.Option) and not it.is_flag for name in it.opts}
        is_text = [
            bool(_BULLET.match(arg)) and "--" not in args and before not in named
            for before, arg in zip(["", *args], args, strict=False)
        ]
        bullets = [arg for arg, moves in zip(args, is_text, strict=True) if moves]
        rest = [arg for arg, moves in zip(args, is_text, strict=True) if not moves]
        try:
            return super().parse_args(ctx, [*rest, "--", *bullets] if bullets else args)
        except click.NoSuchOption as error:
            hint = "Put text that starts with a dash after --."
            raise click.UsageError(f"{error.format_message()} {hint}", ctx) from None


@command(
    "append",
    'memfiles append customer-notes --line "- Bob is on Pro"',
    "git log --oneline -5 | memfiles append customer-notes -",
    cls=TextCommand,
)
@argument("name")
@argument("text", required=False)
@option("-n", "--line", is_flag=True, help="Add a newline to TEXT if it does not end with one.")
@checked_options
@FILE_USER
@as_person
def append_command(name: str, text: str | None, line: bool, user: str | None, **checked: Any) -> None:
    """Append text to a memory file, exactly as given.

    No newline is added without --line. With - for TEXT, or with a pipe and no TEXT, it is read from stdin (UTF-8).
    Put text that starts with a dash after --, unless a space follows the dash.
    """
    added = given_text(text, what="append")
    added += "\n" if line and not added.endswith("\n") else ""
    with writing(name, user) as (memory, uid):
        confirm(memory.manager.append(uid, added, user=user, **checked))


@command("edit", 'memfiles edit customer-notes --old "Bob is on Free" --new "Bob is on Pro"')
@argument("name")
@option("--old", required=True, help="Text to replace, exactly as it is in the file.")
@option("--new", required=True, help="Replacement; empty removes the text.")
@checked_options
@FILE_USER
@as_person
def edit_command(name: str, old: str, new: str, user: str | None, **checked: Any) -> None:
    """Replace the first occurrence of a text in a memory file."""
    with writing(name, user) as (memory, uid):
        confirm(memory.manager.edit(uid, old, new, user=user, **checked))


@command("undo", "memfiles undo customer-notes --to 3")
@argument("name")
@option("--to", "to_revision", type=click.IntRange(min=1), metavar="REVISION", help="Revision to go back to.")
@checked_options
@FILE_USER
@as_person
def undo_command(name: str, to_revision: int | None, user: str | None, **checked: Any) -> None:
    """Undo the last change of a memory file, or go back to a revision.

    An undo is a new revision: nothing is lost, and it can be undone itself.
    """
    with writing(name, user) as (memory, uid):
        confirm(memory.manager.undo(uid, to_revision=to_revision, user=user, **checked))


@command("redact", "memfiles redact customer-notes -", cls=TextCommand)
@argument("name")
@argument("text", required=False)
@FILE_USER
@as_person
def redact_command(name: str, text: str | None, user: str | None, by: Actor) -> None:
    """Remove a text from a memory file and from its history.

    Every occurrence is removed for good. Give - for TEXT to type or pipe it in: on the command line it would stay in
    your shell's history. One newline at the end of the input is not part of the text.

    The exit code is 3 if the text occurs nowhere, and 7 until the mirror's copy is clean as well. It is always 7 with a
    mirror that keeps content only, since other machines do not learn of the redaction. A bucket with versioning keeps
    its old versions: delete them there.
    """
    unwanted = given_text(text, what="redact")
    if text is None or text == "-":
        unwanted = unwanted.removesuffix("\n")
    refusal: MirrorRefused | None = None
    with writing(name, user) as (memory, uid):
        try:
            redaction = memory.manager.redact(uid, unwanted, by=by, user=user)
        except MirrorRefused as error:  # it is done here, and is pushed like any change
            refusal = error
    if refusal is not None:
        raise refusal
    from memfiles.records.keys import record_path, user_file_path  # late: append needs none of it
    from memfiles.sync.status import pending_records

    path = record_path(uid) if user is None else user_file_path(user, uid)
    is_clean = path not in pending_records(memory.workflow)
    counts = {"in_content": redaction.in_content, "in_history": redaction.in_history}
    if not output.as_json({"receipt": redaction.receipt.to_dict(), **counts, "mirror_is_clean": is_clean}):
        places = output.count(redaction.in_content, "place")
        changes = output.count(redaction.in_history, "change")
        output.note(f"{redaction.receipt.name}: " + (
            f"removed from {places} in the content and {changes} in the history" if any(counts.values())
            else "the text is neither in the content nor in the history"
        ))  # fmt: skip
    if not is_clean:
        fail_until_pushed("the mirror's copy is not clean yet")
    if not any(counts.values()) and not redaction.copies_removed:
        click.get_current_context().exit(NotFound.exit_code)


def fail_until_pushed(reason: str) -> None:
    """Warn that the mirror still holds removed text, and end the command with the exit code for that."""
    output.warn(f"{reason}; repeat `memfiles sync push` until it exits with 0")
    click.get_current_context().exit(MirrorUnavailable.exit_code)


def given_text(text: str | None, *, what: str) -> str:
    """The text given as an argument, or read from stdin."""
    if text is not None and text != "-":
        return text
    if text is None and sys.stdin.isatty():
        raise usage_error(f"nothing to {what}; give TEXT, or - to read stdin")
    if sys.stdin.isatty():
        output.note(f"Type the text to {what}, then press Ctrl-D on an empty line:")
    read = sys.stdin.buffer.read()
    try:
        given = read.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            f"stdin is not UTF-8 (byte {error.start} is 0x{read[error.start]:02x}); convert it first (iconv -t UTF-8)"
        ) from None
    if text is None and not given:
        raise usage_error(f"nothing to {what}; stdin is empty")
    return given


def confirm(receipt: Receipt) -> None:
    """Print the result of a write."""
    if output.as_json(receipt.to_dict()):
        return
    output.note(f"{receipt.name}: {_done(receipt)}; {receipt.size_bytes} of {receipt.max_size_bytes} bytes used")
    if receipt.warning:
        output.warn(receipt.warning)


def _done(receipt: Receipt) -> str:
    if receipt.replayed:
        return f"already done, as revision {receipt.revision}; nothing changed"
    done = f"now at revision {receipt.revision}"
    if receipt.matches is not None and receipt.matches > 1:
        return f"{done}, the first of {receipt.matches} matches replaced (line {receipt.line})"
    if receipt.undone_revision is not None:
        return f"{done}, revision {receipt.undone_revision} undone"
    return done


@command("open", "memfiles open customer-notes", 'EDITOR="code --wait" memfiles open customer-notes')
@argument("name")
@FILE_USER
@as_person
def open_command(name: str, user: str | None, by: Actor) -> None:
    """Edit a memory file in your editor.

    The editor is $VISUAL, else $EDITOR. What you save becomes one edit. If the file changed in the meantime, or the
    text is refused, nothing is overwritten: your text is kept, and the message says where.
    """
    import shutil  # late: no other command needs them
    import tempfile

    before = view(user).find(name).record
    editor = chosen_editor()
    copy = Path(tempfile.mkdtemp(prefix="memfiles-")) / f"{before.name}.md"  # in its own folder: editors leave backups
    copy.touch(mode=0o600)
    copy.write_bytes(before.content.encode())
    try:
        _edit(copy, editor)
        apply(_text_in(copy), before=before, user=user, by=by)
    except (MemfilesError, click.ClickException) as error:
        if not copy.exists() or copy.read_bytes() == before.content.encode():
            shutil.rmtree(copy.parent)
            raise
        raise type(error)(f"{failure_of(error).message}. Your text is kept in {copy}") from error
    except KeyboardInterrupt:
        output.note(f"your text is kept in {copy}")
        raise
    shutil.rmtree(copy.parent)


def _edit(copy: Path, editor: str | None) -> None:
    try:
        click.edit(filename=str(copy), editor=editor)
    except click.ClickException as error:
        cause = error.__cause__
        why = f"cannot be started: {cause.strerror}" if isinstance(cause, OSError) else "ended with an error"
        name = error.message.partition(": ")[0]
        raise click.ClickException(f"the editor {name} {why}; choose one with $VISUAL or $EDITOR") from error


def chosen_editor() -> str | None:
    """The command in $VISUAL, else in $EDITOR; None for the system's default."""
    import shlex  # late: no other command needs it

    for name in ("VISUAL", "EDITOR"):
        command = os.environ.get(name, "").strip()
        try:
            if shlex.split(command):
                return command
        except ValueError as error:
            raise InvalidArgument(f"${name} is not a command: {error}, in {command!r}") from None
        os.environ.pop(name, None)  # click would run the file itself for a blank one
    return None


def apply(text: str, *, before: Record, user: str | None, by: Actor) -> None:
    """Make ``text`` the content, if the file has not changed since the editor was opened."""
    if text in (before.content, before.content + "\n"):  # many editors end the last line
        output.note(f"{before.name}: nothing changed")
        return
    with writing(before.uid, user) as (memory, uid):
        confirm(memory.manager.replace(uid, text, expected_revision=before.revision, by=by, user=user))


def _text_in(copy: Path) -> str:
    try:
        return copy.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"the edited text is not UTF-8 (byte {error.start})") from None
    except FileNotFoundError:
        raise InvalidArgument("the editor removed the file; nothing was changed") from None
