"""Entries, saved by an agent under a key. Pure data; see ``entry_codec`` for JSON.

The rules this file guards:

- An entry keeps its id under every key.
- Content, history and revision are those of a ``Record``, so that the text of an entry and that of a memory file are
  changed by the same code.
- Saved text cannot pass for anything else in a prompt. Every line of content begins with a bar, so no line is a heading
  or the end of the block; keys and tags are quoted; invisible characters are made visible; no tag or special token can
  begin. The index keeps the size of each block: with its form, the index's ``FORMAT`` changes.
"""

import hashlib
import json
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from memfiles.errors import InvalidArgument
from memfiles.records import NamedTuple, cached_property
from memfiles.records.keys import (
    ENTRY_ID_PATTERN,
    check_key,
    entry_path,
    entry_uid,
    matching,
    place_tag,
    scope_folder,
    user_hash,
)
from memfiles.records.record import MAX_COUNT, Actor, Origins, Record, Revision, Timestamp, digest

MAX_ENTRY_BYTES = 64 * 1024
MAX_RESULTS, DEFAULT_RESULTS = 50, 10
MAX_PAGE, DEFAULT_PAGE = 100, 50
LEAST_SEARCH_BYTES = 512  # the frame of a result, with a note and a part of the question
RECALL_BYTES = 4096  # of a block that is recalled for one turn, unless told otherwise
MAX_TAGS = 32
MAX_LINKS = 32
MAX_LABEL_BYTES = 255
MAX_WHY_BYTES = 500
GENERAL = "general"
DEFAULT_CONFIDENCE = 1.0
CONVERSATION = "conversation"
CORE = "core"
WORKSPACE_CATEGORY = "workspace"
TEXT_NAME = "entry"
FORGOTTEN_KEPT = 8
MAX_SOURCES = 256
MAX_ALIASES = 64
MAX_AUTHORS = 256
LEAST_BLOCK_BYTES: Final = len('### "k" (level L, updated 2026-11-21T09:00:00.000Z)\n|')  # the shortest key, no text
_VISIBLE_FORMATS: Final = frozenset("\t\u200c\u200d")  # tabs, and the joiners that scripts and emoji need
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
EntryState = Literal["live", "deleted", "evicted", "forgotten"]  # the last one is that of a mark
Kind = Literal["fact", "note", "procedure", "episode"]
EPISODE: Kind = "episode"
KINDS: tuple[Kind, ...] = ("fact", "note", "procedure", "episode")
Scope = Literal["run", "user", "agent", "workspace"]
"""Whom an entry belongs to: one run, one user of an agent, the agent with all its users, or all agents."""

Share = Annotated[float, Meta(ge=0, le=1)]
Label = Annotated[str, Meta(min_length=1, max_length=MAX_LABEL_BYTES)]
TombstoneId = Annotated[str, matching(r"^[0-9a-f]{12}$")]
EntryId = Annotated[str, matching(ENTRY_ID_PATTERN)]


class Provenance(Struct, frozen=True, gc=False):
    """Where an entry's content comes from, recorded without asking the agent.

    ``ordinal`` is the time of the first save in nanoseconds, strictly increasing within a process, so that entries
    have an order that milliseconds cannot give.
    """

    agent: str | None = None
    user: str | None = None
    session: str | None = None
    run: str | None = None
    channel: str | None = None
    thread: str | None = None
    call: str | None = None
    source: str | None = None
    ordinal: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0

    def to_dict(self) -> dict[str, Any]:
        """The fields that are known."""
        return {name: value for name in _PROVENANCE if (value := getattr(self, name))}

    @property
    def told_to_others(self) -> "Provenance":
        """The part that other users may know: neither who said it, nor in which run."""
        if self.user is None:
            return self
        return Provenance(agent=self.agent, source=self.source, ordinal=self.ordinal)

    @property
    def shown(self) -> dict[str, Any]:
        """The fields that are known, without the ordinal, which says nothing to a reader."""
        return {name: value for name, value in self.to_dict().items() if name != "ordinal"}


