"""Questions about processes: they race, they are killed, and nothing that was acknowledged is lost."""

from __future__ import annotations

import time
from contextlib import ExitStack

from memfiles.storage.record_store import ChangeSet, Records, RecordStore
from mirrors.testing.place import expect
from mirrors.testing.stores.place import PATIENCE_SECONDS, StorePlace, Worker, append, lines, next_version, put, read

_TOGETHER = [f"together{number}.json" for number in range(8)]
_CHANGES = 60


def what_was_acknowledged_outlives_a_kill(place: StorePlace) -> None:
    """A process that is killed right after its answer leaves the change to everyone, also after a restart."""
    with place.open() as store, place.process("write", "a.json", 0, 10_000) as worker:
        _begin(worker)
        told = [worker.hear() for _ in range(5)]
        told += worker.kill()
        _expect_all(told, lines(store, "a.json"))
    with place.open() as later:
        _expect_all(told, lines(later, "a.json"))


def records_change_together_or_not_at_all_in_a_kill(place: StorePlace) -> None:
    """Whenever a process is killed, the next one finds all its records at one number, not before the last told."""
    last = 0
    for number in range(place.rounds):
        with place.process("number", _TOGETHER) as worker:
            _begin(worker)
            for _ in range(3 + number % 5):
                worker.hear()
            time.sleep(0.0005 * (number % 7))  # so that they are killed at different steps
            last = max(map(int, worker.kill()), default=0)
        with place.open() as store:
            found = {read(store, path) for path in _TOGETHER}
            expect(1, len(found), f"how many numbers {sorted(map(str, found))} the records have, changed together")
            expect(True, int(found.pop() or 0) >= last, f"the number {last} that was acknowledged is there")
            append(store, _TOGETHER[:1], "")
            put(store, dict.fromkeys(_TOGETHER, "0"))


def a_decision_after_a_kill_sees_records_together(place: StorePlace) -> None:
    """Of a store that stays open: the decision that counts has seen what the killed process changed, or nothing."""
    with place.open() as store:
        for number in range(place.rounds):
            with place.process("number", _TOGETHER) as worker:
                _begin(worker)
                for _ in range(3 + number % 5):
                    worker.hear()
                last = max(map(int, worker.kill()), default=0)

            def decide(records: Records) -> tuple[set[str | None], ChangeSet]:
                found = {read(records, path) for path in _TOGETHER}
                return found, ChangeSet([next_version(records, path, "0") for path in _TOGETHER])

            found, _ = store.change(_TOGETHER, decide)
            expect(1, len(found), f"how many numbers {sorted(map(str, found))} a decision has seen")
            expect(True, int(found.pop() or 0) >= last, f"the number {last} that was acknowledged was seen")


def what_was_removed_stays_so_in_a_kill(place: StorePlace) -> None:
    """Neither the process that wrote it nor the one that removed it brings it back when it dies."""
    with place.process("spread", "left", 3) as writer, place.process("remove", ["left0.json", "left1.json"]) as remover:
        expect("open", remover.hear(), "a process that opens the store")
        _begin(writer)
        while writer.hear() != "done":
            pass
        remover.tell()
        expect("done", remover.hear(), "a process that removes")
        remover.kill()
        writer.kill()
    with place.open() as later:
        found = [read(later, f"left{number}.json") for number in range(3)]
        expect([None, None, "2"], found, "what was removed, and what was not")


def a_process_that_dies_in_a_decision_is_in_nobody_s_way(place: StorePlace) -> None:
    """What it had in its hands is free again, and as it was."""
    with place.open() as store, place.process("stall", "a.json") as worker:
        put(store, {"a.json": "1"})
        _begin(worker)
        expect("deciding", worker.hear(), "a process that decides")
        worker.kill()
        append(store, ["a.json"], "2")
        expect(["12"], lines(store, "a.json"), "the next change, on what was there")


def no_line_is_lost_between_processes(place: StorePlace) -> None:
    """Two processes and this one append to the same record at the same time: every line is there once."""
    with ExitStack() as stack:
        store = stack.enter_context(place.open())
        workers = [
            stack.enter_context(place.process("write", "a.json", 1000 * each, 1000 * each + _CHANGES))
            for each in (1, 2)
        ]
        _begin(*workers)
        for number in range(_CHANGES):
            append(store, ["a.json"], str(number))
        for worker in workers:
            _finish(worker)
        expected = [start + number for start in (0, 1000, 2000) for number in range(_CHANGES)]
        expect(expected, sorted(map(int, lines(store, "a.json"))), "every line, once")


