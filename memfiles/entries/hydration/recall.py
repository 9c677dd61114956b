"""Recall: what memory holds about a question, chosen under a byte budget for one turn or one search; and hydration.

The rules this file guards:

- Nothing is chosen that a read would not return, and the text is written as a hydration writes it. The same state and
  question give the same bytes, never more than the budget.
- Entries are taken in the order of the search, each whole if it fits into what is left, else as an excerpt. What was
  taken then stands together: each answer before its neighbours, in the order in which they were saved.
- Pinned entries come first. Those beyond the newest one leave half of the room to the answers, until all are taken.

Taking every neighbour of an answer before the next answer found less: 74 % of the evidence in 4 KiB, against 78 % in
this order, at estimated sizes (LoCoMo; ``tests/benchmarks/bench_retrieval.py`` has the figure for real blocks).
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from operator import attrgetter
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from memfiles.entries.callers import Caller, View, check_caller, view_of
from memfiles.entries.hydration import window
from memfiles.entries.hydration.window import HOW_TO, Explanation, Hydration, Offered, TextLookup, Window
from memfiles.entries.questions import Answers, summary_of
from memfiles.entries.reader import EntryDatabase, EntryReader, shown_at
from memfiles.entries.results import SHOWN_BYTES, Found, Match, Results, found_in
from memfiles.index import queries
from memfiles.index.queries import Filters, Offer
from memfiles.index.rows import row_of
from memfiles.index.search.search import Hit, arranged, snippet
from memfiles.records.entry import (
    CORE,
    LEAST_BLOCK_BYTES,
    LEAST_SEARCH_BYTES,
    MAX_RESULTS,
    RECALL_BYTES,
    Entry,
    Scope,
    barred,
    heading_of,
    quoted,
)
from memfiles.records.graphemes import first_bytes, whole_before
from memfiles.records.keys import USERS, WORKSPACE, check_key, check_whole, listed

HEAD: Final = f"## Recalled memory\nWhat memory holds about the question at hand. {HOW_TO}"
_SHORTEST = 16  # characters of an excerpt
_LEAST_BYTES = LEAST_BLOCK_BYTES - len("kL") + len(", scope run\n")  # of an entry in the block, besides what follows
_AUTHOR_BYTES = len(', saved by ""')
_CUT_BYTES = len(", an excerpt of 1 bytes")
_AT_ONCE = 256
_NEARLY_FULL_BYTES = 256  # few entries fit in less
_DROPPED_BYTES = len("\r\n|")  # a line end at the end of a text, and the first bar, which ``LEAST_BLOCK_BYTES`` has
Role = Literal["pinned", "included", "answer", "neighbour"]
_ROLES: tuple[Role, Role] = ("answer", "neighbour")
_turn = attrgetter("entry.updated_at", "entry.provenance.ordinal", "entry.key")  # the order of time, as in a hydration


class Recalled(Struct, frozen=True):
    """An entry in the block: whom it belongs to, why it is there, and ``shown``: its content or an excerpt of it.

    ``is_tagged``: the block shows the tags, for which there is not always room.
    """

    entry: Found
    scope: Scope
    role: Role
    shown: str
    is_tagged: bool = True

    @property
    def is_excerpt(self) -> bool:
        """Whether only a part of the content is shown."""
        return self.shown != self.entry.content

    @property
    def block(self) -> str:
        """The entry as the model sees it, without a final newline."""
        facts = [f"scope {self.scope}"]
        if (agent := self.entry.provenance.agent) is not None:
            facts.append(f"saved by {quoted(agent)}")
        if self.is_excerpt:
            facts.append(f"an excerpt of {self.entry.size_bytes} bytes")
        entry, tags = self.entry, self.entry.tags if self.is_tagged else ()
        return f"{heading_of(entry.key, entry.level, entry.updated_at, tags, facts)}\n{barred(self.shown)}"

    def to_dict(self) -> dict[str, Any]:
        """The JSON object: the entry without its rarer fields, and where it comes from."""
        line = self.entry.to_line() | {"content": self.shown, "scope": self.scope, "role": self.role}
        return line | {"truncated": True} if self.is_excerpt else line


class Recall(Struct, frozen=True):
    """What memory holds about a question; ``str()`` of it is ``text``, the block for the model, "" if there is nothing.

    ``left_out`` is the number of entries that had no room. ``note`` says what went wrong, if anything did.
    """

    query: str
    text: str = ""
    entries: tuple[Recalled, ...] = ()
    budget_bytes: int = RECALL_BYTES
    left_out: int = 0
    note: str | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the entries, in their order."""
        return tuple(each.entry.key for each in self.entries)

    @property
    def size_bytes(self) -> int:
        """The size of the block in UTF-8 bytes."""
        return len(self.text.encode())

    @property
    def data(self) -> dict[str, Any]:
        """The JSON object, with the entries as values; a long question is cut."""
        sizes = {"size_bytes": self.size_bytes, "budget_bytes": self.budget_bytes, "left_out": self.left_out}
        entries = [each.to_dict() for each in self.entries]
        noted = {"note": self.note} if self.note is not None else {}
        return {"query": first_bytes(self.query, SHOWN_BYTES), "entries": entries, **sizes, **noted}

    def __str__(self) -> str:
        return self.text


