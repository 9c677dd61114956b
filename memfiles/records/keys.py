"""Names and paths: what a memory file or an entry may be called, where its record is, and checked numbers.

The rules this file guards: no path is ever built from text that has not passed ``check_uid`` or been hashed. A float
is never accepted as a whole number, however round, and neither is True: a record with such a revision could not be read
back, and JSON may write what passes a comparison in another way.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

from msgspec import Meta

from memfiles.errors import InvalidArgument, RecordCorrupt
from memfiles.records import late_pattern

NAME_MAX = 64
UID_MAX = 128
NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$"
UID_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"
RECORD_SUFFIX = ".json"
TEMP_PREFIX = "."
TEMP_SUFFIX = ".tmp"
SPARE_SUFFIX = ".spare.tmp"
ENTRIES = "entries"
WORKSPACE = "@workspace"
FILES = "@files"
"""The owner of the memory files that each user has a record of; no agent can have this name."""

USERS = "users"
"""The folder, in that of an agent, that has a folder for each user."""

IDS = "@ids"
"""The folder of records by the id of an entry: its tombstone, or its present location."""

ID_PATHS = f"{ENTRIES}/{IDS}/"
KEY_MAX_BYTES = 255
USER_MAX = 128
ENTRY_UID_PATTERN = r"^[0-9a-f]{40}$"
ENTRY_ID_PATTERN = r"^[0-9a-f]{32}([0-9a-f]{8})?$"
ENTRY_PATH_PATTERN = (
    r"^entries/((@workspace|@files/users/[0-9a-f]{40}|[a-z0-9_=-]{1,160}(/users/[0-9a-f]{40})?)/([0-9a-f]{40})"
    r"|@ids/([0-9a-f]{32}([0-9a-f]{8})?))\.json$"
)
_USER_IN = late_pattern(rf"(?:^|/){USERS}/([0-9a-f]{{40}})/")
_ENTRY_PATH = late_pattern(ENTRY_PATH_PATTERN[1:-1], re.ASCII)
_URL = late_pattern(r"([A-Za-z][A-Za-z0-9+.-]*:)/")
_USER_HASH, _FOLDER_NAME_MAX = 40, 160
_HEX = frozenset("0123456789abcdef")
_FOLDER_NAME = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_=-")
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
_LONGEST_FOLDER = 120
MAX_FOREIGN_REVISION = 2**48
_ROOM = 2**32  # changes that a record at that revision has left


def matching(pattern: str) -> Meta:
    """A pattern that a whole text must match; in Python ``$`` also matches before a newline at the end."""
    return Meta(pattern=pattern.removesuffix("$") + r"\Z")


def scheme_of(path: str) -> str:
    """``s3:`` if this is a URL and not a path, else "". A slash is enough, as ``Path`` makes one of two."""
    found = _URL.match(path) if ":/" in path else None
    return found[1] if found is not None else ""


def check_name(name: str) -> str:
    """Return ``name`` if a model may be shown a file under it, else raise ``InvalidArgument``."""
    return _checked_name(name, what="name", most=NAME_MAX)


def check_uid(uid: str) -> str:
    """Return ``uid`` if a record may be stored under it, else raise ``InvalidArgument``."""
    return _checked_name(uid, what="uid", most=UID_MAX)


@lru_cache(maxsize=4096)
def record_path(uid: str) -> str:
    """The path of a memory file's record, relative to the memory directory."""
    return check_uid(uid) + RECORD_SUFFIX


def uid_of(path: str) -> str | None:
    """The uid of the memory file whose record has this relative path, or None if there can be none."""
    stem = path.removesuffix(RECORD_SUFFIX)
    return stem if stem != path and _is_plain(stem, most=UID_MAX) else None


def check_key(key: str) -> str:
    """Return ``key`` if an entry may be saved under it, else raise ``InvalidArgument``.

    Any text of 1 to 255 UTF-8 bytes that is not blank and contains no control character.
    """
    if not isinstance(key, str):
        raise InvalidArgument(f"a key must be text, not {type(key).__name__}")
    size = len(key.encode(errors="replace"))
    if not key.strip() or size > KEY_MAX_BYTES:
        raise InvalidArgument(f"a key must have 1 to {KEY_MAX_BYTES} bytes and not be blank; this one has {size} bytes")
    if _has_controls(key):
        raise InvalidArgument(f"the key {ascii(key[:80])} contains a control character or half of a surrogate pair")
    return key


