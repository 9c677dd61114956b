"""The record of a memory file, its changes and who made them, and its canonical JSON form.

The rules this file guards: a decoded record is the one asked for, in our format, without duplicate keys, numbers
unknown to JSON or lone surrogates; and encoding is canonical, so the same record always gives the same bytes.
"""

import codecs
import hashlib
import json
from collections.abc import Mapping
from operator import attrgetter
from typing import Annotated, Any, Literal, NoReturn, cast

from msgspec import Meta, Struct, ValidationError, defstruct, to_builtins
from msgspec.json import Decoder
from msgspec.json import decode as from_json
from msgspec.structs import replace

from memfiles.errors import InvalidArgument, RecordCorrupt
from memfiles.records import cached_property, sha256, to_json
from memfiles.records.keys import MAX_FOREIGN_REVISION, NAME_PATTERN, UID_PATTERN, check_revision, check_whole, matching
from memfiles.records.redactions import Piece

FORMAT: Literal["memfiles/1"] = "memfiles/1"
FORMAT_2: Literal["memfiles/2"] = "memfiles/2"  # of entries with an id, and of records with redacted pieces
MAX_RECORD_BYTES = 64 * 1024 * 1024
MAX_ORIGINS = 32
MAX_HISTORY_CHANGES = 100
MAX_HISTORY_BYTES = 64 * 1024
LABEL_MAX_BYTES = 1024
READ_BACK = "is_read_back"  # attribute that marks what of a change or record was read back and need not be again
EXTENDED = "extended"  # attribute with the history to which the last change was added, and what it is since
ORIGIN_PATTERN = r"^[0-9a-f]{12}$"
SHA256_PATTERN = r"^[0-9a-f]{64}$"
HIDDEN = "x-hidden"  # in a schema: only memfiles writes this field
FileOperation = Literal["seed", "hydrate", "append", "edit", "undo", "redact", "external", "declare", "merge"]
EntryOperation = Literal["save", "update", "undo", "delete", "restore", "evict", "consolidate", "import", "redact"]
Operation = Literal[FileOperation, EntryOperation]
Encoded = bytes  # inside Change, ``bytes`` is a field
TIMESTAMP_PATTERN = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"
Timestamp = Annotated[str, matching(TIMESTAMP_PATTERN)]
MAX_COUNT = 2**53 - 1  # the largest integer that every JSON reader reads exactly and every database can hold
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Revision = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
Origins = dict[Annotated[str, matching(ORIGIN_PATTERN)], Revision]


class Actor(Struct, frozen=True, gc=False):
    """Who made a change: the agent, the session's run, the id of the tool call, and the human or program that acted."""

    agent: str | None = None
    session: str | None = None
    call: str | None = None
    actor: str | None = None
    # the hash of the user's name, for the audit alone: no record holds it
    user: Annotated[str | None, Meta(extra_json_schema={HIDDEN: True})] = None

    def to_dict(self) -> dict[str, str]:
        """The fields that are known."""
        return {name: value for name in _TOLD if (value := getattr(self, name)) is not None}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Actor) and self._told() == other._told()

    def __hash__(self) -> int:
        return hash(self._told())

    def __repr__(self) -> str:
        return "Actor(agent={!r}, session={!r}, call={!r}, actor={!r})".format(*self._told())

    def _told(self) -> tuple[str | None, ...]:
        return self.agent, self.session, self.call, self.actor


_TOLD = ("agent", "session", "call", "actor")
NOBODY = Actor()
_NUMBERS = ("offset", "matches", "line", "undone", "target")
_SAID = ("old", "opaque", "redacted", "merged", "place", "key", "cause", "of_user")
_numbers_of, _said_of = attrgetter(*_NUMBERS), attrgetter(*_SAID)
_LEFT_OUT = [(name, Any, None) for name in (*_NUMBERS, *_SAID)]  # unless they are known
_Shown = defstruct("_Shown", ["revision", "at", "op", "by", "bytes", *_LEFT_OUT], omit_defaults=True, gc=False)


class Stamp(Struct, frozen=True, gc=False):
    """When a change is made, by whom, over which expected revision, and its ``cause`` (see ``Change``)."""

    at: str
    by: Actor = NOBODY
    expected_revision: int | None = None
    cause: str = ""

    def __post_init__(self) -> None:
        if self.expected_revision is not None:
            check_whole(self.expected_revision, what="expected_revision")


