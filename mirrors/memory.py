"""A mirror in memory: the reference that other mirrors are compared with."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator

from memfiles.sync.mirror import ANY, Condition, Stored, check_body, check_key, check_prefix


class MemoryMirror:
    """Keeps objects in a dict, for the lifetime of the process; see ``Mirror``.

    Like an ETag, a version is the digest of the bytes, so that putting the same bytes again brings the version back.
    """

    def __init__(self) -> None:
        self._objects: dict[str, Stored] = {}
        self._lock = threading.Lock()

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        """See ``Mirror.list``; lists a snapshot taken when called."""
        check_prefix(prefix)
        with self._lock:
            found = [(key, stored.version) for key, stored in self._objects.items() if key.startswith(prefix)]
        return iter(sorted(found, key=lambda pair: pair[0].encode()))

    def get(self, key: str) -> Stored | None:
        check_key(key)
        with self._lock:
            return self._objects.get(key)

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        check_key(key)
        new = Stored(check_body(key, body), hashlib.sha256(body).hexdigest())
        with self._lock:
            old = self._objects.get(key)
            if new != old:
                when.check(key, old.version if old else None)
                self._objects[key] = new
        return new.version

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        check_key(key)
        with self._lock:
            if old := self._objects.get(key):
                when.check(key, old.version)
                del self._objects[key]
