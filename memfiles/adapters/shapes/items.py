"""Items: objects under a key in a namespace, each an entry of one session, for stores that other libraries know.

The rules this file guards: everything goes through the session, so levels, budgets, the secrets gate and the audit log
are those of all entries; and what cannot be kept as it is raises before anything is changed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from memfiles.adapters.shapes.item_keys import Namespace, item_key, item_of, namespace_prefix
from memfiles.adapters.shapes.item_values import fits, from_text, to_text
from memfiles.entries.drafts import Draft
from memfiles.errors import InvalidArgument, LevelDenied

if TYPE_CHECKING:
    from memfiles.entries.entries import Entries
    from memfiles.entries.results import Found
    from memfiles.tools.session import Session

RANKED = 50
"""How many items a search ranks at most; the others follow with a score of 0, without one if they are not searched."""

NOT_SEARCHED = "not-searched"
_PAGE = 100
_log = logging.getLogger("memfiles")


@dataclass(frozen=True, slots=True)
class Item:
    """An object as it is kept; ``score`` is higher for a better answer to what was searched for."""

    namespace: Namespace
    key: str
    value: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    score: float | None = None


@dataclass(frozen=True, slots=True)
class ItemChange:
    """What an item shall hold from now on, None to delete it; ``is_searched``: a search by words may find it."""

    namespace: Namespace
    key: str
    value: Mapping[str, Any] | None
    is_searched: bool = True


class Items:
    """The items among the entries of one session. It keeps nothing between calls; threads may share it."""

    def __init__(self, session: Session, *, category: str | None = None) -> None:
        """``category`` is that of the entries: the workflow declares how long and how many of it are kept."""
        if session.entries is None:
            raise InvalidArgument("items are kept as entries, and this workflow declares none: add memory.entries")
        self._session = session
        self._category = category

    def get(self, namespace: Namespace, key: str) -> Item | None:
        """The item, None if there is none that the session sees."""
        try:
            entry_key = item_key(namespace, key)
        except InvalidArgument:  # nothing can be there
            return None
        found = self._entries.get(self._session, entry_key)
        return None if found is None else _item(found)

    def change(self, changes: Iterable[ItemChange]) -> None:
        """Put and delete items, all that are put in one commit, and then all that are deleted in another.

        Of changes to one item the last counts. To delete what is not there changes nothing. What lies at a lower level
        is a ``LevelDenied``; else the errors are those of a save.
        """
        last = {(change.namespace, change.key): change for change in changes}.values()
        drafts = [self._draft(change) for change in last if change.value is not None]
        gone = [found.key for change in last if change.value is None and (found := self._deletable(change))]
        if drafts and (evicted := self._entries.save_many(self._session, drafts)[0].evicted):
            _log.warning("evicted to keep the budget of %s: entries, %d", self._session.agent, len(evicted))
        if gone:
            self._entries.delete_many(self._session, gone)

    def search(
        self, namespace: Namespace, *, query: str | None = None, wanted: Mapping[str, Any] | None = None
    ) -> Iterator[Item]:
        """The items in and below a namespace that fit ``wanted``, by key, what answers ``query`` before the others."""
        prefix = namespace_prefix(namespace)
        return self._ranked(query, prefix, wanted) if query else (item for _, item in self._fitting(prefix, wanted))

    def namespaces(self) -> set[Namespace]:
        """The namespaces in which there are items."""
        return {item.namespace for _, item in self._listed(namespace_prefix(()))}

    def _ranked(self, query: str, prefix: str, wanted: Mapping[str, Any] | None) -> Iterator[Item]:
        """Nothing is listed but for a filter, or for whoever asks for more than was ranked."""
        among = [found.key for found, _ in self._fitting(prefix, wanted)] if wanted else None
        results = self._entries.search(
            self._session, query, max_results=RANKED, prefix=prefix, among=among, associate=False
        )
        matches = [match for match in results.matches if NOT_SEARCHED not in match.found.tags]
        ranked = {match.found.key for match in matches}
        yield from (item for match in matches if (item := _item(match.found, score=match.score)) is not None)
        for score, is_searched in ((0.0, True), (None, False)):
            for found, item in self._fitting(prefix, wanted):
                if found.key not in ranked and (NOT_SEARCHED not in found.tags) == is_searched:
                    yield replace(item, score=score)

    def _fitting(self, prefix: str, wanted: Mapping[str, Any] | None) -> Iterator[tuple[Found, Item]]:
        return ((found, item) for found, item in self._listed(prefix) if fits(item.value, wanted))

    def _listed(self, prefix: str) -> Iterator[tuple[Found, Item]]:
        cursor: str | None = None
        while True:
            page = self._entries.list(self._session, prefix=prefix, limit=_PAGE, cursor=cursor)
            yield from ((found, item) for found in page.memories if (item := _item(found)) is not None)
            cursor = page.next
            if cursor is None:
                return

    def _draft(self, change: ItemChange) -> Draft:
        assert change.value is not None
        tags = () if change.is_searched else (NOT_SEARCHED,)
        text = to_text(change.value)
        return Draft(item_key(change.namespace, change.key), text, tags=tags, category=self._category)

    def _deletable(self, change: ItemChange) -> Found | None:
        """The entry to delete, None if there is none."""
        found = None
        try:
            found = self._entries.get(self._session, item_key(change.namespace, change.key))
        except InvalidArgument:  # nothing can be there
            return None
        if found is not None and found.level != self._session.level:
            error = LevelDenied(
                f"item {change.key[:80]!r} is at level {found.level} and this session is at {self._session.level}: a "
                f"session changes only what is at its own level"
            )
            self._session.refused("store", error)
            raise error
        return found

    @property
    def _entries(self) -> Entries:
        entries = self._session.entries
        assert entries is not None
        return entries


def _item(found: Found, *, score: float | None = None) -> Item | None:
    """The item that an entry holds, None if it is another entry."""
    place = item_of(found.key)
    if place is None:
        return None
    created_at, updated_at = datetime.fromisoformat(found.created_at), datetime.fromisoformat(found.updated_at)
    return Item(*place, from_text(found.content), created_at, updated_at, score=score)
