"""The record store contract: where records are kept, so that several of them change together or not at all.

Everything above ``storage`` works on this contract; ``store.Store`` keeps it in a directory. The rules it guards: what
a change returned for is durable; nobody changes a version of a record without having seen it, because a change is
decided on the versions that it replaces, and decided again if they are others by then; nothing that was changed stays
unheard of, because the feed tells of it until it was asked; and what was erased is in no place that the store keeps.

A record is bytes at a path, as ``records.keys.is_record_path`` accepts it. The store does not read the bytes. What is
peculiar to a store (in a directory: hand edits, temp files, journals, the watcher) is not in the contract.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from memfiles.records import NamedTuple
from memfiles.records.redactions import Piece
from memfiles.storage.atomic import Signature

if TYPE_CHECKING:
    from memfiles.storage.home import MemoryHome

T = TypeVar("T")
_NONE: Mapping[str, Any] = MappingProxyType({})


class Sections(NamedTuple):
    """Where the encoded content of a record ends (before its closing quote), and where its history begins."""

    content_end: int
    history: int


class NewVersion(Struct, frozen=True):
    """A record's next version: its path, revision and bytes, and the signature of the version it replaces.

    ``replaces`` is as the ``Records`` of this very decision told it; None if there was no record. ``sections`` are
    known of bytes in our own layout; a store may use them to keep less than the whole, or not.
    """

    path: str
    revision: int
    data: bytes
    replaces: Signature | None
    sections: Sections | None = None


class ChangeSet(NamedTuple):
    """The writes of a decision: new ``versions``, or the records that are ``removed`` if they have these signatures.

    ``aside`` says, by path, why what is there cannot be used: it goes into quarantine first. If it gets no new version
    with it, there is no record afterwards. ``erases``: content is to be gone for good, also from what the store keeps
    that is derived from it.
    """

    versions: Sequence[NewVersion] = ()
    removed: Mapping[str, Signature] = _NONE
    aside: Mapping[str, str] = _NONE
    erases: bool = False


NOTHING = ChangeSet()


class Changes(Struct, frozen=True):
    """The changes of a store up to the point ``until``, from which to ask next time.

    ``records`` has the present versions by path, None for a record that is gone; there may be more than what changed.
    A ``complete`` folder has all its records there: whatever else was known in it is gone. "" is the topmost folder.
    If everything is told although something was known before, ``recent`` are the records that did change since.
    """

    until: str
    records: Mapping[str, Signature | None]
    complete: frozenset[str] = frozenset()
    recent: frozenset[str] = frozenset()


class Records(Protocol):
    """The records as they are, or as a change finds them."""

    def find(self, path: str) -> tuple[bytes, Signature] | None:
        """The bytes of a record, whole, and the signature of exactly these bytes; None if there is no record.

        ``RecordCorrupt``: the bytes there are not a record. ``StorageFailed``: it cannot be read at the moment.
        """

    def signature(self, path: str) -> Signature | None:
        """The signature of a record's present version, None if there is no record. Cheap: no bytes are read.

        Different versions of a record differ in their signatures, also if their bytes are the same. A store without
        files gives any three numbers of which this is true, the second being the size in bytes.
        """


class KeptCopies(Protocol):
    """The copies of records that a store put aside because they could not be used, or that lost in a merge.

    Removal of text never takes an error for "nothing there": it is ``StorageFailed`` while a copy cannot be looked at.
    """

    def listing(self, folder: str = "quarantine") -> list[tuple[str, str]]:
        """The name and reason of everything that is in the folder, for people; of the folder if it cannot be listed."""

    def remove(self, path: str, *, holding: Sequence[Piece] | None = None) -> int:
        """Delete the copies of the record at ``path``, or those ``holding`` a redacted text; returns how many."""

    def remove_if(self, is_unwanted: Callable[[str, bytes], bool]) -> None:
        """Delete the copies that ``is_unwanted``, given the path of the record and its bytes, as far as it has any."""


class CommitHook(Protocol):
    """Hears of one change before and after its commit, while nobody else can change the records."""

    def before(self, paths: Sequence[str]) -> None:
        """These records are about to be written or removed. Called again if the change is decided again."""

    def after(self, written: Mapping[str, Signature]) -> None:
        """The change is durable; these are the signatures of the new versions."""

    def failed(self) -> None:
        """The change announced last failed, has an unknown outcome, or is decided again."""


Decide = Callable[[Records], tuple[T, ChangeSet]]


class ReadableStore(Records, Protocol):
    """The records of one memory, to be read only."""

    def view(self, paths: Iterable[str]) -> Records:
        """These records to read, of which a store over a network asks at once. Each is as it is now, or newer."""

    def paths(self, folder: str = "") -> list[str]:
        """The paths of the records in one folder, sorted; without one, of the memory files of all users."""

    def changes(self, since: str | None = None) -> Changes:
        """The changes after the point ``since``, by any process; everything from the beginning.

        Every change that was acknowledged before the call is told, in this answer or in an earlier one that led to
        ``since``. A point may be kept and asked from later, by another process too; one that means nothing to this
        store is the beginning.
        """


class RecordStore(ReadableStore, Protocol):
    """The records of one memory, held by this process. Threads share it; other processes have their own.

    At a path that no record can have there is none, and to change one there is ``InvalidArgument``: such a path reaches
    nothing. A store that cannot be used at the moment is ``StorageFailed``.
    """

    @property
    def name(self) -> str:
        """Its name for people: that of its directory or workspace."""

    @property
    def kept(self) -> KeptCopies:
        """The copies that were put aside."""

    def change(
        self, paths: Iterable[str], decide: Decide[T], *, hook: CommitHook | None = None
    ) -> tuple[T, dict[str, Signature]]:
        """Change some of these records as ``decide`` says; returns its result and the signatures of what it wrote.

        All new versions are there afterwards or none, also if this process or machine dies at any moment;
        all are durable on return. Records that are removed may go one by one, and one that was removed stays so; such
        a change has no new versions. What goes into quarantine does so before anything is replaced.

        ``decide`` gets the newest versions of these records that the store knows. If others are found when they are
        replaced, or a dead process is in the way, it is called again: it asks no model and no network, and what it does
        may be done twice. It calls no ``change`` of these records. Nothing happens if it raises, which is passed on.

        ``SizeExceeded``: more than can be changed together. ``LockTimeout``: others kept the records.
        ``StorageFailed``: nothing changed. ``OutcomeUnknown``: the change is visible, but may not survive a power cut,
        or the answer was lost. ``InvalidArgument``: the store was closed; nothing changed.
        """

    def wait(self, since: str, *, seconds: float) -> bool:
        """Wait for news: True soon after something was changed after ``since``, by any process, or perhaps was.

        False if nothing happened in time. News may come late or be lost; only the feed, ``changes``, is relied on.
        """

    def scrub(self) -> None:
        """Erase earlier versions: return once no process's part of the store holds what is in no record any more.

        Copies in quarantine are not touched. ``LockTimeout`` if a process does not respond; may be repeated.
        """

    def checkpoint(self) -> None:
        """Do now what the store would do later, such as tidying up after changes; it makes nothing durable."""

    def close(self) -> None:
        """Give the store up. Every change is durable already; no change is possible afterwards."""


class IndexImages(Protocol):
    """The image of the search index in a store, for workers that have none: derived, and removed by any erasure.

    Whoever fetches an image checks it: anyone who may change records may have written it.
    """

    def claim(self, *, format: int, changed: int, pause: float) -> int | None:
        """Take the turn to make an image, for ``pause`` seconds; None if another process has it, or none is wanted.

        An image is wanted if there is none of this format, or more than ``changed`` records changed since, or any
        changed and the store soon cannot tell how many. Returns the number of erasures so far.
        """

    def keep(self, parts: Iterable[bytes], *, format: int, erased: int) -> bool:
        """Replace the image; False, and nothing is kept, if there were more erasures since than ``erased``.

        An erasure never waits for ``parts``. After a failure, another process may take the turn.
        """

    def give(self) -> None:
        """Give the turn back, without an image."""

    def parts(self, *, format: int) -> Iterator[bytes]:
        """The parts of the image, if there is one of this format. ``StorageFailed`` if it was replaced meanwhile."""


@runtime_checkable
class RemoteStore(Protocol):
    """The further methods of a store shared with other machines, by which a process keeps up with it."""

    @property
    def id(self) -> str:
        """A name that no other store has, nor the same one after it was recreated."""

    @property
    def home(self) -> MemoryHome:
        """The home whose store it is."""

    @property
    def cache(self) -> Path | None:
        """The directory where this machine may keep what is derived from it; None: in memory."""

    @property
    def images(self) -> IndexImages:
        """The image of the search index that it keeps."""

    def point(self) -> str:
        """The present point, from which ``changes`` gives what follows."""


class ForgetNotes(Protocol):
    """Notes of forgets and redactions in progress, which another process finishes if the one at work is killed.

    Each is of a record at a revision: another one of the same record may begin before the first has ended.
    """

    def note_forgets(self, revisions: Mapping[str, int]) -> None:
        """Note records that are to lose text, by path, with their revisions; may be repeated."""

    def noted_forgets(self) -> dict[str, int]:
        """The records whose content may not be gone completely, and their first noted revisions."""

    def strike_forgets(self, revisions: Mapping[str, int]) -> None:
        """Delete the notes of records, by path, of earlier revisions than these: what was lost by then is gone."""


def forget_notes(store: RecordStore) -> ForgetNotes | None:
    """The notes of forgets in a store that several machines use, None for a directory: its index has them."""
    return store.home.notes if isinstance(store, RemoteStore) else None


class StoreSurvey(Struct, frozen=True):
    """A store as this process finds it.

    ``answer_ms`` is how long a question took. ``schema_version`` is that of the tables, ``known_version`` that of this
    program. ``may_erase``: the role may remove forgotten text from dead rows. ``lacks`` are the rights that it should
    have and has not. ``is_pooled``: a pooler stands between, so that changes of others are found by looking.
    ``open_transactions`` may still commit below the newest one: the feed tells what was committed meanwhile again and
    again until they end. ``pool`` is the most connections of a process, ``connections`` how many of them it has.
    """

    server: str
    role: str
    schema: str
    workspace: str
    schema_version: int
    known_version: int
    answer_ms: float
    records: int
    may_erase: bool
    lacks: str
    is_pooled: bool
    is_standby: bool
    open_transactions: int
    pool: int
    connections: int