class Change(Struct, frozen=True, dict=True):
    """One accepted change, stored as a reverse delta.

    The text before the change is the text after it with ``bytes`` bytes at ``offset`` (None: the last ones) replaced
    by ``old``. ``opaque`` marks a change whose earlier text is unknown. An edit has the ``matches`` and ``line`` it
    reported; an undo has the change it took back (``undone``) or the requested revision (``target``): replays are
    recognised by these, and report the same. ``redacted`` marks a change whose own text was removed later, ``merged``
    one that was carried over to another text: replays of both are recognised by their call id alone. Of entries only:
    ``place`` is the tag of where it was (see ``place_tag``) if elsewhere, ``key`` its key until then if another one,
    ``cause`` the plan, eviction or expiry behind it; ``of_user``: a user's session made it, in what other users see.
    """

    revision: Revision
    at: Timestamp
    op: Operation
    by: Actor = NOBODY
    bytes: Count = 0
    offset: Count | None = None
    old: str = ""
    matches: Count | None = None
    line: Count | None = None
    undone: Count | None = None
    target: Count | None = None
    opaque: bool = False
    redacted: bool = False
    merged: bool = False
    place: str = ""
    key: str = ""
    cause: str = ""
    of_user: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of this change, without fields at their default."""
        return cast("dict[str, Any]", to_builtins(self._shown()))

    def _shown(self) -> Struct:
        said = [each or None for each in _said_of(self)]
        return _Shown(self.revision, self.at, self.op, self.by.to_dict(), self.bytes, *_numbers_of(self), *said)

    @property
    def is_altered(self) -> bool:
        """Whether it no longer holds its caller's exact request, so that a replay is recognised by its call id."""
        return self.redacted or self.merged

    @cached_property
    def encoded(self) -> Encoded:
        """This change as one line of JSON; kept, because every later version of the record repeats it."""
        return to_json(self._shown())


class Record(Struct, frozen=True, dict=True):
    """One memory file as it is on disk; ``history`` runs from the oldest kept change to the newest.

    ``origins`` is a version vector: for each memory directory, the revision of its latest change that the content
    includes. Only mirrored records have one; it is never changed in place. ``redactions`` tell what was redacted, in
    the order of their ids; they do not leave with the history.
    """

    uid: Annotated[str, matching(UID_PATTERN)]
    name: Annotated[str, matching(NAME_PATTERN)]
    description: str
    max_size_bytes: Annotated[int, Meta(ge=0)]
    level: str
    content: str
    sha256: Annotated[str, matching(SHA256_PATTERN)]
    revision: Revision
    created_at: Timestamp
    updated_at: Timestamp
    history: tuple[Change, ...] = ()
    provisional: bool = False
    origins: Annotated[Origins, Meta(max_length=MAX_ORIGINS)] = {}
    redactions: tuple[Piece, ...] = ()
    format: Literal["memfiles/1", "memfiles/2"] = FORMAT
    type: Literal["file"] = "file"

    @property
    def content_bytes(self) -> bytes:
        """The content as UTF-8; not cached, because it is a whole copy that is seldom needed."""
        return self.content.encode()

    @cached_property
    def size_bytes(self) -> int:
        """The size of the content in UTF-8 bytes."""
        return len(self.content_bytes)

    @cached_property
    def content_start(self) -> bytes:
        """The content as a JSON string without its closing quote, so that an append can extend it."""
        return to_json(self.content)[:-1]

    @cached_property
    def hasher(self) -> "hashlib._Hash":
        """The SHA-256 of the content, ready to be extended."""
        return sha256(self.content_bytes)

    @cached_property
    def declared_json(self) -> bytes:
        """The first lines of the encoded record, which do not depend on its content."""
        names = ("format", "type", "uid", "name", "description", "max_size_bytes", "level")
        return b"{" + b",\n".join(b'"%b":%b' % (name.encode(), to_json(getattr(self, name))) for name in names)

    @cached_property
    def history_json(self) -> bytes:
        """The encoded changes, one a line."""
        return b",\n".join([change.encoded for change in self.history])

    @cached_property
    def redactions_json(self) -> bytes:
        """The encoded pieces, one a line."""
        return b",\n".join(list(map(to_json, self.redactions)))

    def stamped(self, origin: str) -> "Record":
        """The record as a change made in the memory directory ``origin``; nothing is encoded again."""
        if self.origins.get(origin) == self.revision:
            return self
        return self.with_origins({**self.origins, origin: self.revision}, own=origin)

    def with_origins(self, origins: Origins, *, own: str | None = None) -> "Record":
        """The record with these ``origins``; see ``latest_origins``."""
        return successor(self, origins=latest_origins(origins, own=own))

    @property
    def is_intact(self) -> bool:
        """Whether the digest fits the content: if not, someone edited the content by hand."""
        return self.hasher.hexdigest() == self.sha256


