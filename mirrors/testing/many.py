"""Questions about getting many objects at a time: each asked key once, with the answer that a get would give."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import partial

from memfiles.errors import InvalidArgument
from memfiles.sync.mirror import Answer, Mirror, get_many
from mirrors.testing.bodies_and_keys import BAD_KEYS, ODD_KEYS
from mirrors.testing.place import Place, expect, expect_error, got, question

_MANY = 100


@question()
def each_of_many_is_what_a_get_gives(place: Place) -> None:
    """The body and version of each existing object, None for a missing one, and no other keys."""
    keys = [f"{number:03}.json" for number in range(_MANY)]
    for key in keys[::2]:
        place.write(key, key)
    place.write("other.json", "not asked for")
    answers = _answers(place.open(), keys)
    expect(sorted(keys), sorted(key for key, _ in answers), "each asked key, once")
    for key, answer in answers:
        expect(got(place.open(), key), _pair(answer), f"{key} among many")


@question()
def a_key_asked_for_twice_is_answered_once(place: Place) -> None:
    """Repeated keys are answered once; a call without keys has no answers."""
    place.write("a.json", "1")
    expect(["a.json", "b.json"], sorted(key for key, _ in _answers(place.open(), ["a.json", "b.json"] * 3)), "once")
    expect([], _answers(place.open(), []), "of no keys")


@question()
def what_others_wrote_is_among_many(place: Place) -> None:
    """A handle that got many objects before does not answer from a stale cache."""
    mirror = place.open()
    place.write("a.json", "1")
    _answers(mirror, ["a.json"])
    theirs = place.write("a.json", "2")
    expect([theirs], [(_pair(answer) or (None,))[0] for _, answer in _answers(mirror, ["a.json"])], "the newer body")


@question("folders")
def odd_keys_are_among_many(place: Place) -> None:
    """Every key that a get accepts."""
    for key in ODD_KEYS:
        place.open().put(key, place.body(key, key))
    answers = dict(_answers(place.open(), ODD_KEYS))
    for key in ODD_KEYS:
        expect(got(place.open(), key), _pair(answers[key]), f"{key!r} among many")


@question("bytes")
def big_and_empty_bodies_are_among_many(place: Place) -> None:
    """Whole, byte for byte."""
    bodies = {"big.json": random.Random(2).randbytes(place.big), "empty.json": b"", "one.json": b"\x00"}
    for key, body in bodies.items():
        place.open().put(key, body)
    found = {key: (_pair(answer) or (None,))[0] for key, answer in _answers(place.open(), bodies)}
    expect(bodies, found, "bodies of all sizes")


@question()
def bad_keys_are_refused_among_many(place: Place) -> None:
    """One invalid key is enough, and no request reaches the store."""
    place.write("a.json", "1")
    for key in BAD_KEYS:
        expect_error(InvalidArgument, partial(_answers, place.open(), ["a.json", key]), f"{key!r} among many")


@question()
def who_has_seen_enough_of_many_may_stop(place: Place) -> None:
    """A mirror works as before if its caller stops reading the answers."""
    keys = [f"{number:03}.json" for number in range(_MANY)]
    for key in keys[:3]:
        place.write(key, key)
    mirror = place.open()
    first, _ = next(iter(get_many(mirror, keys)))
    expect(True, first in keys, "the first that arrives is one of those asked for")
    expect(got(place.open(), keys[0]), got(mirror, keys[0]), "a get after it")


def _answers(mirror: Mirror, keys: Iterable[str]) -> list[tuple[str, Answer]]:
    return list(get_many(mirror, keys))


def _pair(answer: Answer) -> tuple[bytes, str] | None:
    """The body and version of an answer; an error is raised as a get would raise it."""
    if isinstance(answer, Exception):
        raise answer
    return (answer.body, answer.version) if answer else None
