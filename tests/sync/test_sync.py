"""The mirror and the directory become equal by themselves, whatever happens to either."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest

from memfiles.errors import LockTimeout
from memfiles.sync.dirty_scan import DirtyScan
from memfiles.sync.dispatcher import LONGEST_WAIT_SECONDS
from memfiles.sync.engine import Sync
from memfiles.sync.status import status_on_disk
from mirrors.memory import MemoryMirror
from mirrors.s3.location import S3Location
from mirrors.s3.mirror import connect
from tests.mirrors.faulty_endpoint import FaultyEndpoint
from tests.mirrors.servers import BUCKET
from tests.support.saved import files_holding
from tests.sync.conftest import Opener, content_in, in_mirror, on_disk, wait_for
from tests.sync.mirrors_for_tests import AbsentMirror, CountingMirror, HangingMirror

MOST_PUTS = 20


def test_a_change_reaches_the_mirror_by_itself(open_machine: Opener, mirror: MemoryMirror) -> None:
    """Soon after a write the mirror holds the same bytes as the disk, without anything being asked for."""
    memory = open_machine()
    memory.manager.append("notes", "- first\n")

    assert wait_for(lambda: on_disk(memory) == in_mirror(mirror))


@pytest.mark.slow
def test_quick_changes_go_as_few(open_machine: Opener, mirror: MemoryMirror) -> None:
    """A thousand quick appends to one file cost at most twenty puts, or one a second, and the mirror has them all."""
    counting, begun = CountingMirror(mirror), time.monotonic()
    memory = open_machine(through=counting)
    for number in range(1000):
        memory.manager.append("notes", f"- {number}\n")

    assert memory.sync.flush(60)
    assert counting.calls["put"] <= MOST_PUTS + (time.monotonic() - begun) / LONGEST_WAIT_SECONDS
    assert on_disk(memory) == in_mirror(mirror)


def test_what_was_not_pushed_is_pushed_after_the_next_start(open_machine: Opener, mirror: MemoryMirror) -> None:
    """What the mirror did not take before the end goes there after the next start, with no further write."""
    memory = open_machine(through=AbsentMirror(mirror))
    memory.manager.append("notes", "- in the dark\n")
    memory.close()
    assert None is in_mirror(mirror)

    memory = open_machine()
    assert memory.sync.flush(60)
    assert on_disk(memory) == in_mirror(mirror)


def test_a_second_close_says_the_same(open_machine: Opener, mirror: MemoryMirror) -> None:
    """Whether nothing is left to push does not change by asking again."""
    answers = []
    for through in (AbsentMirror(mirror), mirror):
        memory = open_machine(through=through)
        memory.manager.append("notes", "- one\n")
        answers += [memory.sync.close(60), memory.sync.close(60)]
        memory.close()

    assert [False, False, True, True] == answers


def test_an_outage_ends_by_itself(open_machine: Opener, mirror: MemoryMirror) -> None:
    """While the mirror is away the status says so; once it is back, all goes there, without a further write."""
    absent = AbsentMirror(mirror)
    memory = open_machine(through=absent, uids=("a", "b", "c"))
    for uid in ("a", "b", "c"):
        memory.manager.append(uid, "- in the dark\n")
    flushed = memory.sync.flush(0.5)
    assert wait_for(lambda: memory.sync.status().last_error is not None)
    away = memory.sync.status()
    absent.is_away = False

    assert not flushed
    assert 3 == away.pending
    assert away.last_error is not None
    assert "nobody answers" in away.last_error
    assert memory.sync.flush(60)
    assert [on_disk(memory, uid) for uid in "abc"] == [in_mirror(mirror, uid) for uid in "abc"]
    assert (0, None) == (memory.sync.status().pending, memory.sync.status().last_error)


@pytest.mark.slow
def test_an_outage_is_not_answered_with_a_storm(open_machine: Opener, mirror: MemoryMirror) -> None:
    """A mirror that does not answer is asked a few times a second, not once for every record that waits."""
    absent = AbsentMirror(mirror)
    uids = tuple(f"file-{number}" for number in range(100))
    memory = open_machine(through=absent, uids=uids)
    begun = time.monotonic()
    memory.manager.append_many([(uid, "- x\n") for uid in uids])
    was_pushed = memory.sync.flush(1.5)
    asked, seconds = absent.asked, time.monotonic() - begun

    assert not was_pushed
    assert asked <= 100 + 40 * seconds  # the restore asks for each once


def test_a_restart_pushes_nothing_that_is_there(open_machine: Opener, mirror: MemoryMirror) -> None:
    """What the mirror acknowledged is known after a restart: it is listed once, and nothing is got or put."""
    memory = open_machine(uids=("a", "b"))
    memory.manager.append("a", "- x\n")
    memory.sync.flush(60)
    memory.close()
    counting = CountingMirror(mirror)
    memory = open_machine(through=counting, uids=("a", "b"))

    assert memory.sync.flush(60)
    memory.sync.push(60)
    assert {"list"} == set(counting.calls)


def test_without_its_notes_nothing_is_lost(open_machine: Opener, mirror: MemoryMirror) -> None:
    """With ``.state`` deleted while nothing runs, changes on both sides are still merged, each once."""
    one, two = open_machine("one"), open_machine("two")
    one.manager.append("notes", "- before\n")
    one.sync.flush(60)
    two.sync.pull(60)
    two.manager.append("notes", "- by two\n")
    two.sync.flush(60)
    one.manager.append("notes", "- by one\n")
    directory = one.manager.directory
    one.close()
    shutil.rmtree(directory / ".state")
    two.manager.append("notes", "- by two again\n")
    two.sync.flush(60)
    one = open_machine("one")
    one.sync.pull(60)
    two.sync.pull(60)

    lines = one.manager.read("notes").splitlines()
    assert sorted(["# notes", "- before", "- by one", "- by two", "- by two again"]) == sorted(lines)
    assert on_disk(one) == on_disk(two) == in_mirror(mirror)


def test_a_wiped_mirror_is_filled_again(open_machine: Opener, mirror: MemoryMirror) -> None:
    """When the mirror lost everything, a pull puts it back there, and nothing is lost here."""
    memory = open_machine(uids=("a", "b"))
    memory.manager.append("a", "- kept\n")
    memory.sync.flush(60)
    for key, _ in list(mirror.list()):
        mirror.delete(key)
    memory.sync.pull(60)

    assert [on_disk(memory, uid) for uid in "ab"] == [in_mirror(mirror, uid) for uid in "ab"]
    assert "- kept\n" in content_in(mirror, "a")


def test_a_mirror_that_was_wiped_is_filled_by_the_next_start(open_machine: Opener, mirror: MemoryMirror) -> None:
    """A start finds that copies are gone, and puts them there again, with no further write."""
    memory = open_machine(uids=("a", "b"))
    memory.sync.flush(60)
    memory.close()
    for key, _ in list(mirror.list()):
        mirror.delete(key)
    memory = open_machine(uids=("a", "b"))

    assert wait_for(lambda: [on_disk(memory, uid) for uid in "ab"] == [in_mirror(mirror, uid) for uid in "ab"])


def test_a_mirror_that_was_wiped_is_filled_by_a_push(open_machine: Opener, mirror: MemoryMirror) -> None:
    """A push looks for what the mirror has lost."""
    memory = open_machine(uids=("a", "b"))
    memory.sync.flush(60)
    for key, _ in list(mirror.list()):
        mirror.delete(key)
    report = memory.sync.push(60)

    assert {"pushed"} == set(report.outcomes.values())
    assert [on_disk(memory, uid) for uid in "ab"] == [in_mirror(mirror, uid) for uid in "ab"]


def test_a_mirror_that_was_wiped_is_filled_by_the_next_change(open_machine: Opener, mirror: MemoryMirror) -> None:
    """A push that finds its copy gone puts the record there anew."""
    memory = open_machine()
    memory.sync.flush(60)
    mirror.delete("notes.json")
    memory.manager.append("notes", "- after\n")

    assert memory.sync.flush(60)
    assert on_disk(memory) == in_mirror(mirror)


def test_a_wiped_directory_leaves_the_mirror_alone(open_machine: Opener, mirror: MemoryMirror) -> None:
    """A start in an emptied directory takes everything from the mirror and deletes nothing there."""
    memory = open_machine(uids=("a", "b"))
    memory.manager.append("a", "- kept\n")
    memory.sync.flush(60)
    before = {uid: in_mirror(mirror, uid) for uid in "ab"}
    memory.close()
    shutil.rmtree(memory.manager.directory)
    memory = open_machine(uids=("a", "b"))
    memory.sync.flush(60)

    assert {"hydrated"} == {row.status for row in memory.report.files}
    assert before == {uid: in_mirror(mirror, uid) for uid in "ab"} == {uid: on_disk(memory, uid) for uid in "ab"}


def test_a_copy_that_is_no_record_is_kept_here_and_replaced_there(open_machine: Opener, mirror: MemoryMirror) -> None:
    """What someone put in the place of a copy ends up in quarantine, and the mirror holds the record again."""
    memory = open_machine()
    memory.sync.flush(60)
    mirror.put("notes.json", b"{ not a record")
    memory.manager.append("notes", "- after\n")
    memory.sync.flush(60)
    kept = [path.read_bytes() for path in (memory.manager.directory / "quarantine").iterdir()]

    assert on_disk(memory) == in_mirror(mirror)
    assert b"{ not a record" in kept


def test_a_copy_of_a_later_format_is_left_alone(open_machine: Opener, mirror: MemoryMirror) -> None:
    """A copy that a later version of memfiles wrote is not replaced; the status says so."""
    memory = open_machine()
    memory.sync.flush(60)
    later = b'{"format": "memfiles/9", "type": "file"}\n'
    mirror.put("notes.json", later)
    memory.manager.append("notes", "- after\n")

    assert not memory.sync.flush(60)  # gives up as soon as it is refused
    assert later == in_mirror(mirror)
    assert "format" in str(memory.sync.status().last_error)


def test_a_pull_tells_of_a_copy_that_it_cannot_use(open_machine: Opener, mirror: MemoryMirror) -> None:
    """Although nothing is pending here; once the copy can be used, nothing is told."""
    memory = open_machine()
    memory.sync.flush(60)
    sound = in_mirror(mirror)
    mirror.put("notes.json", b'{"format": "memfiles/9", "type": "file"}\n')
    told = memory.sync.pull(60)
    mirror.put("notes.json", sound or b"")

    assert (["notes.json"], ()) == (list(told.refused), told.pending)
    assert {} == memory.sync.pull(60).refused


def test_a_refused_record_is_told_while_others_are_taken(open_machine: Opener, mirror: MemoryMirror) -> None:
    """The last error stays until that record is taken, here and for a look from outside; then it is gone."""
    memory = open_machine(uids=("a", "b"))
    memory.sync.flush(60)
    mirror.put("a.json", b'{"format": "memfiles/9", "type": "file"}\n')
    memory.manager.append("a", "- refused\n")
    told = []
    for number in range(3):
        memory.manager.append("b", f"- {number}\n")
        memory.sync.flush(60)  # until the other one is taken
        told += [memory.sync.status(), status_on_disk(memory.workflow)]
    in_between = on_disk(memory, "b") == in_mirror(mirror, "b")
    mirror.delete("a.json")
    memory.sync.push(60)
    after = [memory.sync.status(), status_on_disk(memory.workflow)]

    assert in_between
    assert {("a.json", 1)} == {(str(status.last_error).split(": ")[0], status.pending) for status in told}
    assert [(None, 0)] * 2 == [(status.last_error, status.pending) for status in after]


def test_the_status_tells_which_promises_a_mirror_keeps(open_machine: Opener, endpoint: FaultyEndpoint) -> None:
    """Once something was pushed, here and for a look from outside, without asking it again."""
    endpoint.deaf = True
    memory = open_machine(through=connect(S3Location(BUCKET, "told", endpoint=endpoint.url)))
    before = status_on_disk(memory.workflow).shortcomings
    memory.sync.flush(60)
    asked = len(endpoint.requests)
    here, outside = memory.sync.status(), status_on_disk(memory.workflow)

    assert before is None
    assert here.shortcomings == outside.shortcomings
    assert here.shortcomings and "ignores conditional requests" in here.shortcomings[0]
    assert asked == len(endpoint.requests)


def test_a_mirror_that_keeps_all_promises(open_machine: Opener) -> None:
    """That is known too."""
    memory = open_machine()
    memory.sync.flush(60)

    assert () == memory.sync.status().shortcomings


def test_a_hand_edit_reaches_the_mirror(open_machine: Opener, mirror: MemoryMirror) -> None:
    """What a person changes in a record is a revision, and is pushed like any other."""
    memory = open_machine()
    path = memory.manager.directory / "notes.json"
    path.write_text(path.read_text("utf-8").replace("# notes", "# by hand"), "utf-8")

    assert memory.sync.flush(60)
    assert "# by hand\n" == content_in(mirror)
    assert on_disk(memory) == in_mirror(mirror)


@pytest.mark.slow
def test_a_hanging_mirror_keeps_nobody_waiting(open_machine: Opener) -> None:
    """While every call hangs, writes and reads go on, a flush ends in time, and so does closing."""
    hanging = HangingMirror(seconds=120)
    memory = open_machine(through=AbsentMirror(MemoryMirror()), uids=("a", "b"))
    memory.close()
    memory = open_machine(through=hanging, uids=("a", "b"))
    for number in range(50):
        memory.manager.append("a", f"- {number}\n")
    assert hanging.asked.wait(60)
    flushed = memory.sync.flush(0.3)
    memory.sync.close(0.3)
    memory.close()
    was_waited_for = hanging.has_answered
    hanging.let_go()

    assert (False, False) == (flushed, was_waited_for)


def test_two_processes_do_not_push_twice(open_machine: Opener, mirror: MemoryMirror) -> None:
    """Of two managers on one directory the second finds that the first has pushed, and puts nothing."""
    counting = CountingMirror(mirror)
    one, two = open_machine(through=counting, watch=True), open_machine(through=counting, watch=True)
    told = {machine: threading.Event() for machine in (one, two)}  # by their watchers, of what the other did
    for machine, event in told.items():
        machine.manager.subscribe(lambda change, event=event: event.set() if change.origin == "process" else None)  # type: ignore[misc]
    for number in range(100):
        (one if number % 2 else two).manager.append("notes", f"- {number}\n")
    one.sync.flush(60)
    two.sync.flush(60)
    settled = counting.calls["put"]
    assert all(event.wait(60) for event in told.values())
    assert one.sync.flush(60)
    assert two.sync.flush(60)

    assert settled <= MOST_PUTS
    assert settled == counting.calls["put"]
    assert on_disk(one) == in_mirror(mirror)


def test_a_redaction_reaches_the_mirror(open_machine: Opener, mirror: MemoryMirror) -> None:
    """After a redaction neither the mirror nor any file of the directory holds the text."""
    memory = open_machine()
    memory.manager.append("notes", "- a needle in it\n")
    memory.sync.flush(60)
    memory.manager.append("notes", "- and another needle\n")
    memory.manager.redact("notes", "needle")
    memory.sync.flush(60)

    assert [] == files_holding(memory.manager.directory, "needle")
    assert b"needle" not in (in_mirror(mirror) or b"needle")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # that there are threads is what is tested
def test_a_child_of_a_fork_pushes_what_it_writes(open_machine: Opener, mirror: MemoryMirror) -> None:
    """A forked child, in which no thread of its parent runs, synchronises for itself."""
    memory = open_machine()
    memory.sync.flush(60)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        memory.manager.append("notes", "- by the child\n")
        done = memory.sync.flush(60)
        body = in_mirror(mirror) or b""
        os.write(writing, b"pushed" if done and body == on_disk(memory) else b"not pushed")
        os._exit(0)
    os.waitpid(pid, 0)
    told = os.read(reading, 100)
    for descriptor in (reading, writing):
        os.close(descriptor)

    assert b"pushed" == told


def test_a_memory_without_a_mirror_has_nothing_to_do(tmp_path: Path) -> None:
    """Without a mirror the same calls do nothing, at once."""
    from memfiles.sync.conflicts import Conflicts
    from memfiles.sync.status import NullSync

    sync = NullSync(kept=lambda: Conflicts(tmp_path))

    assert sync.flush()
    assert {} == sync.pull().outcomes == sync.push().outcomes
    assert None is sync.status().mirror


def test_closing_pushes_what_is_left(open_machine: Opener, mirror: MemoryMirror) -> None:
    """A clean close leaves the mirror equal, without a flush being asked for."""
    memory = open_machine()
    memory.manager.append("notes", "- last words\n")
    memory.close()

    assert on_disk(memory) == in_mirror(mirror)


@pytest.mark.slow
@pytest.mark.parametrize("happens", [False, True])
def test_a_lost_answer_neither_loses_nor_doubles(open_machine: Opener, mirror: MemoryMirror, happens: bool) -> None:
    """Whether a put without an answer happened or not, and whoever came in between, each line is there once."""
    absent = AbsentMirror(mirror, is_away=False, happens=happens)
    one, two = open_machine("one", through=absent), open_machine("two")
    one.sync.flush(60)
    two.sync.pull(60)
    absent.is_away = True
    one.manager.append("notes", "- by one\n")
    one.sync.flush(0.5)
    two.sync.pull(60)
    for number in range(150):  # more than a history keeps
        two.manager.append("notes", f"- by two {number}\n")
        one.manager.append("notes", f"- by one {number}\n")
    two.sync.flush(60)
    absent.is_away = False
    one.sync.flush(60)
    one.sync.pull(60)
    two.sync.pull(60)
    expected = ["# notes", "- by one", *(f"- by {who} {number}" for who in ("one", "two") for number in range(150))]

    assert sorted(expected) == sorted(one.manager.read("notes").splitlines())
    assert on_disk(one) == on_disk(two) == in_mirror(mirror)


def test_an_error_that_was_put_right_is_told_no_more(
    open_machine: Opener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither that of a scan for records to push, nor that of a journal that could not be wiped."""
    sync = open_machine().sync
    assert isinstance(sync, Sync)
    sync.flush(60)
    told = []
    for owner, name in ((sync._replica, "release_forgotten"), (DirtyScan, "dirty")):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, _refuse)
            sync._ledger.meta.note("unwiped", "yes")
            sync._jobs.wipe()
            sync._jobs.sweep()
            told.append(sync._errors.last)
        sync._jobs.sweep()
        sync.flush(60)
        told.append(sync._errors.last)

    assert told[0] is not None and "held" in told[0]
    assert told[2] is not None and "held" in told[2]
    assert [None, None] == told[1::2]


def _refuse(*_: object, **__: object) -> None:
    raise LockTimeout("held by another process")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # that there are threads is what is tested
def test_a_child_that_is_forked_in_the_middle_of_a_download_works(open_machine: Opener) -> None:
    """What the parent's threads hold is not held in the child."""
    sync = open_machine().sync
    assert isinstance(sync, Sync)
    sync.flush(60)
    with sync._scan._downloads.writing, sync._errors._noting:
        pid = os.fork()
        if pid == 0:
            signal.alarm(30)
            sync.status()
            sync._errors.note("a record", LockTimeout("held"))
            os._exit(0)

    assert 0 == os.waitpid(pid, 0)[1]
