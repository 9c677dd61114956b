"""A mirror in memory: the model that the real ones are compared with."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator

from memfiles.errors import MirrorConflict
from memfiles.mirror import ANY, Condition, Stored, check_key


class MemoryMirror:
    """Keeps the promises of ``Mirror`` in a dict, as long as the process lives.

    Like an ETag, a version is the digest of the bytes, so that putting the same bytes again brings the version back.
    """

    def __init__(self) -> None:
        self._objects: dict[str, Stored] = {}
        self._lock = threading.Lock()

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        """See ``Mirror.list``; what is listed is the state at the time of the call."""
        with self._lock:
            found = [(key, stored.version) for key, stored in self._objects.items() if key.startswith(prefix)]
        return iter(sorted(found, key=lambda pair: pair[0].encode()))

    def get(self, key: str) -> Stored | None:
        """See ``Mirror.get``."""
        check_key(key)
        with self._lock:
            return self._objects.get(key)

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        """See ``Mirror.put``."""
        check_key(key)
        new = Stored(body, hashlib.sha256(body).hexdigest())
        with self._lock:
            old = self._objects.get(key)
            if new != old:
                self._check(key, old, when)
                self._objects[key] = new
        return new.version

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        """See ``Mirror.delete``."""
        check_key(key)
        with self._lock:
            old = self._objects.get(key)
            if old is not None:
                self._check(key, old, when)
                del self._objects[key]

    def _check(self, key: str, old: Stored | None, when: Condition) -> None:
        version = None if old is None else old.version
        if not when.holds(version):
            raise MirrorConflict(f"{key} is at version {version or 'none'} in the mirror: get it again and decide anew")
