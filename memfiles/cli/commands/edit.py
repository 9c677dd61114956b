"""``open``: change a memory file in an editor, without ever losing what the person wrote."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from pathlib import Path

import click

from memfiles.cli import output
from memfiles.cli.commands.write import confirm
from memfiles.cli.failures import failure_of
from memfiles.cli.help_text import example
from memfiles.cli.opening import view, writing
from memfiles.cli.settings import shared_options
from memfiles.errors import InvalidArgument, MemfilesError
from memfiles.records.record import Record


@click.command(
    "open", epilog=example("memfiles open customer-notes", 'EDITOR="code --wait" memfiles open customer-notes')
)
@click.argument("name")
@shared_options
def open_command(name: str) -> None:
    """Change a memory file in your editor.

    The editor is $VISUAL, else $EDITOR. What you save is taken over as one edit. If the file was changed
    meanwhile, or the text is refused, nothing is overwritten: your text is kept and you are told where.
    """
    before = view().find(name).record
    editor = chosen_editor()
    copy = private_copy(before)
    try:
        click.edit(filename=str(copy), editor=editor)
        apply(_text_in(copy), before=before)
    except (MemfilesError, click.ClickException) as error:
        if not _is_changed(copy, before):
            shutil.rmtree(copy.parent)
            raise
        raise type(error)(f"{failure_of(error).message}. Your text is kept in {copy}") from error
    except KeyboardInterrupt:
        output.note(f"your text is kept in {copy}")
        raise
    shutil.rmtree(copy.parent)


def chosen_editor() -> str | None:
    """The command in $VISUAL, else in $EDITOR; None for the system's. A blank one would run the file itself."""
    for name in ("VISUAL", "EDITOR"):
        command = os.environ.get(name, "").strip()
        try:
            if shlex.split(command):
                return command
        except ValueError as error:
            raise InvalidArgument(f"${name} is no command: {error}, in {command!r}") from None
        os.environ.pop(name, None)
    return None


def private_copy(record: Record) -> Path:
    """A file with the content that only this user can read, in a folder of its own (editors leave backups)."""
    copy = Path(tempfile.mkdtemp(prefix="memfiles-")) / f"{record.name}.md"
    copy.touch(mode=0o600)
    copy.write_bytes(record.content.encode())
    return copy


def apply(text: str, *, before: Record) -> None:
    """Make ``text`` the content, if the file is still as it was when the editor was opened."""
    if text in (before.content, before.content + "\n"):  # many editors end the last line by themselves
        output.note(f"{before.name}: nothing changed")
        return
    with writing(before.uid, call_id=None) as file:
        by = file.caller["by"]
        confirm(file.manager.replace(file.uid, text, expected_revision=before.revision, by=by))


def _text_in(copy: Path) -> str:
    try:
        return copy.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"what the editor saved is not UTF-8 (byte {error.start})") from None
    except FileNotFoundError:
        raise InvalidArgument("the editor removed the file; nothing was changed") from None


def _is_changed(copy: Path, before: Record) -> bool:
    return copy.exists() and copy.read_bytes() != before.content.encode()
