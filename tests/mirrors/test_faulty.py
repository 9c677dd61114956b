"""FaultyMirror fails as often, as variously and as repeatably as it says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from memfiles.errors import MemfilesError, MirrorConflict, MirrorUnavailable
from memfiles.sync.mirror import Mirror
from mirrors import FaultyMirror, MemoryMirror
from mirrors.faulty import HONEST, Fault


def outcome(call: Callable[[], object]) -> str:
    try:
        call()
    except MemfilesError as error:
        return str(error)
    return "done"


def always(fault: Fault, inner: Mirror, seed: int = 0) -> FaultyMirror:
    return FaultyMirror(inner, rate=1.0, seed=seed, faults=[fault])


def test_a_third_of_the_calls_fail_in_every_way() -> None:
    """The share is the rate, and every kind of fault comes."""
    mirror = FaultyMirror(MemoryMirror(), seed=1)
    outcomes = Counter(outcome(lambda: mirror.put("a.json", b"1")) for _ in range(3000))

    assert 0.30 < 1 - outcomes["done"] / 3000 < 0.37
    assert 7 == len(outcomes)  # done, six ways to fail


def test_the_same_seed_fails_the_same_calls() -> None:
    """A failing test can be run again."""
    one, two, other = (FaultyMirror(MemoryMirror(), seed=seed) for seed in (7, 7, 8))
    runs = [[outcome(lambda: mirror.put("a.json", b"1")) for _ in range(50)] for mirror in (one, two, other)]  # noqa: B023

    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


@pytest.mark.parametrize(
    ("fault", "happened"),
    [("slow_down", {False}), ("reset", {True}), ("timeout", {False, True}), ("conflict", {False, True})],
)
def test_whether_a_failed_put_happened(fault: Fault, happened: set[bool]) -> None:
    """Not after a 503; always after a lost answer; one or the other after a timeout or a 412."""
    found = set()
    for seed in range(20):
        inner = MemoryMirror()
        kind = MirrorConflict if fault == "conflict" else MirrorUnavailable
        with pytest.raises(kind, match="injected"):
            always(fault, inner, seed).put("a.json", b"1")
        found.add(inner.get("a.json") is not None)

    assert happened == found


def test_a_truncated_answer() -> None:
    """Half a body under the version of the whole; half a list, and then an error; of a put, no answer."""
    inner = MemoryMirror()
    versions = [inner.put(key, b"12345678") for key in ("a.json", "b.json")]
    mirror = always("truncated", inner)
    stored = mirror.get("a.json")
    listed = mirror.list()

    assert stored is not None
    assert (b"1234", versions[0]) == (stored.body, stored.version)
    assert ("a.json", versions[0]) == next(listed)
    with pytest.raises(MirrorUnavailable):
        next(listed)
    with pytest.raises(MirrorUnavailable):
        mirror.put("c.json", b"1")


def test_honest_faults_are_those_of_the_contract() -> None:
    """With them, a call fails as unanswered or not at all."""
    mirror = FaultyMirror(MemoryMirror(), faults=HONEST)
    calls: list[Callable[[], object]] = [lambda: mirror.put("a.json", b"1"), lambda: mirror.delete("a.json")]
    kinds = {outcome(call).split(" (")[0] for call in calls * 200}

    assert {"done", "injected: timed out", "injected: slow down", "injected: the answer was lost"} == kinds
