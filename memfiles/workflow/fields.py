"""Field types of a declaration: names, levels, durations, URLs and naming profiles of tools.

Each type checks its value and describes itself to the JSON Schema. An error never repeats the value, except for names
and uids.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from msgspec import Meta

from memfiles.errors import InvalidArgument
from memfiles.records import late_pattern
from memfiles.records.keys import FILES, NAME_PATTERN, UID_PATTERN, WORKSPACE, check_name, check_uid, scheme_of
from memfiles.records.record import check_text
from memfiles.workflow.declared import Check

AGENT_NAME_MAX = 255
"""Bytes of an agent's name."""

LEVELS_MAX = 32
DEFAULT_MAX_SIZE_BYTES = 16 * 1024
MAX_SIZE_BYTES = 8 * 1024 * 1024
"""The largest cap a memory file may have, in bytes."""

DURATION_PATTERN = r"^[1-9][0-9]{0,8}[smhd]$"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_URL = late_pattern(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s]+")
_KEY = late_pattern(r"env:(?![0-9A-F_]{32,}$|[A-Z0-9]{32,}$)[A-Z_][A-Z0-9_]{0,63}")  # the name of a variable, not a key


def shape_of_directory(directory: str) -> str:
    """``directory``, if it can be the path of a memory directory; else ``ValueError``."""
    if not directory.strip() or has_control_characters(directory):
        raise ValueError("this must be a path without control characters")
    if directory.startswith("~"):
        raise ValueError("'~' is not expanded; write an absolute path, or one relative to this file")
    if set(directory.split("/")) <= {"", ".", ".."}:
        raise ValueError("the memory needs a directory of its own, such as .memory")
    if scheme_of(directory):  # with one slash as well, as by ``Path``: it would become a folder "s3:"
        otherwise = "a database is declared as `store`, a second copy as `mirror`; write ./ before the name of a folder"
        raise ValueError(f"this is a URL, not a path: {otherwise}")
    try:
        directory.encode(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())
    except UnicodeEncodeError as error:
        why = f"this path cannot be written in the encoding of this locale ({error.encoding})"
        raise ValueError(f"{why}: use one with UTF-8, such as LC_ALL=C.UTF-8") from error
    return directory


def can_be_directory(text: str) -> bool:
    """Whether ``text`` can be the path of a memory directory."""
    try:
        return bool(shape_of_directory(text))
    except ValueError:
        return False


def has_control_characters(text: str) -> bool:
    """Whether ``text`` holds a control character, a line separator or half of a surrogate pair."""
    return any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in text)


def _agent_name(name: str) -> str:
    if not name.strip() or has_control_characters(name) or len(name.encode()) > AGENT_NAME_MAX:
        raise ValueError(f"an agent's name is 1 to {AGENT_NAME_MAX} bytes, not blank, without control characters")
    if name in (WORKSPACE, FILES):
        raise ValueError(f"{name} is reserved for what belongs to no single agent; choose another name")
    return name


def _text(value: str) -> str:
    check_text(value)
    return value


def _level(value: str) -> str:
    if not re.fullmatch(NAME_PATTERN[1:-1], value):
        raise ValueError(
            "a level is 1 to 64 ASCII letters, digits, '_', '.' or '-', starting with a letter, digit or '_'"
        )
    return value


def _levelling(values: tuple[str, ...]) -> tuple[str, ...]:
    if not 1 <= len(values) <= LEVELS_MAX:
        raise ValueError(f"list 1 to {LEVELS_MAX} levels, lowest first")
    return values


def _url(value: str) -> str:
    if len(value) > 2048 or has_control_characters(value) or not _URL.fullmatch(value):
        raise ValueError("this must be a URL such as s3://bucket/prefix or file:///path")
    return value


def _store(value: str) -> str:
    """Check the URL of a store; its options are checked when the store is opened."""
    scheme, _, rest = value.partition("://")
    place, _, options = rest.partition("?")
    if scheme not in ("postgresql", "postgres") or len(value) > 2048 or has_control_characters(value) or " " in value:
        raise ValueError("this must be a URL such as postgresql://host/database")
    if ":" in place.rpartition("@")[0] or "password=" in options:
        raise ValueError("the URL contains a password; leave it out, as libpq finds it in ~/.pgpass or PGPASSWORD")
    return value


def _key(value: object) -> str:
    if not isinstance(value, str) or not _KEY.fullmatch(value):
        raise ValueError(
            "write env:NAME, the environment variable that holds the key, in capital letters; a key that stood here is "
            "no longer a secret, so make a new one"
        )
    return value


def seconds_in(value: object) -> int:
    """Seconds from a whole number, or from text such as ``90s``, ``5m``, ``72h`` or ``30d``."""
    if isinstance(value, str) and re.fullmatch(DURATION_PATTERN[1:-1], value, re.ASCII):
        return int(value[:-1]) * _SECONDS[value[-1]]
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10**9:
        return value
    raise ValueError("this must be a duration such as 90s, 5m, 72h or 30d, or a whole number of seconds from 1")


