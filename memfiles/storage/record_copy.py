"""The copy of all records of one store in another, which may have changes of its own.

The rules this file guards: a record that was changed in the target is never replaced, and nothing else about its entry
is written, so that no entry is under two keys; what was forgotten on one side stays so; every record is compared byte
for byte once it is there; and what changes meanwhile is copied again before it ends.

What the target got from here is noted by digest, before it gets it. Revisions, clocks and what is left of a history do
not tell whether a record was changed there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import chain

from msgspec import DecodeError
from msgspec.json import decode as from_json

from memfiles.errors import RecordCorrupt
from memfiles.records.entry import Entry
from memfiles.records.entry_codec import encode_entry, read_entry
from memfiles.records.keys import id_path, uid_of
from memfiles.records.lineage import are_among, later_changes, text_of
from memfiles.records.marks import AnyRecord, EntryRecord, Mark, buries, is_tombstone, vacated
from memfiles.records.record import Record, read_record
from memfiles.storage.atomic import Signature, is_settled, storage_failure
from memfiles.storage.events import Progress
from memfiles.storage.home import StateNotes
from memfiles.storage.record_store import (
    NOTHING,
    ChangeSet,
    CommitHook,
    NewVersion,
    ReadableStore,
    Records,
    RecordStore,
)

_NOTE, _DIGEST_BYTES = ".state/migrated", 8
_TOGETHER, _TOGETHER_BYTES = 100, 1 << 20
_DECLARED = ("seed", "declare")  # changes that come from the declaration
_LAST = 3  # changes by which the source is found to have a record of the target
_LONG_NS = 60 * 10**9  # longer than a look takes: what changed meanwhile has another signature
_ROUNDS = 20  # in which the source may change while it is copied


class RecordCopy:
    """Copies records.

    ``left`` are the paths of records that stay as the target changed them, ``alike`` those of memory files that nobody
    changed: both have the declared content. ``unreadable`` says by path why a record was not taken.
    """

    def __init__(
        self, source: ReadableStore, target: RecordStore, notes: StateNotes, *, hook: CommitHook | None, at: str
    ) -> None:
        """``notes`` are those of the target, ``hook`` hears of each commit, and ``at`` is the time of marks."""
        self._source, self._target, self._notes, self._hook, self._at = source, target, notes, hook, at
        self.records = self.copied = 0
        self.left: set[str] = set()
        self.alike: set[str] = set()
        self.unreadable: dict[str, str] = {}
        digests = notes.get(_NOTE) or b""
        self._given = {digests[at : at + _DIGEST_BYTES] for at in range(0, len(digests), _DIGEST_BYTES)}
        self._changed: dict[str, EntryRecord] = {}  # the target's entries and marks that were changed there, by path
        self._seen: dict[str, Signature] = {}  # of the target's records, as they were at the last look
        self._until: str | None = None

    def copy(self, progress: Progress | None = None) -> bool:
        """Copy the records, and again what changes meanwhile; whether all are in the target at the end, or ``left``."""
        changes = self._source.changes()
        paths = sorted(path for path, seen in changes.records.items() if seen is not None)
        self.records = len(paths)
        for _ in range(_ROUNDS):
            self._note(self._given.union(_digest(*each) for each in _bodies(self._source, paths)))
            self._look_for_changes()
            for done, some in self._portions(paths):
                self._write(some)
                if progress is not None:
                    progress(done, len(paths))
            # the feed gives all records of a folder in which one was changed
            seen, changes = changes.records, self._source.changes(changes.until)
            changed = sorted(path for path, it in changes.records.items() if it is not None and it != seen.get(path))
            stays = self.left | self.alike
            bodies = ((path, body) for path, body in _bodies(self._source, changed) if path not in stays)
            paths = [path for path, body in bodies if body != _body_at(self._target, path)]
            if not paths:
                self._erase_forgotten()
                return self._are_all_there()
        return False

    def _note(self, digests: set[bytes]) -> None:
        """Note the digests of all that is copied; every other record in the target was changed there."""
        self._given = digests
        with storage_failure("what is copied cannot be noted"):
            self._notes.put(_NOTE, b"".join(sorted(digests)))

    def _is_given(self, path: str, body: bytes) -> bool:
        return _digest(path, body) in self._given

    def _look_for_changes(self) -> None:
        """Find the changes made in the target since the last look."""
        # the feed gives all records of a folder in which one was changed
        changes, seen = self._target.changes(self._until), self._seen
        known = {path: it for path, it in changes.records.items() if it is not None and is_settled(it, for_ns=_LONG_NS)}
        self._seen = {**seen, **known}
        found = ((path, it) for path, it in changes.records.items() if uid_of(path) is None)
        paths = sorted(path for path, it in found if it is None or it != seen.get(path))
        for path in paths:
            self._changed.pop(path, None)
        for path, body in _bodies(self._target, paths):
            record = _decoded(path, body) if self._is_own(path, body) else None
            if not isinstance(record, Entry | Mark) or (isinstance(record, Mark) and record.cleared):
                continue  # the mark of a purge yields to any change
            if isinstance(record, Mark) or not self._is_known(record):
                self._changed[path] = record
        self._until = changes.until

    def _is_own(self, path: str, body: bytes) -> bool:
        """Whether the record is the target's own: not copied earlier, and not equal to the source's."""
        return not self._is_given(path, body) and body != _body_at(self._source, path)

    def _portions(self, paths: Sequence[str]) -> Iterator[tuple[int, dict[str, bytes]]]:
        """The bodies of the records by path, some at a time, each with how many paths are done."""
        some: dict[str, bytes] = {}
        size = 0
        for number, path in enumerate(paths, 1):
            body = None
            try:
                found = self._source.find(path)
                body = found[0] if found is not None else None
                if body is not None:
                    _revision_in(body)
            except RecordCorrupt as error:
                self.unreadable[path], body = str(error), None
            if body is not None:
                self.unreadable.pop(path, None)
                some[path], size = body, size + len(body)
            if some and (len(some) >= _TOGETHER or size >= _TOGETHER_BYTES):
                yield number, some
                some, size = {}, 0
        if some:
            yield len(paths), some

    def _write(self, bodies: Mapping[str, bytes]) -> None:
        """Write the records that the target lacks or got from here; what changed since it was noted comes later."""
        noted = {path: body for path, body in bodies.items() if self._is_given(path, body)}
        after = {path: _decoded(path, body) for path, body in noted.items()}
        places = {path: [id_path(id) for id in _ids_of(record, mortal=True)] for path, record in after.items()}
        theirs = {id for record in self._changed.values() for id in _ids_of(record)}

        def decide(records: Records) -> tuple[tuple[int, set[str], set[str]], ChangeSet]:
            versions, left, alike = [], set[str](), set[str]()
            for path, body in noted.items():
                if (there := records.find(path)) is not None and there[0] == body:
                    continue
                known = [(it, found[0]) for it in places[path] if (found := records.find(it)) is not None]
                is_theirs = not theirs.isdisjoint(_ids_of(after[path])) or any(self._is_place(*it) for it in known)
                marks = [_decoded(*it) for it in known if it[0] != path]
                present, signature = there if there is not None else (None, None)
                if _are_as_declared(_decoded(path, present or b""), after[path]):
                    alike.add(path)
                elif self._gives_way(path, present, after[path], marks, is_theirs=is_theirs):
                    versions.append(NewVersion(path, _revision_in(body), body, signature))
                else:
                    left.add(path)
            return (len(versions), left, alike), ChangeSet(versions, erases=True) if versions else NOTHING

        wanted = {*noted, *chain.from_iterable(places.values())}
        (copied, left, alike), _ = self._target.change(wanted, decide, hook=self._hook)
        self.copied += copied
        self.left = self.left - noted.keys() | left
        self.alike = self.alike - noted.keys() | alike

    def _gives_way(
        self,
        path: str,
        there: bytes | None,
        after: AnyRecord | None,
        marks: Iterable[AnyRecord | None],
        *,
        is_theirs: bool,
    ) -> bool:
        """Whether what is ``there`` is to be replaced, given the target's other ``marks`` of the entry's ids."""
        before = _decoded(path, there) if there is not None else None
        if isinstance(after, Entry) and any(map(is_tombstone, marks)):
            return False
        if isinstance(before, Entry) and self._is_forgotten(before, after):
            return True
        if is_tombstone(after) and not is_tombstone(before):
            return True
        if before is None or after is None or is_theirs:
            return not is_theirs
        is_later, is_other = after.revision > before.revision, not _are_one(before, after)
        if self._is_given(path, there or b""):
            return is_later or is_other
        if isinstance(before, Entry) and before.run and isinstance(after, Entry) and is_other:
            return before.updated_at < after.created_at  # its run is over, and another one has begun
        if isinstance(before, Mark):
            return before.cleared and is_later
        return _is_as_declared(before) or (is_later and self._is_known(before))

    def _is_place(self, path: str, body: bytes) -> bool:
        """Whether the record is a location of an entry, and the target's own."""
        return self._is_own(path, body) and isinstance(mark := _decoded(path, body), Mark) and mark.leads

    def _is_forgotten(self, before: Entry, after: AnyRecord | None) -> bool:
        """Whether the source says that an entry was forgotten."""
        marks = _records(self._source, map(id_path, before.mortal_ids))
        return any(map(is_tombstone, marks)) or (isinstance(after, Mark) and buries(after, before))

    def _is_known(self, before: Record | Entry) -> bool:
        """Whether the source has the last changes of the target's record, wherever its entry is now.

        A single change proves nothing, as it may be another one of the same millisecond whose text a merge altered.
        """
        marks = _records(self._source, map(id_path, _ids_of(before)))
        places = [_path_of(before), *(mark.target for mark in marks if isinstance(mark, Mark) and mark.leads)]
        found = (it for it in _records(self._source, places) if isinstance(it, Record | Entry) and _are_one(it, before))
        pairs = (later_changes(text_of(before), text_of(it)) for it in found)
        return any(are_among([it for it in here if it[0].op not in _DECLARED][:_LAST], there) for here, there in pairs)

    def _erase_forgotten(self) -> None:
        """Leave marks of entries that were changed in the target, perhaps elsewhere, and forgotten in the source."""

        def decide(records: Records) -> tuple[bool, ChangeSet]:
            versions = []
            for path in changed:
                found = records.find(path)
                entry = _decoded(path, found[0]) if found is not None else None
                marks = _records(records, map(id_path, _ids_of(entry, mortal=True)))
                if found is not None and isinstance(entry, Entry) and any(map(is_tombstone, marks)):
                    mark = vacated(entry, self._at)
                    versions.append(NewVersion(path, mark.revision, encode_entry(mark), found[1]))
            return bool(versions), ChangeSet(versions, erases=True) if versions else NOTHING

        changed = {path: it for path, it in self._changed.items() if isinstance(it, Entry)}
        wanted = {*changed, *chain.from_iterable(map(id_path, it.mortal_ids) for it in changed.values())}
        if changed and self._target.change(wanted, decide, hook=self._hook)[0]:
            self._target.scrub()

    def _are_all_there(self) -> bool:
        """Compare every record of the source with the target's, byte for byte, and note what both have."""
        records = self._source.changes().records
        wanted = sorted(path for path, seen in records.items() if seen is not None and path not in self.unreadable)
        both: set[bytes] = set()
        for start in range(0, len(wanted), _TOGETHER):
            some = wanted[start : start + _TOGETHER]
            here, there = dict(_bodies(self._source, some)), dict(_bodies(self._target, some))
            for path, body in here.items():
                if there.get(path) == body:
                    both.add(_digest(path, body))
                elif path not in self.left | self.alike:
                    return False
        self._note(both)
        return True


