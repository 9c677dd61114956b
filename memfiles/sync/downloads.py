"""Downloads: many objects of a mirror at once, for a cold start in bounded time and for entries that only it has.

The rules this file guards:

- Every key asked for has an answer when the time is up. A mirror that is down, slow, silent or wrong is only ever the
  reason in such an answer; it raises nothing and keeps nobody waiting.
- An object that is not what its path says is left in the mirror. A record that exists here is never overwritten, but
  merged with its copy like any other.
- A downloaded entry is acknowledged only once it is written, and before anyone scans for records to push.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from memfiles.errors import CopyRefused, LockTimeout, MirrorRefused, MirrorUnavailable, RecordCorrupt
from memfiles.records.entry import Entry
from memfiles.records.keys import ENTRIES, entry_place, is_id_path
from memfiles.records.marks import is_tombstone, vacated
from memfiles.records.record import digest
from memfiles.storage.fork_safety import Flag, renew_in_child, start_thread
from memfiles.sync.ledger import Acknowledged, Ledger
from memfiles.sync.merge.merge_entries import fate
from memfiles.sync.merge.merge_files import ConflictPolicy
from memfiles.sync.merge.record_types import decode_entry_copy, encode_copy, pieces_in
from memfiles.sync.mirror import THREADS, Answer, Mirror, NotingMirror, Stored, get_many, in_parallel
from memfiles.sync.pack import read_pack

if TYPE_CHECKING:
    from memfiles.records.marks import EntryRecord
    from memfiles.sync.replica import Replica

DEADLINE_SECONDS = 30.0
SECONDS_EACH = 0.005  # more for each file: boto3 gets 400 small objects a second
SILENCE_SECONDS = 15.0  # as long as an S3 client waits for a byte
FAILURES_IN_A_ROW = 16  # prove that the mirror is down: with a third of the calls failing, once in 40 million
FEW = THREADS  # are read one by one, without a listing and without the pack
_POLL_SECONDS = 0.02
_COMMIT_RECORDS = 500
_COMMIT_BYTES = 16 * 1024 * 1024  # far below the limit of a commit
_log = logging.getLogger("memfiles.mirror")


def fetch(
    mirror: Mirror,
    keys: Iterable[str],
    *,
    deadline_seconds: float = DEADLINE_SECONDS,
    silence_seconds: float = SILENCE_SECONDS,
) -> dict[str, Answer]:
    """The object at each key, None if there is none, or the error that says why that is not known.

    ``deadline_seconds`` is for all keys together, plus 5 ms for each key. A mirror that sends nothing for
    ``silence_seconds``, or fails 16 times in a row, is not waited for any longer.
    """
    asked = list(dict.fromkeys(keys))
    if not asked:
        return {}
    download = _Download(mirror, asked)
    answers, missing = download.wait(deadline_seconds + SECONDS_EACH * len(asked), silence_seconds=silence_seconds)
    return answers | {key: missing for key in asked if key not in answers}


def get_objects(
    mirror: Mirror, keys: Collection[str], *, listed: Mapping[str, str] | None = None
) -> Iterator[tuple[str, Answer]]:
    """Each key with its answer, as they arrive: few keys by single reads, many by listing, pack and bulk read.

    ``listed`` is the mirror's listing, if known. Stops after 16 failures in a row, as the mirror is down then: the last
    failure is also the reason why the other keys have no answer.
    """
    if len(keys) <= FEW:
        return _until_down(in_parallel(mirror.get, keys))
    if listed is None:
        try:
            listed = dict(mirror.list())
        except MirrorRefused:  # some users may get and not list
            return _until_down(get_many(mirror, keys))
    return _until_down(_many(mirror, keys, listed))


@dataclass(eq=False)
class EntryDownloads:
    """Downloads the entries that only the mirror has. Those written are acknowledged once ``writing`` is released."""

    replica: Replica
    mirror: Mirror
    ledger: Ledger
    on_conflict: ConflictPolicy
    now: Callable[[], str]
    writing: threading.Lock = field(init=False)

    def __post_init__(self) -> None:
        self._renew()
        renew_in_child(self, EntryDownloads._renew)

    def _renew(self) -> None:
        self.writing = threading.Lock()

    def missing(self, listed: Mapping[str, str]) -> list[str]:
        """The paths of entries that the mirror lists and this directory lacks."""
        if not self.replica.listing.has_entries:
            return []
        there = [path for path in listed if entry_place(path) is not None]
        here = set(self.replica.listing.entry_paths()) if there else set()
        unlisted = tuple(f"{ENTRIES}/{folder}/" for folder in list(self.replica.listing.unlisted))
        return [path for path in there if path not in here and not path.startswith(unlisted)]

    def bring(self, paths: Collection[str], *, listed: Mapping[str, str]) -> Iterator[str]:
        """Download these entries and write them, some hundred in a commit; yields the paths that were written.

        Raises ``MirrorUnavailable`` in the end if some could not be read; the others are written.
        """
        batch: dict[str, Stored] = {}
        size = 0
        failures: list[MirrorUnavailable] = []
        ids = [path for path in paths if is_id_path(path)]  # what is known of entries comes before these
        entries = [path for path in paths if not is_id_path(path)]
        of_ids = _until_down(get_many(self.mirror, ids))
        # the empty path between the two has the ids written before any entry is
        for path, answer in chain(of_ids, [("", None)], get_objects(self.mirror, entries, listed=listed)):
            if isinstance(answer, MirrorUnavailable):
                failures += [answer] if _is_failure(answer) else []
            elif answer is not None:
                batch[path] = answer
                size += len(answer.body)
            if not path or len(batch) >= _COMMIT_RECORDS or size >= _COMMIT_BYTES:
                yield from self._write(batch, failures)
                batch, size = {}, 0
        yield from self._write(batch, failures)
        if failures:
            raise failures[0]

    def bring_one(self, path: str) -> bool:
        """Fetch the entry at ``path``, unreadable here; whether it was written. ``LockTimeout`` for a memory file."""
        if entry_place(path) is None:
            raise LockTimeout(f"{path} cannot be read now: another program is changing it")
        stored = self.mirror.get(path) if self.replica.listing.has_entries else None
        failures: list[MirrorUnavailable] = []
        written = stored is not None and bool(self._write({path: stored}, failures))
        if failures:
            raise failures[0]
        return written

    def copy_of(self, path: str) -> EntryRecord | None:
        """The mirror's copy of the entry at ``path``; None if there is none, or it cannot be used."""
        try:
            stored = self.mirror.get(path)
            return decode_entry_copy(stored.body, path=path) if stored is not None else None
        except (CopyRefused, RecordCorrupt):
            return None

    def _write(self, batch: Mapping[str, Stored], failures: list[MirrorUnavailable]) -> list[str]:
        """Write the usable objects; returns the paths that were written. ``failures`` are as of ``_usable``."""
        records, replaced = self._usable(batch, failures)
        if not records:
            return []
        redacted = {path: pieces for path, record in records.items() if (pieces := pieces_in(record))}
        if is_erasure := bool(redacted) or any(map(is_tombstone, records.values())):
            self.ledger.meta.note("unwiped", "yes")  # before, for the process that finishes it after a kill
        for path, pieces in redacted.items():
            self.replica.home.kept.remove(path, holding=pieces)
        with self.writing:
            written = self.replica.adopt(records)  # 1 durable
            copies = []
            for record in written:
                path, stored = record.path, batch[record.path]
                copy = Acknowledged(path, stored.version, stored.body, record.revision, digest(encode_copy(record)))
                copies.append(Acknowledged(path, stored.version, None, 1) if path in replaced else copy)
            self.ledger.acknowledge(*copies)  # 2
        if is_erasure:  # 3 nothing here holds a text that is gone, also if it was wiped before
            self.ledger.meta.note("unwiped", "yes")
        return [record.path for record in written]

    def _usable(
        self, batch: Mapping[str, Stored], failures: list[MirrorUnavailable]
    ) -> tuple[dict[str, EntryRecord], set[str]]:
        """The records to write for the usable objects, by path, and the paths of those that a mark replaces.

        An object that needs another one, which cannot be read now, is left out; the reason is added to ``failures``.
        """
        records: dict[str, EntryRecord] = {}
        replaced: set[str] = set()
        for path, stored in batch.items():
            try:
                records[path] = self._admitted(found := decode_entry_copy(stored.body, path=path))
                replaced |= {path} if records[path] is not found else set()
            except RecordCorrupt as error:
                why = f"{path}: the mirror's copy cannot be used: {error}; delete it there if nobody needs it"
                _log.warning("%s", why)
                if isinstance(self.mirror, NotingMirror):
                    self.mirror.note(path, why, version=stored.version)
            except MirrorUnavailable as error:
                failures.append(error)
        return records, replaced

    def _admitted(self, record: EntryRecord) -> EntryRecord:
        """The record to write for one of the mirror's: a mark for an entry that was forgotten, or is elsewhere now."""
        found = fate(record, None, self.replica.marks_of(record.mortal_ids))
        if not isinstance(record, Entry) or found == "here":
            return record
        if found == "elsewhere":
            self.replica.place(record, is_local=False, on_conflict=self.on_conflict, mirrored=self.copy_of)
        return vacated(record, self.now())


