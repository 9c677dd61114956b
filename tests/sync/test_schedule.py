"""Which record is due when: quiet before a push, pauses of a mirror that is away, and transfers slowed by writers."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from math import inf

import pytest

from memfiles.sync.dispatcher import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    LONGEST_WAIT_SECONDS,
    QUIET_SECONDS,
    WRITING_SECONDS,
    Schedule,
    Task,
    Throttle,
)
from memfiles.sync.workers import Timer


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


@pytest.mark.parametrize("end", ["quiet", "waived"])
def test_a_transfer_that_hangs_holds_up_no_others(throttle: Throttle, clock: Clock, end: str) -> None:
    """Those that wait behind it go on once nobody writes any more, or somebody waits for them."""
    throttle.notice_write()
    began, may_end = threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        may_end.wait(60)

    others = [threading.Thread(target=throttle.transfer, args=(lambda: None,), daemon=True) for _ in range(3)]
    hanging = threading.Thread(target=throttle.transfer, args=(hang,))
    hanging.start()
    began.wait(60)
    for other in others:
        other.start()
    others[0].join(0.05)
    is_waiting = others[0].is_alive()
    with ExitStack() as stack:
        if end == "waived":
            stack.enter_context(throttle.waived())
        else:
            clock.now += WRITING_SECONDS
        for other in others:
            other.join(5)
        left = [other for other in others if other.is_alive()]
        may_end.set()
        hanging.join(60)

    assert (True, []) == (is_waiting, left)


@pytest.fixture
def schedule() -> Schedule:
    return Schedule(hands=3)


def test_a_change_waits_for_a_short_quiet(schedule: Schedule) -> None:
    """A changed record is due once nothing happened to it for a moment."""

    assert schedule.changed("a", now=0.0)
    assert None is schedule.take(now=QUIET_SECONDS / 2)
    assert pytest.approx(QUIET_SECONDS) == schedule.next_at()
    assert Task("a", look=False) == schedule.take(now=QUIET_SECONDS)


def test_changes_in_quick_succession_go_as_one(schedule: Schedule) -> None:
    """Each further change prolongs the wait, and only the first is news."""
    schedule.changed("a", now=0.0)

    assert not schedule.changed("a", now=QUIET_SECONDS / 2)
    assert None is schedule.take(now=QUIET_SECONDS)
    assert Task("a", look=False) == schedule.take(now=QUIET_SECONDS * 1.5)
    assert None is schedule.take(now=10.0)


def test_unceasing_changes_do_not_wait_for_ever(schedule: Schedule) -> None:
    """A record that never comes to rest is due after the longest wait."""
    moments = [step * QUIET_SECONDS / 2 for step in range(100)]
    for now in moments:
        schedule.changed("a", now=now)
        if schedule.take(now=now) is not None:
            break

    assert pytest.approx(LONGEST_WAIT_SECONDS) == now


def test_a_record_is_in_one_pair_of_hands(schedule: Schedule) -> None:
    """What changes while it is being pushed is due again, but not before that push is over."""
    schedule.at_once("a", now=0.0)
    task = schedule.take(now=0.0)
    assert task is not None
    schedule.changed("a", now=0.0)

    assert None is schedule.take(now=5.0)
    assert None is schedule.next_at()
    schedule.done(task, answered=True)
    assert Task("a", look=False) == schedule.take(now=5.0)


def test_different_records_go_side_by_side(schedule: Schedule) -> None:
    """Several records can be in hand at once."""
    schedule.at_once("a", now=0.0)
    schedule.at_once("b", now=0.0, look=True)

    assert Task("a", look=False) == schedule.take(now=0.0)
    assert Task("b", look=True) == schedule.take(now=0.0)
    assert 2 == schedule.pending


def test_hands_are_few(schedule: Schedule) -> None:
    """When every hand is full nothing is taken, and nobody need ask again before one is free."""
    for path in ("a", "b", "c", "d"):
        schedule.at_once(path, now=0.0)
    tasks = [schedule.take(now=0.0) for _ in range(3)]

    assert None is schedule.take(now=1.0)
    assert None is schedule.next_at()
    assert tasks[0] is not None
    schedule.done(tasks[0], answered=True)
    assert Task("d", look=False) == schedule.take(now=1.0)


def test_a_look_is_not_forgotten(schedule: Schedule) -> None:
    """A record that is to be looked at is looked at, whatever else happens to it before its turn."""
    schedule.at_once("a", now=0.0, look=True)
    schedule.changed("a", now=0.0)
    schedule.at_once("a", now=0.0)

    assert Task("a", look=True) == schedule.take(now=0.0)


def test_a_mirror_that_does_not_answer_is_asked_by_one_at_a_time(schedule: Schedule) -> None:
    """After a failure there is a pause, and then a single record is tried, not all of them."""
    for path in ("a", "b", "c"):
        schedule.at_once(path, now=0.0)
    first = schedule.take(now=0.0)
    assert first is not None
    schedule.failed(first, now=0.0, share=1.0)

    assert schedule.failures
    assert None is schedule.take(now=FIRST_PAUSE_SECONDS * 0.9)
    second = schedule.take(now=FIRST_PAUSE_SECONDS)
    assert second is not None
    assert None is schedule.take(now=FIRST_PAUSE_SECONDS)
    assert None is schedule.next_at()
    schedule.done(second, answered=True)
    assert not schedule.failures
    assert {"a", "b", "c"} - {second.path} == {
        task.path for task in (schedule.take(now=1.0), schedule.take(now=1.0)) if task
    }


def test_pauses_grow_up_to_a_bound(schedule: Schedule) -> None:
    """The pause doubles with every failure in a row, and never exceeds its bound."""
    now, pauses = 0.0, []
    schedule.at_once("a", now=now)
    for _ in range(12):
        task = schedule.take(now=now)
        assert task is not None
        schedule.failed(task, now=now, share=1.0)
        at = schedule.next_at()
        assert at is not None
        pauses.append(round(at - now, 6))
        now = at

    assert [FIRST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2, FIRST_PAUSE_SECONDS * 4] == pauses[:3]
    assert LONGEST_PAUSE_SECONDS == max(pauses) == pauses[-1]


def test_one_that_waits_makes_it_hurry(schedule: Schedule) -> None:
    """Neither the quiet nor a pause is kept when somebody waits."""
    schedule.at_once("a", now=0.0)
    task = schedule.take(now=0.0)
    assert task is not None
    schedule.failed(task, now=0.0, share=1.0)
    schedule.changed("b", now=0.0)
    schedule.hurry(now=0.01)

    assert schedule.take(now=0.01) is not None


def test_what_needed_no_answer_says_nothing_of_the_mirror(schedule: Schedule) -> None:
    """A record that turned out to be equal without asking does not end the caution."""
    schedule.at_once("a", now=0.0)
    schedule.at_once("b", now=0.0)
    first, second = schedule.take(now=0.0), schedule.take(now=0.0)
    assert first is not None
    assert second is not None
    schedule.failed(first, now=0.0, share=1.0)
    schedule.done(second, answered=False)

    assert schedule.failures


def test_what_is_put_off_for_long_need_not_be_waited_for(schedule: Schedule) -> None:
    """Nothing is promising while all that is left was put off; a record in hand or waiting for its quiet is."""
    schedule.at_once("a", now=0.0)
    task = schedule.take(now=0.0)
    assert task is not None
    in_hand = schedule.is_put_off(now=0.0)
    schedule.postponed(task, now=0.0, seconds=30.0)
    postponed = schedule.is_put_off(now=0.0)
    schedule.changed("b", now=0.0)

    assert (False, True, False) == (in_hand, postponed, schedule.is_put_off(now=0.0))


def test_a_postponed_record_holds_up_no_other(schedule: Schedule) -> None:
    """A record that another process has in hand, or that alone is refused, is tried later; the others go on."""
    schedule.at_once("a", now=0.0, look=True)
    schedule.at_once("b", now=0.0)
    task = schedule.take(now=0.0)
    assert task is not None
    schedule.postponed(task, now=0.0, seconds=5.0)

    assert Task("b", look=False) == schedule.take(now=0.0)
    assert None is schedule.take(now=4.9)
    assert Task("a", look=True) == schedule.take(now=5.0)


def test_a_job_that_could_not_begin_is_due_again_in_a_second() -> None:
    """Whatever its period is: a look at the mirror must not wait for an hour because another one was under way."""
    ran: list[float] = []

    def run() -> bool:
        ran.append(now)
        return len(ran) > 1

    timer = Timer(run, at=0.0, every=inf)
    for now in (1.0, 1.9, 2.0, 3.0, 1e9):
        timer.run_if_due(now)

    assert [1.0, 2.0] == ran
