"""Questions about the feed and about erasing: no change is missed, and nothing that was erased is kept."""

from __future__ import annotations

import threading

from memfiles.storage.record_store import Changes, RecordStore
from mirrors.testing.place import expect
from mirrors.testing.stores.changes import ENTRY
from mirrors.testing.stores.place import PATIENCE_SECONDS, StorePlace, append, put, read, remove

_SECRET = b"hunter2 correct horse"
_WRITERS, _CHANGES = 4, 40


class _Follower:
    """Knows a store's records from the feed alone."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._point: str | None = None
        self.known: dict[str, object] = {}

    def follow(self) -> Changes:
        """Take in what changed since the last call."""
        told = self._store.changes(self._point)
        self._point = told.until
        kept = {path: at for path, at in self.known.items() if path.rpartition("/")[0] not in told.complete}
        self.known = {path: at for path, at in {**kept, **told.records}.items() if at is not None}
        return told


def the_feed_begins_with_everything(place: StorePlace) -> None:
    """From the beginning, or from a point that means nothing to the store: every record at its version."""
    with place.open() as store, place.open() as other:
        expect({}, dict(store.changes().records), "nothing is in an empty store")
        signatures = put(store, {"a.json": "1", "b.json": "2"}) | put(store, {ENTRY: "3"})
        for since in (None, "", "nonsense", "[]", "null", "9" * 30):
            expect(signatures, dict(other.changes(since).records), f"every record since {since!r}")


def the_feed_tells_what_was_changed_since(place: StorePlace) -> None:
    """Each change, also in quick succession, to a handle that asks from where it was."""
    with place.open() as store, place.open() as other:
        follower = _Follower(other)
        for number in range(30):
            path = f"a{number % 3}.json"
            signature = put(store, {path: str(number)})[path]
            follower.follow()
            expect(signature, follower.known.get(path), f"change {number} is told to who asks after it")
        remove(store, ["a1.json"])
        follower.follow()
        expect({"a0.json", "a2.json"}, follower.known.keys(), "what was removed is told")


def a_point_may_be_kept(place: StorePlace) -> None:
    """A point means the same to a handle that is opened later."""
    with place.open() as store:
        put(store, {"a.json": "1"})
        point = store.changes().until
    with place.open() as store:
        signature = put(store, {"b.json": "2"})["b.json"]
        expect(signature, store.changes(point).records.get("b.json"), "what was changed since a kept point")


def the_feed_misses_nothing_while_others_write(place: StorePlace) -> None:
    """Who follows the feed while several write knows in the end what is there."""
    with place.open() as store, place.open() as other:
        follower = _Follower(other)

        def write(writer: int) -> None:
            for number in range(_CHANGES):
                append(store, [f"w{writer}n{number % 5}.json", "all.json"], f"{writer} {number}")

        writers = [threading.Thread(target=write, args=(each,)) for each in range(_WRITERS)]
        for writer in writers:
            writer.start()
        while any(writer.is_alive() for writer in writers):
            follower.follow()
        follower.follow()
        expect(5 * _WRITERS + 1, len(follower.known), "every record was told")
        expect({path: store.signature(path) for path in follower.known}, follower.known, "at its last version")
        expect(_WRITERS * _CHANGES, len((read(store, "all.json") or "").splitlines()), "no line was lost")


def news_wake_who_waits(place: StorePlace) -> None:
    """A change after the point ends a wait; without one it ends in time."""
    with place.open() as store, place.open() as other:
        put(store, {"a.json": "1"})
        point = _quiet(other)
        heard: list[bool] = []
        waiting = threading.Thread(target=lambda: heard.append(other.wait(point, seconds=PATIENCE_SECONDS)))
        waiting.start()
        signature = put(store, {"b.json": "2"})["b.json"]
        waiting.join(PATIENCE_SECONDS / 2)
        expect([True], heard, "a wait ends with a change")
        expect(signature, other.changes(point).records.get("b.json"), "and the feed has it")
        expect(True, other.wait(point, seconds=0.0), "a wait from a point that is behind ends at once")


def what_is_erased_is_nowhere(place: StorePlace) -> None:
    """After a scrub no earlier version of a record is kept, by whatever handle it was written."""
    if place.holds is None:
        return
    with place.open() as store, place.open() as other, place.open() as third:
        for number, handle in enumerate((store, other, third) * 2):
            put(handle, {f"a{number}.json": f"{number} {_SECRET.decode()}", "b.json": f"{number} {_SECRET.decode()}"})
        put(store, {ENTRY: "3"})
        expect(True, len(place.holds(_SECRET)) > 0, "the text is kept while it is in records")
        for number, handle in enumerate((third, store, other) * 2):
            put(handle, {f"a{number}.json": "clean", "b.json": "clean"})
        store.scrub()
        expect([], place.holds(_SECRET), "what holds the text after a scrub")
        put(other, {"c.json": _SECRET.decode()})
        remove(store, ["c.json"])
        store.scrub()
        expect([], place.holds(_SECRET), "what holds the text of a removed record after a scrub")
        expect("clean", read(third, "b.json"), "the records are as they were")


def _quiet(store: RecordStore) -> str:
    """A point after which nothing is told any more; ``AssertionError`` if there is none."""
    for _ in range(100):
        point = store.changes().until
        if not store.wait(point, seconds=0.2):
            return point
    raise AssertionError("a wait ends without news, a hundred times")