class _Download:
    """The answers of a mirror, collected by a thread of its own."""

    def __init__(self, mirror: Mirror, asked: list[str]) -> None:
        self._count = len(asked)
        self._answers: dict[str, Answer] = {}
        self._missing: MirrorUnavailable | None = None
        self._adding = threading.Lock()
        self._is_wanted = True
        self._done = Flag()
        given = (mirror, asked)
        if not start_thread(threading.Thread(target=self._run, args=given, name="memfiles-downloads", daemon=True)):
            self._run(*given)

    def wait(self, seconds: float, *, silence_seconds: float) -> tuple[dict[str, Answer], MirrorUnavailable]:
        """The answers when all have arrived or the time is up, and the reason why others are missing.

        Polls: to be woken for each of thousands of objects would cost as much as fetching it.
        """
        end = time.monotonic() + seconds
        heard, quiet_until = 0, time.monotonic() + silence_seconds
        while not self._done.wait(_POLL_SECONDS) and time.monotonic() < min(end, quiet_until):
            if len(self._answers) > heard:
                heard, quiet_until = len(self._answers), time.monotonic() + silence_seconds
        with self._adding:
            self._is_wanted = False
            late = MirrorUnavailable(f"{len(self._answers)} of {self._count} answers came in time")
            return self._answers, self._missing or late

    def _run(self, mirror: Mirror, asked: list[str]) -> None:
        try:
            answer: Answer = None
            for key, answer in get_objects(mirror, asked):
                with self._adding:
                    if not self._is_wanted:
                        return
                    self._answers[key] = answer
            self._missing = answer if isinstance(answer, MirrorUnavailable) else None
        except MirrorUnavailable as error:
            self._missing = error
        except Exception as error:  # the edge of the thread; a third-party mirror must not fail a start
            _log.exception("the mirror raised an error that the contract does not allow")
            self._missing = MirrorUnavailable(f"the mirror failed: {type(error).__name__}: {error}")
        finally:
            self._done.set()


def _many(mirror: Mirror, keys: Iterable[str], listed: Mapping[str, str]) -> Iterator[tuple[str, Answer]]:
    """Absent keys by the listing, packed ones from the pack, the others in bulk."""
    wanted: dict[str, None] = {}
    for key in keys:
        if key in listed:
            wanted[key] = None
        else:
            yield key, None
    for key, stored in read_pack(mirror, listed=listed):
        if key in wanted:
            del wanted[key]
            yield key, stored
    yield from get_many(mirror, wanted)


def _is_failure(answer: Answer) -> bool:
    """Whether the mirror failed to answer; it did answer if only this object is refused."""
    return isinstance(answer, MirrorUnavailable) and not isinstance(answer, CopyRefused)


def _until_down(answers: Iterable[tuple[str, Answer]]) -> Iterator[tuple[str, Answer]]:
    failures = 0
    for key, answer in answers:
        yield key, answer
        failures = failures + 1 if _is_failure(answer) else 0
        if failures == FAILURES_IN_A_ROW:
            return
