"""The codec of entries and marks: one canonical JSON object each on disk.

The rules this file guards: a decoded entry belongs at its path, because its uid follows from its owner, level, run and
key; and encoding is canonical, so the same entry always gives the same bytes. The other checks are those of ``record``.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, Struct
from msgspec.json import decode as from_json
from msgspec.json import schema_components
from msgspec.structs import asdict, replace

from memfiles.errors import InvalidArgument, RecordCorrupt
from memfiles.records import decoder_of, late_pattern, to_json
from memfiles.records.entry import (
    FORGOTTEN_KEPT,
    GENERAL,
    MAX_ALIASES,
    MAX_AUTHORS,
    MAX_ENTRY_BYTES,
    MAX_LINKS,
    MAX_SOURCES,
    MAX_TAGS,
    TEXT_NAME,
    Entry,
    EntryId,
    Kind,
    Label,
    Merged,
    Provenance,
    Reorganised,
    Retired,
    Share,
    TombstoneId,
)
from memfiles.records.keys import (
    ENTRY_UID_PATTERN,
    WORKSPACE,
    check_key,
    check_revision,
    check_user,
    entry_place,
    entry_uid,
    matching,
    scope_folder,
    user_hash,
)
from memfiles.records.marks import AnyRecord, EntryRecord, Mark, MarkType, UserHash, UserHashIfAny
from memfiles.records.record import (
    FORMAT,
    FORMAT_2,
    MAX_ORIGINS,
    NOBODY,
    SHA256_PATTERN,
    TIMESTAMP_PATTERN,
    Change,
    Count,
    Origins,
    Record,
    Revision,
    Timestamp,
    check_order,
    first_problem,
    keep_lines,
    read_record,
    refuse_foreign,
)
from memfiles.records.redactions import Piece

_AUTHORS_MAX = 16 * MAX_AUTHORS  # machines that merge their copies may exceed together what each of them allows


class _OnDisk(Struct, frozen=True):
    """The JSON object of an entry."""

    uid: Annotated[str, matching(ENTRY_UID_PATTERN)]
    agent: Label
    level: str
    key: Label
    content: str
    sha256: Annotated[str, matching(SHA256_PATTERN)]
    revision: Revision
    created_at: Timestamp
    updated_at: Timestamp
    format: Literal["memfiles/1", "memfiles/2"]
    type: Literal["entry"]
    id: EntryId | None = None
    aliases: Annotated[tuple[EntryId, ...], Meta(max_length=MAX_ALIASES)] = ()
    run: str = ""
    user: str = ""
    epoch: UserHashIfAny = ""
    tags: Annotated[tuple[Label, ...], Meta(max_length=MAX_TAGS)] = ()
    category: Label = GENERAL
    kind: Kind = "note"
    confidence: Share = 1.0
    importance: Share = 0.5
    pinned: bool = False
    links: Annotated[tuple[Label, ...], Meta(max_length=MAX_LINKS)] = ()
    provenance: Provenance = Provenance()
    expires_at: Timestamp | None = None
    successes: Count = 0
    failures: Count = 0
    retired: Retired | None = None
    forgotten: Annotated[tuple[TombstoneId, ...], Meta(max_length=FORGOTTEN_KEPT)] = ()
    made_of: Annotated[tuple[EntryId, ...], Meta(max_length=MAX_SOURCES)] = ()
    merged: Annotated[tuple[Merged, ...], Meta(max_length=MAX_SOURCES)] = ()
    authors: Annotated[tuple[UserHash, ...], Meta(max_length=_AUTHORS_MAX)] = ()
    reorganised: Reorganised | None = None
    said_at: Annotated[str, matching(f"^({TIMESTAMP_PATTERN[1:-1]})?$")] = ""
    history: tuple[Change, ...] = ()
    origins: Annotated[Origins, Meta(max_length=MAX_ORIGINS)] = {}
    redactions: tuple[Piece, ...] = ()


_facets_of = attrgetter(*(name for name in Entry.__struct_fields__ if name not in ("text", "given_id")))
_GIVEN_ID = Entry.__struct_fields__.index("given_id")
_MARKS = frozenset(get_args(MarkType))
_OF_MARK = (
    "format type uid agent user level id key left revision at by why run forgotten origins cleared of_run moved".split()
)
_NEEDED = frozenset({"agent", "level", "by"})
_MOVED = "moved to "  # in format 1: the cause of an entry that was hidden at its old path
_BEGINNING = 64  # bytes; of a record as it is written, these tell its type without an expression
_FORMATS = (b"memfiles/1", b"memfiles/2")
_TYPES = (b"entry", b"tombstone", b"location", b"vacated")
_LAID_OUT = (b"{", b"format", b":", b",\n", b"type", b":")
_TYPE = late_pattern(rb'\A\s*\{\s*"format"\s*:\s*"[^"\\]*"\s*,\s*"type"\s*:\s*"(entry|tombstone|location|vacated)"')


_json_of = lru_cache(maxsize=1024, typed=True)(to_json)
"""The JSON of a value that most entries have."""


def encode_entry(entry: EntryRecord) -> bytes:
    """The canonical bytes of an entry or a mark: one JSON object, one field or change a line."""
    if isinstance(entry, Mark):
        return b",\n".join(_mark_lines(entry)) + b"}\n"
    text, has_id = entry.text, bool(entry.given_id or entry.aliases or entry.user)
    lines = [
        b'{"format":' + to_json(FORMAT_2 if has_id else FORMAT),
        b'"type":"entry"',
        b'"uid":"%b"' % text.uid.encode(),
        *([b'"id":"%b"' % entry.id.encode()] if has_id else []),
        *([b'"aliases":' + to_json(entry.aliases)] if entry.aliases else []),
        b'"agent":' + _json_of(entry.agent),
        b'"level":' + _json_of(text.level),
        *([b'"user":' + to_json(entry.user), b'"epoch":' + to_json(entry.epoch)] if entry.user else []),
        *([b'"run":' + to_json(entry.run)] if entry.run else []),
        b'"key":' + to_json(entry.key),
        b'"content":' + text.content_start + b'"',
        b'"sha256":"%b"' % text.sha256.encode(),
        b'"tags":' + (to_json(entry.tags) if entry.tags else b"[]"),
        b'"category":' + _json_of(entry.category),
        b'"kind":"%b"' % entry.kind.encode(),
        b'"confidence":' + _json_of(entry.confidence),
        b'"importance":' + _json_of(entry.importance),
        b'"pinned":' + (b"true" if entry.pinned else b"false"),
        *([b'"links":' + to_json(entry.links)] if entry.links else []),
        b'"provenance":' + to_json(entry.provenance.to_dict()),
        *([b'"expires_at":' + to_json(entry.expires_at)] if entry.expires_at else []),
        b'"successes":%d,\n"failures":%d' % (entry.successes, entry.failures),
        *([b'"retired":' + to_json(entry.retired)] if entry.retired else []),
        *([b'"forgotten":' + to_json(entry.forgotten)] if entry.forgotten else []),
        *([b'"made_of":' + to_json(entry.made_of)] if entry.made_of else []),
        *([b'"merged":' + to_json([each.to_dict() for each in entry.merged])] if entry.merged else []),
        *([b'"authors":' + to_json(entry.authors)] if entry.authors else []),
        *([b'"said_at":' + to_json(entry.said_at)] if entry.said_at else []),
        *([b'"reorganised":' + to_json(entry.reorganised)] if entry.reorganised else []),
        b'"revision":%d' % text.revision,
        b'"created_at":"%b"' % text.created_at.encode(),
        b'"updated_at":"%b"' % text.updated_at.encode(),
        *([b'"origins":' + to_json(dict(sorted(text.origins.items())))] if text.origins else []),
        *([b'"redactions":[\n' + text.redactions_json + b"]"] if text.redactions else []),
        b'"history":[\n' + text.history_json + b"]}\n",
    ]
    return b",\n".join(lines)


def _mark_lines(mark: Mark) -> Iterator[bytes]:
    """Its fields in the order of ``_OF_MARK``; an optional field only if it has a value."""
    said = asdict(mark) | {"by": mark.by.to_dict(), "origins": dict(sorted(mark.origins.items()))}
    needed = _NEEDED | {"why"} if mark.id else _NEEDED
    shown = (name for name in _OF_MARK if said[name] or name in needed)
    return (b'%b"%b":%b' % (b"" if at else b"{", name.encode(), to_json(said[name])) for at, name in enumerate(shown))


def is_of_one_run(data: bytes, *, path: str) -> bool:
    """Whether ``data`` is the record of ``path`` and belongs to one run alone; decoded only if it names a run."""
    try:
        return b'"run"' in data and bool(decode_entry(data, path=path).run)
    except RecordCorrupt:
        return False


def decode_entry(data: bytes, *, path: str) -> EntryRecord:
    """The entry or mark that belongs at ``path`` in ``data``, or ``RecordCorrupt`` with the reason.

    Content that does not fit its digest is not an error here: see ``Record.is_intact``.
    """
    found = read_entry(data, of=path)
    if found.path != path:
        raise RecordCorrupt(f"record {path}: it contains the record of {found.path} instead")
    if isinstance(found, Entry):
        check_order(found.text, of=path)
    elif any(known > found.revision for known in found.origins.values()):
        raise RecordCorrupt(f"record {path}: its origins are ahead of revision {found.revision}")
    else:
        check_revision(found.revision, [found.revision], of=path)  # it may bury an entry at the limit
    if not _is_canonical(data):
        refuse_foreign(data, uid=path)
    elif isinstance(found, Entry):
        keep_lines(found.text, data)
    return found


def read_entry(data: bytes, *, of: str = "") -> EntryRecord:
    """Any entry or mark in ``data``, checked on its own; ``of`` is the path that ``RecordCorrupt`` names."""
    try:
        if _type_of(data) in _MARKS:
            return _checked(decoder_of(Mark).decode(data))
        return _as_entry(decoder_of(_OnDisk).decode(data))
    except InvalidArgument as error:
        raise RecordCorrupt(f"record {of}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise RecordCorrupt(f"record {of}: {first_problem(error, data)}") from None


def _is_canonical(data: bytes) -> bool:
    """Whether JSON is laid out as by ``encode_entry``, so that it cannot contain a duplicate key."""
    try:
        return to_json(from_json(data)) == data.replace(b"\n", b"")
    except (ValueError, RecursionError):
        return False


def _type_of(data: bytes) -> str:
    parts = data[:_BEGINNING].split(b'"', 8)
    if len(parts) == 9 and parts[7] in _TYPES and parts[3] in _FORMATS and (*parts[:3], *parts[4:7]) == _LAID_OUT:
        return parts[7].decode()
    if (match := _TYPE.match(data)) is not None:
        return match[1].decode()
    try:
        found = from_json(data)
    except (ValueError, RecursionError):
        return ""
    return str(found.get("type")) if isinstance(found, dict) else ""


def _as_entry(found: _OnDisk) -> EntryRecord:
    """The entry, or the mark that stands for it; its uid must follow from its other fields."""
    folder = scope_folder(found.agent, user_hash(check_user(found.user) if found.user else ""))
    if found.uid != entry_uid(folder, found.level, check_key(found.key), found.run):
        raise InvalidArgument(f"its uid {found.uid} is not that of its agent, user, level and key")
    if bool(found.user) != bool(found.epoch) or (found.user and found.agent == WORKSPACE):
        raise InvalidArgument("an entry of a user has an epoch, and is of one agent")
    ids = [id for id in (found.id, *found.aliases) if id is not None]
    is_of_format_2 = found.format == FORMAT_2
    if ids != sorted(set(ids)) or not (bool(ids) == (found.id is not None) == is_of_format_2):
        raise InvalidArgument("its ids are not those of an entry of its format")
    text = Record(
        *(found.uid, TEXT_NAME, "", MAX_ENTRY_BYTES, found.level, found.content, found.sha256),
        *(found.revision, found.created_at, found.updated_at, found.history),
        origins=found.origins,
        redactions=found.redactions,
        format=FORMAT_2 if found.redactions else FORMAT,
    )
    facets: list[Any] = [text, *_facets_of(found)]
    facets.insert(_GIVEN_ID, found.id or "")
    entry = Entry(*facets)
    if entry.given_id and entry.given_id == entry.implied_id:
        entry = replace(entry, given_id="")
    return _mark_of_move(entry) or entry


def _mark_of_move(entry: Entry) -> Mark | None:
    """The mark that stands for an entry that an earlier build hid at its old path when it moved; None for any other."""
    target = entry.retired.cause.removeprefix(_MOVED) if entry.retired is not None else ""
    if entry.retired is None or not entry.retired.cause.startswith(_MOVED) or (place := entry_place(target)) is None:
        return None
    return Mark(
        *(entry.uid, entry.agent, entry.level, "vacated", entry.revision, entry.retired.at),
        by=entry.text.history[-1].by if entry.text.history else NOBODY,
        run=entry.run,
        left=tuple(sorted({*entry.ids, place[1]})),
        moved=(target,),
        forgotten=entry.forgotten,
        origins=entry.origins,
    )


def _checked(mark: Mark) -> Mark:
    """The mark, if its fields are those of a mark of its type and format, else ``InvalidArgument``."""
    is_earlier = mark.format == FORMAT
    if is_earlier != bool(mark.id) or (is_earlier and mark.type != "tombstone"):
        raise InvalidArgument("its id is not that of a mark of its format")
    if bool(mark.key) != mark.leads or (mark.key and check_key(mark.key) != mark.key):
        raise InvalidArgument("only a location has a key")
    if not mark.is_of_id and not re.fullmatch(ENTRY_UID_PATTERN[1:-1], mark.uid):
        raise InvalidArgument(f"its uid {mark.uid} is not that of a key")
    return mark


def record_schemas() -> dict[str, dict[str, Any]]:
    """The JSON Schemas (draft 2020-12) of a memory file, an entry and a mark, and of the parts that they refer to."""
    kinds: dict[str, type[Struct]] = {"File": Record, "Entry": _OnDisk, "Mark": Mark}
    _, parts = schema_components(kinds.values(), ref_template="#/$defs/{name}")
    return {**{name: parts.pop(kind.__name__) for name, kind in kinds.items()}, **parts}


class Inspection(Struct, frozen=True):
    """The revision of a record, and whether its digest fits its content."""

    revision: int
    is_intact: bool


def inspect(data: bytes) -> Inspection | None:
    """Inspect a record of any type; None if ``data`` is not one."""
    try:
        found: AnyRecord = read_entry(data) if _TYPE.match(data) else read_record(data)
        text = found.text if isinstance(found, Entry) else found
        changes = [change.revision for change in text.history] if isinstance(text, Record) else [found.revision]
        check_revision(found.revision, changes, of="")
    except RecordCorrupt:
        return None
    return Inspection(found.revision, text.is_intact if isinstance(text, Record) else True)
