"""Forgetting: which entries a selector means, and their content out of everything under the directory.

The rules this file guards: an empty selector is refused; what is forgotten is what the session's own level holds,
retired and expired entries included, and with an episode the note that it was folded into; the tombstones are durable
before anything else goes, so that a kill at any point leaves nothing that could come back; what a kill left undone is
done at the next start; and it returns when no file under the directory holds the content.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields

from memfiles.changes import Stamp, check_text
from memfiles.entries import saving
from memfiles.entries.drafts import checked_tags
from memfiles.entries.finding import Finder
from memfiles.entries.folding import is_made_of
from memfiles.entries.receipts import Forgotten
from memfiles.entries.shelf import Records, Shelf
from memfiles.entries.views import Caller, View, own_level
from memfiles.entry import KINDS, MAX_WHY_BYTES, Entry, EntryRecord, Provenance, Tombstone
from memfiles.errors import InvalidArgument
from memfiles.index import debts, reading
from memfiles.index.indexing import Index
from memfiles.keys import check_key
from memfiles.secrets import Policy, gate

_AT_ONCE = 1000
_SOURCES = tuple(each.name for each in fields(Provenance) if each.name != "ordinal")


@dataclass(frozen=True, slots=True)
class Selector:
    """Which entries are meant: those for which all that is said holds."""

    key: str | None = None
    uid: str | None = None
    tag: str | None = None
    kind: str | None = None
    category: str | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Refuse a selector that says nothing, or what no entry can have."""
        said = [each.name for each in fields(self) if getattr(self, each.name)]
        if not said:
            raise InvalidArgument("say what is to be forgotten: a key, uid, tag, kind, category or provenance")
        if self.key is not None:
            check_key(self.key)
        if self.tag is not None:
            checked_tags([self.tag])
        if self.kind is not None and self.kind not in KINDS:
            raise InvalidArgument(f"kind {str(self.kind)[:40]!r} is not known: use one of {', '.join(KINDS)}")
        if not isinstance(self.provenance, Mapping):
            raise InvalidArgument("provenance must be an object such as {'run': 'evt-1'}")
        for name in self.provenance:
            if name not in _SOURCES:
                raise InvalidArgument(f"provenance has no {str(name)[:40]!r}: use one of {', '.join(_SOURCES)}")

    def means(self, entry: Entry) -> bool:
        """Whether it means this entry."""
        labels = (
            (self.key, entry.key),
            (self.uid, entry.uid),
            (self.kind, entry.kind),
            (self.category, entry.category),
        )
        known = entry.provenance.to_dict()
        return (
            all(wanted is None or wanted == found for wanted, found in labels)
            and (self.tag is None or self.tag in entry.tags)
            and all(known.get(name) == value for name, value in self.provenance.items())
        )


@dataclass(frozen=True, slots=True)
class _Meant:
    """What is to go: what the selector means, and what was made of the episodes among these keys."""

    selector: Selector
    keys: tuple[str, ...]

    def holds(self, entry: Entry) -> bool:
        return self.selector.means(entry) or is_made_of(entry, self.keys)


class Forgetting:
    """Takes the content of entries out of one open memory, for good."""

    def __init__(
        self,
        shelf: Shelf,
        index: Index,
        finder: Finder,
        *,
        secrets: Policy,
        now: Callable[[], str],
        scrub: Callable[[Sequence[EntryRecord]], None],
    ) -> None:
        """``scrub`` has everything else let go of earlier versions of these records: journals, copies, notes."""
        self._shelf = shelf
        self._index = index
        self._finder = finder
        self._secrets = secrets
        self._now = now
        self._scrub = scrub

    def forget(
        self, caller: Caller, selector: Selector, *, why: str = "", dry_run: bool = False, call_id: str | None = None
    ) -> Forgotten:
        """Forget what the selector means at the caller's level; ``dry_run`` only counts.

        Where nothing is meant any more, what a forget that was killed may have left behind is removed all the same.
        ``why`` is kept in the tombstones, at most 500 bytes; it must not repeat what is forgotten. ``LockTimeout`` if
        another process does not answer: the records are tombstones then, that process's journal may hold the content.
        """
        selector.check()
        self.finish()
        stamp = Stamp(self._now(), caller.actor(call_id))
        why = self._checked_why(why)
        meant = self._meant(own_level(caller), selector)
        keys = tuple(sorted({entry.key for entry in meant}))
        if dry_run:
            return Forgotten(len(meant), keys, dry_run)
        paths = [entry.path for entry in meant]
        self._index.change(lambda connection: debts.note(connection, paths))
        buried: list[EntryRecord] = []
        for start in range(0, len(paths), _AT_ONCE):
            buried += self._bury(paths[start : start + _AT_ONCE], _Meant(selector, keys), stamp, why=why)
        self._let_go(buried)
        return Forgotten(len(buried), keys)

    def finish(self) -> None:
        """Take away what an earlier forget left lying about because it was killed; errors as of ``forget``."""
        found = map(self._shelf.find, self._index.ask(debts.noted))
        if buried := [record for record in found if isinstance(record, Tombstone)]:
            self._let_go(buried)

    def _let_go(self, buried: Sequence[EntryRecord]) -> None:
        paths = [record.path for record in buried]
        self._scrub(buried)
        self._index.change(lambda connection: debts.strike(connection, paths))

    def _meant(self, view: View, selector: Selector) -> list[Entry]:
        """The entries that the selector means, read from the disk: the index only says where to look."""
        self._finder.refresh()
        said = reading.Selector(
            key=selector.key, tag=selector.tag, kind=selector.kind, provenance=dict(selector.provenance)
        )
        rows = self._index.ask(lambda connection: reading.matching(connection, reading.parts(connection, view), said))
        found = (self._shelf.entry(row.path) for row in rows)
        meant = [entry for entry in found if entry is not None and selector.means(entry)]
        return [*meant, *self._made_of(meant, view)]

    def _made_of(self, meant: Sequence[Entry], view: View) -> list[Entry]:
        """The notes that episodes were folded into, which say what was in them."""
        keys = {entry.key for entry in meant if entry.kind == "episode"}
        if not keys:
            return []
        notes = reading.Selector(kind="note")
        rows = self._index.ask(lambda connection: reading.matching(connection, reading.parts(connection, view), notes))
        paths = {entry.path for entry in meant}
        found = (self._shelf.entry(row.path) for row in rows if row.path not in paths)
        return [entry for entry in found if entry is not None and is_made_of(entry, keys)]

    def _bury(self, paths: Sequence[str], meant: _Meant, stamp: Stamp, *, why: str) -> list[EntryRecord]:
        def decide(records: Records) -> list[EntryRecord]:
            return [
                saving.bury(record, stamp, id=secrets.token_hex(6), why=why)
                for record in records.values()
                if isinstance(record, Entry) and meant.holds(record)
            ]

        return self._shelf.change(paths, decide, record_of=lambda buried: buried)

    def _checked_why(self, why: str) -> str:
        check_text(why)
        if len(why.encode()) > MAX_WHY_BYTES:
            raise InvalidArgument(f"the reason has {len(why.encode())} bytes, more than {MAX_WHY_BYTES}")
        return gate(why, policy=self._secrets).text