def no_line_is_lost_or_doubled_while_connections_are_cut(place: StorePlace) -> None:
    """Lost questions and lost answers: every append of two processes to the same record is there once."""
    if place.trouble is None:
        return
    with ExitStack() as stack:
        workers = [
            stack.enter_context(place.process("write", "a.json", 1000 * each, 1000 * each + _CHANGES))
            for each in (1, 2)
        ]
        for worker in workers:
            expect("open", worker.hear(), "a process that opens the store")
        stack.enter_context(place.trouble())
        for worker in workers:
            worker.tell()
        for worker in workers:
            _finish(worker)
    with place.open() as store:
        expected = [start + number for start in (1000, 2000) for number in range(_CHANGES)]
        expect(expected, sorted(map(int, lines(store, "a.json"))), "every line, once")


def processes_on_different_records_do_not_meet(place: StorePlace) -> None:
    """Two processes write records of their own, and the feed tells this one of every one of them."""
    with ExitStack() as stack:
        store = stack.enter_context(place.open())
        point = store.changes().until
        workers = [stack.enter_context(place.process("spread", start, _CHANGES)) for start in ("left", "right")]
        _begin(*workers)
        told = [path for worker in workers for path in _finish(worker)]
        expect(2 * _CHANGES, len(told), "every change was acknowledged")
        expect(set(told), set(store.changes(point).records) & set(told), "every record is in the feed")
        expect([], [path for path in told if read(store, path) is None], "every record is there")


def changes_of_two_records_in_both_orders_come_to_an_end(place: StorePlace) -> None:
    """Two processes move numbers between the same records, each the other way: the sum stays, and nobody hangs."""
    with ExitStack() as stack:
        store = stack.enter_context(place.open())
        put(store, {"a.json": "1000", "b.json": "1000"})
        both = [("a.json", "b.json"), ("b.json", "a.json")]
        workers = [stack.enter_context(place.process("give", *each, _CHANGES)) for each in both]
        _begin(*workers)
        for worker in workers:
            expect(_CHANGES, len(_finish(worker)), "every change was made")
        expect(("1000", "1000"), (read(store, "a.json"), read(store, "b.json")), "what was taken was given")


def news_come_from_other_processes(place: StorePlace) -> None:
    """A change by another process ends a wait here."""
    with place.open() as store, place.process("write", "a.json", 0, 1) as worker:
        point = store.changes().until
        expect("open", worker.hear(), "a process that opens the store")
        worker.tell()
        expect(True, store.wait(point, seconds=PATIENCE_SECONDS), "news of a change by another process")
        _until(store, point, "a.json")
        _finish(worker)


def what_another_process_erased_is_nowhere(place: StorePlace) -> None:
    """What a living process wrote is erased by another one, out of whatever both of them keep."""
    if place.holds is None:
        return
    with place.open() as store, place.process("write", "a.json", 123456789, 123456799) as worker:
        _begin(worker)
        while worker.hear() != "done":
            pass
        expect(True, len(place.holds(b"123456789")) > 0, "the text is kept while it is in the record")
        put(store, {"a.json": "clean"})
        store.scrub()
        expect([], place.holds(b"123456789"), "what holds the text after a scrub, while its writer lives")


def _begin(*workers: Worker) -> None:
    """Let workers go on once all have opened the store."""
    for worker in workers:
        expect("open", worker.hear(), "a process that opens the store")
    for worker in workers:
        worker.tell()


def _finish(worker: Worker) -> list[str]:
    """Wait for the end of a worker's work; returns what it said was acknowledged."""
    told: list[str] = []
    while (line := worker.hear()) != "done":
        expect(False, line == "", "a process ended before its work did")
        told.append(line)
    worker.tell()
    expect(0, worker.process.wait(PATIENCE_SECONDS), "the exit code of a process")
    return told


def _expect_all(told: list[str], found: list[str]) -> None:
    expect([], [line for line in told if line not in found], "acknowledged lines that are not there")
    expect(len(set(found)), len(found), "no line is there twice")


def _until(store: RecordStore, point: str, path: str) -> None:
    """Return once the feed has told of ``path``; news may come earlier."""
    end = time.monotonic() + PATIENCE_SECONDS
    while path not in store.changes(point).records:
        expect(True, time.monotonic() < end, f"{path} is in the feed")
        store.wait(point, seconds=1.0)
