"""Transfers make way for those who write, and for nobody else."""

from __future__ import annotations

import threading

import pytest

from memfiles.sync.dispatcher import WRITING_SECONDS, Throttle


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
def courtesy(clock: Clock) -> Throttle:
    return Throttle(monotonic=lambda: clock.now, cpu_time=lambda: clock.cpu, sleep=clock.sleep)


def test_nobody_writes(courtesy: Throttle, clock: Clock) -> None:
    """Without a writer there is no rest."""
    courtesy.transfer(clock.transfer)

    assert [] == clock.rests


def test_somebody_writes(courtesy: Throttle, clock: Clock) -> None:
    """While somebody writes, a transfer is followed by a rest of ten times the processor time it took."""
    courtesy.notice_write()
    courtesy.transfer(clock.transfer)

    assert [0.04] == clock.rests


def test_somebody_wrote(courtesy: Throttle, clock: Clock) -> None:
    """A moment after the last write there is no rest any more."""
    courtesy.notice_write()
    clock.now += WRITING_SECONDS
    courtesy.transfer(clock.transfer)

    assert [] == clock.rests


def test_somebody_waits_for_the_transfers(courtesy: Throttle, clock: Clock) -> None:
    """A flush is not slowed down by the writes before it."""
    courtesy.notice_write()
    with courtesy.waived():
        courtesy.transfer(clock.transfer)
    before = list(clock.rests)
    courtesy.transfer(clock.transfer)

    assert [] == before
    assert [0.04] == clock.rests


def test_one_at_a_time(courtesy: Throttle) -> None:
    """While somebody writes, a second transfer waits for the first."""
    courtesy.notice_write()
    began, may_end, order = threading.Event(), threading.Event(), []

    def first() -> None:
        began.set()
        may_end.wait(60)
        order.append("first")

    threads = [
        threading.Thread(target=courtesy.transfer, args=(first,)),
        threading.Thread(target=courtesy.transfer, args=(lambda: order.append("second"),)),
    ]
    threads[0].start()
    began.wait(60)
    threads[1].start()
    threads[1].join(0.05)
    may_end.set()
    for thread in threads:
        thread.join(60)

    assert ["first", "second"] == order
