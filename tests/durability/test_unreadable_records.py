"""Records that cannot be read just now are left alone, and keep no other one away: permissions, a damaged disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import memfiles
from memfiles.cli.doctor.checks import check_kept, check_records
from memfiles.errors import StorageFailed
from memfiles.memory import load, look
from memfiles.storage import entry_folders
from memfiles.storage.atomic import read
from memfiles.storage.home import home_of
from tests.durability.rights import NOBODY, as_another_process, as_nobody, entry_of_bob, settle
from tests.support.records import files_under
from tests.support.saved import Visitor, files_holding

pytestmark = pytest.mark.slow


def test_a_record_of_another_user_is_not_set_aside(tmp_path: Path, require_root: Callable[[], None]) -> None:
    """A command that root ran once leaves one: the start says whose it is, and loses nothing of it."""
    require_root()  # to be someone else for a moment
    (tmp_path / "notes.json").write_text("sound, as far as anybody knows")
    (tmp_path / "notes.json").chmod(0o600)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    tmp_path.chmod(0o755)
    os.seteuid(NOBODY)
    try:
        with pytest.raises(PermissionError, match="notes.json belongs to user 0 and user 65534 may not read it"):
            read(descriptor, "notes.json", limit=1024)
    finally:
        os.seteuid(0)
        os.close(descriptor)


@pytest.mark.parametrize("is_running", [False, True])
def test_a_record_that_may_not_be_read_just_now_is_left_alone(desk: Path, is_running: bool) -> None:
    """Its owner gets an error, from a start and from a change, and nothing is put in its place or set aside."""
    memory, record = desk.parent / ".memory", desk.parent / ".memory" / "notes.json"
    before = record.read_bytes()
    with as_nobody(desk.parent), ExitStack() as stack:
        opened = stack.enter_context(memfiles.open(desk, watch=False)) if is_running else None
        record.chmod(0)
        os.utime(record)
        with pytest.raises(StorageFailed, match=r"notes.json belongs to user 65534 and user 65534 may not read it"):
            if opened is None:
                memfiles.open(desk, watch=False)
            else:
                opened.manager.append("notes", "- anew\n")
        if opened is not None:
            change = {"file": "notes", "old_string": "r", "new_string": "s"}
            answer = opened.session("support").call("edit_memory", change)
            assert "storage_failed" == answer.code
        (finding,) = check_records(home_of(memory), load(desk).memory.files)
        record.chmod(0o600)

    assert before == record.read_bytes()
    assert not (memory / "quarantine").exists()
    assert ("fail", "quarantine" in finding.detail) == (finding.state, False)


@pytest.mark.parametrize("is_changed", [False, True])
def test_an_entry_that_may_not_be_read_just_now_is_left_alone(
    desk: Path, is_changed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It can be neither read nor replaced, the others are found, and it is there again when it may be read.

    A search still shows what the index read of it, if the file is as it was then.
    """
    record = next(path for path in desk.parent.rglob(".memory/entries/*/*.json") if b"green tea" in path.read_bytes())
    before = record.read_bytes()
    with as_nobody(desk.parent):
        written = record.stat().st_ctime_ns
        while record.stat().st_ctime_ns == written:  # times of files go on in steps of some milliseconds
            record.chmod(0)
        settle(record, is_changed=is_changed)
        with memfiles.open(desk, watch=False) as memory:
            session = memory.session("support")
            refused = [
                session.call("memory_get", {"key": "tea"}),
                session.call("memory_save", {"key": "tea", "content": "Ada drinks coffee."}),
            ]
            found = session.call("memory_search", {"query": "tea"})
            prompt = session.system_prompt()
            still = record.stat().st_size
            record.chmod(0o600)
            again = session.call("memory_search", {"query": "tea"})
        with memfiles.open(desk, watch=False) as memory:
            back = memory.entries.get(memory.session("support"), "tea")

    assert [True] * len(refused) == [answer.is_error for answer in refused]
    assert {"storage_failed"} == {answer.code for answer in refused}
    assert {"tea/milk"} | (set() if is_changed else {"tea"}) == {
        result["key"] for result in (found.data or {})["results"]
    }
    assert "milk" in prompt and "green" not in prompt
    assert {"tea", "tea/milk"} == {result["key"] for result in (again.data or {})["results"]}
    assert back is not None and "Ada drinks green tea." == back.content
    assert (len(before), before) == (still, record.read_bytes())
    assert "may not read it" in caplog.text


