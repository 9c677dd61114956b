"""Wrappers that keep a mirror's objects sealed, and that refuse sealed objects where no key is declared.

The rule this file guards: what does not verify, or has the format of a later version of memfiles, is never given to a
reader, and never compared as if it were a record. A reader gets a ``CopyRefused`` for that object alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from memfiles.errors import CopyRefused, InvalidArgument, MirrorConflict
from memfiles.sync.mirror import (
    ANY,
    BODY_MAX_BYTES,
    Answer,
    Condition,
    Mirror,
    Stored,
    check_body,
    check_key,
    get_many,
    require_mirror,
    shortcomings_of,
    takes,
)
from mirrors.lazy import LazyMirror
from mirrors.sealed.envelope import OVERHEAD_MAX_BYTES, MirrorKeys, check_encryption, is_sealed

FORMATS = ("memfiles/1", "memfiles/2")  # of records: a mirror does not know more about them
_KNOWN = re.compile(rb'\s*\{\s*"format"\s*:\s*"memfiles/[12]"')


def guarded(inner: Mirror, *, key: str | None = None, encrypt: bool = False) -> Mirror:
    """``inner`` as a workflow declares it: sealed with the keys of ``key`` (``env:NAME``), or unsealed without one.

    The keys are read when the mirror is first used; each call is a ``MirrorRefused`` while they cannot be used.
    """
    require_mirror(inner)
    if key is None:
        return UnsealedMirror(inner)
    return LazyMirror(lambda: SealedMirror(inner, MirrorKeys.named(key), encrypt=encrypt))


class SealedMirror:
    """Keeps envelopes in ``inner``: its bodies are those inside, its versions those of the envelopes; see ``Mirror``.

    Sealing a body twice gives different bytes, so two bodies are the same if they are so once opened.
    """

    def __init__(self, inner: Mirror, keys: MirrorKeys, *, encrypt: bool = False) -> None:
        if encrypt:
            check_encryption()
        self._inner = inner
        self._keys = keys
        self._encrypt = encrypt

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        """See ``Mirror.list``; names are neither hidden nor verified."""
        return self._inner.list(prefix)

    def get(self, key: str) -> Stored | None:
        """See ``Mirror.get``; ``CopyRefused`` if the object does not verify."""
        stored = self._inner.get(key)
        return self._opened(key, stored) if stored else None

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        return _each(get_many(self._inner, keys), self._opened)

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        """See ``Mirror.put``. A body may have 256 bytes less than elsewhere."""
        check_body(check_key(key), body)
        if len(body) > BODY_MAX_BYTES - OVERHEAD_MAX_BYTES:
            raise InvalidArgument(f"{key} has {len(body)} bytes, which leave no room for a signature")
        try:
            return self._inner.put(key, self._keys.seal(key, body, encrypt=self._encrypt), when=when)
        except MirrorConflict:
            with suppress(CopyRefused):
                found = self.get(key)
                if found is not None and found.body == body:  # the answer to an earlier put was lost
                    return found.version
            raise

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        self._inner.delete(key, when=when)

    def takes(self, key: str) -> bool:
        return takes(self._inner, key)

    def shortcomings(self, key: str) -> tuple[str, ...]:
        return shortcomings_of(self._inner, key)

    def _opened(self, key: str, stored: Stored) -> Stored:
        try:
            return _checked(key, Stored(self._keys.open(key, stored.body), stored.version))
        except CopyRefused as error:
            error.version = stored.version
            raise


class UnsealedMirror:
    """Passes calls on to ``inner``; a sealed object is a ``CopyRefused``, as its reader has no key; see ``Mirror``."""

    def __init__(self, inner: Mirror) -> None:
        self._inner = inner

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        return self._inner.list(prefix)

    def get(self, key: str) -> Stored | None:
        """See ``Mirror.get``; ``CopyRefused`` if the object is sealed."""
        stored = self._inner.get(key)
        return _unsealed(key, stored) if stored else None

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        return _each(get_many(self._inner, keys), _unsealed)

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        return self._inner.put(key, body, when=when)

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        self._inner.delete(key, when=when)

    def takes(self, key: str) -> bool:
        return takes(self._inner, key)

    def shortcomings(self, key: str) -> tuple[str, ...]:
        return shortcomings_of(self._inner, key)


def _unsealed(key: str, stored: Stored) -> Stored:
    if is_sealed(stored.body):
        why = "is sealed, and this workflow declares no key for it; set memory.mirror.key"
        raise CopyRefused(f"{key}: the mirror's object {why}", version=stored.version)
    return _checked(key, stored)


def _checked(key: str, stored: Stored) -> Stored:
    """The object; ``CopyRefused`` for a record in a format of a later version, which must not be replaced."""
    if _KNOWN.match(stored.body) or b'"memfiles/' not in stored.body:
        return stored
    with suppress(ValueError, RecursionError):
        found = json.loads(stored.body)
        name = found.get("format") if isinstance(found, dict) else None
        if isinstance(name, str) and name.startswith("memfiles/") and name not in FORMATS:
            why = "which this version of memfiles does not know; a later version is needed for it"
            refused = f"{key}: the mirror's copy has the format {ascii(name[:40])}, {why}"
            raise CopyRefused(refused, version=stored.version)
    return stored


def _each(
    answers: Iterable[tuple[str, Answer]], opened: Callable[[str, Stored], Stored]
) -> Iterator[tuple[str, Answer]]:
    """Each answer with its object opened, or the reason why it is refused."""
    for key, answer in answers:
        try:
            yield key, opened(key, answer) if isinstance(answer, Stored) else answer
        except CopyRefused as error:
            yield key, error
