"""``memfiles ls``, ``read``, ``log`` and ``diff``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command_line import files_under, run

pytestmark = pytest.mark.usefixtures("project")


def test_reading_before_the_first_restore(project: Path) -> None:
    """A file that was never restored reads as its declared content, says so, and creates nothing."""
    before = files_under(project)

    read = run("read", "notes")

    assert (0, "# Notes\n") == (read.code, read.out)
    assert "not on disk yet" in read.err
    assert before == files_under(project)


@pytest.mark.parametrize(
    "command",
    [["ls"], ["read", "notes"], ["log", "notes"], ["diff", "notes"], ["card", "desk"], ["tools", "desk"], ["plan"],
     ["check"], ["status"], ["doctor"]],
)  # fmt: skip
@pytest.mark.parametrize("restored", [False, True])
def test_looking_changes_nothing(project: Path, command: list[str], restored: bool) -> None:
    """A command that only looks leaves every byte and name as it was, before and after the first restore."""
    if restored:
        run("append", "notes", "- one\n")
    before = files_under(project)

    run(*command)

    assert before == files_under(project)


def test_content_is_printed_exactly(project: Path) -> None:
    """Behind a pipe the content arrives byte for byte, also without a last newline and with escapes."""
    text = "caf\u00e9 \x1b[31mred\x1b[0m \u2028 end"
    run("append", "notes", text)

    assert "# Notes\n" + text == run("read", "notes").out


def test_a_uid_is_as_good_as_a_name() -> None:
    """A file can be named by its uid."""
    assert run("read", "notes").out == run("read", "notes-1").out


def test_an_unknown_file() -> None:
    """A name that is not declared ends with code 3 and a suggestion."""
    read = run("read", "nots")

    assert (3, "") == (read.code, read.out)
    assert "did you mean 'notes'?" in read.err


def test_reading_as_json() -> None:
    """With --json a read is the card with the content."""
    run("append", "notes", "- one\n")

    read = run("--json", "read", "notes").data

    assert ("notes", "notes-1", 2, 14, "# Notes\n- one\n") == tuple(
        read[key] for key in ("name", "uid", "revision", "size_bytes", "content")
    )


def test_listing() -> None:
    """The list tells for each file its size, cap and state."""
    run("append", "small", "0123456789abcdef")

    listed = {file["name"]: file for file in run("ls", "--json").data["files"]}

    assert ["notes", "small", "rules"] == list(listed)
    assert (16, 20, 0.8, "kept") == tuple(
        listed["small"][key] for key in ("size_bytes", "max_size_bytes", "share", "state")
    )


def test_the_log_is_newest_first() -> None:
    """The log lists the changes, newest first, with who made them, and never their text."""
    run("append", "notes", "- one\n")
    run("call", "desk", "append_memory", '{"file": "notes", "content": "- two"}', "--call-id", "c1", "--run", "r1")

    log = run("log", "notes")
    changes = run("log", "notes", "--json", "-n", "1").data["changes"]

    assert ["3", "2", "1"] == [line.split()[0] for line in log.out.splitlines()[1:]]
    assert [("append", {"agent": "desk", "session": "r1", "call": "c1"})] == [(c["op"], c["by"]) for c in changes]
    assert "two" not in log.out


def test_the_diff_of_the_last_change() -> None:
    """Without revisions the diff is that of the last change."""
    run("append", "notes", "- one\n")
    run("append", "notes", "- two\n")

    assert ["+- two"] == [line for line in run("diff", "notes").out.splitlines() if line.startswith("+-")]


def test_the_diff_between_two_revisions() -> None:
    """With two revisions the diff goes from the first to the second."""
    run("append", "notes", "- one\n")
    run("append", "notes", "- two\n")

    diff = run("diff", "notes", "3", "1", "--json").data

    assert (3, 1) == (diff["from_revision"], diff["to_revision"])
    assert "-- one\n-- two\n" in diff["diff"]


def test_a_revision_that_is_not_known() -> None:
    """A revision outside the history ends with code 3."""
    assert 3 == run("diff", "notes", "7").code


def test_a_broken_record_is_named(project: Path) -> None:
    """A record that cannot be read is an error that says what restore will do; it is left where it is."""
    run("restore")
    (project / ".memory" / "notes-1.json").write_text("[]")

    read = run("read", "notes")

    assert (1, "") == (read.code, read.out)
    assert "memfiles restore" in read.err
    assert "[]" == (project / ".memory" / "notes-1.json").read_text()


HOSTILE = "-- old@1\n++ new@2\n@@ -1 +1 @@\n\x1b[31mred\x1b[0m\r+++ over\x0c--- page\x85@@ next\u2028+++ sep\nno end"


def test_content_forges_no_part_of_a_diff() -> None:
    """Piped it is exact; shown in colours, only what is head looks like it, and nothing drives the terminal."""
    run("append", "notes", HOSTILE)
    run("edit", "notes", "--old", HOSTILE, "--new", "")
    piped, shown = run("diff", "notes").out, run("diff", "notes", "--color").out
    lines = shown.split("\n")[:-1]
    removed = [f"-{line}" for line in HOSTILE.split("\n")]

    assert ["--- notes@2", "+++ notes@3", "@@ -1,6 +1 @@", " # Notes", *removed] == piped.split("\n")[:-2]
    assert "\\ No newline at end of file" == piped.split("\n")[-2]
    assert ["--- notes@2", "+++ notes@3"] == lines[:2]
    assert ["\x1b[31m--- old@1\x1b[0m", "\x1b[31m-++ new@2\x1b[0m", "\x1b[31m-@@ -1 +1 @@\x1b[0m"] == lines[4:7]
    assert len(piped.split("\n")) == len(lines) + 1
    assert not set(shown.replace("\x1b[", "").replace("\n", "")) & set("\x1b\r\x0c\x85\u2028")
