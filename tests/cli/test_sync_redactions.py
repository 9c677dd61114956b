"""What ``memfiles redact`` does for the mirror: the text is gone there too, whoever was offline."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command_line import files_under, run
from tests.cli.two_machines import away, back, machine
from tests.mirrors.older_service import KEY, OlderService, serving

pytestmark = pytest.mark.usefixtures("installed", "here")


def test_a_redaction_reaches_the_mirror(there: Path) -> None:
    """Once redact ends with 0, the mirror's copy does not hold the text."""
    run("append", "notes", "Riga")

    done = run("redact", "notes", "Riga", "--json")

    assert (0, True) == (done.code, done.data["mirror_is_clean"])
    assert [] == [path for path, body in files_under(there).items() if body and b"Riga" in body]


def until_quiet(*machines: list[str]) -> None:
    """Everyone pulls and pushes, three times."""
    for _ in range(3):
        for options in machines:
            assert [0, 0] == [run("sync", verb, *options).code for verb in ("pull", "push")]


def holding(*folders: Path, texts: tuple[str, ...]) -> list[str]:
    """The files under these folders that hold one of the texts in their raw bytes."""
    found = {path: body for folder in folders for path, body in files_under(folder).items() if body}
    return [path for path, body in found.items() if any(text.encode() in body for text in texts)]


@pytest.mark.slow
def test_texts_redacted_offline_on_two_machines(tmp_path: Path, here: Path, there: Path, other: list[str]) -> None:
    """Each machine held what the other one redacted; afterwards no file of either, and none there, holds it."""
    until_quiet([], other)
    away(there)
    run("append", "notes", "alice: likes tea\n")
    assert 7 == run("redact", "notes", "alice").code
    back(there)
    assert 0 == run("append", "notes", "bob: secret\n", *other).code
    away(there)
    assert 7 == run("redact", "notes", "secret", *other).code
    back(there)
    until_quiet([], other)
    folders = (here / ".memory", tmp_path / "other" / ".memory", there)

    assert run("read", "notes").out == run("read", "notes", *other).out
    assert {"# Notes", "[redacted]: likes tea", "bob: [redacted]"} == set(run("read", "notes").out.splitlines())
    assert [] == holding(*folders, texts=("alice", "secret"))


@pytest.mark.slow
def test_two_lines_redacted_offline_leave_the_line_between_them(there: Path, other: list[str]) -> None:
    """One machine redacts the first of three lines, the other the third; the untouched one is there once."""
    run("append", "notes", "one\ntwo\nthree\n")
    until_quiet([], other)
    away(there)
    assert 7 == run("redact", "notes", "one").code
    assert 7 == run("redact", "notes", "three", *other).code
    back(there)
    until_quiet([], other)

    assert "# Notes\n[redacted]\ntwo\n[redacted]\n" == run("read", "notes").out == run("read", "notes", *other).out


def test_a_redaction_with_a_mirror_that_keeps_content_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is done here and there, and the exit code and the error say that other machines do not hear of it."""
    monkeypatch.setenv("MEMFILES_AGENT_KEY", KEY)
    with serving(OlderService(creates=True)) as service:
        monkeypatch.chdir(machine(tmp_path / "content", service.url))
        run("append", "notes", "Riga")
        done = run("redact", "notes", "Riga", "--json")

        assert (7, "mirror_refused") == (done.code, done.error["code"])
        assert "redact it on each of them" in done.error["message"]
        assert "# Notes\n[redacted]" == service.files["notes-1"]["content"] == run("read", "notes").out


def test_a_redaction_while_the_mirror_is_away(there: Path) -> None:
    """It is done here and not there: code 7, until a push has reached the mirror."""
    run("append", "notes", "Riga")
    away(there)
    done = run("redact", "notes", "Riga")
    again = run("redact", "notes", "Riga", "--json")
    back(there)

    assert (7, 7, False) == (done.code, again.code, again.data["mirror_is_clean"])
    assert "the mirror's copy is not clean yet" in done.err
    assert 0 == run("sync", "push").code
    assert 3 == run("redact", "notes", "Riga").code  # nothing of it is left anywhere
    assert "Riga" not in (there / "notes-1.json").read_text()