@lru_cache(maxsize=4096)
def agent_folder(agent: str) -> str:
    """The folder of an agent's entries: different names have different folders, even if the file system ignores case.

    Lower-case ASCII letters, digits, ``_`` and ``-`` are kept, every other byte becomes ``=`` and two hexadecimal
    digits; a name that would be too long for a file system is hashed.
    """
    encoded = "".join(chr(byte) if byte in _PLAIN else f"={byte:02x}" for byte in agent.encode())
    return encoded if len(encoded) <= _LONGEST_FOLDER else "==" + hashlib.sha256(agent.encode()).hexdigest()


def check_user(name: object) -> str:
    """The name of a user: 1 to 128 characters without control characters, taken byte for byte. ``InvalidArgument``."""
    if not isinstance(name, str):
        raise InvalidArgument(f"a user must be text, not {type(name).__name__}")
    if not 1 <= len(name) <= USER_MAX:
        raise InvalidArgument(f"a user must have 1 to {USER_MAX} characters; this one has {len(name)}")
    if _has_controls(name):
        raise InvalidArgument(f"the user {ascii(name[:80])} contains a control character or half of a surrogate pair")
    return name


@lru_cache(maxsize=4096)
def user_hash(name: str) -> str:
    """The name of a user in paths, marks, mirrors and the audit: the first 160 bits of SHA-256; "" for no user."""
    return hashlib.sha256(b"memfiles user\0" + name.encode()).hexdigest()[:40] if name else ""


def user_in(path: str) -> str | None:
    """The hash of the user to whom the record at a path belongs, None if it belongs to none."""
    found = _USER_IN.search(path)
    return found[1] if found is not None else None


def next_epoch(epoch: str) -> str:
    """The epoch of a user who comes back after a forget: the same on every machine, so that all forget the same one."""
    return hashlib.sha256(b"memfiles epoch\0" + epoch.encode()).hexdigest()[:40]


@lru_cache(maxsize=4096)
def scope_folder(agent: str, user: str = "") -> str:
    """The folder of the entries of an agent (``@workspace``, ``@files``), or of one of its users, given by the hash."""
    folder = agent if agent in (WORKSPACE, FILES) else agent_folder(agent)
    return f"{folder}/{USERS}/{user}" if user else folder


@lru_cache(maxsize=16384)  # some 400 bytes each
def entry_uid(folder: str, level: str, key: str, run: str = "") -> str:
    """The uid of an entry, the same on every machine; ``run`` for an entry of one conversation.

    A hash (the first 160 bits of SHA-256), so that any key is safe and no key remains once its entry is forgotten.
    """
    name = key.encode()
    return hashlib.sha256(b"%b%d:%b" % (_length_prefixed(folder, level, run), len(name), name)).hexdigest()[:40]


@lru_cache(maxsize=4096)
def _length_prefixed(*parts: str) -> bytes:
    """The parts, each after its length, so that different lists of parts have different bytes."""
    return b"".join(b"%d:%b" % (len(part), part) for part in (part.encode() for part in parts))


@lru_cache(maxsize=4096)
def place_tag(folder: str, level: str, run: str = "") -> str:
    """The tag of a partition in the histories of its entries: it names no agent, user or run."""
    return entry_uid(folder, level, "", run)[:16]


@lru_cache(maxsize=4096)
def user_file_path(user: str, uid: str) -> str:
    """The path of a user's record of the memory file ``uid``, which is declared ``per: user``."""
    folder = scope_folder(FILES, user_hash(user))
    return entry_path(folder, entry_uid(folder, "", check_uid(uid)))


def is_file_path(path: str) -> bool:
    """Whether the record at ``path`` is a memory file, of all or of one user, and not an entry."""
    return path.startswith(f"{ENTRIES}/{FILES}/") or entry_place(path) is None


def entry_path(folder: str, uid: str) -> str:
    """The path of an entry's record, relative to the memory directory."""
    return f"{ENTRIES}/{folder}/{uid}{RECORD_SUFFIX}"


@lru_cache(maxsize=4096)
def id_path(id: str) -> str:
    """The path of the tombstone or location of the entry with this id; most entries have neither."""
    return entry_path(IDS, id)


def is_id_path(path: str) -> bool:
    """Whether the record at ``path`` is known by an id, and not by a key."""
    return path.startswith(ID_PATHS)


@lru_cache(maxsize=8192)
def is_record_path(path: str) -> bool:
    """Whether there can be a record at this path, relative to the memory directory."""
    return (entry_place(path) if "/" in path else uid_of(path)) is not None


