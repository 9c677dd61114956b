"""The threads of the sync: repeated jobs, jobs side by side, and the end of all of them."""

from __future__ import annotations

import signal
import threading
from functools import partial
from math import inf

import pytest

from memfiles.errors import InvalidArgument
from memfiles.storage.events import RecordChanged
from memfiles.sync.dispatcher import Dispatcher, Task
from memfiles.sync.workers import Job, Timer, Workers
from tests.durability.interrupted import in_another_thread, interrupt_at, time_limit
from tests.support.records import no_thread_starts, wait_until


def test_a_timer_runs_when_it_is_time_and_again_after_that() -> None:
    """It runs at its time, however late it is asked, and then a period after that."""
    ran: list[float] = []
    timer = Timer(lambda: ran.append(now), at=1.0, every=10.0)
    for now in (0.0, 1.5, 2.0, 11.4, 11.5):
        timer.run_if_due(now)

    assert [1.5, 11.5] == ran


def test_a_timer_without_a_period_runs_once() -> None:
    """With an infinite period there is no second time."""
    ran: list[float] = []
    timer = Timer(lambda: ran.append(now), at=0.0, every=inf)
    for now in (0.0, 1e9):
        timer.run_if_due(now)

    assert [0.0] == ran


def test_jobs_are_carried_out_side_by_side() -> None:
    """Jobs that wait for one another are all begun, up to the limit."""
    workers, meeting = Workers(3, name="test"), threading.Barrier(4)

    def meet() -> None:
        meeting.wait(60)

    for _ in range(3):
        workers.submit(meet)
    meeting.wait(60)
    workers.close(60)


def test_a_thread_that_is_free_is_used_again() -> None:
    """One job after the other needs one thread."""
    workers, names = Workers(8, name="test"), set()
    for _ in range(5):
        done = threading.Event()

        def job(done: threading.Event = done) -> None:
            names.add(threading.current_thread().name)
            done.set()

        workers.submit(job)
        assert done.wait(60)
        wait_until(lambda: not workers._unfinished)
    workers.close(60)

    assert {"test-1"} == names


def test_a_job_that_fails_is_logged_and_the_next_is_done(caplog: pytest.LogCaptureFixture) -> None:
    """An error ends neither the thread nor is it swallowed."""
    workers, done = Workers(1, name="test"), threading.Event()

    def fails() -> None:
        raise ValueError("a defect")

    workers.submit(fails)
    workers.submit(done.set)

    assert done.wait(60)
    assert "a defect" in caplog.text
    workers.close(60)


def test_jobs_are_done_though_no_thread_can_be_started() -> None:
    """Who submits them does them then, and there are as many threads as ever once they can be started again."""
    workers, done, meeting = Workers(2, name="test"), list[str](), threading.Barrier(3)

    def meet() -> None:
        meeting.wait(60)

    with no_thread_starts():
        for _ in range(3):
            workers.submit(lambda: done.append(threading.current_thread().name))

    assert [threading.current_thread().name] * 3 == done
    for _ in range(2):
        workers.submit(meet)
    meeting.wait(60)
    workers.close(60)


def test_who_writes_waits_for_no_transfer_where_no_thread_can_be_started() -> None:
    """The thread that hands the records out then does them itself, and others are noted meanwhile."""
    begun, may_end, noticed = threading.Event(), threading.Event(), threading.Event()

    def carry_out(task: Task) -> bool:
        begun.set()
        return may_end.wait(60)

    dispatcher = Dispatcher(carry_out, timers=lambda now: [Timer(bool, at=inf, every=inf)])
    dispatcher.start()

    def write() -> None:
        dispatcher.at_once("b.json")
        noticed.set()

    with no_thread_starts():
        dispatcher.at_once("a.json")
        assert begun.wait(60)
    threading.Thread(target=write, daemon=True).start()
    is_noticed = noticed.wait(5)
    may_end.set()
    dispatcher.close()

    assert is_noticed