def decoded_at(store: Records, path: str) -> AnyRecord | None:
    """The record at a path; None if there is none that can be read."""
    return _decoded(path, body) if (body := _body_at(store, path)) is not None else None


def _records(store: Records, paths: Iterable[str]) -> Iterator[AnyRecord]:
    return (record for path in paths if (record := decoded_at(store, path)) is not None)


def _body_at(store: Records, path: str) -> bytes | None:
    with suppress(RecordCorrupt):
        return found[0] if (found := store.find(path)) is not None else None
    return None


def _bodies(store: ReadableStore, paths: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """The records that can be read."""
    for start in range(0, len(paths), _TOGETHER):
        view = store.view(some := paths[start : start + _TOGETHER])
        yield from ((path, body) for path in some if (body := _body_at(view, path)) is not None)


def _decoded(path: str, data: bytes) -> AnyRecord | None:
    with suppress(RecordCorrupt):
        return read_record(data, of=path) if uid_of(path) is not None else read_entry(data, of=path)
    return None


def _digest(path: str, body: bytes) -> bytes:
    return blake2b(b"%s\0%s" % (path.encode(), body), digest_size=_DIGEST_BYTES).digest()


def _revision_in(body: bytes) -> int:
    try:
        revision = from_json(body)["revision"]
    except (DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError) as error:
        raise RecordCorrupt("it is not a record") from error
    if not isinstance(revision, int):
        raise RecordCorrupt("it has no revision")
    return revision


def _ids_of(record: AnyRecord | None, *, mortal: bool = False) -> Sequence[str]:
    """The ids of the entries that a record is about; ``mortal``: see ``Entry.mortal_ids``."""
    if record is None or isinstance(record, Record):
        return ()
    return record.mortal_ids if mortal else record.ids


def _path_of(record: Record | Entry) -> str:
    return record.path if isinstance(record, Entry) else f"{record.uid}.json"


def _are_one(one: AnyRecord, other: AnyRecord) -> bool:
    """Whether these are versions of one memory file, of one entry, or of the marks of one path."""
    if isinstance(one, Entry) and isinstance(other, Entry):
        return not {*one.ids}.isdisjoint(other.ids)
    return type(one) is type(other)


def _are_as_declared(one: AnyRecord | None, other: AnyRecord | None) -> bool:
    """Whether both are memory files with the same content that nobody changed: a program would see a change by hand."""
    if not (isinstance(one, Record) and isinstance(other, Record)):
        return False
    return one.content == other.content and _is_as_declared(one) and _is_as_declared(other)


def _is_as_declared(record: Record | Entry) -> bool:
    return all(change.op in _DECLARED for change in text_of(record).history)
