"""Questions about bodies and keys: bodies come back whole, and every key is listed once, in order."""

from __future__ import annotations

import random
from functools import partial

from memfiles.errors import InvalidArgument
from memfiles.sync.mirror import BODY_MAX_BYTES, Mirror
from mirrors.testing.place import Place, expect, expect_error, got, question

ODD_KEYS = (
    *("two words.json", "a+b.json", "100%.json", "%41.json", "a&b=c;d,e.json", "what?.json", "#1.json", "~'\"<>.json"),
    *("Ünïcödé/日本語 🙂.json", ".hidden/.json", "..a/b...json", "A.json", "a.JSON", "@workspace/$(x)`y`!.json"),
    "/".join(["long" * 50] * 4) + ".json",
)
BAD_KEYS = ("", "/a", "a/", "a//b", ".", "../a", "a/../b", "a/./b", "a\\b", "a\nb", "a\0b", ".state/locks/1", ".a.tmp")
_ALL_BYTES = bytes(range(256)) * 3 + b"\r\n\n\x00\x1a"


@question()
def what_is_put_is_there_for_everyone(place: Place) -> None:
    """A put returns the version under which every handle then gets the same bytes."""
    body = place.body("a.json", "one\n")
    version = place.open().put("a.json", body)
    expect((body, version), got(place.open(), "a.json"), "another handle gets what was put, with its version")
    expect(body, place.seen("a.json"), "the store holds the same bytes under the same key")


@question()
def an_empty_body_is_a_body(place: Place) -> None:
    """An object without content exists and differs from a missing one."""
    body = place.body("a.json", "")
    version = place.open().put("a.json", body)
    expect((body, version), got(place.open(), "a.json"), "an empty body comes back")
    expect([("a.json", version)], list(place.open().list()), "an empty body is listed")


@question("bytes")
def any_bytes_come_back_as_they_were(place: Place) -> None:
    """No byte is translated, stripped or added."""
    place.open().put("a.json", _ALL_BYTES)
    expect(_ALL_BYTES, place.seen("a.json"), "the store holds every byte")
    stored = place.open().get("a.json")
    expect(_ALL_BYTES, stored and stored.body, "every byte comes back")


@question()
def a_big_body_comes_back_whole(place: Place) -> None:
    """A body of several megabytes comes back whole."""
    noise = random.Random(1).randbytes(place.big // 2).hex()
    body = place.body("a.json", noise)
    version = place.open().put("a.json", body)
    expect((body, version), got(place.open(), "a.json"), "a big body comes back whole")


@question()
def a_body_beyond_the_limit_is_refused(place: Place) -> None:
    """More than BODY_MAX_BYTES never reaches the store."""
    mirror, body = place.open(), bytes(BODY_MAX_BYTES + 1)
    expect_error(InvalidArgument, lambda: mirror.put("a.json", body), "a body beyond the limit")
    expect(None, place.seen("a.json"), "what was refused is not there")


@question()
def what_is_not_there_is_none(place: Place) -> None:
    """Absence is an answer: None, an empty list."""
    expect(None, place.open().get("a.json"), "nothing is there")
    expect([], list(place.open().list()), "nothing is listed")
    expect([], list(place.open().list("b")), "nothing is listed under a prefix")


@question()
def the_list_is_every_key_in_the_order_of_its_bytes(place: Place) -> None:
    """Each key once, with the version that a get gives it."""
    keys = ["a.json", "B.json", "b.json", "b-1.json", "b_1.json", "b1.json", "z.json"]
    for key in keys:
        place.open().put(key, place.body(key, key))
    listed = list(place.open().list())
    expect(sorted(keys, key=str.encode), [key for key, _ in listed], "keys in the order of their bytes")
    for key, version in listed:
        expect((place.body(key, key), version), got(place.open(), key), "the version in the list is that of the get")
    expect(["b-1.json", "b.json", "b1.json", "b_1.json"], [key for key, _ in place.open().list("b")], "a prefix")


@question("folders")
def the_list_goes_through_folders(place: Place) -> None:
    """A slash is a byte like any other: it sorts between '-' and '0', and a prefix may end anywhere."""
    keys = ["d-.json", "d/a.json", "d/e/f.json", "d/é.json", "d0.json", "other/a.json"]
    for key in reversed(keys):
        place.open().put(key, place.body(key, key))
    expect(keys, [key for key, _ in place.open().list()], "keys in the order of their bytes")
    expect(keys[1:4], [key for key, _ in place.open().list("d/")], "a folder")
    expect(keys[2:3], [key for key, _ in place.open().list("d/e/")], "a folder in a folder")
    expect(keys[:5], [key for key, _ in place.open().list("d")], "a prefix that is not a folder")
    expect([], list(place.open().list("d/none/")), "a folder that is not there")


@question("folders")
def odd_keys_are_keys(place: Place) -> None:
    """The store accepts every key that check_key accepts, and distinguishes them."""
    versions = {key: place.open().put(key, place.body(key, key)) for key in ODD_KEYS}
    for key in ODD_KEYS:
        expect((place.body(key, key), versions[key]), got(place.open(), key), f"{key!r} comes back")
        expect(place.body(key, key), place.seen(key), f"{key!r} is in the store")
    expect(sorted(versions.items(), key=lambda pair: pair[0].encode()), list(place.open().list()), "odd keys listed")


@question()
def bad_keys_never_reach_the_store(place: Place) -> None:
    """Every call checks its key or prefix first."""
    mirror = place.open()
    for key in BAD_KEYS:
        expect_error(InvalidArgument, partial(mirror.get, key), f"get of {key!r}")
        expect_error(InvalidArgument, partial(mirror.put, key, b"1"), f"put of {key!r}")
        expect_error(InvalidArgument, partial(mirror.delete, key), f"delete of {key!r}")
    for prefix in ("../", "/", "a//", "a\n", "\ud800"):
        expect_error(InvalidArgument, partial(_listed, mirror, prefix), f"list of {prefix!r}")
    expect([], list(place.open().list()), "nothing was stored under a bad key")


@question()
def more_keys_than_a_page_holds_are_listed(place: Place) -> None:
    """Each key is listed once, even if the store lists in pages."""
    keys = [f"{number:05}.json" for number in range(place.many)]
    for key in keys:
        place.write(key, key)
    expect(keys, [key for key, _ in place.open().list()], "every key, once, in order")
    expect(keys[:10], [key for key, _ in place.open().list("0000")], "a prefix of many")


def _listed(mirror: Mirror, prefix: str) -> list[tuple[str, str]]:
    return list(mirror.list(prefix))