_PROVENANCE = Provenance.__struct_fields__


class Retired(Struct, frozen=True, gc=False):
    """Why an entry is hidden though its content is kept: ``deleted`` by someone, or ``evicted`` over a budget.

    ``cause`` is the id of the plan or call that did it, by which it can be undone.
    """

    state: Literal["deleted", "evicted"]
    at: Timestamp
    cause: str = ""


class Merged(Struct, frozen=True, gc=False):
    """The uid of an entry that was merged into another one, and the labels that only it contributed."""

    uid: EntryId
    tags: Annotated[tuple[Label, ...], Meta(max_length=MAX_TAGS)] = ()
    links: Annotated[tuple[Label, ...], Meta(max_length=MAX_LINKS)] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON object, without empty fields."""
        labels = {name: list(value) for name in ("tags", "links") if (value := getattr(self, name))}
        return {"uid": self.uid, **labels}


class Reorganised(Struct, frozen=True, gc=False):
    """The plan that last changed an entry: its id, the number of entries it changed, and the revision it made here.

    Undoing a plan needs it, also to see whether an entry changed since.
    """

    plan: Annotated[str, Meta(min_length=1, max_length=64)]
    changed: Annotated[int, Meta(ge=1, le=MAX_COUNT)]
    revision: Revision


class Entry(Struct, frozen=True, dict=True):
    """One entry. ``text`` holds its content, level, revision, times and history; the other fields describe it.

    ``agent`` owns it, ``@workspace`` for entries that all agents share; ``user`` is set if it belongs to one of the
    agent's users, and ``run`` if it belongs to one run alone. ``epoch`` is the user's at that time: a hash of the name
    up to the first forget of the user, another one after each.
    ``forgotten`` are the ids of the tombstones that it was saved over. ``made_of`` are the ids of the entries that it
    summarises, and ``merged`` the entries that were merged into it. ``given_id`` is the id that it was given at its
    first save, "" in records of format 1, and ``aliases`` are those of entries that were joined with it, sorted.
    ``authors`` are the epochs of the users whose sessions had a hand in an entry that others see, sorted.
    ``said_at`` is when the content was said, "" if that was when it was saved.
    """

    text: Record
    agent: str
    key: str
    user: str = ""
    epoch: str = ""
    run: str = ""
    tags: tuple[str, ...] = ()
    category: str = GENERAL
    kind: Kind = "note"
    confidence: float = DEFAULT_CONFIDENCE
    importance: float = 0.5
    pinned: bool = False
    links: tuple[str, ...] = ()
    provenance: Provenance = Provenance()
    expires_at: str | None = None
    successes: int = 0
    failures: int = 0
    retired: Retired | None = None
    forgotten: tuple[str, ...] = ()
    made_of: tuple[str, ...] = ()
    merged: tuple[Merged, ...] = ()
    reorganised: Reorganised | None = None
    given_id: str = ""
    aliases: tuple[str, ...] = ()
    authors: tuple[str, ...] = ()
    said_at: str = ""

    @property
    def uid(self) -> str:
        """The name of its record, a hash."""
        return self.text.uid

    @property
    def id(self) -> str:
        """Its id, for life and under every key: the random one that it was given, or else ``implied_id``."""
        return self.given_id or self.implied_id

    @property
    def ids(self) -> tuple[str, ...]:
        """Its id, and those of the entries that were joined with it."""
        return (self.id, *self.aliases)

    @property
    def visible_provenance(self) -> Provenance:
        """The provenance that its readers may know."""
        return self.provenance if self.user else self.provenance.told_to_others

    @property
    def mortal_ids(self) -> tuple[str, ...]:
        """The ids of which a tombstone says that the entry was forgotten: its own, and the epochs of its users."""
        return (*self.ids, *((self.epoch,) if self.epoch else ()), *self.authors)

    @property
    def names(self) -> tuple[str, ...]:
        """The ids by which notes that were made of it may name it; in format 1 that is its uid."""
        return self.ids if self.given_id else (*self.ids, self.uid)

    @cached_property
    def implied_id(self) -> str:
        """The id of an entry of format 1: its uid, or another one if it was saved after a forget of its key."""
        return life_id(self.uid, self.forgotten[-1]) if self.forgotten else self.uid

    @property
    def level(self) -> str:
        """The classification."""
        return self.text.level

    @property
    def content(self) -> str:
        """The saved text."""
        return self.text.content

    @property
    def revision(self) -> int:
        """The record's change counter."""
        return self.text.revision

    @property
    def origins(self) -> Origins:
        """The version vector; see ``Record``."""
        return self.text.origins

    @property
    def created_at(self) -> str:
        """When the key was first saved."""
        return self.text.created_at

    @property
    def updated_at(self) -> str:
        """When the content last changed."""
        return self.text.updated_at

    @property
    def size_bytes(self) -> int:
        """The size of the content in UTF-8 bytes."""
        return self.text.size_bytes

    @property
    def folder(self) -> str:
        """The folder of the record."""
        return scope_folder(self.agent, user_hash(self.user))

    @property
    def sources(self) -> tuple[str, ...]:
        """The ids of all entries that it replaces."""
        return (*self.made_of, *(merged.uid for merged in self.merged))

    @cached_property
    def path(self) -> str:
        """The record's path, relative to the memory directory."""
        return entry_path(self.folder, self.uid)

    @cached_property
    def buried(self) -> frozenset[str]:
        """The ids of entries of format 1 that were forgotten before this one was saved under their key."""
        return earlier_lives(self.uid, self.forgotten) - {*self.ids}

    def is_expired(self, now: str) -> bool:
        """Whether its time is over: it may not be returned any more, swept or not."""
        return self.expires_at is not None and self.expires_at <= now

    def is_live(self, now: str) -> bool:
        """Whether it may be returned: neither retired nor expired."""
        return self.retired is None and not self.is_expired(now)

    def stamped(self, origin: str) -> "Entry":
        """The entry as a change made in the memory directory ``origin``."""
        text = self.text.stamped(origin)
        return self if text is self.text else self.amended(text=text)

    def with_origins(self, origins: Origins, *, own: str | None = None) -> "Entry":
        """The entry with these ``origins``; see ``Record``."""
        return self.amended(text=self.text.with_origins(origins, own=own))

    def amended(self, **changed: Any) -> "Entry":
        """A copy with some fields changed."""
        return replace(self, **changed)


