"""``memfiles open``, with editors that are small shell scripts."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from tests.cli.command_line import Ran, run


@pytest.fixture(autouse=True)
def restored(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The project's files are restored, and temporary files go to ``tmp``."""
    (project / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(project / "tmp"))
    run("restore")


def open_with(project: Path, script: str, *args: str) -> Ran:
    """``memfiles open`` with an editor that runs this shell script on the file ``$1``."""
    editor = project / "editor"
    editor.write_text(f"#!/bin/sh\n{script}\n")
    editor.chmod(0o700)
    return run("open", "notes", *args, env={"VISUAL": str(editor)})


def kept(project: Path) -> list[str]:
    """The texts in the files that were left in the temporary directory."""
    return [path.read_text() for path in sorted((project / "tmp").rglob("*.md"))]


def test_what_is_saved_becomes_one_edit(project: Path) -> None:
    """The saved text is the new content, as one revision, and no copy of it stays behind."""
    opened = open_with(project, 'printf "# Notes\\n- one\\n- two\\n" > "$1"')

    assert (0, []) == (opened.code, kept(project))
    assert "# Notes\n- one\n- two\n" == run("read", "notes").out
    assert ["edit", "seed"] == [change["op"] for change in run("log", "notes", "--json").data["changes"]]


def test_an_editor_that_saves_by_renaming(project: Path) -> None:
    """An editor may replace the file and leave a backup beside it."""
    open_with(project, 'cp "$1" "$1~"; printf "new" > "$1.new"; mv "$1.new" "$1"')

    assert "new" == run("read", "notes").out
    assert [] == list((project / "tmp").iterdir())


def test_nothing_saved(project: Path) -> None:
    """Without a change there is no revision."""
    opened = open_with(project, "true")

    assert (0, 1) == (opened.code, len(run("log", "notes", "--json").data["changes"]))
    assert "nothing changed" in opened.err


def test_a_newline_that_the_editor_added(project: Path) -> None:
    """A newline that an editor puts at the end by itself is no change."""
    run("append", "notes", "no newline here")

    assert "nothing changed" in open_with(project, 'echo >> "$1"').err


def test_the_copy_is_private(project: Path) -> None:
    """Only the user can read the copy and its folder."""
    open_with(project, f'stat -c %a "$1" "$(dirname "$1")" > {project}/modes')

    assert ["600", "700"] == (project / "modes").read_text().split()


def test_a_change_meanwhile(project: Path) -> None:
    """If the file changed meanwhile nothing is overwritten (code 4), and the person's text is kept."""
    (project / "meanwhile").write_text("- from an agent\n")
    other = "import sys; from memfiles.cli import main; sys.argv = ['', 'append', 'notes', '-']; main()"

    opened = open_with(project, f'{sys.executable} -c "{other}" < meanwhile; printf "mine" > "$1"')

    assert (4, ["mine"]) == (opened.code, kept(project))
    assert "Your text is kept in" in opened.err
    assert "# Notes\n- from an agent\n" == run("read", "notes").out


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ('printf "caf\\351" > "$1"', 2),
        ('head -c 20000 /dev/zero | tr "\\0" x > "$1"', 5),
        ('echo mine > "$1"; exit 3', 1),
    ],
)
def test_a_text_that_is_refused_is_kept(project: Path, script: str, code: int) -> None:
    """What cannot be taken over (not UTF-8, over the cap, the editor failed) is kept in its file."""
    opened = open_with(project, script)

    assert (code, 1) == (opened.code, len(list((project / "tmp").rglob("*.md"))))
    assert "Your text is kept in" in opened.err
    assert stat.S_IMODE(next((project / "tmp").rglob("*.md")).stat().st_mode) == 0o600


def test_an_editor_with_arguments_and_spaces(project: Path) -> None:
    """It is written as in a shell."""
    editor = project / "my editor"
    editor.write_text('#!/bin/sh\ntest "$1" = --wait && printf new > "$2"\n')
    editor.chmod(0o700)

    assert 0 == run("open", "notes", env={"VISUAL": f"'{editor}' --wait"}).code
    assert "new" == run("read", "notes").out


def test_an_editor_that_is_no_command(project: Path) -> None:
    """A quote that is not closed is told, with the name of the variable, and nothing is left behind."""
    opened = run("open", "notes", env={"VISUAL": "'code --wait"})

    assert (2, 'error: $VISUAL is not a command: No closing quotation, in "\'code --wait"\n') == (
        opened.code,
        opened.err,
    )
    assert [] == list((project / "tmp").iterdir())


def test_a_blank_editor_is_none(project: Path) -> None:
    """The next one is taken; the file itself is never run."""
    editor = project / "editor"
    editor.write_text('#!/bin/sh\nprintf new > "$1"\n')
    editor.chmod(0o700)

    assert 0 == run("open", "notes", env={"VISUAL": "  ", "EDITOR": str(editor)}).code
    assert "new" == run("read", "notes").out


def test_a_killed_editor(project: Path) -> None:
    """What had been saved is kept."""
    opened = open_with(project, 'printf mine > "$1"; kill -9 $$')

    assert (1, ["mine"]) == (opened.code, kept(project))
    assert "ended with an error; choose one with $VISUAL or $EDITOR. Your text is kept in" in opened.err


def test_an_editor_that_is_not_there(project: Path) -> None:
    """An editor that cannot be started is an error, and leaves nothing behind."""
    opened = run("open", "notes", env={"VISUAL": "/nowhere/editor"})

    told = "the editor /nowhere/editor cannot be started: No such file or directory; choose one with $VISUAL or $EDITOR"
    assert (1, [], f"error: {told}\n") == (opened.code, kept(project), opened.err)