def with_content(record: Record, content: str) -> Record:
    """The record with new content and its digest; what was encoded of its history is kept."""
    hasher = sha256(data := content.encode())
    known = {"hasher": hasher, "size_bytes": len(data), "content_start": to_json(content)[:-1]}
    return successor(record, known, content=content, sha256=hasher.hexdigest())


def with_redactions(record: Record, pieces: tuple[Piece, ...]) -> Record:
    """The record with exactly these pieces; the very same record if it has them."""
    return record if record.redactions == pieces else replace(record, redactions=pieces, format=FORMAT_2)


def extend(record: Record, change: Change, known: Mapping[str, Any] = {}, **made: Any) -> Record:
    """The record with ``change``, which made its present content, added to its bounded history.

    A change too large for the bounds on its own is kept without its delta. ``known`` and ``made`` as of ``successor``.
    """
    is_too_large = len(change.encoded) > MAX_HISTORY_BYTES
    if is_too_large:
        change = replace(change, old="", opaque=True)
    history: tuple[Change, ...] = (change,)
    encoded = change.encoded
    if record.history and not is_too_large:
        history, encoded = (*record.history, change), record.history_json + b",\n" + encoded
    first, cut = 0, 0
    while len(encoded) - cut > MAX_HISTORY_BYTES or len(history) - first > MAX_HISTORY_CHANGES:
        cut += len(history[first].encoded) + len(b",\n")
        first += 1
    known = {**known, "history_json": encoded[cut:], EXTENDED: (record.history, history := history[first:])}
    return successor(record, known, revision=change.revision, updated_at=change.at, history=history, **made)


def grown(record: Record, text: str, change: Change) -> Record:
    """The record with ``text`` at the end of its content, at a cost that depends on ``text`` alone, and the change.

    Encoding and hashing 64 KiB again for every appended line took half as long as the durable write itself.
    """
    tail = text.encode()
    hasher = record.hasher.copy()
    hasher.update(tail)
    start = record.content_start + to_json(text)[1:-1]
    known = {"hasher": hasher, "size_bytes": record.size_bytes + len(tail), "content_start": start}
    return extend(record, change, known, content=record.content + text, sha256=hasher.hexdigest())


def successor(record: Record, known: Mapping[str, Any] | None = None, **changed: Any) -> Record:
    """A copy with some fields changed that keeps the cached properties, which ``replace`` would drop.

    ``known`` has every cached property that depends on a changed field.
    """
    copy = replace(record, **changed)
    vars(copy).update(vars(record), **known or {})
    return copy


def latest_origins(origins: Origins, *, own: str | None = None) -> Origins:
    """At most 32 of these origins, sorted: ``own`` and the directories with the latest changes."""
    latest = sorted(origins, key=lambda origin: (origin != own, -origins[origin], origin))[:MAX_ORIGINS]
    return {origin: origins[origin] for origin in sorted(latest)}


def digest(content: bytes) -> str:
    """The SHA-256 of the content bytes in hexadecimal."""
    return sha256(content).hexdigest()


def encode(record: Record) -> bytes:
    """The canonical bytes of a record: one JSON object, one field or change a line, a newline at the end."""
    lines = [
        record.declared_json,
        b'"content":' + record.content_start + b'"',
        b'"sha256":' + to_json(record.sha256),
        b'"revision":%d' % record.revision,
        b'"created_at":' + to_json(record.created_at),
        b'"updated_at":' + to_json(record.updated_at),
        *([b'"provisional":true'] if record.provisional else []),
        *([b'"origins":' + to_json(dict(sorted(record.origins.items())))] if record.origins else []),
        *([b'"redactions":[\n' + record.redactions_json + b"]"] if record.redactions else []),
        b'"history":[\n' + record.history_json + b"]}\n",
    ]
    return b",\n".join(lines)


def decode(data: bytes, *, uid: str) -> Record:
    """The record of ``uid`` in ``data``, or ``RecordCorrupt`` with the reason.

    Content that does not fit its digest is not an error here: see ``Record.is_intact``.
    """
    record = read_record(data, of=uid)
    if record.uid != uid:
        raise RecordCorrupt(f"record {uid}: it contains the record of {record.uid!r} instead")
    try:
        fields: dict[str, Any] = from_json(data)
    except (ValueError, RecursionError) as error:
        raise RecordCorrupt(f"record {uid}: {first_problem(error)}") from None
    if "format" not in fields or "type" not in fields:
        raise RecordCorrupt(f"record {uid}: its format and type are missing")
    if to_json(fields) == data.replace(b"\n", b""):
        keep_lines(record, data)
    else:
        refuse_foreign(data, uid=uid)
    check_order(record, of=uid)
    return record


