"""Folders of entries that may not be listed just now: they keep no other one away, and are found again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import memfiles
from memfiles.cli.program import program
from memfiles.errors import StorageFailed
from memfiles.records.keys import user_hash
from tests.durability.rights import as_another_process, as_nobody, entry_of_bob
from tests.support.saved import Visitor, files_holding

pytestmark = pytest.mark.slow


def _of_ada(desk: Path) -> Path:
    """The folder of the users of an agent, one of whom has an entry that no index knows."""
    with memfiles.open(desk, watch=False) as memory:
        memory.session("support", user="ada").call("memory_save", {"key": "cup", "content": "Ada drinks coffee."})
    for file in (desk.parent / ".memory" / ".state").glob("index*"):
        file.unlink()
    return desk.parent / ".memory" / "entries" / "support" / "users"


def test_a_folder_that_may_not_be_listed_keeps_no_other_one_away(desk: Path) -> None:
    """As that of an agent whose first entry root saved: the others are served and mirrored, and it comes later."""
    bob, bucket = Visitor("bob"), desk.parent / "bucket"
    bucket.mkdir()
    text = desk.read_text("utf-8").replace("memory:\n", f'memory:\n  mirror: {{url: "{bucket.as_uri()}"}}\n', 1)
    desk.write_text(text, "utf-8")
    with memfiles.open(desk, watch=False) as memory:
        memory.entries.forget(memory.session("support"), key="tea/milk")
        assert (memory.sync.flush(60), memory.sync.pull().pending) == (True, ())
    folder = entry_of_bob(desk).parent
    with as_nobody(desk.parent):
        folder.chmod(0)
        with memfiles.open(desk, watch=False) as memory:
            session = memory.session("support")
            answers = [
                session.call("memory_save", {"key": "cup", "content": "A cup of coffee."}),
                session.call("memory_search", {"query": "coffee"}),
                session.call("memory_list", {}),
            ]
            prompt, hidden = session.system_prompt(), memory.entries.search(bob, "green").matches
            with pytest.raises(StorageFailed, match="nothing was forgotten, as entries/bob cannot be read"):
                memory.entries.forget(bob, kind="note")
            forgotten = memory.entries.forget(session, key="cup").keys
            is_pushed, report, status = memory.sync.flush(60), memory.sync.pull(), memory.sync.status()
            folder.chmod(0o700)
            found = memory.entries.search(bob, "green").matches
            is_pushed_later, later = memory.sync.flush(60), memory.sync.status()

    assert [False] * 3 == [answer.is_error for answer in answers]
    assert ["cup", "tea"] == sorted(it["key"] for it in (answers[-1].data or {})["memories"])
    assert ("coffee" in prompt, [], ("cup",)) == (True, [*hidden], forgotten)
    assert (True, ("entries/bob",), 1) == (is_pushed, tuple(report.pending), status.pending)
    assert "the folder entries/bob cannot be listed: Permission denied" in str(status.last_error)
    assert (["drinks"], True, 0, None) == (
        [it.found.key for it in found],
        is_pushed_later,
        later.pending,
        later.last_error,
    )
    assert any(b"green tea" in path.read_bytes() for path in bucket.rglob("*.json") if "bob" in str(path))


def test_a_note_in_a_folder_that_may_not_be_listed_follows_a_forget_as_soon_as_it_may_be(desk: Path) -> None:
    """Nobody knew that it is there; no search finds what was forgotten meanwhile."""
    with memfiles.open(desk, watch=False) as memory:
        session = memory.session("support")
        memory.entries.forget(session, key="tea/milk")
        tea = memory.entries.get(session, "tea")
        assert tea is not None
    folder = entry_of_bob(desk, made_of=(tea.id,)).parent
    with as_nobody(desk.parent):
        folder.chmod(0)
        with memfiles.open(desk, watch=False) as memory:
            memory.entries.forget(memory.session("support"), key="tea")
            folder.chmod(0o700)
            found = memory.entries.search(Visitor("bob"), "green").matches

    assert [] == [*found]
    assert [] == files_holding(desk.parent, "green tea")


@pytest.mark.parametrize(
    "is_noticed_by", ["another question", "the thread that watches", "the next start after a kill"]
)
def test_a_note_in_such_a_folder_follows_its_forget_whoever_lists_it_first(desk: Path, is_noticed_by: str) -> None:
    """Also if nobody asks while it is listed again, or asks for something else."""
    with memfiles.open(desk, watch=False) as memory:
        session = memory.session("support")
        memory.entries.forget(session, key="tea/milk")
        tea = memory.entries.get(session, "tea")
        assert tea is not None
    folder = entry_of_bob(desk, made_of=(tea.id,)).parent
    os.utime(folder, (1, 1))

    def forget_elsewhere() -> None:
        other = memfiles.open(desk, watch=False)
        other.entries.forget(other.session("support"), key="tea")
        other.entries.search(other.session("support"), "coffee")

    with as_nobody(desk.parent):
        folder.chmod(0)
        if is_noticed_by == "the next start after a kill":
            as_another_process(forget_elsewhere, is_killed=True)
        with memfiles.open(desk, watch=False) as memory:
            session = memory.session("support")
            if is_noticed_by != "the next start after a kill":
                memory.entries.forget(session, key="tea")
            folder.chmod(0o700)
            if is_noticed_by == "the thread that watches":
                memory.entries._reader._db.index.verify()
            else:
                memory.entries.search(session, "coffee")
            found = memory.entries.search(Visitor("bob"), "green").matches

    assert [] == [*found]
    assert [] == files_holding(desk.parent, "green tea")


@pytest.mark.parametrize("is_of_agent", [False, True])
def test_the_users_of_an_agent_are_found_once_their_folder_may_be_listed(desk: Path, is_of_agent: bool) -> None:
    """Also if all others were compared meanwhile; until then, a forget by criteria tells what it cannot see."""
    folder = _of_ada(desk).parent if is_of_agent else _of_ada(desk)
    with as_nobody(desk.parent):
        folder.chmod(0)
        with memfiles.open(desk, watch=False) as memory:
            ada = memory.session("support", user="ada")
            with pytest.raises(StorageFailed, match="nothing was forgotten, as entries/support.* cannot be read"):
                memory.entries.forget(ada, kind="note")
            hidden = memory.entries.search(ada, "coffee").matches
            folder.chmod(0o700)
            found = memory.entries.search(ada, "coffee").matches

    assert ([], ["cup"]) == ([*hidden], [it.found.key for it in found])


@pytest.mark.parametrize("is_of_users", [False, True])
def test_a_folder_that_may_not_be_listed_and_is_removed_is_told_no_longer(desk: Path, is_of_users: bool) -> None:
    """Neither by the status nor by a question, which would compare all folders again and again."""
    bob, bucket = entry_of_bob(desk).parent, desk.parent / "bucket"
    bucket.mkdir()
    (bob / "users" / user_hash("ada")).mkdir(parents=True)
    text = desk.read_text("utf-8").replace("memory:\n", f'memory:\n  mirror: {{url: "{bucket.as_uri()}"}}\n', 1)
    desk.write_text(text, "utf-8")
    folder = bob / "users" if is_of_users else bob
    with as_nobody(desk.parent):
        folder.chmod(0)
        with memfiles.open(desk, watch=False) as memory:
            session = memory.session("support")
            memory.entries.forget(session, key="tea/milk")
            assert memory.sync.flush(60)
            told = [memory.sync.status().oldest_pending]
            folder.chmod(0o700)
            shutil.rmtree(bob)
            memory.entries.search(session, "tea")
            index = memory.entries._reader._db.index
            is_fresh, unlisted = index._maintenance.is_fresh(), {*index.unlisted}
            assert memory.sync.flush(60)
            told.append(memory.sync.status().oldest_pending)

    assert [f"entries/{folder.relative_to(bob.parent)}", None] == told
    assert (True, set()) == (is_fresh, unlisted)


@pytest.mark.parametrize("is_mirrored", [False, True])
def test_a_folder_that_may_not_be_listed_is_told_and_logged_once(
    desk: Path, is_mirrored: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status, what needs attention and the commands name it, and show all others; its users are not named apart."""
    bucket, folder = desk.parent / "bucket", entry_of_bob(desk).parent
    bucket.mkdir()
    text = desk.read_text("utf-8")
    if is_mirrored:
        desk.write_text(text.replace("memory:\n", f'memory:\n  mirror: {{url: "{bucket.as_uri()}"}}\n', 1), "utf-8")
    monkeypatch.chdir(desk.parent)
    commands, runner = [["status"], ["stats"], ["doctor"]], CliRunner()
    outputs = [runner.invoke(program, each).output for each in commands]  # which loads what only root may load here
    with as_nobody(desk.parent):
        folder.chmod(0)
        with memfiles.open(desk, watch=False) as memory:
            memory.entries.search(memory.session("support"), "tea")
            problems, attention = memory.status()["problems"], memory.stats(None).attention
        logged = [each for each in caplog.messages if "it is left out until it can be" in each]
        told = [runner.invoke(program, each) for each in commands]
        folder.chmod(0o700)

    why = "the folder entries/bob cannot be listed: Permission denied (EACCES)"
    assert {"entries/bob": why} == problems
    assert ("bad", "entries", f"an entry cannot be read: {why}") in [(it.state, it.about, it.text) for it in attention]
    assert {f"{why}; it is left out until it can be"} == {*logged}
    assert 1 + is_mirrored == len(logged)  # of the mirror's thread
    assert [0, 0, 1] == [each.exit_code for each in told]
    assert ("pending      1 record, the oldest (entries/bob)" in told[0].output) == is_mirrored
    assert f"fail  folder entries/bob: {why}" in told[2].output
    assert ("fail  entries" in told[2].output, "fail" in outputs[2]) == (False, False)
