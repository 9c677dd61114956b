"""Groups: threads that come back together are served together, and nobody waits for one who does not come."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from memfiles.storage.group_commit import Group, Request
from tests.support.records import PATIENCE_SECONDS, wait_until


class Counter:
    """Serves requests, the first of them only once it may, and knows which it served together."""

    def __init__(self, *, patience: float) -> None:
        self.groups: list[list[str]] = []
        self.may_serve = threading.Event()
        self.group: Group[str] = Group(self._serve, patience=lambda: patience)

    def submitting(self, wanted: str) -> threading.Thread:
        """A thread that submits."""
        thread = threading.Thread(target=self.group.submit, args=(wanted,))
        thread.start()
        return thread

    def _serve(self, requests: list[Request[str]]) -> None:
        self.groups.append(sorted(request.wanted for request in requests))
        assert self.may_serve.wait(PATIENCE_SECONDS)
        for request in requests:
            request.is_served = True


@pytest.fixture
def with_two() -> Callable[[float], Counter]:
    """A counter that has just served two together, because they came while another one was served."""

    def make(patience: float) -> Counter:
        counter = Counter(patience=patience)
        threads = [counter.submitting("first")]
        wait_until(lambda: counter.groups, what="the first group")
        threads += [counter.submitting("one"), counter.submitting("two")]
        wait_until(lambda: counter.group.waiting == 2, what="two that wait")
        counter.may_serve.set()
        for thread in threads:
            thread.join()
        assert [["first"], ["one", "two"]] == counter.groups
        return counter

    return make


def test_those_who_were_served_together_are_waited_for(with_two: Callable[[float], Counter]) -> None:
    """The first to come back does not go alone."""
    counter = with_two(PATIENCE_SECONDS)
    thread = counter.submitting("three")
    counter.group.submit("four")
    thread.join()

    assert ["four", "three"] == counter.groups[-1]


@pytest.mark.parametrize("patience", [0.0, 0.001])
def test_nobody_is_waited_for_longer_than_is_worth_while(patience: float, with_two: Callable[[float], Counter]) -> None:
    """Nor again, once one came alone."""
    counter = with_two(patience)
    counter.group.submit("three")
    counter.group.submit("four")

    assert [["three"], ["four"]] == counter.groups[-2:]
