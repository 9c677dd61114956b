"""The mirror contract: a second store for records, under the same relative paths as on disk.

The rules this file guards: every call may be repeated, because an answer can get lost; no write removes data that its
caller has not seen, because each names the version it replaces; and the threads that read many objects are daemons and
start nothing new once nobody listens, so a store that hangs delays neither its caller nor the end of the process.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from msgspec import Struct

from memfiles.errors import InvalidArgument, MirrorConflict, MirrorUnavailable
from memfiles.storage.fork_safety import start_thread

KEY_MAX_BYTES = 1024
BODY_MAX_BYTES = 64 * 1024 * 1024  # the limit of a record on disk; nothing larger is read into memory
THREADS = 32
T = TypeVar("T")


class Stored(Struct, frozen=True):
    """One object in the mirror.

    ``version`` is opaque. For one key, different bytes never have the same version; the same bytes may have several.
    """

    body: bytes
    version: str


Answer: TypeAlias = Stored | None | MirrorUnavailable
"""The answer for one of many keys: the object, None if there is none, or the error that says why it is unknown."""


class Condition(Struct, frozen=True):
    """The condition of a put or a delete: use ``ANY``, ``ABSENT`` or ``equals(version)``."""

    kind: Literal["any", "absent", "equals"]
    version: str | None = None

    def holds(self, version: str | None) -> bool:
        """Whether the condition holds for a key at ``version`` (None: absent)."""
        return self.kind == "any" or version == self.version

    def check(self, key: str, version: str | None) -> None:
        """Raise ``MirrorConflict`` unless the condition holds for ``key`` at ``version``."""
        if not self.holds(version):
            raise MirrorConflict(f"{key} is at version {version or 'none'} in the mirror: read it again and retry")


ANY = Condition("any")
ABSENT = Condition("absent")


def equals(version: str) -> Condition:
    """The key must be at this version."""
    return Condition("equals", version)


class Mirror(Protocol):
    """A store of objects by key. Threads may share it.

    A key is a record's path relative to the memory directory, as ``check_key`` accepts it; anything else raises
    ``InvalidArgument`` before the store sees it, as does a body of more than ``BODY_MAX_BYTES``. No key is another
    key's folder (``a`` and ``a/b``). Objects with other names are not listed.

    A store that does not answer, or gives an answer that cannot be right, raises ``MirrorUnavailable``: the call may or
    may not have happened, and may be repeated. A store that refuses (no access, no such bucket, a body beyond the
    limit) raises ``MirrorRefused``, a ``MirrorUnavailable`` that repeating does not help.
    """

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        """Every key that begins with ``prefix``, with its version, each once and in the order of its UTF-8 bytes.

        Objects put or deleted meanwhile may be listed or not. An empty listing is not an error.
        """

    def get(self, key: str) -> Stored | None:
        """The object at ``key``, whole, with the version of exactly these bytes; None if there is none."""

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        """Store ``body`` at ``key`` if ``when`` holds, and return its version. Durable and whole on return.

        Otherwise nothing changes and ``MirrorConflict`` is raised, unless ``key`` already holds exactly ``body``:
        then the same call has happened before, and the version is returned.
        """

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        """Delete ``key`` if ``when`` holds, else change nothing and raise ``MirrorConflict``.

        An absent key counts as deleted, whatever ``when`` says. Durable on return.
        """


@runtime_checkable
class BulkMirror(Mirror, Protocol):
    """A mirror that reads many objects faster than many calls of ``get``.

    The function ``get_many`` takes any mirror, and makes those calls if it lacks this power.
    """

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        """Each of ``keys`` once, with what ``get`` would return, in any order, as they arrive.

        A ``MirrorUnavailable`` that ``get`` would raise is that key's answer. Closing the iterator early waits for
        nothing.
        """


@runtime_checkable
class CandidMirror(Mirror, Protocol):
    """A mirror that can tell which of these promises its store breaks; see ``shortcomings_of``."""

    def shortcomings(self, key: str) -> tuple[str, ...]:
        """The broken promises in the folder of ``key``, one sentence each; errors as of ``put``.

        May put a temporary object there and delete it again.
        """


@runtime_checkable
class SelectiveMirror(Mirror, Protocol):
    """A mirror that takes only some keys; see ``takes``."""

    def takes(self, key: str) -> bool:
        """Whether the mirror takes an object at this valid key; makes no request."""


@runtime_checkable
class NotingMirror(Mirror, Protocol):
    """A mirror that notes which of its objects are refused, so that every status shows them."""

    def note(self, key: str, why: str, *, version: str | None) -> None:
        """Note why the object at ``key`` is refused, until it is changed or gone."""


def require_mirror(mirror: Mirror) -> Mirror:
    """Return what was given as a mirror, else raise ``InvalidArgument``: with a URL, say, nothing would be mirrored."""
    verbs = ("list", "get", "put", "delete")
    if isinstance(mirror, type) or not all(callable(getattr(mirror, verb, None)) for verb in verbs):
        raise InvalidArgument(
            "mirror must be an object with list, get, put and delete; mirrors.open_mirror(url) makes one"
        )
    return mirror


def takes(mirror: Mirror, key: str) -> bool:
    """Whether the mirror takes an object at ``key``; one that cannot tell takes every key."""
    return mirror.takes(key) if isinstance(mirror, SelectiveMirror) else True


def shortcomings_of(mirror: Mirror, key: str) -> tuple[str, ...]:
    """The broken promises of a mirror; none if it cannot tell."""
    return mirror.shortcomings(key) if isinstance(mirror, CandidMirror) else ()


def get_many(mirror: Mirror, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
    """``BulkMirror.get_many`` for any mirror, by threads if need be. Wrappers pass their own calls on with this."""
    if isinstance(mirror, BulkMirror):
        return mirror.get_many(keys)
    return in_parallel(mirror.get, check_keys(keys))


def in_parallel(
    get: Callable[[str], T], keys: Iterable[str], *, threads: int = THREADS
) -> Iterator[tuple[str, T | MirrorUnavailable]]:
    """Each key with the result of ``get``, as they arrive, by at most ``threads`` threads.

    A ``MirrorUnavailable`` is the answer for its key; any other error is raised here.
    """
    waiting = deque(keys)
    count = len(waiting)
    arrived: SimpleQueue[tuple[str, T | BaseException]] = SimpleQueue()

    def work() -> None:
        with suppress(IndexError):  # nothing waits any longer
            while True:
                key = waiting.popleft()
                try:
                    arrived.put((key, get(key)))
                except BaseException as error:  # the edge of the thread: raised where the answers are read
                    arrived.put((key, error))

    try:
        for number in range(min(threads, count)):
            if not start_thread(threading.Thread(target=work, name="memfiles-mirror", daemon=True)):
                if not number:  # else the others do it
                    work()
                break
        for _ in range(count):
            key, answer = arrived.get()
            if isinstance(answer, BaseException) and not isinstance(answer, MirrorUnavailable):
                raise answer
            yield key, answer
    finally:
        waiting.clear()  # nobody listens any longer


def check_keys(keys: Iterable[str]) -> tuple[str, ...]:
    """The keys without duplicates, if all are valid, else raise ``InvalidArgument``."""
    return tuple(dict.fromkeys(map(check_key, keys)))


def check_key(key: str) -> str:
    """Return ``key`` if it is a valid key, else raise ``InvalidArgument``.

    Segments are separated by single slashes, none of them empty, ``.`` or ``..``; no backslash and no control
    character, since readers of a bucket collapse or reinterpret them; 1 to 1,024 bytes (the limit of S3). Two kinds of
    names are reserved for the store: locks (``.state/locks/...``) and staged files (a last segment ``.name.tmp``).
    """
    segments = key.split("/")
    if any(segment in {"", ".", ".."} for segment in segments):
        raise InvalidArgument(f"mirror key {_shown(key)} has an empty segment, '.' or '..'")
    if "\\" in key or not key.isprintable():
        raise InvalidArgument(f"mirror key {_shown(key)} has a backslash or a character that cannot be printed")
    if (size := len(key.encode())) > KEY_MAX_BYTES:
        raise InvalidArgument(f"mirror key {_shown(key)} is {size} bytes; at most {KEY_MAX_BYTES} are allowed")
    if key.startswith(".state/locks/") or (segments[-1].startswith(".") and segments[-1].endswith(".tmp")):
        raise InvalidArgument(f"mirror key {_shown(key)} is reserved for the locks and temp files of stores")
    return key


def is_key(key: str) -> bool:
    """Whether ``key`` is a valid key; other objects in a store are not ours."""
    try:
        check_key(key)
    except InvalidArgument:
        return False
    return True


def check_prefix(prefix: str) -> str:
    """Return ``prefix`` if a valid key can begin with it, else raise ``InvalidArgument``."""
    if prefix:
        check_key(prefix + "_")
    return prefix


def check_body(key: str, body: bytes) -> bytes:
    """Return ``body`` if it is within the size limit, else raise ``InvalidArgument``."""
    if len(body) > BODY_MAX_BYTES:
        raise InvalidArgument(f"{key} has {len(body)} bytes; a mirror takes at most {BODY_MAX_BYTES}")
    return body


def _shown(key: str) -> str:
    return ascii(key[:80])
