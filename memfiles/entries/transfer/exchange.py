"""Exchange of entries with files: one Markdown file per entry, one JSON object per line, and foreign formats.

The rules this file guards:

- An export holds the entries that the session may see, each at its own level, and none that belongs to one run alone.
- An import is one commit and passes the same checks as a save; it writes at the session's level alone. Forgotten
  entries stay forgotten, and newer entries here stay as they are. Every skipped document is reported with its place
  and the reason; and importing an unchanged export changes nothing.
- An import takes over what was another agent's or another user's only if it is told to.
- A new entry keeps the ids in its document if nothing is known of them here, so that a later forget reaches it.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict, fields, replace

from memfiles.entries.callers import (
    Caller,
    Partition,
    View,
    check_caller,
    check_writable,
    own_level,
    scope_for,
    view_of,
)
from memfiles.entries.decisions import ImportedHistory
from memfiles.entries.drafts import Draft
from memfiles.entries.reader import EntryDatabase
from memfiles.entries.transfer import formats
from memfiles.entries.transfer.archives import packed
from memfiles.entries.transfer.document import Document, Skipped, printed, provenance_in, written_provenance
from memfiles.entries.transfer.formats import Format
from memfiles.entries.transfer.sources import checked_path, read
from memfiles.entries.writer import EntryWriter, ImportedDraft
from memfiles.errors import InvalidArgument, MemfilesError, ReadOnly, StorageFailed
from memfiles.index import queries
from memfiles.records.entry import FACETS, GENERAL, WORKSPACE_CATEGORY, Entry
from memfiles.records.graphemes import first_few
from memfiles.records.keys import WORKSPACE, check_switch, id_path
from memfiles.storage import atomic
from memfiles.storage.events import AuditLog, Progress, event_by, reported
from memfiles.storage.fork_safety import collector_paused
from memfiles.storage.home import url_scheme
from memfiles.storage.record_store import RecordStore
from memfiles.storage.store import with_files

ExportFormat = Literal["markdown", "jsonl", "zip"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = ("markdown", "jsonl", "zip")
_DEFAULTS = {each.name: each.default for each in fields(Entry)}
_OPTIONAL = tuple("confidence importance pinned expires_at links said_at successes failures made_of aliases".split())
_SOURCE = "import"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Exported(Struct, frozen=True):
    """The result of an export; ``stale`` are files of an earlier one whose entries are gone."""

    count: int
    target: str
    stale: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {"exported": self.count, "target": self.target, "stale": list(self.stale)}


class Imported(Struct, frozen=True):
    """The result of an import, or of a trial (``dry_run``), and the skipped documents.

    ``owners`` says whose the entries were, such as ``agent support``, as far as the source tells; ``others`` are the
    owners of new or changed ones that are not the session's agent or user.
    """

    added: int
    updated: int
    unchanged: int
    skipped: tuple[Skipped, ...]
    dry_run: bool = False
    owners: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        listed = {"skipped": [asdict(each) for each in self.skipped]}
        return asdict(self) | listed | {"owners": list(self.owners), "others": list(self.others)}


class Exchange:
    """Writes the entries of one open memory to files, and reads files into it; see ``Entries``."""

    def __init__(self, db: EntryDatabase, writer: EntryWriter, *, audit: AuditLog | None) -> None:
        self._db = db
        self._audit = audit
        self._writer = writer

    @collector_paused()
    def export(
        self, caller: Caller, target: str | os.PathLike[str], *, format: str, progress: Progress | None = None
    ) -> Exported:
        check_caller(caller)
        if format not in EXPORT_FORMATS:
            raise InvalidArgument(f"format {str(format)[:40]!r} is unknown: use one of {', '.join(EXPORT_FORMATS)}")
        target = checked_target(target, self._db.store)
        parts = 2 if format == "markdown" else 1
        documents = [document_of(entry) for entry in self._entries(caller, progress, parts=parts)]
        try:
            stale: tuple[str, ...] = ()
            if format == "jsonl":
                write_file(Path(target), b"".join(formats.render_line(document) for document in documents))
            elif format == "zip":
                write_file(
                    Path(target), packed({formats.file_name(it): formats.render_markdown(it) for it in documents})
                )
            else:
                stale = _write_folder(Path(target), documents, progress)
        except OSError as error:
            raise StorageFailed(f"{target} cannot be written: {error.strerror}") from error
        if self._audit is not None:
            event = event_by(caller.actor(None), "export", level=caller.level, count=len(documents))
            self._audit.record(event)
        return Exported(len(documents), target, stale)

    def _entries(self, caller: Caller, progress: Progress | None, *, parts: int) -> list[Entry]:
        """The entries that the caller may see, by key and level; shadowed ones too, so that nothing is lost."""
        view = [partition for partition in view_of(caller, self._db.rules.levels) if not partition.run]
        self._db.refresh(view)
        paths = [row.path for row in self._db.rows(view) if row.state == "live"]
        found = self._db.entries(reported(paths, progress, parts=parts))
        entries = [entry for entry in found if self._db.is_live(entry)]
        return sorted(entries, key=lambda entry: (entry.key, self._db.rules.levels.rank(entry.level), entry.agent))

    @collector_paused()
    def import_(
        self,
        caller: Caller,
        source: str | os.PathLike[str],
        *,
        format: Format | None = None,
        dry_run: bool = False,
        take_over: bool = False,
        progress: Progress | None = None,
    ) -> Imported:
        check_switch(dry_run, what="dry_run")
        check_switch(take_over, what="take_over")
        parsed = read(source, format=format)
        self._db.refresh(view_of(caller, self._db.rules.levels))
        now = self._db.now()  # once: entries without times of their own must not be told apart by a tick of the clock
        documents = reported(parsed.documents, progress, parts=1 if dry_run else 2)
        judged = _once(parsed.documents, [self._judge(caller, document, now=now) for document in documents])
        skipped = [*parsed.skipped, *(each for each in judged if isinstance(each, Skipped))]
        taken = [each for each in judged if isinstance(each, ImportedDraft)]
        added = sum(not each.is_there for each in taken)
        of_taken = [document for document, each in zip(parsed.documents, judged, strict=True)
                    if isinstance(each, ImportedDraft)]  # fmt: skip
        others = _owners(of_taken) - {f"agent {caller.provenance.agent}", f"user {caller.provenance.user}"}
        if others and not dry_run and not take_over:
            named = first_few([printed(each) for each in sorted(others)])  # their names come from a file
            raise InvalidArgument(f"the entries were those of {named}: pass take_over=True to import them all the "
                                  f"same, or dry_run=True to see what they are")  # fmt: skip
        if not dry_run and taken:
            self._writer.import_(caller, list(self._with_ids(caller, taken)))
        if not dry_run and progress is not None:
            progress(2 * len(judged), 2 * len(judged))
        owners = tuple(sorted(_owners(parsed.documents)))
        counts = added, len(taken) - added, judged.count(None)
        return Imported(*counts, tuple(skipped), dry_run, owners, tuple(sorted(others)))

    def _judge(self, caller: Caller, document: Document, *, now: str) -> ImportedDraft | Skipped | None:
        """Whether a document is imported or skipped, and why; None if it would change nothing."""
        level = document.level or caller.level
        view = view_of(caller, self._db.rules.levels)
        place = self._place(caller, document, level)
        if self._is_seen(caller, document, view):
            return None
        if isinstance(place, Skipped):
            return place
        before = self._db.repository.look(place.path(document.key)).record if place in view else None
        if isinstance(before, Entry) and before.retired is None and _says_the_same(document, before):
            return None
        if level != caller.level:
            return Skipped(document.where, f"it is at level {level}, but this session only writes at {caller.level}")
        past = _past(document, latest=now)
        for mark in (before, *map(self._db.mark, map(id_path, past.ids))):
            if self._db.is_left_by_forget(mark):
                return Skipped(document.where, f"the entry of its key was forgotten at {mark.at}")
        if isinstance(before, Entry) and (reason := _keeps(before, document)) is not None:
            return Skipped(document.where, reason)
        try:
            if isinstance(before, Entry):
                check_writable(own_level(caller), before, rules=self._db.rules)
            self._db.rules.check_labels({"the provenance": "\n".join(document.provenance or ())})
            facets = {name: getattr(document, name) for name, _ in FACETS}
            checked = self._db.rules.check(Draft(document.key, document.content, source=_SOURCE, **facets))
        except MemfilesError as error:
            return Skipped(document.where, str(error))
        if (problem := self._problem(document, past, now=now)) is not None:
            return Skipped(document.where, problem)
        return ImportedDraft(checked, place, past, isinstance(before, Entry))

    def _is_seen(self, caller: Caller, document: Document, view: View) -> bool:
        """Whether it is an unchanged export of an entry that the caller sees but may not write, as it has a user."""
        if caller.provenance.user is None or document.agent not in (None, caller.provenance.agent):
            return False
        places = [place for place in view if place.level == document.level and not place.run]
        found = [self._db.repository.look(place.path(document.key)).record for place in places]
        own = [each for each in found if isinstance(each, Entry) and each.retired is None]
        return any((each.user or None) == document.user and _says_the_same(document, each) for each in own)

    def _with_ids(self, caller: Caller, drafts: Iterable[ImportedDraft]) -> Iterator[ImportedDraft]:
        """The drafts, with ids for new entries of this owner if nothing is known of these ids, and with none else."""
        ids = {id for each in drafts for id in each.past.ids}
        paths = self._db.index.ask(lambda connection: queries.of_ids(connection, ids))
        known = {id for path in paths if (record := self._db.repository.look(path).record) for id in record.ids}
        for each in drafts:
            by = each.past.provenance.agent if each.past.provenance and each.place.folder != WORKSPACE else None
            is_new = not each.is_there and not each.place.run and by in (None, caller.provenance.agent)
            kept = each.past.ids if is_new and known.isdisjoint(each.past.ids) else ()
            known.update(kept)
            yield replace(each, past=replace(each.past, ids=kept))

    def _place(self, caller: Caller, document: Document, level: str) -> Partition | Skipped:
        if level not in self._db.rules.levels.names:
            known = ", ".join(self._db.rules.levels.names)
            return Skipped(document.where, f"its level {level[:40]!r} is not declared (declared: {known})")
        own = own_level(caller, level)
        try:
            return own[scope_for(own, self._db.rules.category(document.category or GENERAL))]
        except (InvalidArgument, ReadOnly) as error:
            return Skipped(document.where, str(error))

    def _problem(self, document: Document, past: ImportedHistory, *, now: str) -> str | None:
        """Why the entry would be over the budget alone, or expired at once; None if it would not."""
        most, size = self._db.rules.budget.max_bytes, len(document.content.encode())
        if most is not None and size > most:
            return f"it is {size} bytes and the whole budget is {most}"
        expires_at = past.expires_at or self._db.rules.expiry(document.category or GENERAL, past.updated_at)
        return f"it expired at {expires_at}" if expires_at is not None and expires_at <= now else None


def document_of(entry: Entry) -> Document:
    """The document of an entry; fields with default values are left out."""
    known = {name: getattr(entry, name) for name in ("key", "content", "id", "category", "kind", "tags", "level")}
    known |= {name: value for name in _OPTIONAL if (value := getattr(entry, name)) != _DEFAULTS[name]}
    provenance = written_provenance(entry.visible_provenance) or None
    known |= {"agent": None if entry.agent == WORKSPACE else entry.agent, "user": entry.user or None}
    return Document(**known, created=entry.created_at, updated=entry.updated_at, provenance=provenance)


def _once(
    documents: Sequence[Document], judged: Iterable[ImportedDraft | Skipped | None]
) -> list[ImportedDraft | Skipped | None]:
    """The judged drafts; of two documents for one entry, as two users or agents had it, the second is skipped."""
    first, once = dict[str, Document](), list[ImportedDraft | Skipped | None]()
    for document, each in zip(documents, judged, strict=True):
        if isinstance(each, ImportedDraft):
            earlier = first.setdefault(each.place.path(document.key), document)
            if earlier is not document:
                each = Skipped(document.where, f"an entry of the same key came before it, at {earlier.where}")
        once.append(each)
    return once


def _owners(documents: Sequence[Document]) -> set[str]:
    """The earlier owners of the documents, by their provenance; what all agents share has none."""
    found = {f"user {document.user}" for document in documents if document.user}
    for document in documents:
        if document.category != WORKSPACE_CATEGORY:
            provenance = provenance_in(document.provenance or ())
            if agent := document.agent or (provenance.agent if provenance else None):
                found.add(f"agent {agent}")
    return found


def _write_folder(folder: Path, documents: Iterable[Document], progress: Progress | None) -> tuple[str, ...]:
    """Write one file per document; returns the names of files that an earlier export wrote and this one did not."""
    make_folder(folder)
    written = {formats.file_name(document): document for document in documents}
    for name, document in reported(list(written.items()), progress, part=2, parts=2):
        write_file(folder / name, formats.render_markdown(document))
    return tuple(sorted(path.name for path in folder.glob("*.md") if path.name not in written and _is_ours(path)))


def _is_ours(path: Path) -> bool:
    """Whether an export wrote the file: its name follows from its key."""
    if path.is_symlink() or not path.is_file():
        return False
    parsed = formats.parse_markdown(path.read_bytes(), where=path.name)
    return any(formats.file_name(document) == path.name for document in parsed.documents)


def checked_target(target: object, store: RecordStore) -> str:
    """The path of an export, as text; ``InvalidArgument`` for one in the memory directory: no forget would reach it."""
    path, files = checked_path(target, what="the target"), with_files(store)
    if scheme := url_scheme(path):
        raise InvalidArgument(f"the target is a URL ({scheme}//), not a path: export to a folder or a file")
    if files is not None and Path(path).resolve().is_relative_to(files.directory.resolve()):
        raise InvalidArgument(f"{path} is in the memory directory, which holds records alone: name another place")
    return path


def make_folder(folder: Path) -> None:
    """Make the folder of an export, if it is not there; ``OSError`` if something else is."""
    if folder.exists() and not folder.is_dir():
        raise OSError(errno.ENOTDIR, "it is there and is not a folder; name another one, or a file in another format")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def write_file(path: Path, data: bytes) -> None:
    """Replace the file by one with this content, or leave it as it was; never through a link or over a folder."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise OSError(errno.EEXIST, f"{path.name} is there and is not a file")
    if not path.parent.exists():
        raise OSError(errno.ENOENT, f"there is no folder {path.parent}")
    folder = atomic.Descriptor.of_directory(path.parent)
    temp = f".{path.name}.{uuid.uuid4().hex[:8]}.tmp"
    try:
        with os.fdopen(os.open(temp, _NEW, 0o600, dir_fd=folder), "wb") as file:
            file.write(data)
        atomic.move(folder, temp, to=path.name)
    except BaseException:
        atomic.remove(folder, temp)
        raise