def test_an_interrupt_leaves_no_record_in_hand_where_no_thread_can_be_started() -> None:
    """Whoever waits carries the task out then; after a Ctrl-C, the next who waits carries out all."""
    done: list[str] = []

    def carry_out(task: Task) -> bool:
        done.append(task.path)
        if len(done) == 1:
            signal.raise_signal(signal.SIGINT)
        return True

    dispatcher = Dispatcher(carry_out, timers=lambda now: [Timer(bool, at=inf, every=inf)])
    with no_thread_starts():
        dispatcher.at_once("a.json")
        with pytest.raises(KeyboardInterrupt):
            dispatcher.wait(60, insist=True, progress=None)
        dispatcher.at_once("b.json")
        is_done = dispatcher.wait(10, insist=True, progress=None)
    dispatcher.close()

    assert (True, {"a.json", "b.json"}, 3) == (is_done, {*done}, len(done))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Python drops some interrupts
@pytest.mark.parametrize("event", ["call", "c_return"])
def test_an_interrupt_anywhere_leaves_no_record_in_hand_where_no_thread_can_be_started(event: str) -> None:
    """Also in between two steps of handing it out: the next who waits carries it out."""
    seen = step = 0
    while seen >= step:
        done, step = list[str](), step + 1
        dispatcher = Dispatcher(
            lambda task, done=done: not done.append(task.path),  # type: ignore[misc]
            timers=lambda now: [Timer(bool, at=inf, every=inf)],
        )
        with no_thread_starts(), time_limit(60):
            dispatcher.at_once("a.json")
            seen = interrupt_at(step, partial(dispatcher.wait, 5, insist=True, progress=None), event)
            dispatcher.at_once("b.json")
            is_done = dispatcher.wait(5, insist=True, progress=None)
            dispatcher.close()
        assert (True, {"a.json", "b.json"}) == (is_done, {*done}), step

    assert step > 10


def test_an_interrupt_ends_the_wait_that_does_a_background_job_where_no_thread_can_be_started() -> None:
    """A Ctrl-C is for whoever does the job, not only for whom it was begun for, who may never look at it."""
    dispatcher = Dispatcher(lambda task: True, timers=lambda now: [Timer(begin, at=0.0, every=inf)])

    def begin() -> None:
        jobs.append(dispatcher.in_background(partial(signal.raise_signal, signal.SIGINT)))

    jobs: list[Job[None]] = []
    with no_thread_starts():
        dispatcher.at_once("a.json")
        with pytest.raises(KeyboardInterrupt):
            dispatcher.wait(1, insist=True, progress=None)
        is_done = dispatcher.wait(10, insist=True, progress=None)
    dispatcher.close()

    assert is_done


def test_a_mirror_that_ends_the_program_takes_no_other_record_along() -> None:
    """As a ``sys.exit`` in a mirror of one's own: the next records wait for no thread that has ended."""
    done: list[str] = []

    def carry_out(task: Task) -> bool:
        done.append(task.path)
        if task.path == "a.json":
            raise SystemExit
        return True

    dispatcher = Dispatcher(carry_out, timers=lambda now: [Timer(bool, at=inf, every=inf)])
    dispatcher.at_once("a.json")
    dispatcher.wait(5, insist=True, progress=None)
    dispatcher.at_once("b.json")
    wait_until(lambda: done == ["a.json", "b.json"])
    dispatcher.close()


@pytest.mark.parametrize(("job_seconds", "timeout", "has_ended"), [(0.2, 60.0, True), (60.0, 0.01, False)])
def test_the_end_waits_for_the_last_job_for_a_time(job_seconds: float, timeout: float, has_ended: bool) -> None:
    """A job under way ends before ``close`` returns, so that it writes nothing later, unless it takes too long."""
    workers, begun, hanging, ended = Workers(1, name="test"), threading.Event(), threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        hanging.wait(job_seconds)
        ended.set()

    workers.submit(job)
    assert begun.wait(60)
    workers.close(timeout)

    assert has_ended == ended.is_set()
    hanging.set()


