"""``memfiles append``, ``edit``, ``undo`` and ``redact``."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.cli.command_line import files_under, run

pytestmark = pytest.mark.usefixtures("project")


def test_an_append_is_exact() -> None:
    """The text is appended as it was given, with no newline added."""
    appended = run("append", "notes", "one")

    assert (0, "") == (appended.code, appended.out)
    assert "revision 2" in appended.err
    assert "# Notes\none" == run("read", "notes").out


def test_appending_a_line() -> None:
    """--line adds the newline that is missing, and none that is there."""
    run("append", "notes", "one", "--line")
    run("append", "-n", "notes", "two\n")

    assert "# Notes\none\ntwo\n" == run("read", "notes").out


@pytest.mark.parametrize("text", ["- Now we know", "-- two", "- -w x", "-\tx", "- one\n- two"])
def test_a_bullet_is_no_option(text: str) -> None:
    """A text that begins with a dash and a space is text, wherever the options stand."""
    assert 0 == run("append", "notes", text, "--json").code
    assert "# Notes\n" + text == run("read", "notes").out


@pytest.mark.parametrize("blank", ["", " "])
def test_an_id_that_is_blank_is_refused(blank: str) -> None:
    """As of a variable that is not set: a repetition would be a second change."""
    appended, called = (
        run("append", "notes", "x", "--call-id", blank),
        ("call", "desk", "append_memory", "--call-id", blank),
    )

    assert (2, 2) == (appended.code, run(*called, '{"file": "notes", "content": "x"}').code)
    assert "'--call-id': it is blank" in appended.err
    assert "# Notes\n" == run("read", "notes").out


@pytest.mark.parametrize("text", ["one", "- one"])
def test_a_bullet_may_be_the_value_of_an_option(text: str) -> None:
    """It stays with its option, and the text is what is added."""
    appended = run("append", "notes", "--call-id", "- two", text, "--json")

    assert (0, "# Notes\n" + text) == (appended.code, run("read", "notes").out)


def test_a_text_that_looks_like_an_option() -> None:
    """Text that starts with a dash and no space is refused as an option, and taken behind --."""
    refused = run("append", "notes", "-5 degrees")

    assert 2 == refused.code
    assert "starts with a dash after --" in refused.err
    assert 0 == run("append", "notes", "--", "-5 degrees").code


@pytest.mark.parametrize("given", [["-"], []])
def test_appending_from_stdin(given: list[str]) -> None:
    """The text comes from stdin with -, or when there is no text but a pipe."""
    run("append", "notes", *given, stdin="caf\u00e9\n")

    assert "# Notes\ncaf\u00e9\n" == run("read", "notes").out


def test_stdin_that_is_not_utf8() -> None:
    """Bytes that are not UTF-8 are refused with the place of the first wrong one."""
    refused = run("append", "notes", "-", stdin=b"caf\xe9")

    assert (2, "") == (refused.code, refused.out)
    assert "byte 3 is 0xe9" in refused.err


def test_nothing_to_append() -> None:
    """No text and an empty stdin is a usage error, and nothing is created."""
    assert 2 == run("append", "notes", stdin="").code
    assert not Path(".memory").exists()


def test_over_the_cap() -> None:
    """A text over the cap ends with code 5 and the numbers; nothing is written."""
    refused = run("append", "small", "x" * 21, "--json")

    assert (5, "", "size_exceeded", False) == (
        refused.code,
        refused.out,
        refused.error["code"],
        refused.error["transient"],
    )
    assert "" == run("read", "small").out


def test_nearly_full() -> None:
    """From 80 % of the cap a receipt warns."""
    assert "warning:" in run("append", "small", "x" * 16).err


def test_a_full_file_says_that_nothing_is_left() -> None:
    """A receipt gives its numbers also where they are 0."""
    assert 0 == run("append", "small", "x" * 20, "--json").data["bytes_left"]


def test_an_edit_tells_of_other_matches() -> None:
    """The first match is replaced, and the others are counted."""
    run("append", "notes", "a\na\n")

    edited = run("edit", "notes", "--old", "a", "--new", "- b")

    assert "# Notes\n- b\na\n" == run("read", "notes").out
    assert "the first of 2 matches" in edited.err


def test_an_edit_without_a_match() -> None:
    """Nothing to replace ends with code 3 and the nearest line."""
    refused = run("edit", "notes", "--old", "# Note s", "--new", "")

    assert 3 == refused.code
    assert "'# Notes'" in refused.err


@pytest.mark.parametrize(
    "command", [["append", "notes", "x"], ["edit", "notes", "--old", "#", "--new", ""], ["undo", "notes"]]
)
def test_a_stale_revision(command: list[str]) -> None:
    """A write that expects another revision ends with code 4."""
    run("append", "notes", "one")

    assert 4 == run(*command, "--expected-revision", "1").code


def test_a_call_made_twice() -> None:
    """A write with the call id of an earlier one changes nothing and says so."""
    run("append", "notes", "one", "--call-id", "c1")

    again = run("append", "notes", "one", "--call-id", "c1", "--json")

    assert (True, 2) == (again.data["replayed"], again.data["revision"])
    assert "# Notes\none" == run("read", "notes").out


def test_undo_takes_back_the_last_change() -> None:
    """Undo restores the content before the last change, as a new revision."""
    run("append", "notes", "one")

    undone = run("undo", "notes", "--json")

    assert (3, 2) == (undone.data["revision"], undone.data["undone_revision"])
    assert "# Notes\n" == run("read", "notes").out


def test_undo_to_a_revision() -> None:
    """Undo --to restores the content at that revision."""
    run("append", "notes", "one")
    run("append", "notes", "two")

    run("undo", "notes", "--to", "2")

    assert "# Notes\none" == run("read", "notes").out


def test_undo_with_nothing_to_undo() -> None:
    """A file that was never changed has nothing to undo: code 3."""
    assert 3 == run("undo", "notes").code


@pytest.mark.parametrize("typed", [True, False])
def test_redact(project: Path, typed: bool) -> None:
    """A redacted text is in no file any more; a newline at the end of stdin is not part of it."""
    run("append", "notes", "Bob was born in Riga\n")
    run("edit", "notes", "--old", "Riga", "--new", "Oslo")

    done = run("redact", "notes", "-", stdin="Riga\n") if typed else run("redact", "notes", "Riga")

    assert 0 == done.code
    assert [] == [name for name, data in files_under(project).items() if data is not None and b"Riga" in data]


def test_redacting_what_is_not_there() -> None:
    """A text that occurs nowhere is not found."""
    ran = run("redact", "notes", "Oslo", "--json")

    assert (3, 0, 0) == (ran.code, ran.data["in_content"], ran.data["in_history"])


def test_an_audit_that_cannot_be_written_is_told(project: Path) -> None:
    """The change is made; that it has no line in the audit is a warning, which says why."""
    (project / ".memory").mkdir(0o700)
    (project / ".memory" / "audit").write_text("")
    appended = run("append", "notes", "x")
    warning = "warning: the audit log in audit cannot be written; operations continue without it: Not a directory\n"

    assert (0, f"notes: now at revision 2; 9 of 16384 bytes used\n{warning}") == (appended.code, appended.err)


def test_a_wrong_name_touches_nothing() -> None:
    """A write to an undeclared file ends with code 3 before anything is created."""
    assert 3 == run("append", "nots", "x").code
    assert not Path(".memory").exists()


def test_a_credential_is_refused() -> None:
    """Text that looks like a credential ends with code 6, and the message does not repeat it."""
    secret = "dop_v1_" + hashlib.sha256(b"a token of no use").hexdigest()

    refused = run("append", "notes", f"token: {secret}\n")

    assert 6 == refused.code
    assert secret not in refused.err
