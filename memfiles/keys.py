"""Names: what a memory file may be called, and where its record lies.

The rule this file guards: no path is ever built from text that has not passed ``check_uid``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from memfiles.errors import InvalidArgument

NAME_MAX = 64
UID_MAX = 128
NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$"
UID_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"
RECORD_SUFFIX = ".json"
TEMP_PREFIX = "."
TEMP_SUFFIX = ".tmp"
SPARE_SUFFIX = ".spare.tmp"
_REMEMBERED = 4096

_NAME = re.compile(NAME_PATTERN[1:-1], re.ASCII)
_UID = re.compile(UID_PATTERN[1:-1], re.ASCII)


def check_name(name: str) -> str:
    """Return ``name`` if a model may be shown a file under it, else raise ``InvalidArgument``."""
    if not _NAME.fullmatch(name):
        raise InvalidArgument(_explain("name", name, NAME_MAX))
    return name


def check_uid(uid: str) -> str:
    """Return ``uid`` if a record may be stored under it, else raise ``InvalidArgument``."""
    if not _UID.fullmatch(uid):
        raise InvalidArgument(_explain("uid", uid, UID_MAX))
    return uid


@lru_cache(_REMEMBERED)
def record_path(uid: str) -> str:
    """The path of a memory file's record, relative to the memory directory."""
    return check_uid(uid) + RECORD_SUFFIX


def uid_of(path: str) -> str | None:
    """The uid whose record lies at this relative path, or None if no memory file's record can lie there."""
    stem = path.removesuffix(RECORD_SUFFIX)
    return stem if stem != path and _UID.fullmatch(stem) else None


@lru_cache(_REMEMBERED)
def temp_path(path: str) -> str:
    """Where the next version of the record at ``path`` is staged: in the same folder, hidden.

    One fixed name a record, created with ``O_EXCL`` under the record's lock. That it already exists
    therefore means that the last holder of the lock died between staging and publishing.
    """
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{TEMP_PREFIX}{name}{TEMP_SUFFIX}"


def staged_path(temp: str) -> str | None:
    """The record path a temp file's path belongs to, or None if it is not the name of a temp file."""
    folder, slash, name = temp.rpartition("/")
    for suffix in (RECORD_SUFFIX + TEMP_SUFFIX, RECORD_SUFFIX + SPARE_SUFFIX):
        if name.startswith(TEMP_PREFIX) and name.endswith(suffix):
            return folder + slash + name.removeprefix(TEMP_PREFIX).removesuffix(suffix) + RECORD_SUFFIX
    return None


def case_clashes(uids: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of uids that a file system which ignores case would store in one place (first seen first)."""
    seen: dict[str, str] = {}
    return [(seen[folded], uid) for uid in uids if seen.setdefault(folded := uid.casefold(), uid) != uid]


def _explain(what: str, value: str, limit: int) -> str:
    return (
        f"{what} {value[:80]!r} is not allowed: use 1 to {limit} ASCII letters, digits, '_', '.' or '-', "
        f"starting with a letter, digit or '_'"
    )