class Facet(NamedTuple):
    """A field of an entry that its author may set apart from the content, and the type of its stored value.

    A ``float`` is a share from 0 to 1.
    """

    name: str
    type: type[str] | type[float] | type[bool] | type[tuple[str, ...]]


FACETS = (
    Facet("category", str),
    Facet("kind", str),
    Facet("confidence", float),
    Facet("importance", float),
    Facet("pinned", bool),
    Facet("tags", tuple),
    Facet("links", tuple),
    Facet("said_at", str),
)
"""All facets, in one place for drafts, moves, exports, imports and merges."""


def seen_by_others(by: Actor) -> Actor:
    """The part of a user's session that other users may know: neither the run nor the call."""
    return Actor(agent=by.agent)


def departing(entry: Entry, *, folder: str, key: str, run: str = "") -> Record:
    """The text of an entry that gets another place or key: its changes note where they were made, the last one the key.

    So a log can show a reader at the new place what happened, but no text from a place that the reader could not see.
    """
    place = "" if (folder, run) == (entry.folder, entry.run) else place_tag(entry.folder, entry.level, entry.run)
    history = [replace(it, place=place) if place and not it.place else it for it in entry.text.history]
    if history and key != entry.key:
        history[-1] = replace(history[-1], key=entry.key)
    return replace(entry.text, history=tuple(history))


