"""What the mirror has of many files: asked for as cheaply as it can be, and never waited for beyond the time."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator

import pytest

from memfiles.errors import MirrorRefused, MirrorUnavailable
from memfiles.sync.downloads import FAILURES_IN_A_ROW, FEW, fetch
from memfiles.sync.mirror import Answer, Stored
from memfiles.sync.pack import FOLDER, write_pack
from mirrors import FaultyMirror, MemoryMirror
from mirrors.faulty import HONEST
from tests.mirrors.repeating import RepeatingMirror

MANY = [f"{number}.json" for number in range(200)]


class Counting(MemoryMirror):
    """Remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = 0
        self.gets: list[str] = []

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        self.lists += 1
        return super().list(prefix)

    def get(self, key: str) -> Stored | None:
        self.gets.append(key)
        return super().get(key)


class Hanging(Counting):
    """Answers nobody, until the test is over."""

    def __init__(self) -> None:
        super().__init__()
        self.over = threading.Event()

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        self.over.wait(60)
        return super().list(prefix)

    def get(self, key: str) -> Stored | None:
        self.over.wait(60)
        return super().get(key)


def filled(mirror: MemoryMirror, keys: list[str]) -> dict[str, Answer]:
    return {key: Stored(key.encode(), mirror.put(key, key.encode())) for key in keys}


def reasons(answers: dict[str, Answer]) -> set[str]:
    return {str(answer) for answer in answers.values() if isinstance(answer, MirrorUnavailable)}


def test_nothing_is_asked_for_nothing() -> None:
    """A start with all its records has no mirror."""
    mirror = Counting()

    assert ({}, 0, []) == (fetch(mirror, []), mirror.lists, mirror.gets)


def test_a_few_are_asked_for_one_by_one() -> None:
    """Without a look at what there is."""
    mirror = Counting()
    expected = filled(mirror, MANY[1:FEW]) | {MANY[0]: None}

    assert expected == fetch(mirror, MANY[:FEW])
    assert (0, sorted(MANY[:FEW])) == (mirror.lists, sorted(mirror.gets))


def test_of_many_only_those_are_asked_for_that_are_there() -> None:
    """One list says which."""
    mirror = Counting()
    expected = filled(mirror, [*MANY[:40], "other.json"])
    expected = {key: expected.get(key) for key in MANY}

    assert expected == fetch(mirror, MANY)
    assert (1, sorted(MANY[:40])) == (mirror.lists, sorted(mirror.gets))


def test_with_a_pack_a_few_requests_are_enough() -> None:
    """The list, the index, the part; and what changed after it was packed."""
    mirror = Counting()
    packed = {key: stored for key, stored in filled(mirror, MANY).items() if isinstance(stored, Stored)}
    write_pack(mirror, packed.items())
    newer = filled(mirror, ["7.json"]) | {"8.json": Stored(b"8", mirror.put("8.json", b"8"))}
    mirror.delete("9.json")
    mirror.lists, mirror.gets = 0, []

    assert packed | newer | {"9.json": None} == fetch(mirror, MANY)
    assert 1 == mirror.lists
    assert ["8.json"] == [key for key in mirror.gets if not key.startswith(FOLDER)]
    assert 3 == len(mirror.gets)


def test_deleting_the_pack_loses_nothing() -> None:
    """It costs requests."""
    mirror = Counting()
    expected = filled(mirror, MANY)
    write_pack(mirror, [(key, stored) for key, stored in expected.items() if isinstance(stored, Stored)])
    for key, _ in list(mirror.list(FOLDER)):
        mirror.delete(key)

    assert expected == fetch(mirror, MANY)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, FEW, len(MANY)])
def test_a_mirror_that_hangs_is_not_waited_for(count: int) -> None:
    """Beyond the time for all of it."""
    mirror = Hanging()
    answers = fetch(mirror, MANY[:count], deadline_seconds=0.1)
    mirror.over.set()

    assert (set(MANY[:count]), {f"0 of {count} answers came in time"}) == (set(answers), reasons(answers))


