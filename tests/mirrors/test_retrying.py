"""RetryingMirror asks again when the store did not answer, later and later, and not for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import pytest

from memfiles.errors import MirrorConflict, MirrorRefused, MirrorUnavailable
from memfiles.sync.mirror import ANY, Answer, Condition, Mirror, Stored
from mirrors import MemoryMirror, RetryingMirror
from mirrors.retrying import Backoff
from tests.mirrors.broken import Bulk, Passing


class Failing(Passing):
    """Raises the given errors, one a call, before it begins to work; ``calls`` counts."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__(MemoryMirror())
        self.errors = list(errors)
        self.calls = 0

    def _fail(self) -> None:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        yield from self.inner.list(prefix)
        self._fail()

    def get(self, key: str) -> Stored | None:
        self._fail()
        return self.inner.get(key)

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        self._fail()
        return self.inner.put(key, body, when=when)

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        self._fail()
        self.inner.delete(key, when=when)


class Time:
    """A clock that moves by being slept on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def retrying(inner: Mirror, time: Time, *, backoff: Backoff, share: float = 1.0) -> RetryingMirror:
    return RetryingMirror(inner, backoff=backoff, monotonic=lambda: time.now, sleep=time.sleep, random=lambda: share)


CALLS: dict[str, Callable[[Mirror], object]] = {
    "list": lambda mirror: list(mirror.list()),
    "get": lambda mirror: mirror.get("a.json"),
    "put": lambda mirror: mirror.put("a.json", b"1"),
    "delete": lambda mirror: mirror.delete("a.json"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_call_is_repeated_until_it_is_answered(call: Callable[[Mirror], object]) -> None:
    """Two failures are two pauses, and then the answer."""
    inner, time = Failing(MirrorUnavailable("1"), MirrorUnavailable("2")), Time()
    call(retrying(inner, time, backoff=Backoff(first=0.1)))

    assert (3, [0.1, 0.2]) == (inner.calls, time.pauses)


def test_the_list_is_whole_before_it_is_given_out() -> None:
    """A list that breaks off in the middle is asked for again, and no key comes twice."""
    inner = Failing(MirrorUnavailable("broke off"))
    version = inner.inner.put("a.json", b"1")

    assert [("a.json", version)] == list(retrying(inner, Time(), backoff=Backoff()).list())


@pytest.mark.parametrize("error", [MirrorConflict("c"), MirrorRefused("r"), ValueError("a defect")])
def test_an_answer_is_not_asked_for_again(error: Exception) -> None:
    """A conflict, a refusal and a defect are passed on at once."""
    inner, time = Failing(error), Time()
    with pytest.raises(type(error)):
        retrying(inner, time, backoff=Backoff()).get("a.json")

    assert (1, []) == (inner.calls, time.pauses)


def test_the_attempts_are_bounded() -> None:
    """The last failure is the caller's."""
    inner = Failing(*(MirrorUnavailable(str(number)) for number in range(9)))
    with pytest.raises(MirrorUnavailable, match="^2$"):
        retrying(inner, Time(), backoff=Backoff(attempts=3)).get("a.json")

    assert 3 == inner.calls


def test_the_time_is_bounded() -> None:
    """No attempt begins when the patience is used up, however few there were."""
    inner, time = Failing(*(MirrorUnavailable(str(number)) for number in range(99))), Time()
    with pytest.raises(MirrorUnavailable):
        retrying(inner, time, backoff=Backoff(attempts=99, first=1.0, longest=4.0, patience=10.0)).get("a.json")

    assert [1.0, 2.0, 4.0, 4.0] == time.pauses


def test_a_pause_doubles_up_to_the_longest() -> None:
    """The bound of a pause grows by two; after a thousand failures it is still a number."""
    backoff = Backoff(first=0.1, longest=5.0)
    bounds = [backoff.pause(failures, share=1.0) for failures in range(1, 7)]

    assert all(later == 2 * earlier for earlier, later in pairwise(bounds))
    assert 5.0 == backoff.pause(1000, share=1.0)


def test_the_jitter_is_full() -> None:
    """A pause is anything from nothing to its bound."""
    backoff = Backoff(first=2.0)

    assert [0.0, 0.5, 2.0] == [backoff.pause(1, share=share) for share in (0.0, 0.25, 1.0)]


def test_of_many_only_the_unanswered_are_asked_again() -> None:
    """Together, after the pause; what is refused is not asked again, and the last failure is the answer."""
    asked: list[tuple[str, ...]] = []
    busy, refused = MirrorUnavailable("503"), MirrorRefused("403")

    class Busy(Bulk):
        def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
            asked.append(tuple(keys))
            answers = {"a.json": None, "b.json": busy if len(asked) < 3 else None, "c.json": refused, "d.json": busy}
            return iter([(key, answers[key]) for key in asked[-1]])

    time = Time()
    mirror = retrying(Busy(MemoryMirror()), time, backoff=Backoff(attempts=3, first=1.0))
    answers = dict(mirror.get_many(["a.json", "b.json", "c.json", "d.json"]))

    assert {"a.json": None, "b.json": None, "c.json": refused, "d.json": busy} == answers
    assert [("a.json", "b.json", "c.json", "d.json"), ("b.json", "d.json"), ("b.json", "d.json")] == asked
    assert [1.0, 2.0] == time.pauses
