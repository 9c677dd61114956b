"""What is done again and again."""

from __future__ import annotations

import threading
from math import inf

import pytest

from memfiles.sync.dispatcher import WRITING_SECONDS, Throttle, Timer, Workers
from tests.support.records import wait_until


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
    workers.close()


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
    workers.close()

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
    workers.close()


def test_every_thread_is_a_daemon() -> None:
    """A job that hangs does not keep the program from ending."""
    workers, hanging, is_daemon = Workers(1, name="test"), threading.Event(), []

    def job() -> None:
        is_daemon.append(threading.current_thread().daemon)
        hanging.set()

    workers.submit(job)
    hanging.wait(60)
    workers.close()

    assert [True] == is_daemon


class Clock:
    """A clock that a transfer moves on, and that notes the rests."""

    def __init__(self) -> None:
        self.now = 100.0
        self.cpu = 0.0
        self.rests: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.rests.append(round(seconds, 6))

    def transfer(self) -> None:
        self.now += 0.05
        self.cpu += 0.004


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def throttle(clock: Clock) -> Throttle:
    return Throttle(monotonic=lambda: clock.now, cpu_time=lambda: clock.cpu, sleep=clock.sleep)


def test_nobody_writes(throttle: Throttle, clock: Clock) -> None:
    """Without a writer there is no rest."""
    throttle.transfer(clock.transfer)

    assert [] == clock.rests


def test_somebody_writes(throttle: Throttle, clock: Clock) -> None:
    """While somebody writes, a transfer is followed by a rest of ten times the processor time it took."""
    throttle.notice_write()
    throttle.transfer(clock.transfer)

    assert [0.04] == clock.rests


def test_somebody_wrote(throttle: Throttle, clock: Clock) -> None:
    """A moment after the last write there is no rest any more."""
    throttle.notice_write()
    clock.now += WRITING_SECONDS
    throttle.transfer(clock.transfer)

    assert [] == clock.rests


def test_somebody_waits_for_the_transfers(throttle: Throttle, clock: Clock) -> None:
    """A flush is not slowed down by the writes before it."""
    throttle.notice_write()
    with throttle.waived():
        throttle.transfer(clock.transfer)
    before = list(clock.rests)
    throttle.transfer(clock.transfer)

    assert [] == before
    assert [0.04] == clock.rests


def test_one_at_a_time(throttle: Throttle) -> None:
    """While somebody writes, a second transfer waits for the first."""
    throttle.notice_write()
    began, may_end, order = threading.Event(), threading.Event(), []

    def first() -> None:
        began.set()
        may_end.wait(60)
        order.append("first")

    threads = [
        threading.Thread(target=throttle.transfer, args=(first,)),
        threading.Thread(target=throttle.transfer, args=(lambda: order.append("second"),)),
    ]
    threads[0].start()
    began.wait(60)
    threads[1].start()
    threads[1].join(0.05)
    may_end.set()
    for thread in threads:
        thread.join(60)

    assert ["first", "second"] == order
