"""A wrapper that notes in the memory directory which objects of a mirror are refused, for every status to show.

The note is derived, like everything under ``.state/``: it says what was seen last, and deleting it loses nothing.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Protocol

from memfiles.errors import CopyRefused, MemfilesError, MirrorUnavailable
from memfiles.sync.mirror import ANY, Answer, Condition, Mirror, Stored, get_many, shortcomings_of, takes

PATH = ".state/refused.json"  # {key: [version or null, why]}
NOTED_MAX = 200
_Note = list[str | None]


class Notes(Protocol):
    """Small notes about a memory; each call may raise if the disk or the store fails."""

    def get(self, name: str, /) -> bytes | None:
        """The note of this name."""

    def put(self, name: str, body: bytes, /, *, makes: bool = False) -> object:
        """Replace it; where there is no memory yet, it fails, or ``makes`` one."""

    def delete(self, name: str, /) -> object:
        """Remove it, if it is there."""


class NotedMirror:
    """Passes calls on to ``inner``, and notes refused objects until they are sound, changed or gone; see ``Mirror``.

    A listing tells whether it is changed or gone. A refusal without a version, such as that of a folder in the place of
    an object, says nothing about what is listed, so its note goes with the next listing.
    """

    def __init__(self, inner: Mirror, notes: Notes) -> None:
        self._inner = inner
        self._notes = notes
        self._noting = threading.Lock()
        self._refused: dict[str, _Note] | None = None

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        found = list(self._inner.list(prefix))
        if not prefix:
            with self._noting:
                before, listed = self._read(), dict(found)
                kept = {key: note for key, note in before.items() if note[0] is not None and note[0] == listed.get(key)}
                self._write(kept, before)
        return iter(found)

    def get(self, key: str) -> Stored | None:
        try:
            stored = self._inner.get(key)
        except CopyRefused as error:
            self.note(key, str(error), version=error.version)
            raise
        self._note_sound(key)
        return stored

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        for key, answer in get_many(self._inner, keys):
            if not isinstance(answer, MirrorUnavailable):
                self._note_sound(key)
            elif isinstance(answer, CopyRefused):
                self.note(key, str(answer), version=answer.version)
            yield key, answer

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        version = self._inner.put(key, body, when=when)
        self._note_sound(key)
        return version

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        self._inner.delete(key, when=when)
        self._note_sound(key)

    def takes(self, key: str) -> bool:
        return takes(self._inner, key)

    def shortcomings(self, key: str) -> tuple[str, ...]:
        return shortcomings_of(self._inner, key)

    def note(self, key: str, why: str, *, version: str | None) -> None:
        self._change(key, [version, why])

    def _note_sound(self, key: str) -> None:
        """Note that an object is not refused; costs nothing unless that is news."""
        if self._refused is None or key in self._refused:
            self._change(key, None)

    def _change(self, key: str, note: _Note | None) -> None:
        with self._noting:
            before = self._read()
            without = {other: noted for other, noted in before.items() if other != key}
            added = {key: note} if note and len(without) < NOTED_MAX else {}
            self._write(without | added, before)

    def _read(self) -> dict[str, _Note]:
        """The notes, also of other processes."""
        with suppress(MemfilesError, OSError, ValueError, AttributeError, TypeError):
            noted = self._notes.get(PATH)
            return {key: [version, why] for key, (version, why) in json.loads(noted).items()} if noted else {}
        return {}

    def _write(self, refused: dict[str, _Note], before: dict[str, _Note]) -> None:
        self._refused = refused
        with suppress(MemfilesError, OSError):  # a full disk does not keep the mirror from being used
            if refused != before:
                self._notes.put(PATH, json.dumps(refused).encode()) if refused else self._notes.delete(PATH)