def check_order(record: Record, *, of: str, since: int = 0) -> None:
    """Refuse a record whose history (from index ``since``) or origins do not lead up to its revision."""
    revisions = [change.revision for change in record.history[since:]]
    if revisions != sorted(set(revisions)) or (revisions and revisions[-1] != record.revision):
        raise RecordCorrupt(f"record {of}: its history does not lead up to revision {record.revision}")
    if record.revision > MAX_FOREIGN_REVISION:
        check_revision(record.revision, [change.revision for change in record.history[-2:]], of=of)
    if record.origins and max(record.origins.values()) > record.revision:
        raise RecordCorrupt(f"record {of}: its origins are ahead of revision {record.revision}")


def read_record(data: bytes, *, of: str = "") -> Record:
    """Any record in ``data``, checked on its own; ``of`` is the uid that ``RecordCorrupt`` names."""
    try:
        return _RECORD.decode(data)
    except (ValueError, RecursionError) as error:
        raise RecordCorrupt(f"record {of}: {first_problem(error, data)}") from None


def keep_lines(record: Record, data: bytes) -> None:
    """Keep the encoded lines of a record in our own layout, so that encoding it again is quick."""
    lines = data.split(b"\n")[-1 - len(record.history) : -1]
    if len(lines) == len(record.history) and all(line.startswith(b'{"revision":') for line in lines):
        for change, line in zip(record.history, lines, strict=True):
            vars(change).update({"encoded": line.removesuffix(b"]}").removesuffix(b","), READ_BACK: True})


def refuse_foreign(data: bytes, *, uid: str) -> None:
    """Refuse what only a strict JSON parser rejects; records that we wrote never get here."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise RecordCorrupt(f"record {uid}: it has a duplicate key")
        return found

    def refuse(constant: str) -> NoReturn:
        raise RecordCorrupt(f"record {uid}: {constant} is not JSON")

    try:
        json.loads(data, object_pairs_hook=unique, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise RecordCorrupt(f"record {uid}: it is not JSON: {error}") from None


def first_problem(error: Exception, data: bytes = b"") -> str:
    """The first fault of a document: its place and reason, without any text of the document but names of fields."""
    what, _, place = str(error).replace("`", "").partition(" - at ")
    if not isinstance(error, ValidationError):
        why = "it is nested too deeply" if isinstance(error, RecursionError) else what
        if data.startswith(_BYTE_ORDER_MARKS):
            why = "it begins with a byte order mark; save it as UTF-8 without one"
        return f"Invalid JSON: {why.removeprefix('JSON is malformed: ')}"
    what = "it is not one of the possible values" if what.startswith("Invalid enum value") else what
    what = what.replace("str matching regex", "a text that matches").replace(r"\\Z'", "$'")
    return f"{place.removeprefix('$').removeprefix('.')}: {what}".removeprefix(": ")


_RECORD = Decoder(Record)
_BYTE_ORDER_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # some editors add one


def check_text(text: str, *, what: str = "the text") -> None:
    """Refuse anything but a string that UTF-8 can encode."""
    if not isinstance(text, str):
        raise InvalidArgument(f"{what} must be a string, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        why = f"{what} contains a lone surrogate at character {error.start}: send valid Unicode"
        raise InvalidArgument(why) from None


def stamp_of(by: Actor | None, *, at: str, call_id: str | None, expected_revision: int | None) -> Stamp:
    """The checked stamp of a requested change. An empty call id is none, as in a session."""
    check_actor(actor := by or NOBODY)
    if call_id is not None:
        check_actor(actor := replace(actor, call=call_id))
    return Stamp(at, replace(actor, call=None) if actor.call == "" else actor, expected_revision)


def check_actor(actor: Actor) -> None:
    """Refuse labels that could not be read back from a history, or that would fill it."""
    if not isinstance(actor, Actor):
        raise InvalidArgument(f"by must be an Actor, not {type(actor).__name__}")
    what = "an agent, session, call id or actor"
    for label in (actor.agent, actor.session, actor.call, actor.actor):
        if label is not None:
            check_text(label, what=what)
            if (size := len(label.encode())) > LABEL_MAX_BYTES:
                raise InvalidArgument(f"{what} has {size} bytes, more than {LABEL_MAX_BYTES}: {label[:40]!r}...")
