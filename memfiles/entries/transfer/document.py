"""Documents: entries on their way in or out, as neutral values between the file formats and the entries.

The rule this file guards: nothing is dropped silently. Every part that cannot be read becomes a ``Skipped`` that gives
its place and the reason, and repeats no value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from math import inf
from typing import Any, TypeGuard, TypeVar

from msgspec import Struct
from msgspec.structs import astuple

from memfiles.errors import InvalidArgument
from memfiles.records.entry import FACETS, MAX_ALIASES, MAX_LABEL_BYTES, MAX_SOURCES, Provenance
from memfiles.records.keys import ENTRY_ID_PATTERN, KEY_MAX_BYTES, check_key
from memfiles.records.record import MAX_COUNT, TIMESTAMP_PATTERN
from memfiles.workflow.problems import in_quotes, printable

FILE_MAX_BYTES = 8 * 1024 * 1024
"""The most bytes of a file that holds one entry."""

ITEMS_MAX = 1_000_000
"""The most lines or JSON values of a source: each costs some microseconds and a report, however short it is."""

T = TypeVar("T")


class Skipped(Struct, frozen=True):
    """Something that was not imported: its place as ``file``, ``file:line`` or ``file:line:column``, and the reason."""

    where: str
    why: str


class Document(Struct, frozen=True):
    """One entry as the file formats know it; None is "not said". Times are ``2026-11-21T09:00:00.000Z``.

    ``agent`` and ``user`` say whose entry it was. ``links`` are keys, ``made_of`` and ``aliases`` are ids, and
    ``provenance`` are texts such as ``run=evt-1``.
    ``where`` is the place it was read from, which does not count in comparisons.
    """

    key: str
    content: str
    id: str | None = None
    category: str | None = None
    kind: str | None = None
    tags: tuple[str, ...] = ()
    level: str | None = None
    agent: str | None = None
    user: str | None = None
    created: str | None = None
    updated: str | None = None
    confidence: float | None = None
    importance: float | None = None
    pinned: bool | None = None
    expires_at: str | None = None
    links: tuple[str, ...] | None = None
    said_at: str | None = None
    successes: int | None = None
    failures: int | None = None
    made_of: tuple[str, ...] | None = None
    provenance: tuple[str, ...] | None = None
    aliases: tuple[str, ...] | None = None
    where: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Document) and astuple(self)[:-1] == astuple(other)[:-1]

    @property
    def identity(self) -> tuple[str | bool, ...]:
        """The identity of an entry: its key, its level, whether it belongs to the whole workspace, and its user."""
        return self.key, self.level or "", self.category == "workspace", *([self.user] if self.user else [])


def limited(items: Iterable[T]) -> Iterator[T]:
    """The items as they come; ``InvalidArgument`` after a million of them."""
    for number, item in enumerate(items):
        if number >= ITEMS_MAX:
            raise InvalidArgument(f"this has more than {ITEMS_MAX} lines or values: import a part of it")
        yield item


class Parsed(Struct, frozen=True):
    """The result of parsing a source, in the source's order."""

    documents: tuple[Document, ...] = ()
    skipped: tuple[Skipped, ...] = ()


def as_one(parts: Iterable[Parsed]) -> Parsed:
    """Several results as one. Of two documents of one entry the first is kept and the other one reported."""
    documents: dict[tuple[str | bool, ...], Document] = {}
    skipped: list[Skipped] = []
    for part in parts:
        skipped += part.skipped
        for document in part.documents:
            first = documents.setdefault(document.identity, document)
            if first is not document:
                skipped.append(Skipped(document.where, f"an entry with the same key came before it, at {first.where}"))
    return Parsed(tuple(documents.values()), tuple(skipped))


def key_problem(key: str) -> str | None:
    """Why ``key`` cannot be the key of an entry, or None if it can."""
    try:
        check_key(key)
    except InvalidArgument:
        return f"its key is invalid: use 1 to {KEY_MAX_BYTES} bytes, not blank and without control characters"
    return None


def printed(path: str) -> str:
    """A path for a report: on one line, and at most 300 characters of it."""
    return printable(path[:300]) + ("..." if len(path) > 300 else "")