def test_an_entry_that_is_left_out_is_logged_once_and_told(desk: Path, caplog: pytest.LogCaptureFixture) -> None:
    """However often it is asked for; the status and what needs attention name it until it may be read again."""
    record = next(path for path in desk.parent.rglob(".memory/entries/*/*.json") if b"green tea" in path.read_bytes())
    path = record.relative_to(desk.parent / ".memory").as_posix()
    with as_nobody(desk.parent), memfiles.open(desk, watch=False) as memory:
        session = memory.session("support")
        for mode in (0, 0o600, 0):
            written = record.stat().st_ctime_ns
            while record.stat().st_ctime_ns == written:
                record.chmod(mode)
            os.utime(record)
            for _ in range(3):
                session.call("memory_search", {"query": "tea"})
                session.call("memory_list", {})
                session.system_prompt(query="tea")
            told = [*memory.status()["problems"]], [it.about for it in memory.stats(None).attention]
            assert told == (([path], ["entries"]) if mode == 0 else ([], []))

    assert 2 == sum("it can be read" in message for message in caplog.messages)


def test_records_on_a_damaged_part_of_the_disk_keep_no_other_one_away(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file and an entry that answer with an I/O error are left out of lists, prompts and searches, and told."""
    memory, opening = desk.parent / ".memory", os.open
    entry = next(path for path in memory.rglob("entries/*/*.json") if b"green tea" in path.read_bytes())
    text = desk.read_text("utf-8").replace("files: [", "files: [{uid: other, name: other, description: x}, ")
    desk.write_text(text.replace("memory: [", "memory: [{id: other, mode: rw}, "), "utf-8")

    def read(path: Any, *given: Any, **more: Any) -> int:
        _refuse(path, ("notes.json", entry.name))
        return opening(path, *given, **more)

    with memfiles.open(desk, watch=False) as opened:
        session = opened.session("support")
        for damaged in (memory / "notes.json", entry):
            os.utime(damaged)
        monkeypatch.setattr(os, "open", read)
        found, card = session.call("memory_search", {"query": "tea"}), session.system_prompt()
        answer = session.call("append_memory", {"file": "other", "content": "- on\n"})
        status, stats, ceiling = opened.status(), opened.stats(None), opened.stats(None, level="RESTRICTED")
        monkeypatch.undo()

    assert ["tea/milk"] == [result["key"] for result in (found.data or {})["results"]]
    assert ("other" in card, "notes" in card, answer.is_error) == (True, False, False)
    assert ["notes", entry.relative_to(memory).as_posix()] == [*status["problems"]]
    assert [("file", "notes"), ("entries", "")] == [(it.about, it.name) for it in stats.attention]
    assert "entries" not in [it.about for it in ceiling.attention]  # at a level that nobody can tell


def test_questions_look_at_no_other_record_than_the_one_that_cannot_be_read(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a folder of 10,000 entries takes 200 ms; it is found by the question after it can be read again."""
    record = next(path for path in desk.parent.rglob(".memory/entries/*/*.json") if b"green tea" in path.read_bytes())
    listed: list[object] = []
    listing = os.scandir

    def scan(at: Any) -> Any:
        listed.append(at)
        return listing(at)

    with as_nobody(desk.parent), memfiles.open(desk, watch=False) as memory:
        session = memory.session("support")
        session.call("memory_search", {"query": "tea"})
        record.chmod(0)
        os.utime(record)
        session.call("memory_list", {})
        monkeypatch.setattr(os, "scandir", scan)
        asked = [
            session.call("memory_search", {"query": "tea"}).data,
            session.call("memory_list", {}).data,
            session.call("memory_save", {"key": "cup", "content": "A cup of coffee."}).data,
            *(session.system_prompt(), session.system_prompt(query="tea")),
        ]
        record.chmod(0o600)
        found = session.call("memory_search", {"query": "tea"})
        monkeypatch.undo()

    assert [] == listed
    assert [True, True, False, True, True] == ["milk" in str(each) and "green" not in str(each) for each in asked]
    assert {"tea", "tea/milk"} == {result["key"] for result in (found.data or {})["results"]}


@pytest.mark.parametrize("is_killed", [False, True])
def test_every_process_finds_a_record_again_that_another_one_could_not_read(desk: Path, is_killed: bool) -> None:
    """Also if that one has ended, or was killed: it took the record out of the index of all."""
    record = next(path for path in desk.parent.rglob(".memory/entries/*/*.json") if b"green tea" in path.read_bytes())
    with as_nobody(desk.parent), memfiles.open(desk, watch=False) as memory:
        session = memory.session("support")
        session.call("memory_search", {"query": "tea"})

        def ask_elsewhere() -> None:
            other = memfiles.open(desk, watch=False)
            assert "green" not in str(other.session("support").call("memory_search", {"query": "tea"}).data)
            if not is_killed:
                other.close()

        record.chmod(0)
        os.utime(record)
        as_another_process(ask_elsewhere, is_killed=is_killed)
        record.chmod(0o600)
        found = session.call("memory_search", {"query": "tea"})

    assert {"tea", "tea/milk"} == {result["key"] for result in (found.data or {})["results"]}


@pytest.mark.parametrize("can_examine", [True, False])
def test_a_damaged_record_keeps_no_other_one_from_the_mirror(
    desk: Path, can_examine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are pushed and pulled, and the status counts it and says why, until it can be read again."""
    memory, opening, bucket = desk.parent / ".memory", os.open, desk.parent / "bucket"
    entry = next(path for path in memory.rglob("entries/*/*.json") if b"green tea" in path.read_bytes())
    bucket.mkdir()
    text = desk.read_text("utf-8").replace("memory:\n", f'memory:\n  mirror: {{url: "{bucket.as_uri()}"}}\n', 1)
    desk.write_text(text, "utf-8")

    def is_here(folder: int | None) -> bool:
        return folder is not None and os.path.realpath(f"/proc/self/fd/{folder}") == str(memory)

    def read(path: Any, *given: Any, dir_fd: int | None = None, **more: Any) -> int:
        _refuse(path, damaged if is_here(dir_fd) else ())
        return opening(path, *given, dir_fd=dir_fd, **more)

    def examine(path: Any, *given: Any, dir_fd: int | None = None, **more: Any) -> os.stat_result:
        _refuse(path, damaged if is_here(dir_fd) and not can_examine else ())
        return examined(path, *given, dir_fd=dir_fd, **more)

    examined = os.stat
    damaged: tuple[str, ...] = (entry.name,)

    with memfiles.open(desk, watch=False) as opened:
        assert opened.sync.flush(60)
        monkeypatch.setattr(os, "open", read)
        for record in (memory / "notes.json", entry):
            os.utime(record)
        with look(load(desk)) as seen:
            on_disk = seen.sync.status().pending
        damaged = ("notes.json", entry.name) if can_examine else (entry.name,)
        monkeypatch.setattr(os, "stat", examine)
        opened.session("support").call("memory_save", {"key": "cup", "content": "A cup of coffee."})
        os.utime(entry.parent, (1, 1))  # long ago: its entries are looked at one by one once they were compared
        is_pushed, damaged_status, report = opened.sync.flush(60), opened.sync.status(), opened.sync.pull()
        told = [*opened.status()["problems"]]
        monkeypatch.undo()
        is_pushed_later, status = opened.sync.flush(60), opened.sync.status()

    paths = ["notes.json"] * can_examine + [entry.relative_to(memory).as_posix()]
    assert [True, len(paths), True] == [is_pushed, damaged_status.pending, is_pushed_later]
    assert damaged_status.lag_seconds < 3600
    assert "Input/output error" in str(damaged_status.last_error)
    assert (sorted(paths), 1) == (sorted(report.pending), on_disk)
    assert any(b"coffee" in path.read_bytes() for path in bucket.rglob("*.json"))
    assert can_examine == ("notes" in told)
    assert (0, None) == (status.pending, status.last_error)


def _refuse(path: Any, names: tuple[str, ...]) -> None:
    if os.fspath(path).endswith(names):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


class _Listed:
    """An entry of a folder, of which the disk may not tell the status."""

    def __init__(self, found: os.DirEntry[str], name: str) -> None:
        self._found, self._bad = found, name

    def stat(self, **given: Any) -> os.stat_result:
        _refuse(self._found.name, (self._bad,))
        return self._found.stat(**given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)


@pytest.mark.parametrize("is_new", [False, True])
def test_an_entry_that_cannot_be_examined_keeps_no_other_one_away(
    desk: Path, is_new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that does not even tell the status of one file: the others are found, listed and saved all the same."""
    entry = next(path for path in desk.parent.rglob(".memory/entries/*/*.json") if b"green tea" in path.read_bytes())
    examined, listed = os.stat, entry_folders._listed

    def examine(path: Any, *given: Any, **more: Any) -> os.stat_result:
        _refuse(path, (entry.name,)) if isinstance(path, (str, bytes)) else None
        return examined(path, *given, **more)

    with memfiles.open(desk, watch=False) as memory:
        session = memory.session("support")
        session.call("memory_search", {"query": "tea"})
        if is_new:
            session.call("memory_save", {"key": "tea", "content": "Ada drinks a lot of green tea."})
        monkeypatch.setattr(os, "stat", examine)
        monkeypatch.setattr(entry_folders, "_listed", lambda *at: (_Listed(it, entry.name) for it in listed(*at)))
        os.utime(entry.parent)
        saved = session.call("memory_save", {"key": "tea/black", "content": "Bob drinks black tea."})
        found, all_keys = (session.call(*each) for each in (("memory_search", {"query": "tea"}), ("memory_list", {})))
        with pytest.raises(StorageFailed, match="nothing was forgotten"):
            memory.entries.forget(session, kind="note")
        monkeypatch.undo()
        again = session.call("memory_search", {"query": "tea"})
        left = memory.entries._reader._db.index.unread

    assert set() == left
    assert (False, False) == (saved.is_error, found.is_error), found.text
    assert {"tea/milk", "tea/black"} == {it["key"] for it in (found.data or {})["results"]}
    assert {"tea/milk", "tea/black"} == {it["key"] for it in (all_keys.data or {})["memories"]}
    assert {"tea", "tea/milk", "tea/black"} == {it["key"] for it in (again.data or {})["results"]}


def test_an_entry_that_could_not_be_read_is_missed_no_longer_once_a_file_is_in_place_of_its_folder(desk: Path) -> None:
    """Each question of all agents failed then."""
    record = entry_of_bob(desk)
    with as_nobody(desk.parent), memfiles.open(desk, watch=False) as memory:
        session = memory.session("support")
        record.chmod(0)
        os.utime(record)
        memory.entries.search(Visitor("bob"), "green")
        record.unlink()
        record.parent.rmdir()
        record.parent.write_text("moved elsewhere")
        found, problems = memory.entries.search(session, "milk").matches, memory.status()["problems"]

    assert (["tea/milk"], {}) == ([it.found.key for it in found], problems)


def test_a_broken_entry_is_told_until_it_is_set_aside(desk: Path) -> None:
    """Whoever asks what needs attention hears of it also while nobody moves it to quarantine."""
    record = next(path for path in desk.parent.rglob(".memory/entries/*/*.json") if b"green tea" in path.read_bytes())
    before = record.read_bytes()
    with memfiles.open(desk, watch=False) as memory:
        record.write_bytes(b"{ nonsense")
        (told,) = memory.stats(None).attention
        status = memory.status()["problems"]
        record.write_bytes(before)

        assert ("bad", "entries", True) == (told.state, told.about, record.name in told.text)
        assert [record.name] == [path.rpartition("/")[2] for path in status]
        assert ((), {}) == (memory.stats(None).attention, memory.status()["problems"])


@pytest.mark.parametrize("folder", ["quarantine", "conflicts"])
def test_kept_copies_that_may_not_be_listed_are_told_and_stop_removals_alone(desk: Path, folder: str) -> None:
    """They may hold what is to be removed; whoever reads and writes goes on."""
    memory, kept = desk.parent / ".memory", desk.parent / ".memory" / folder
    kept.mkdir()
    with as_nobody(desk.parent):
        kept.chmod(0)
        with memfiles.open(desk, watch=False) as opened:
            session = opened.session("support")
            answers = [
                session.call("append_memory", {"file": "notes", "content": "- more\n"}),
                session.call("memory_save", {"key": "tea", "content": "Ada drinks coffee."}),
                session.call("memory_search", {"query": "coffee"}),
            ]
            told = [it["path"] for it in opened.status()["quarantine"]]
            for remove in (
                lambda: opened.manager.redact("notes", "remembered"),
                lambda: opened.entries.forget(session, key="tea"),
                lambda: opened.users.forget("ada"),
            ):
                with pytest.raises(StorageFailed, match="Permission denied"):
                    remove()
        (finding,) = check_kept(home_of(memory), folder)
    with memfiles.open(desk, watch=False) as opened:
        opened.entries.search(opened.session("support"), "tea")  # the start finishes what was begun

    assert [False] * 3 == [answer.is_error for answer in answers]
    assert ([folder] if folder == "quarantine" else []) == told
    assert ("fail", f"the folder {folder} cannot be listed: Permission denied (EACCES)") == (
        finding.state,
        finding.detail,
    )
    assert [] == files_holding(memory, "coffee", "remembered")


def test_a_file_that_may_not_be_read_keeps_no_other_one_away(desk: Path) -> None:
    """An agent goes on with the others; who runs it is told which one it is, and nothing is in a journal at the end."""
    memory, record = desk.parent / ".memory", desk.parent / ".memory" / "notes.json"
    text = desk.read_text("utf-8").replace("files: [", "files: [{uid: other, name: other, description: x}, ")
    desk.write_text(text.replace("memory: [", "memory: [{id: other, mode: rw}, "), "utf-8")
    with as_nobody(desk.parent):
        with memfiles.open(desk, watch=False) as opened:
            session = opened.session("support")
            assert not session.call("append_memory", {"file": "notes", "content": "- last\n"}).is_error
            record.chmod(0)
            os.utime(record)
            answers = [
                session.call("append_memory", {"file": name, "content": "- on\n"}) for name in ("other", "notes")
            ]
            card, tools = session.system_prompt(), session.tools("openai")
            status, stats = opened.status(), opened.stats(None)
        record.chmod(0o600)
        journals = list((memory / ".journal").iterdir())
        with memfiles.open(desk, watch=False) as opened:
            content = opened.manager.read("other"), opened.manager.read("notes")

    assert [None, "storage_failed"] == [answer.code for answer in answers]
    assert ("other" in card, "notes" in card, len(tools) > 0) == (True, False, True)
    assert (["other"], ["notes"]) == ([file["uid"] for file in status["files"]], list(status["problems"]))
    assert ["bad"] == [it.state for it in stats.attention if "may not read it" in it.text]
    assert [] == journals
    assert ("- on\n", "# Start\n- remembered\n- last\n") == content


def test_a_session_does_not_learn_of_a_hidden_file_that_may_not_be_read(
    desk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong name is a wrong name to a session below its level, also from a file without one; logged is it once."""
    text = desk.read_text("utf-8").replace("entries: {}", "levels: [PUBLIC, INTERNAL]")
    text = text.replace("files: [", "files: [{uid: low, name: low}, ")
    text = text.replace("{uid: notes, ", "{uid: notes, level: INTERNAL, ")
    desk.write_text(text.replace("memory: [", "memory: [{id: low, mode: rw}, "), "utf-8")
    with as_nobody(desk.parent), memfiles.open(desk, watch=False) as opened:
        sessions = [opened.session("support", level=level) for level in ("PUBLIC", "INTERNAL")]

        def codes_without(name: str) -> list[str | None]:
            record = desk.parent / ".memory" / f"{name}.json"
            record.chmod(0)
            os.utime(record)
            found = [session.call("read_memory", {"file": "nope"}).code for session in sessions * 2]
            record.chmod(0o600)
            os.utime(record)
            assert not sessions[1].call("read_memory", {"file": name}).is_error
            return found

        codes = codes_without("notes"), codes_without("low"), codes_without("notes")

    hidden, seen = ["file_not_declared", "storage_failed"] * 2, ["storage_failed"] * 4
    assert (hidden, seen, hidden) == codes
    assert 3 == caplog.text.count("a memory file is left out")


def test_a_link_to_another_users_directory_is_refused(desk: Path) -> None:
    """Even if everybody may write there: whoever owns it may read and replace what is in it."""
    directory, real = desk.parent / ".memory", desk.parent.parent / "real"
    directory.rename(real)
    directory.symlink_to(real)
    for path in (real, *real.rglob("*")):
        path.chmod(0o777)
    before = files_under(real)
    os.seteuid(NOBODY)
    try:
        with pytest.raises(StorageFailed, match="which belongs to user 0: use a directory of your own"):
            memfiles.open(desk, watch=False)
    finally:
        os.seteuid(0)

    assert before == files_under(real)
