"""What is done again and again."""

from __future__ import annotations

from math import inf

from memfiles.sync.dispatcher import Timer


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