def test_a_dispatcher_that_is_closed_does_nothing_later() -> None:
    """A periodic job that has begun has ended when the close returns, and none begins after that."""
    begun, goes_on, ran = threading.Event(), threading.Event(), []

    def job() -> None:
        begun.set()
        wait_until(lambda: dispatcher.is_closed)
        goes_on.wait(0.2)
        ran.append(dispatcher.is_closed)

    timers = [Timer(job, 0.0, inf), Timer(job, 0.0, inf)]
    dispatcher = Dispatcher(lambda task: True, timers=lambda now: timers)
    dispatcher.start()
    assert begun.wait(60)
    dispatcher.close()

    assert [True] == ran


@pytest.mark.slow
@pytest.mark.parametrize("event", ["call", "c_return"])
def test_an_interrupt_while_a_change_is_noticed_holds_nobody_up(event: str) -> None:
    """Wherever it comes, another thread can notice changes, what it noticed is carried out, and the end comes."""
    change = RecordChanged("notes", "notes", 1, "append", "local")
    seen = step = 0
    while seen >= step:
        done, step = threading.Event(), step + 1

        def carry_out(task: Task, done: threading.Event = done) -> bool:
            done.set()
            return True

        dispatcher = Dispatcher(carry_out, timers=lambda now: [Timer(lambda: None, inf, inf)])
        with time_limit(60):
            seen = interrupt_at(step, partial(dispatcher.notice, change), event)
            in_another_thread(partial(dispatcher.notice, change))
            done.wait()
            dispatcher.close()

    assert step > 10


def test_every_thread_is_a_daemon() -> None:
    """A job that hangs does not keep the program from ending."""
    workers, hanging, is_daemon = Workers(1, name="test"), threading.Event(), []

    def job() -> None:
        is_daemon.append(threading.current_thread().daemon)
        hanging.set()

    workers.submit(job)
    hanging.wait(60)
    workers.close(60)

    assert [True] == is_daemon


def test_a_job_that_a_close_leaves_undone_ends_with_an_error() -> None:
    """Whoever waits for it is told so: also who asks as it closes, when its thread hands nothing out any more."""
    begun = threading.Event()

    def timer() -> None:
        begun.set()
        wait_until(lambda: dispatcher.is_closed)

    dispatcher = Dispatcher(lambda task: True, timers=lambda now: [Timer(timer, at=now, every=inf)])
    dispatcher.start()
    assert begun.wait(60)
    before = dispatcher.in_background(int)  # the thread is busy, and finds the dispatcher closed afterwards
    dispatcher.close()
    with pytest.raises(InvalidArgument, match="closed"):
        before.result(timeout=5.0)
    with pytest.raises(InvalidArgument, match="closed"):
        dispatcher.in_background(int).result(timeout=5.0)


def test_whoever_waits_hears_that_all_is_done_whenever_it_ends() -> None:
    """A last task that ends between the count and the decision is done: nothing is left that could be put off."""
    may_end = threading.Event()
    told: list[tuple[int, int]] = []

    def carry_out(task: Task) -> bool:
        return may_end.wait(60)

    def progress(done: int, total: int) -> None:
        told.append((done, total))
        may_end.set()
        wait_until(lambda: dispatcher.is_idle)

    dispatcher = Dispatcher(carry_out, timers=lambda now: [Timer(bool, at=inf, every=inf)])
    dispatcher.at_once("a.json")
    is_done = dispatcher.wait(60.0, insist=True, progress=progress)
    dispatcher.close()

    assert (True, (1, 1)) == (is_done, told[-1])


def test_whoever_waits_does_not_wait_for_what_changes_later() -> None:
    """A record that is changed without end while it is pushed is done once it was pushed as it was."""
    change = RecordChanged("notes", "notes", 1, "append", "process")

    def carry_out(task: Task) -> bool:
        dispatcher.notice(change)
        return True

    dispatcher = Dispatcher(carry_out, timers=lambda now: [Timer(bool, at=inf, every=inf)])
    dispatcher.notice(change)
    is_done = dispatcher.wait(5.0, insist=True, progress=None)
    dispatcher.close()

    assert is_done
