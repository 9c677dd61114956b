"""Mirrors that break one promise each, as stores in the wild do: the exam must find every one of them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator

from memfiles.errors import InvalidArgument, MirrorConflict
from memfiles.sync.mirror import ABSENT, ANY, Answer, Condition, Mirror, Stored, check_key, check_keys, equals
from mirrors import MemoryMirror


class Passing:
    """Passes everything on: what the others deviate from."""

    def __init__(self, inner: Mirror) -> None:
        self.inner = inner

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        return self.inner.list(prefix)

    def get(self, key: str) -> Stored | None:
        return self.inner.get(key)

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        return self.inner.put(key, body, when=when)

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        self.inner.delete(key, when=when)


class Forgetful(Passing):
    """Puts nothing."""

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        return hashlib.sha256(body).hexdigest()


class Hoarding(Passing):
    """Keeps to itself what it was given, for its own handle only."""

    def __init__(self, inner: Mirror) -> None:
        super().__init__(MemoryMirror())


class LastWriterWins(Passing):
    """Ignores conditions of a put."""

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        return self.inner.put(key, body)


class FirstWriterWins(Passing):
    """Checks that nothing is there, and not which version is."""

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        return self.inner.put(key, body, when=when if when == ABSENT else ANY)


class LooksThenWrites(Passing):
    """Checks the condition, and writes a moment later."""

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        found = self.inner.get(key)
        if found is None or found.body != body:
            when.check(key, found.version if found else None)
        time.sleep(0.0005)
        return self.inner.put(key, body)


class Strict(Passing):
    """Calls the repetition of a put a conflict."""

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        found = self.inner.get(key)
        when.check(key, found.version if found else None)
        return self.inner.put(key, body)


class DeletesAnything(Passing):
    """Ignores conditions of a delete."""

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        self.inner.delete(key)


class DeletesOnce(Passing):
    """Calls the repetition of a delete a conflict."""

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        if self.inner.get(key) is None:
            raise MirrorConflict(key)
        self.inner.delete(key, when=when)


class KeepsDeleted(Passing):
    """Hides what is deleted from get, and lists it still."""

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        if self.get(key) is not None:
            self.inner.put(key, b"deleted", when=when)

    def get(self, key: str) -> Stored | None:
        found = self.inner.get(key)
        return found if found and found.body != b"deleted" else None


class OnePage(Passing):
    """Lists the first thousand."""

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        return iter(list(self.inner.list(prefix))[:1000])


class Unordered(Passing):
    """Lists folder by folder."""

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        return iter(sorted(self.inner.list(prefix), key=lambda pair: pair[0].split("/")))


class FoldsCase(Passing):
    """Takes two keys that differ by case for one."""

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        return self.inner.put(key.lower(), body, when=when)

    def get(self, key: str) -> Stored | None:
        return self.inner.get(key.lower())


class Lax(Passing):
    """Collapses what is odd in a key, and so takes any."""

    def get(self, key: str) -> Stored | None:
        try:
            return self.inner.get(check_key(key))
        except InvalidArgument:
            return None


class ListsOtherVersions(Passing):
    """Gives versions in its list that a condition does not know."""

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        return ((key, f"list-{version}") for key, version in self.inner.list(prefix))


class CountsBytes(Passing):
    """Takes the length of a body for its version."""

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        for key, _ in self.inner.list(prefix):
            if stored := self.get(key):
                yield key, stored.version

    def get(self, key: str) -> Stored | None:
        stored = self.inner.get(key)
        return Stored(stored.body, str(len(stored.body))) if stored else None

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        stored = self.inner.get(key)
        if stored and when == equals(str(len(stored.body))):
            when = equals(stored.version)
        self.inner.put(key, body, when=when)
        return str(len(body))


class Text(Passing):
    """Keeps text, with the line ends of another system."""

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        return self.inner.put(key, body.replace(b"\r\n", b"\n"), when=when)


class Truncating(Passing):
    """Keeps the first megabyte."""

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        return self.inner.put(key, body[: 1024 * 1024], when=when)


class InTwoSteps(Passing):
    """Writes the first half, and then all: what an in-place write looks like to a reader."""

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        if when != ANY:
            return self.inner.put(key, body, when=when)
        self.inner.put(key, body[: len(body) // 2])
        time.sleep(0.0005)
        return self.inner.put(key, body)


class Caching(Passing):
    """Remembers what it has seen, and asks no more."""

    def __init__(self, inner: Mirror) -> None:
        super().__init__(inner)
        self._seen: dict[str, Stored] = {}

    def get(self, key: str) -> Stored | None:
        if key not in self._seen and (stored := self.inner.get(key)):
            self._seen[key] = stored
        return self._seen.get(check_key(key))

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        version = self.inner.put(key, body, when=when)
        self._seen[key] = Stored(body, version)
        return version


class EmptyIsAbsent(Passing):
    """Takes an object without content for none."""

    def get(self, key: str) -> Stored | None:
        found = self.inner.get(key)
        return found if found and found.body else None


class Bulk(Passing):
    """Gets many: one after the other."""

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        return iter([(key, self.inner.get(key)) for key in check_keys(keys)])


class SkipsAbsent(Bulk):
    """Says nothing, among many, of what is not there."""

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        return ((key, answer) for key, answer in super().get_many(keys) if answer)


class Repeats(Bulk):
    """Answers, among many, as often as it is asked."""

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        return iter([(key, self.inner.get(key)) for key in keys])


class GivesAll(Bulk):
    """Answers, when many are wanted, with everything it has."""

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        return super().get_many([*keys, *(key for key, _ in self.inner.list())])


class MixesUp(Bulk):
    """Gives, among many, the body of another key."""

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        asked = check_keys(keys)
        return zip(asked, (self.inner.get(key) for key in reversed(asked)), strict=True)


class CachesMany(Bulk):
    """Remembers what it got among many."""

    def __init__(self, inner: Mirror) -> None:
        super().__init__(inner)
        self._many: dict[str, Answer] = {}

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        return ((key, self._many.setdefault(key, answer)) for key, answer in super().get_many(keys))


BROKEN = [
    *(Forgetful, Hoarding, LastWriterWins, FirstWriterWins, LooksThenWrites, Strict, DeletesAnything, DeletesOnce),
    *(KeepsDeleted, OnePage, Unordered, FoldsCase, Lax, ListsOtherVersions, CountsBytes, Text, Truncating, InTwoSteps),
    *(Caching, EmptyIsAbsent, SkipsAbsent, Repeats, GivesAll, MixesUp, CachesMany),
]
