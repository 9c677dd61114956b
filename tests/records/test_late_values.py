"""Values whose class becomes a dataclass with the first of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from memfiles.records import LateValue

THREADS, CLASSES = 4, 100


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns after every few steps."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_threads_may_make_the_first_values_at_once() -> None:
    """None of them uses a class that another one is still turning into a dataclass."""

    def equal_ones() -> int:
        class Point(LateValue):
            x: int
            y: int = 0

        start = Barrier(THREADS)

        def make(_: int) -> set[Point]:
            start.wait()
            return {Point(1), Point(1, y=0)}

        return max(map(len, threads.map(make, range(THREADS))))

    with ThreadPoolExecutor(THREADS) as threads:
        assert {1} == {equal_ones() for _ in range(CLASSES)}
