"""What a mirror promises: a second home for records, under the same relative paths as on disk.

The rules this file guards: every call may be repeated, because an answer can get lost; and no write takes away
what its caller has not seen, because each names the version it stands on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from memfiles.errors import InvalidArgument, MirrorConflict, MirrorUnavailable

KEY_MAX_BYTES = 1024
BODY_MAX_BYTES = 64 * 1024 * 1024  # what a record may have on disk; nothing larger is read into memory


@dataclass(frozen=True, slots=True)
class Stored:
    """One object as the mirror holds it.

    ``version`` is opaque. Of one key, different bytes never have the same version; the same bytes may have several.
    """

    body: bytes
    version: str


Answer: TypeAlias = Stored | None | MirrorUnavailable
"""What is known of a key that was asked for among others: the object, that there is none, or why it is not known."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What a key must be like for a put or a delete to happen: use ``ANY``, ``ABSENT`` or ``equals(version)``."""

    kind: Literal["any", "absent", "equals"]
    version: str | None = None

    def holds(self, version: str | None) -> bool:
        """Whether a key at ``version`` (None: absent) fulfils the condition."""
        return self.kind == "any" or version == self.version

    def check(self, key: str, version: str | None) -> None:
        """Raise ``MirrorConflict`` unless the condition holds for ``key`` at ``version``."""
        if not self.holds(version):
            raise MirrorConflict(f"{key} is at version {version or 'none'} in the mirror: get it again and decide anew")


ANY = Condition("any")
ABSENT = Condition("absent")


def equals(version: str) -> Condition:
    """The key must be at this version."""
    return Condition("equals", version)


class Mirror(Protocol):
    """A store of objects by key. Threads may share it.

    A key is a record's path relative to the memory directory, as ``check_key`` takes it; anything else is an
    ``InvalidArgument`` before the store sees it, and so is a body of more than ``BODY_MAX_BYTES``. No key is
    another's folder (``a`` beside ``a/b``). What lies in the store under no such key is not listed.

    A store that does not answer, or answers with something that cannot be right, is a ``MirrorUnavailable``: the call
    may or may not have happened, and may be made again. One that answers that it will not (no access, no such bucket,
    a body beyond the limit) is a ``MirrorRefused``, which is a ``MirrorUnavailable`` that no repetition helps.
    """

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        """Every key that begins with ``prefix``, with its version, each once and in the order of its UTF-8 bytes.

        What is put or deleted meanwhile may be there or not. Nothing there is no error.
        """
        ...

    def get(self, key: str) -> Stored | None:
        """The object at ``key``, whole, with the version of exactly these bytes; None if there is none."""
        ...

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        """Store ``body`` at ``key`` if ``when`` holds, and return its version. Durable and whole on return.

        Otherwise nothing changes and ``MirrorConflict`` is raised, unless ``key`` already holds exactly ``body``:
        then this call, or one like it, has happened before, and the version is returned.
        """
        ...

    def delete(self, key: str, *, when: Condition = ANY) -> None:
        """Take ``key`` away if ``when`` holds, else change nothing and raise ``MirrorConflict``.

        A key that is not there is deleted already, whatever ``when`` says. Durable on return.
        """
        ...


@runtime_checkable
class BulkMirror(Mirror, Protocol):
    """A mirror that gets many objects faster than many calls of ``get`` would.

    Ask any mirror with ``bulk.get_many``, which makes the calls where this power is missing.
    """

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        """Each of ``keys`` once, with what ``get`` would return, in any order, as they arrive.

        What ``get`` would raise of a store that does not answer or refuses is that key's answer, and is not raised.
        Who closes the iterator early waits for nothing more.
        """
        ...


@runtime_checkable
class CandidMirror(Mirror, Protocol):
    """A mirror that can say which of these promises its store does not keep. Ask with ``shortcomings_of``."""

    def shortcomings(self, key: str) -> tuple[str, ...]:
        """What the store does not keep in the folder of ``key``, a sentence each; errors as of ``put``.

        To find out, an object of the mirror's own may be put there and taken away again.
        """
        ...


def shortcomings_of(mirror: Mirror, key: str) -> tuple[str, ...]:
    """What a mirror says of itself; nothing where it cannot tell."""
    return mirror.shortcomings(key) if isinstance(mirror, CandidMirror) else ()


def check_keys(keys: Iterable[str]) -> tuple[str, ...]:
    """The keys without repetitions, if a mirror may use every one, else raise ``InvalidArgument``."""
    return tuple(dict.fromkeys(map(check_key, keys)))


def check_key(key: str) -> str:
    """Return ``key`` if a mirror may use it, else raise ``InvalidArgument``.

    Segments between single slashes, none of them empty, ``.`` or ``..``; no backslash and no control character,
    since readers of a bucket collapse or reinterpret them; 1 to 1,024 bytes (the limit of S3). Two kinds of names are
    the store's own: locks (``.state/locks/...``) and what is staged (a last segment ``.name.tmp``).
    """
    segments = key.split("/")
    if any(segment in {"", ".", ".."} for segment in segments):
        raise InvalidArgument(f"mirror key {_shown(key)} has an empty segment, '.' or '..'")
    if "\\" in key or not key.isprintable():
        raise InvalidArgument(f"mirror key {_shown(key)} has a backslash or a character that cannot be printed")
    if (size := len(key.encode())) > KEY_MAX_BYTES:
        raise InvalidArgument(f"mirror key {_shown(key)} is {size} bytes; at most {KEY_MAX_BYTES} are allowed")
    if key.startswith(".state/locks/") or (segments[-1].startswith(".") and segments[-1].endswith(".tmp")):
        raise InvalidArgument(f"mirror key {_shown(key)} is a name that stores keep for their own locks and temp files")
    return key


def is_key(key: str) -> bool:
    """Whether ``check_key`` takes it: what is found in a store under another name is not ours."""
    try:
        check_key(key)
    except InvalidArgument:
        return False
    return True


def check_prefix(prefix: str) -> str:
    """Return ``prefix`` if some key may begin with it, else raise ``InvalidArgument``."""
    if prefix:
        check_key(prefix + "_")
    return prefix


def check_body(key: str, body: bytes) -> bytes:
    """Return ``body`` if it is small enough to be stored at ``key``, else raise ``InvalidArgument``."""
    if len(body) > BODY_MAX_BYTES:
        raise InvalidArgument(f"{key} has {len(body)} bytes; a mirror takes at most {BODY_MAX_BYTES}")
    return body


def _shown(key: str) -> str:
    return ascii(key[:80])