def with_ids(entry: Entry, ids: Collection[str]) -> Entry:
    """The entry with these ids: the smallest is its own, the others are aliases. ``InvalidArgument`` for too many."""
    id, *aliases = sorted(set(ids))
    if len(aliases) > MAX_ALIASES:
        raise InvalidArgument(f"more than {MAX_ALIASES} entries were joined with {ascii(entry.key[:80])}: forget one")
    return entry.amended(given_id="" if id == entry.implied_id else id, aliases=tuple(aliases))


def united_authors(entries: Iterable[Entry]) -> tuple[str, ...]:
    """The epochs of all users who had a hand in one of these entries."""
    return tuple(sorted({epoch for entry in entries for epoch in entry.authors}))


def new_text(folder: str, key: str, *, level: str, run: str, content: str, at: str) -> Record:
    """The text of an entry before its first save: revision 0, no history yet."""
    uid = entry_uid(folder, level, check_key(key), run)
    sha256 = digest(content.encode())
    return Record(uid, TEXT_NAME, "", MAX_ENTRY_BYTES, level, content, sha256, 0, at, at)


def life_id(uid: str, tombstone: str) -> str:
    """The id of an entry of format 1 that was saved over this tombstone."""
    return hashlib.sha256(f"{uid} {tombstone}".encode()).hexdigest()[:32]


def earlier_lives(uid: str, tombstones: Sequence[str]) -> frozenset[str]:
    """The ids of the entries of format 1 that were at this path before the last of these tombstones."""
    return frozenset({uid, *(life_id(uid, name) for name in tombstones[:-1])} if tombstones else ())


def block_of(entry: Entry) -> str:
    """One entry as the model sees it, without a final newline."""
    return f"{heading_of(entry.key, entry.level, entry.updated_at, entry.tags)}\n{barred(entry.content)}"


def block_bytes(entry: Entry) -> int:
    """The size of the entry's block in UTF-8 bytes."""
    return len(block_of(entry).encode())


def heading_of(key: str, level: str, updated_at: str, tags: Sequence[str] = (), facts: Iterable[str] = ()) -> str:
    """The line above an entry's text: key, level, time of the last change, ``facts`` in plain words, and tags."""
    known = [*facts, *([f"tags {', '.join(map(quoted, tags))}"] if tags else [])]
    more = f", {', '.join(known)}" if known else ""
    return f"### {quoted(key)} (level {level}, updated {updated_at}{more})"


def quoted(text: str) -> str:
    r"""``text`` as a JSON string, which can be read back; ``<`` and invisible characters become ``\uXXXX``."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text and "<" not in text:
        return f'"{text}"'
    written = json.dumps(text, ensure_ascii=False)
    if written.isprintable() and "<" not in written:
        return written
    return "".join(_escaped(character) if character == "<" or _is_invisible(character) else character
                   for character in written)  # fmt: skip


def barred(content: str) -> str:
    """``content`` with a bar before every line; a newline at its end makes no line of its own."""
    if content and content.isprintable():  # one line, as most entries are
        return f"| {_visible_line(content)}"
    lines = content.replace("\r\n", "\n").removesuffix("\n").split("\n")
    return "\n".join(f"| {_visible_line(line)}" if line else "|" for line in lines)


def _visible_line(line: str) -> str:
    """A line without invisible characters, in which no tag begins."""
    if not line.isprintable():
        line = "".join(_escaped(it) if it not in _VISIBLE_FORMATS and _is_invisible(it) else it for it in line)
    return line.replace("<", "&lt;")


def _is_invisible(character: str) -> bool:
    """Whether it is a control, a direction or format mark, half of a surrogate pair, or an unusual line end."""
    return unicodedata.category(character) in _INVISIBLE


def _escaped(character: str) -> str:
    r"""The character as JSON writes it, ``\uXXXX``: in two halves if it is beyond the first 65,536."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