def text_in(data: bytes, where: str) -> str | Skipped:
    """``data`` as text, or why it is not text."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        return Skipped(where, f"this is not UTF-8 text: byte {error.start} cannot be read")


def fields_of(document: Document) -> dict[str, Any]:
    """The fields that are set, without the content, by name in writing order."""
    known = {name: value for name in FIELDS if (value := getattr(document, name)) is not None}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in known.items()}


def parsed_document(fields: Mapping[str, Any], content: str, *, where: str) -> Parsed:
    """The document with these fields and this content; unknown fields are left out and reported.

    There is no document if a known field has the wrong type, or the key is invalid.
    """
    known = {name: value for name, value in fields.items() if name in _TYPES and value is not None}
    unknown = [name for name in fields if name not in _TYPES]
    if "key" not in known:
        return Parsed(skipped=(Skipped(where, "it has no key"),))
    for name, value in known.items():
        words, accepts = _TYPES[name]
        if not accepts(value):
            return Parsed(skipped=(Skipped(where, f"{name} must be {words}"),))
    if problem := key_problem(known["key"]):
        return Parsed(skipped=(Skipped(where, problem),))
    left_out = tuple(Skipped(where, f"the field{in_quotes(name)} is unknown; the rest was read") for name in unknown)
    frozen: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in known.items()}
    return Parsed((Document(content=content, where=where, **frozen),), left_out)


def is_time(value: object) -> bool:
    """Whether it is a timestamp as records have it, on a day that exists."""
    if not isinstance(value, str) or not re.fullmatch(TIMESTAMP_PATTERN, value, re.ASCII):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def written_provenance(provenance: Provenance) -> tuple[str, ...]:
    """The provenance of an entry, as a document holds it."""
    return tuple(f"{name}={value}" for name, value in provenance.to_dict().items())


def provenance_in(written: Sequence[str]) -> Provenance | None:
    """The reverse of ``written_provenance``; None if the texts are not a provenance."""
    pairs = [text.partition("=") for text in written]
    known: dict[str, Any] = {name: value for name, _, value in pairs}
    ordinal = known.pop("ordinal", "0")
    is_one = len({name for name, _, _ in pairs}) == len(pairs) and _ORIGINS.issuperset(known)
    are_labels = all(it.isprintable() and 1 <= len(it.encode(errors="replace")) <= MAX_LABEL_BYTES
                     for it in known.values())  # fmt: skip
    if not is_one or not are_labels or not re.fullmatch(r"[0-9]{1,19}", ordinal):
        return None
    return Provenance(**known, ordinal=min(int(ordinal), 2**63 - 1))


def _is_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_ids(value: object, most: int) -> bool:
    pattern = ENTRY_ID_PATTERN[1:-1]
    return _is_texts(value) and len(value) <= most and all(re.fullmatch(pattern, id, re.ASCII) for id in value)


_ORIGINS = frozenset(Provenance.__struct_fields__)
FIELDS = tuple(name for name in Document.__struct_fields__ if name not in ("content", "where"))
"""The fields in the order in which they are written, first the ones that every entry has."""

_FieldType = tuple[str, Callable[[Any], bool]]
_TEXT: _FieldType = "text", lambda value: isinstance(value, str)
_TEXTS: _FieldType = "a list of texts", _is_texts
_TIME: _FieldType = "a time such as 2026-11-21T09:00:00.000Z", is_time
_NUMBER: _FieldType = "a number", lambda value: type(value) in (int, float) and abs(value) < inf
_COUNT: _FieldType = f"a whole number from 0 to {MAX_COUNT}", lambda it: type(it) is int and 0 <= it <= MAX_COUNT
_SWITCH: _FieldType = "true or false", lambda value: isinstance(value, bool)
_FACET_TYPES: dict[type, _FieldType] = {str: _TEXT, float: _NUMBER, bool: _SWITCH, tuple: _TEXTS}
_TYPES: dict[str, _FieldType] = {
    **dict.fromkeys(FIELDS, _TEXT),
    **{name: _FACET_TYPES[kept_as] for name, kept_as in FACETS},
    **dict.fromkeys(("successes", "failures"), _COUNT),
    **dict.fromkeys(("created", "updated", "expires_at", "said_at"), _TIME),
    "id": ("the id of an entry: 32 or 40 digits from 0 to f", lambda id: _is_ids([id], 1)),
    "aliases": (f"a list of at most {MAX_ALIASES} ids of entries", lambda ids: _is_ids(ids, MAX_ALIASES)),
    "made_of": (f"a list of at most {MAX_SOURCES} ids of entries", lambda ids: _is_ids(ids, MAX_SOURCES)),
    "provenance": ("a list of texts such as run=evt-1", lambda it: _is_texts(it) and provenance_in(it) is not None),
}
"""The type of each field, in words and as a check."""