def entry_place(path: str) -> tuple[str, str] | None:
    """The folder and uid of the entry whose record has this relative path, or None if there can be none."""
    found = _ENTRY_PATH.fullmatch(path)
    if found is None:
        return None
    return (found[2], found[4]) if found[2] else (IDS, found[5])


def is_entry_folder(folder: str) -> bool:
    """Whether there can be records in this folder, relative to that of all entries; see ``entry_place``."""
    name, slash, user = folder.partition(f"/{USERS}/")
    if slash and not (len(user) == _USER_HASH and _HEX.issuperset(user)):
        return False
    is_shared = folder in (WORKSPACE, IDS) or (name == FILES and bool(slash))
    return is_shared or (0 < len(name) <= _FOLDER_NAME_MAX and _FOLDER_NAME.issuperset(name))


def uid_at(path: str) -> str:
    """The uid in the path of an entry's record."""
    return path.rpartition("/")[2].removesuffix(RECORD_SUFFIX)


@lru_cache(maxsize=4096)
def temp_path(path: str) -> str:
    """Where the next version of the record at ``path`` is staged: in the same folder, hidden.

    One fixed name per record, created with ``O_EXCL`` under the record's lock. If it already exists, the last holder
    of the lock died between staging and publishing.
    """
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{TEMP_PREFIX}{name}{TEMP_SUFFIX}"


def staged_path(temp: str) -> str | None:
    """The path of the record that a temp file belongs to, or None if it is not a temp file."""
    folder, slash, name = temp.rpartition("/")
    for suffix in (RECORD_SUFFIX + TEMP_SUFFIX, RECORD_SUFFIX + SPARE_SUFFIX):
        if name.startswith(TEMP_PREFIX) and name.endswith(suffix):
            return folder + slash + name.removeprefix(TEMP_PREFIX).removesuffix(suffix) + RECORD_SUFFIX
    return None


def case_clashes(uids: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of uids that differ only by case, which some file systems ignore (first seen first)."""
    seen: dict[str, str] = {}
    return [(seen[folded], uid) for uid in uids if seen.setdefault(folded := uid.casefold(), uid) != uid]


def _has_controls(text: str) -> bool:
    """Whether it contains a control character, an unusual line end or half of a surrogate pair."""
    return not text.isprintable() and any(unicodedata.category(it) in {"Cc", "Cs", "Zl", "Zp"} for it in text)


def _is_plain(value: str, *, most: int) -> bool:
    """Whether it fits ``NAME_PATTERN`` or ``UID_PATTERN``, without compiling them."""
    return 0 < len(value) <= most and value[0] not in ".-" and _NAME.issuperset(value)


def _checked_name(value: str, *, what: str, most: int) -> str:
    if not _is_plain(value, most=most):
        raise InvalidArgument(
            f"{what} {value[:80]!r} is not allowed: use 1 to {most} ASCII letters, digits, '_', '.' or '-', "
            f"starting with a letter, digit or '_'"
        )
    return value


def check_whole(value: object, *, what: str, least: int | None = None, most: int | None = None) -> int:
    """The number as a plain ``int``, or an ``InvalidArgument`` with the allowed range of ``what``."""
    allowed = "" if least is None else f", {least} or more" if most is None else f" from {least} to {most}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(f"{what} must be a whole number{allowed}, not {type(value).__name__}")
    if (least is not None and value < least) or (most is not None and value > most):
        raise InvalidArgument(f"{what} must be a whole number{allowed}")
    return int(value)


def check_revision(revision: int, changes: Sequence[int], *, of: str) -> None:
    """Refuse, as ``RecordCorrupt``, a revision that no number of changes leads to: few more could follow it.

    ``changes`` are the revisions in its history. A record at the limit can still be changed: its next revisions follow
    one another.
    """
    above = revision - MAX_FOREIGN_REVISION
    if above > 0 and (above > _ROOM or not changes or revision - min(changes[-2:]) > _ROOM):
        raise RecordCorrupt(
            f"record {of}: nobody changed it {revision} times; at most {MAX_FOREIGN_REVISION} is believed"
        )


def check_switch(value: object, *, what: str) -> None:
    """Refuse any value but True and False: the text "false" would count as true."""
    if not isinstance(value, bool):
        raise InvalidArgument(f"{what} must be True or False")


def listed(values: object, what: str) -> list[str]:
    """The texts in a list of texts; a single text is not a list of its letters. ``InvalidArgument``."""
    if isinstance(values, Iterable) and not isinstance(values, (str, bytes)):
        found = list(values)
        if all(isinstance(value, str) for value in found):
            return found
    raise InvalidArgument(f"{what} must be a list of texts")