def test_a_mirror_that_says_nothing_is_not_waited_for() -> None:
    """Long before the time for all of it is up."""
    mirror = Hanging()
    answers = fetch(mirror, MANY, silence_seconds=0.1)
    mirror.over.set()

    assert {f"0 of {len(MANY)} answers came in time"} == reasons(answers)


@pytest.mark.slow
def test_what_came_in_time_counts() -> None:
    """A slow mirror is a mirror for as many files as it gets done."""

    class Slow(Counting):
        def get(self, key: str) -> Stored | None:
            if key != "0.json":
                over.wait(60)
            return super().get(key)

    mirror, over = Slow(), threading.Event()
    expected = filled(mirror, MANY)
    answers = fetch(mirror, MANY, deadline_seconds=30.0, silence_seconds=1.5)
    over.set()

    assert expected["0.json"] == answers["0.json"]
    assert {f"1 of {len(MANY)} answers came in time"} == reasons(answers)


def test_a_mirror_that_is_down_is_asked_a_few_times() -> None:
    """And then not for each of thousands."""

    class Down(Counting):
        def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
            raise MirrorRefused("403 AccessDenied")

        def get(self, key: str) -> Stored | None:
            super().get(key)
            time.sleep(0.001)
            raise MirrorRefused("403 AccessDenied")

    mirror = Down()
    keys = [f"{number}.json" for number in range(10_000)]
    answers = fetch(mirror, keys)

    assert (set(keys), {"403 AccessDenied"}) == (set(answers), reasons(answers))
    assert FAILURES_IN_A_ROW <= len(mirror.gets) < 1000


def test_a_list_that_fails_is_the_answer() -> None:
    """Who cannot even list is down."""

    class Down(Counting):
        def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
            raise MirrorUnavailable("nobody at home")

    mirror = Down()

    assert {"nobody at home"} == reasons(fetch(mirror, MANY))
    assert [] == mirror.gets


def test_who_may_get_and_not_list_gets() -> None:
    """Rights are often given like this."""

    class Unlisted(Counting):
        def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
            raise MirrorRefused("403 AccessDenied")

    mirror = Unlisted()

    assert filled(mirror, MANY) == fetch(mirror, MANY)


def test_a_failure_is_that_of_its_file() -> None:
    """The others are there."""

    class Spotty(Counting):
        def get(self, key: str) -> Stored | None:
            if key.startswith("1"):
                raise MirrorUnavailable(f"not {key}")
            return super().get(key)

    mirror = Spotty()
    expected = filled(mirror, ["0.json", "2.json"])
    answers = fetch(mirror, ["0.json", "1.json", "2.json"])

    assert expected == {key: answers[key] for key in expected}
    assert {"not 1.json"} == reasons(answers)


@pytest.mark.parametrize("seed", range(5))
def test_a_third_of_the_calls_may_fail(seed: int) -> None:
    """Asked again, nothing is missing."""
    mirror = MemoryMirror()
    expected = filled(mirror, MANY)
    faulty = FaultyMirror(mirror, seed=seed, faults=HONEST)

    assert expected == fetch(RepeatingMirror(faulty), MANY)


def test_a_mirror_that_is_wrong_fails_no_start() -> None:
    """An error that no mirror may raise is an answer as well."""

    class Wrong(Counting):
        def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
            raise ZeroDivisionError("of my own making")

    assert {"the mirror failed: ZeroDivisionError: of my own making"} == reasons(fetch(Wrong(), MANY))


def test_an_endless_list_is_not_waited_for() -> None:
    """The time is for the list too."""

    class Endless(Counting):
        def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
            for number in itertools.count():
                time.sleep(0.001)
                if self.lists:
                    return
                yield f"{number}.json", "1"

    mirror = Endless()
    answers = fetch(mirror, MANY, deadline_seconds=0.1, silence_seconds=0.1)
    mirror.lists = 1

    assert 1 == len(reasons(answers))