def moment_in(value: object, *, what: str, now: str) -> str:
    """The timestamp of a moment: a date or time (in UTC if it names no zone), or a time such as ``24h`` before ``now``.

    ``InvalidArgument`` for anything else; ``what`` names the argument.
    """
    try:
        if isinstance(value, str) and re.fullmatch(DURATION_PATTERN[1:-1], value, re.ASCII):
            then = datetime.fromisoformat(now) - timedelta(seconds=seconds_in(value))
        elif isinstance(value, (str, datetime)):
            given = datetime.fromisoformat(value) if isinstance(value, str) else value
            then = given.replace(tzinfo=UTC) if given.tzinfo is None else given.astimezone(UTC)
        else:
            raise ValueError
    except (ValueError, OverflowError):
        raise InvalidArgument(
            f"{what} must be a date, a time such as 2026-11-21T09:00:00Z, or a time span before now such as 24h or 7d"
        ) from None
    return then.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _pull(value: object) -> int | str:
    if value in ("cold-start", "restore"):
        return str(value)
    try:
        return seconds_in(value)
    except ValueError as error:
        raise ValueError(f"use 'cold-start', 'restore' or an interval: {error}") from None


DeclaredText = Annotated[str, Check(_text)]
Uid = Annotated[str, Check(check_uid), Meta(extra_json_schema={"pattern": UID_PATTERN})]
Name = Annotated[str, Check(check_name), Meta(extra_json_schema={"pattern": NAME_PATTERN})]
LevelName = Annotated[str, Check(_level), Meta(extra_json_schema={"pattern": NAME_PATTERN})]
Levelling = Annotated[
    tuple[LevelName, ...],
    Check(_levelling),
    Meta(extra_json_schema={"minItems": 1, "maxItems": LEVELS_MAX, "uniqueItems": True}),
]
AgentName = Annotated[str, Check(_agent_name)]
Directory = Annotated[str, Check(shape_of_directory), Meta(extra_json_schema={"minLength": 1, "pattern": r"^[^~]"})]
Url = Annotated[str, Check(_url), Meta(extra_json_schema={"pattern": f"^{_URL.pattern}$", "maxLength": 2048})]
StoreUrl = Annotated[
    str, Check(_store), Meta(extra_json_schema={"pattern": r"^postgres(ql)?://[^\s]*$", "maxLength": 2048})
]
KeyName = Annotated[  # a key that is written without a value is refused, or the mirror would not be signed
    str | None, Check(_key, schema={"type": "string", "pattern": f"^{_KEY.pattern}$"})
]
PositiveCount = Annotated[int, Meta(ge=1)]

_DURATION_SCHEMA = [
    {"maximum": 10**9, "minimum": 1, "type": "integer"},
    {"pattern": DURATION_PATTERN, "type": "string"},
]
Seconds = Annotated[int, Check(seconds_in, schema={"anyOf": _DURATION_SCHEMA})]
Pull = Annotated[
    Literal["cold-start", "restore"] | int,
    Check(_pull, schema={"anyOf": [{"enum": ["cold-start", "restore"], "type": "string"}, *_DURATION_SCHEMA]}),
]
ToolNames = Literal["default", "store-recall", "crud", "compact"]
ToolOperation = Literal[
    "save", "get", "search", "recall", "list", "delete", "update", "forget", "read", "write", "edit", "look"
]
COMPACT: ToolNames = "compact"
_AS_CALLED: tuple[ToolOperation, ...] = ("save", "get", "search", "list", "delete", "update")
TOOL_NAMES: dict[ToolNames, dict[str, ToolOperation]] = {
    "default": {f"memory_{operation}": operation for operation in _AS_CALLED},
    "store-recall": {
        "memory_store": "save",
        "memory_recall": "recall",
        "memory_list": "list",
        "memory_delete": "delete",
    },
    "crud": {
        "memory_search": "search",
        "memory_create": "save",
        "memory_read": "get",
        "memory_update": "update",
        "memory_delete": "delete",
    },
    COMPACT: {
        "memory_read": "read",
        "memory_write": "write",
        "memory_edit": "edit",
        "memory_search": "look",
        "memory_delete": "delete",
    },
}
"""Naming profiles: tool name -> operation, in the order in which the tools are offered.

In ``compact`` a tool serves memory files and entries: read is a read of a file or a get, write an append to a file, a
save or an update, edit an edit of either, and look a search or a list.
"""

DELETE, FORGET = "memory_delete", "memory_forget"  # in every profile, the second one only for agents that may forget


def check_tool_names(tool_names: str) -> ToolNames:
    """The name of a naming profile; ``InvalidArgument`` lists the known ones."""
    for known in TOOL_NAMES:
        if known == tool_names:
            return known
    raise InvalidArgument(f"unknown tool names {ascii(tool_names)[:80]}; use one of {', '.join(TOOL_NAMES)}")


def operations_of(tool_names: str, *, forgets: bool = False) -> Mapping[str, ToolOperation]:
    """The operations of one naming profile, by tool name; ``InvalidArgument`` for an unknown one.

    ``forgets``: the agent may forget entries for good.
    """
    operations = TOOL_NAMES[check_tool_names(tool_names)]
    return {**operations, FORGET: "forget"} if forgets else operations
