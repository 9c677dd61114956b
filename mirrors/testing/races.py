"""Questions about simultaneous writers: one winner, no lost change, no torn body."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from memfiles.errors import MirrorConflict
from memfiles.sync.mirror import ABSENT, ANY, Condition, Mirror, equals
from mirrors.testing.place import Place, expect, got, question

WRITERS = 8
TRIES = 500


@question("racing")
def of_writers_over_one_version_exactly_one_wins(place: Place) -> None:
    """The condition and the put are one step, for every handle."""
    for start in (ABSENT, ANY):
        handles = [place.open() for _ in range(WRITERS)]
        when = start if start == ABSENT else equals(handles[0].put("a.json", place.body("a.json", "start")))
        bodies = [place.body("a.json", f"{start.kind} {number}") for number in range(2 * WRITERS)]
        won = together(_put(handles[number % WRITERS], body, when=when) for number, body in enumerate(bodies))
        expect(1, won.count(True), f"winners among {len(bodies)} puts with {when}")
        expect(bodies[won.index(True)], place.seen("a.json"), "the winner's body is there")


def _put(mirror: Mirror, body: bytes, *, when: Condition) -> Callable[[], object]:
    return lambda: mirror.put("a.json", body, when=when)


@question("racing")
def no_change_is_lost_between_writers(place: Place) -> None:
    """A writer that reads, changes and puts until the put succeeds adds its line exactly once."""
    place.open().put("a.json", b"")

    def append(number: int) -> None:
        mirror, line = place.open(), f"{number}\n".encode()
        for _ in range(TRIES):
            body, version = got(mirror, "a.json") or (b"", "")
            if line in body.splitlines(keepends=True):
                return  # put, told of no success, and overtaken by another before it was put again
            if wins(partial(mirror.put, "a.json", body + line, when=equals(version))):
                return
        raise AssertionError(f"a put over the version just read met a conflict {TRIES} times")

    numbers = range(2 * WRITERS)
    with ThreadPoolExecutor(WRITERS // 2) as pool:
        list(pool.map(append, numbers))
    lines = (place.seen("a.json") or b"").split()
    expect(sorted(str(number).encode() for number in numbers), sorted(lines), "every change, once")


@question("bytes")
def a_reader_sees_an_old_body_or_a_new_one(place: Place) -> None:
    """A body is never mixed or missing, and one version means one body."""
    size = 200_000
    place.open().put("a.json", b"a" * size)
    versions: dict[str, int] = {}

    def write(handle: Mirror) -> None:
        for letter in b"bcdefghij":
            handle.put("a.json", bytes([letter]) * size)

    def read(handle: Mirror) -> None:
        for _ in range(15):
            body, version = got(handle, "a.json") or (b"", "")
            expect((size, 1), (len(body), len(set(body))), "size and kinds of letters in a body")
            expect(body[0], versions.setdefault(version, body[0]), "the letter of one version")

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(write, place.open()), *(pool.submit(read, place.open()) for _ in range(2))]:
            done.result()


@question()
def a_list_during_changes_has_what_stays(place: Place) -> None:
    """Objects put meanwhile may be listed or not; untouched ones are listed once, in order."""
    staying = ["a.json", "m.json", "z.json"]
    for key in staying:
        place.write(key, key)

    def disturb(handle: Mirror) -> None:
        for key in ("b.json", "n.json", "zz.json", "c.json", "o.json", "zzz.json"):
            handle.put(key, place.body(key, "1"))

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(disturb, place.open())
        for _ in range(5):
            keys = [key for key, _ in place.open().list()]
            expect(sorted(set(keys)), keys, "each key once, in order")
            expect(staying, [key for key in keys if key in staying], "what nobody touched")
        done.result()


def wins(call: Callable[[], object]) -> bool:
    """Whether the call meets no conflict."""
    try:
        call()
    except MirrorConflict:
        return False
    return True


def together(calls: Iterable[Callable[[], object]]) -> list[bool]:
    """Which of the calls, made at the same time, meet no conflict."""
    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(wins, calls))