def _says_the_same(document: Document, entry: Entry) -> bool:
    """Whether the entry already has every value in the document."""
    known = document_of(entry)
    document = replace(document, **{name: getattr(known, name) for name in ("level", "agent", "user", "id", "aliases")})
    names = ("category", "kind", "created", "updated", "made_of", "provenance")
    filled = {name: getattr(document, name) or getattr(known, name) for name in names}
    counts = {name: max(getattr(document, name) or 0, getattr(entry, name)) for name in ("successes", "failures")}
    counts = {name: count or None for name, count in counts.items()}
    return replace(document, **filled, **counts) == known


def _keeps(entry: Entry, document: Document) -> str | None:
    """Why the entry here wins; None if the document does."""
    if document.updated is not None and document.updated < entry.updated_at:
        return f"the entry here is newer: it changed at {entry.updated_at}, this one at {document.updated}"
    is_own = entry.retired is None and entry.provenance.source != _SOURCE
    if document.updated is None and is_own and document.content != entry.content:
        return f"the entry here changed at {entry.updated_at}, and this says no time: delete or move one of the two"
    if document.updated is not None and entry.retired is not None and document.updated <= entry.retired.at:
        return f"it was {entry.retired.state} here at {entry.retired.at}, after this was written: restore it by its key"
    if entry.kind == "episode" and entry.retired is None and document.content != entry.content:
        return "the entry here is an episode, which never changes"
    return None


def _past(document: Document, *, latest: str) -> ImportedHistory:
    """The past of a document, no time in it later than now."""
    updated = min(document.updated or latest, latest)
    return ImportedHistory(
        *(min(document.created or latest, updated), updated, document.expires_at),
        *(document.successes or 0, document.failures or 0, document.made_of or ()),
        provenance=provenance_in(document.provenance or ()) if document.provenance is not None else None,
        ids=(*([document.id] if document.id else []), *(document.aliases or ())),
    )
