"""Forgetting: which entries a selector means, and their content out of everything under the directory.

The rules this file guards: an empty selector is refused; what is forgotten is what the session's own level holds,
retired and expired entries included; the tombstones are durable before anything else goes, so that a kill at any
point leaves nothing that could come back; and it returns when no file under the directory holds the content.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields

from memfiles.changes import Stamp, check_text
from memfiles.entries import saving
from memfiles.entries.drafts import checked_tags
from memfiles.entries.finding import Finder
from memfiles.entries.receipts import Forgotten
from memfiles.entries.shelf import Records, Shelf
from memfiles.entries.views import Caller, View, own_level
from memfiles.entry import KINDS, MAX_WHY_BYTES, Entry, EntryRecord, Provenance
from memfiles.errors import InvalidArgument
from memfiles.index import reading
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
        stamp = Stamp(self._now(), caller.actor(call_id))
        why = self._checked_why(why)
        meant = self._meant(own_level(caller), selector)
        keys = tuple(sorted({entry.key for entry in meant}))
        if dry_run:
            return Forgotten(len(meant), keys, dry_run)
        paths = [entry.path for entry in meant]
        buried: list[EntryRecord] = []
        for start in range(0, len(paths), _AT_ONCE):
            buried += self._bury(paths[start : start + _AT_ONCE], selector, stamp, why=why)
        self._scrub(buried)
        return Forgotten(len(buried), keys)

    def _meant(self, view: View, selector: Selector) -> list[Entry]:
        """The entries that the selector means, read from the disk: the index only says where to look."""
        self._finder.refresh()
        said = reading.Selector(
            key=selector.key, tag=selector.tag, kind=selector.kind, provenance=dict(selector.provenance)
        )
        rows = self._index.ask(lambda connection: reading.matching(connection, reading.parts(connection, view), said))
        found = (self._shelf.entry(row.path) for row in rows)
        return [entry for entry in found if entry is not None and selector.means(entry)]

    def _bury(self, paths: Sequence[str], selector: Selector, stamp: Stamp, *, why: str) -> list[EntryRecord]:
        def decide(records: Records) -> list[EntryRecord]:
            return [
                saving.bury(record, stamp, id=secrets.token_hex(6), why=why)
                for record in records.values()
                if isinstance(record, Entry) and selector.means(record)
            ]

        return self._shelf.change(paths, decide, record_of=lambda buried: buried)

    def _checked_why(self, why: str) -> str:
        check_text(why)
        if len(why.encode()) > MAX_WHY_BYTES:
            raise InvalidArgument(f"the reason has {len(why.encode())} bytes, more than {MAX_WHY_BYTES}")
        return gate(why, policy=self._secrets).text