def recall(
    db: EntryDatabase,
    reader: EntryReader,
    caller: Caller,
    query: str,
    *,
    budget_bytes: int = RECALL_BYTES,
    include: Iterable[str] = (),
) -> Recall:
    """What the caller's memory holds about ``query``; see ``Entries.recall``."""
    check_whole(budget_bytes, what="budget_bytes", least=0)
    keys = dict.fromkeys(check_key(key) for key in listed(include, "include"))
    view = view_of(caller, db.rules.levels)

    def chosen(answers: Answers) -> Chosen:
        included = [entry for key in keys if (entry := _visible(db, view, key)) is not None]
        pinned = list(_pinned(db, view, most=min(budget_bytes // LEAST_BLOCK_BYTES, sys.maxsize)))
        return _chosen(budget_bytes, included, pinned, answers)

    answers, (block, included, left_out) = reader.answered(caller, query, chosen, max_results=MAX_RESULTS, grouped=True)
    found = {hit.path for hit in answers.hits}
    reader.count_reads(caller, [(path, each.entry.level) for path, each in block.taken.items() if path in found])
    paths = _in_order(block.taken, included, answers.hits)
    shown = tuple(block.taken[path] for path in paths)
    text = "\n".join([HEAD, *(block.blocks[path] for path in paths)]) if shown else ""
    note = Results(answers.query, (), why_no_meaning=answers.why_no_meaning).note
    return Recall(answers.query, text, shown, budget_bytes, left_out, note)


def _chosen(budget_bytes: int, included: list[Entry], pinned: list[Entry], answers: Answers) -> Chosen:
    """The entries taken, the included ones, and the number of entries without room, of which few are read."""
    block = _Block(budget_bytes)
    for entry in included:
        block.take_entry(entry, "included")
    spare = block.left // 2
    for entry in pinned:
        block.take_entry(entry, "pinned", spare=0 if entry is pinned[0] else spare, may_cut=False)
    offered = {entry.path for entry in (*included, *pinned)}
    for hit in answers.hits:
        if block.may_hold(hit):
            if (found := answers.entry(hit)) is None:
                continue
            scope, role = _scope_in(hit.row.scope, hit.row.run), _ROLES[hit.legs == ("association",)]
            block.take(hit.path, Recalled(found, scope, role, found.content), hit=hit)
        offered.add(hit.path)
    for entry in pinned:
        block.take_entry(entry, "pinned")
    return block, included, len(offered) - len(block.taken)


def search_within(
    reader: EntryReader,
    caller: Caller,
    query: str,
    *,
    budget_bytes: int,
    max_results: int | None,
    filters: Filters,
    associate: bool,
) -> Results:
    """The best results whose JSON text, as tools return it, has at most ``budget_bytes``; see ``Entries.search``."""
    check_whole(budget_bytes, what="budget_bytes", least=LEAST_SEARCH_BYTES)
    most = MAX_RESULTS if max_results is None else max_results
    answers, entries = reader.answered(
        caller, query, Answers.found, max_results=most, filters=filters, associate=associate, grouped=associate
    )
    found = answers.results(entries)
    results = replace(found, matches=(), budget_bytes=budget_bytes)
    left = budget_bytes - len(compact(results.to_dict()).encode())
    taken: dict[int, Match] = {}
    for (entry, hit), match in zip(entries, found.matches, strict=True):
        for shown in (first_bytes(entry.content, SHOWN_BYTES), hit.snippet):
            chosen = replace(match, shown=shown)
            size = len(compact(chosen.to_dict()).encode()) + 1  # a comma
            if size <= left:
                taken[hit.id], left = chosen, left - size
                break
    reader.count_reads(caller, [(hit.path, entry.level) for entry, hit in entries if hit.id in taken])
    order = arranged([hit for _, hit in entries if hit.id in taken])
    return replace(results, matches=tuple(taken[hit.id] for hit in order))


def compact(data: object) -> str:
    """The JSON text of a tool result."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


Chosen = tuple["_Block", list[Entry], int]


class _Block:
    """The entries taken so far, and what each looks like, by path; and the bytes that are left."""

    def __init__(self, budget_bytes: int) -> None:
        self.taken: dict[str, Recalled] = {}
        self.blocks: dict[str, str] = {}
        self.left = budget_bytes - len(HEAD.encode())

    def may_hold(self, hit: Hit) -> bool:
        """Whether there may be room for the entry of a hit, or an excerpt of it, by what the index knows of it."""
        shown = min(max(0, len(hit.content) - _DROPPED_BYTES), _CUT_BYTES)
        room = self.left - _LEAST_BYTES - len(hit.source.key) - shown
        if room < 0:
            return False
        agent = hit.row.provenance.agent
        return len(hit.row.level) + (0 if agent is None else _AUTHOR_BYTES + len(agent)) <= room

    def take_entry(self, entry: Entry, role: Role, *, spare: int = 0, may_cut: bool = True) -> None:
        """Take an entry that was read from its record; see ``take``."""
        whole = Recalled(found_in(entry), _scope_in(entry.folder, entry.run), role, entry.content)
        self.take(entry.path, whole, spare=spare, may_cut=may_cut)

    def take(self, path: str, whole: Recalled, *, hit: Hit | None = None, spare: int = 0, may_cut: bool = True) -> None:
        """Take an entry, whole or cut, if it fits and was not taken before, and leave ``spare`` bytes."""
        if path in self.taken:
            return
        if whole.entry.pinned or whole.entry.category == CORE:
            whole = replace(whole, role="pinned")
        room = self.left - spare - 1  # the newline before it
        for recalled in chain([whole], _cut(whole, hit, room=room) if may_cut else ()):
            if len(recalled.shown) <= room and (size := len((block := recalled.block).encode())) <= room:
                self.taken[path], self.blocks[path] = recalled, block
                self.left -= size + 1
                return


def _cut(whole: Recalled, hit: Hit | None, *, room: int) -> Iterator[Recalled]:
    """The entry with excerpts that get shorter, if even one without text has room."""
    if len(replace(whole, shown="", is_tagged=False).block.encode()) > room:
        return
    text = hit.snippet if hit is not None else snippet(whole.entry.content, ())
    while True:
        yield replace(whole, shown=text, is_tagged=False)
        if len(text) < 2 * _SHORTEST:
            return
        text = text[: whole_before(text, len(text) // 2)]


def _in_order(taken: dict[str, Recalled], included: Iterable[Entry], hits: Iterable[Hit]) -> list[str]:
    """The paths in the order of the block: pinned entries, the newest first, then those included, then the answers."""
    held = sorted((it for it in taken if taken[it].role == "pinned"), key=lambda it: _turn(taken[it]), reverse=True)
    paths = held + [entry.path for entry in included]
    paths += [hit.path for hit in arranged([hit for hit in hits if hit.path in taken and hit.path not in paths])]
    return [path for path in dict.fromkeys(paths) if path in taken]


def _scope_in(folder: str, run: str) -> Scope:
    """Whom the entries in a folder belong to, those of one run or the others."""
    if run or f"/{USERS}/" in folder:
        return "run" if run else "user"
    return "workspace" if folder == WORKSPACE else "agent"


def _visible(db: EntryDatabase, view: View, key: str) -> Entry | None:
    """The entry that the view shows under a key, None also if it cannot be read at the moment."""
    found = (shown_at(db.repository, partition.path(key)) for partition in view)
    return next((entry for entry in found if entry is not None and db.is_live(entry)), None)


def _pinned(db: EntryDatabase, view: View, *, most: int) -> Iterator[Entry]:
    """The newest pinned entries of the view, at most as many as can fit."""

    def paths(connection: Any) -> list[str]:
        offers = queries.recent(connection, queries.parts(connection, view), now=db.now(), pinned=True)
        return [offer.path for offer in islice(offers, most)]

    for path in db.index.ask(paths):
        entry = shown_at(db.repository, path)
        if entry is not None and db.is_live(entry):
            yield entry


def hydrate(db: EntryDatabase, caller: Caller, *, budget_bytes: int | None) -> Hydration:
    """The block of the caller's entries; the same state and budget give the same bytes."""
    budget, now, view = _prepared(db, caller, budget_bytes)

    def filled(connection: sqlite3.Connection) -> Hydration:
        block = Window(budget, now=now)
        return block.fill(*_offered(db, connection, view, block))

    return db.index.ask(filled)


def explain(db: EntryDatabase, caller: Caller, key: str, *, budget_bytes: int | None) -> Explanation:
    """Why the entry of ``key`` is in that block or not, in numbers; a hidden key counts as unknown."""
    check_caller(caller)
    check_key(key)
    budget, now, view = _prepared(db, caller, budget_bytes)
    found = [each for each in db.entries(partition.path(key) for partition in view) if db.erased_at(each) is None]
    under_key = [summary_of(row_of(entry, None)) for entry in found]

    def explained(connection: sqlite3.Connection) -> Explanation:
        block = Window(budget, now=now)
        entries, lookup = _offered(db, connection, view, block, known=found)
        return window.explain(key, block, under_key=under_key, entries=entries, lookup=lookup)

    return db.index.ask(explained)


def _prepared(db: EntryDatabase, caller: Caller, budget_bytes: int | None) -> tuple[int, str, View]:
    """The checked budget, the present moment and the caller's view, of records that are up to date."""
    budget = db.rules.hydrate_bytes if budget_bytes is None else budget_bytes
    check_whole(budget, what="budget_bytes", least=0)
    now, view = db.now(), view_of(caller, db.rules.levels)
    db.refresh(view)
    return budget, now, view


def _offered(
    db: EntryDatabase, connection: sqlite3.Connection, view: View, block: Window, *, known: Iterable[Entry] = ()
) -> tuple[Iterator[Offer], TextLookup]:
    """The pinned entries of a view and then the others, each newest first and read in batches; and their texts.

    Entries too large for the block may be left out. Texts of ``known`` entries can be looked up at any time.
    """
    paths = {entry.uid: entry.path for entry in known}  # offers have paths of their own
    parts = queries.parts(connection, view)
    offers = chain.from_iterable(
        queries.recent(connection, parts, now=block.now, pinned=held, room=lambda: block.left_bytes)
        for held in (True, False)
    )

    among = db.store.view(paths.values())

    def offered() -> Iterator[Offer]:
        nonlocal among
        while some := list(_batch(offers, block.left_bytes)):
            among = db.store.view([offer.path for offer in some if offer.block_bytes <= block.left_bytes])
            yield from some

    def text(offered: Offered) -> Entry | None:
        path = offered.path if isinstance(offered, Offer) else paths[offered.uid]
        entry = shown_at(db.repository, path, among)
        return entry if entry is not None and entry.retired is None and path not in db.index.unfollowed else None

    return offered(), text


def _batch(offers: Iterator[Offer], room: int) -> Iterator[Offer]:
    """The next offers, enough to fill the room: a store over a network is asked for all of them at once.

    They end once the room is nearly full, so that the index is asked for what still fits instead of for the next ones.
    """
    for offer in islice(offers, _AT_ONCE):
        yield offer
        if offer.block_bytes <= room:
            was_free, room = room >= _NEARLY_FULL_BYTES, room - offer.block_bytes
            if room < (_NEARLY_FULL_BYTES if was_free else LEAST_BLOCK_BYTES):
                return
