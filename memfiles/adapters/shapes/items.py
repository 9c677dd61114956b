"""Items over a session's entries: JSON objects by namespace and key, for stores that other libraries know.

The rules this module enforces: two different items never share an entry, and no label is cut or changed to fit; every
value is returned as it was put, or refused before anything changes; and everything goes through the session, with the
levels, budgets, secret rules and audit log of all entries.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import zip_longest
from math import ceil
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from memfiles.adapters.shapes.folder import check_level, list_entries
from memfiles.entries.drafts import Draft
from memfiles.errors import InvalidArgument, MemfilesError
from memfiles.records import late_logger as _log
from memfiles.records.keys import KEY_MAX_BYTES

if TYPE_CHECKING:
    from memfiles.entries.entries import Entries
    from memfiles.entries.results import Found
    from memfiles.tools.session import Session

RANKED = 50
"""How many items a search ranks at most; the others follow with a score of 0, unsearchable ones without a score."""

NOT_SEARCHED = "not-searched"
LIFETIME = re.compile("ttl([a-j]+)")
"""The tag of an item with a lifetime of its own: its milliseconds with letters for digits, as a search finds those."""
ROOT = "langgraph/"
"""The prefix of the items' keys among an agent's other entries."""

_LETTERS, _DIGITS = str.maketrans("0123456789", "abcdefghij"), str.maketrans("abcdefghij", "0123456789")
ANY = "*"
CONTENT = "content"
Namespace = tuple[str, ...]
_ESCAPED = re.compile(r"(?:%[0-9a-f]{2})+")
_REFUSED = re.compile("[/%\0-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")  # Cc, Cs, Zl and Zp are not in keys
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


class Item(Struct, frozen=True):
    """A stored object, in the entry ``found``; ``score`` is higher for a better match of a query."""

    namespace: Namespace
    key: str
    value: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    found: Found
    score: float | None = None


class ItemChange(Struct, frozen=True):
    """A new value of an item, None to delete it; ``is_searched``: a search by words may find it.

    ``ttl``: the item expires so many seconds from now, or from the last read that renews it; None: as its category
    says.
    """

    namespace: Namespace
    key: str
    value: Mapping[str, Any] | None
    is_searched: bool = True
    ttl: float | None = None

    @property
    def draft(self) -> Draft:
        """The entry to save."""
        tags: tuple[str, ...] = () if self.is_searched else (NOT_SEARCHED,)
        tags += () if self.ttl is None else ("ttl" + str(ceil(self.ttl * 1000)).translate(_LETTERS),)
        text = to_text(self.value or {})
        return Draft(item_key(self.namespace, self.key), text, tags, ttl=self.ttl, restarts=True)


class Items:
    """The items among the entries of one session. It keeps nothing between calls; threads may share it."""

    def __init__(self, session: Session, *, category: str | None = None) -> None:
        """``category`` is given to the entries: the workflow declares its lifetime and budget."""
        if session.entries is None:
            raise InvalidArgument("items are stored as entries, and this workflow declares none: add memory.entries")
        self._session = session
        self._entries: Entries = session.entries
        self._category = category

    def get(self, namespace: Namespace, key: str) -> Item | None:
        """The item; None if the session sees none."""
        found = self._find(namespace, key)
        return None if found is None else _item(found)

    def change(self, changes: Iterable[ItemChange]) -> None:
        """Put and delete items: all puts in one commit, then all deletions in another.

        The last of several changes to one item counts. Deleting a missing item changes nothing; deleting one of a lower
        level is a ``LevelDenied``. The other errors are those of a save.
        """
        last = {(change.namespace, change.key): change for change in changes}.values()
        drafts = [replace(it.draft, category=self._category) for it in last if it.value is not None]
        gone = ((change.key, self._find(change.namespace, change.key)) for change in last if change.value is None)
        deleted = [
            check_level(self._session, found, shown=f"item {key[:80]!r}", tool="store")
            for key, found in gone
            if found is not None
        ]
        if drafts and (evicted := self._entries.save_many(self._session, drafts)[0].evicted):
            _log.warning("evicted to keep the budget of %s: entries, %d", self._session.agent, len(evicted))
        if deleted:
            self._entries.delete_many(self._session, deleted)

    def renew(self, items: Iterable[Item]) -> None:
        """Start the lifetimes of items that were read and have one again, where ``Entries.renew`` does.

        A failure is only logged: the read was answered.
        """
        read = {item.found.id: item.found for item in items}.values()
        tagged = ((found, LIFETIME.fullmatch(tag)) for found in read for tag in found.tags)
        lifetimes = [(found, int(tag[1].translate(_DIGITS)) / 1000) for found, tag in tagged if tag is not None]
        try:
            if lifetimes:
                self._entries.renew(self._session, lifetimes)
        except MemfilesError as error:
            _log.warning("items that were read expire as they would have: %s", error)

    def search(
        self, namespace: Namespace, *, query: str | None = None, wanted: Mapping[str, Any] | None = None
    ) -> Iterator[Item]:
        """The items in and below a namespace that match ``wanted``: by key, but matches of ``query`` first."""
        prefix = namespace_prefix(namespace)
        return self._ranked(query, prefix, wanted) if query else self._matching(prefix, wanted)

    def namespaces(self) -> set[Namespace]:
        """The namespaces that contain items."""
        return {item.namespace for item in self._matching(ROOT, None)}

    def _ranked(self, query: str, prefix: str, wanted: Mapping[str, Any] | None) -> Iterator[Item]:
        """Items are listed only for a filter, or if more are asked for than were ranked."""
        among = [item.found.key for item in self._matching(prefix, wanted)] if wanted else None
        results = self._entries.search(
            self._session, query, max_results=RANKED, prefix=prefix, among=among, associate=False
        )
        matches = [match for match in results.matches if NOT_SEARCHED not in match.found.tags]
        ranked = {match.found.key for match in matches}
        yield from (item for match in matches if (item := _item(match.found, score=match.score)) is not None)
        for score, is_searched in ((0.0, True), (None, False)):
            for item in self._matching(prefix, wanted):
                if item.found.key not in ranked and (NOT_SEARCHED not in item.found.tags) == is_searched:
                    yield replace(item, score=score)

    def _matching(self, prefix: str, wanted: Mapping[str, Any] | None) -> Iterator[Item]:
        for found in list_entries(self._session, self._entries, prefix):
            if (item := _item(found)) is not None and matches_filter(item.value, wanted):
                yield item

    def _find(self, namespace: Namespace, key: str) -> Found | None:
        try:
            entry_key = item_key(namespace, key)
        except InvalidArgument:  # no item can have this key
            return None
        return self._entries.get(self._session, entry_key)


def _item(found: Found, *, score: float | None = None) -> Item | None:
    """The item in an entry, None if the entry is not an item."""
    place = item_of(found.key)
    if place is None:
        return None
    created_at, updated_at = datetime.fromisoformat(found.created_at), datetime.fromisoformat(found.updated_at)
    return Item(*place, from_text(found.content), created_at, updated_at, found, score=score)


def item_key(namespace: Sequence[str], key: str) -> str:
    """The entry key of an item, such as ``langgraph/users/ada/prefs``.

    "/", "%" and characters that an entry's key must not contain are written as "%" and the hexadecimal digits of their
    UTF-8 bytes. ``InvalidArgument`` for a label that is not text, and for a key that is too long.
    """
    found = namespace_prefix(namespace) + _escaped(key)
    if (size := len(found.encode())) > KEY_MAX_BYTES:
        raise InvalidArgument(
            f"namespace and key need an entry key of {size} bytes, and {KEY_MAX_BYTES} are allowed: shorten them"
        )
    return found


def namespace_prefix(namespace: Sequence[str]) -> str:
    """The prefix of the entry keys of all items in and below a namespace."""
    return ROOT + "".join(f"{_escaped(label)}/" for label in namespace)


def item_of(entry_key: str) -> tuple[Namespace, str] | None:
    """The namespace and key of the item with that entry key; None if no item has it."""
    if not entry_key.startswith(ROOT):
        return None
    try:
        *labels, key = (_unescaped(part) for part in entry_key.removeprefix(ROOT).split("/"))
    except UnicodeDecodeError:
        return None
    written = namespace_prefix(labels) + _escaped(key)
    return (tuple(labels), key) if written == entry_key else None


def begins_with(namespace: Namespace, path: Sequence[str]) -> bool:
    """Whether a namespace begins with these labels; ``*`` matches any one label."""
    start = namespace[: len(path)]
    return all(wanted == label or (wanted == ANY and label is not None) for label, wanted in zip_longest(start, path))


def ends_with(namespace: Namespace, path: Sequence[str]) -> bool:
    """Whether a namespace ends with these labels; ``*`` matches any one label."""
    return begins_with(namespace[::-1], path[::-1])


def _escaped(label: str) -> str:
    if not isinstance(label, str):
        raise InvalidArgument(f"namespace labels and keys must be text, not {type(label).__name__}")
    return _REFUSED.sub(lambda found: "%" + found[0].encode(errors="surrogatepass").hex("%"), label)


def _unescaped(label: str) -> str:
    return _ESCAPED.sub(lambda run: bytes.fromhex(run[0].replace("%", "")).decode(errors="surrogatepass"), label)


def to_text(value: Mapping[str, Any]) -> str:
    """The JSON text of an object, tuples as lists; ``InvalidArgument`` if it is not JSON-serialisable."""
    try:
        _check_names(value)
        return json.dumps(dict(value), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"an item's value must be a JSON-serialisable object: {error}") from None


def from_text(text: str) -> dict[str, Any]:
    """The object in a text; ``{"content": text}`` if somebody replaced it with something else."""
    with suppress(ValueError, RecursionError):
        if isinstance(value := json.loads(text), dict):
            return value
    return {CONTENT: text}


def matches_filter(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Whether an object matches a filter, in which a missing field counts as null.

    A name with dots is that of a field, as in LangGraph's store for PostgreSQL, or else a path, as in the one for
    SQLite: there, what is missing or null is not ``$ne`` to anything. The other comparisons are ``$eq``, ``$gt``,
    ``$gte``, ``$lt`` and ``$lte``.
    """
    return all(_matches_field(value, name, condition) for name, condition in (wanted or {}).items())


def _matches_field(value: Mapping[str, Any], name: Any, condition: Any) -> bool:
    if name in value or not isinstance(name, str) or "." not in name:
        return _matches(value.get(name), condition)
    found: Any = value
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    is_unknown = found is None and isinstance(condition, Mapping) and "$ne" in condition
    return not is_unknown and _matches(found, condition)


def _matches(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if any(str(name).startswith("$") for name in wanted):
            return all(_compares(found, comparison, operand) for comparison, operand in wanted.items())
        return isinstance(found, Mapping) and matches_filter(found, wanted)
    if isinstance(wanted, (list, tuple)):
        is_as_long = isinstance(found, (list, tuple)) and len(found) == len(wanted)
        return is_as_long and all(_matches(*pair) for pair in zip(found, wanted, strict=True))
    return bool(found == wanted)


def _compares(found: Any, comparison: str, operand: Any) -> bool:
    """Whether a comparison holds: of two numbers, which may be texts, or else of two texts; never of other values."""
    if comparison == "$eq":
        return bool(found == operand)
    if comparison == "$ne":
        return bool(found != operand)
    if comparison not in _ORDERS:
        raise InvalidArgument(f"unknown comparison {str(comparison)[:40]!r}: use $eq, $ne or {', '.join(_ORDERS)}")
    compare = _ORDERS[comparison]
    try:
        return compare(float(found), float(operand))
    except (TypeError, ValueError, OverflowError):
        return isinstance(found, str) and isinstance(operand, str) and compare(found, operand)


def _check_names(value: Any) -> None:
    """Refuse names that JSON would change: 1 and "1" would become one."""
    if isinstance(value, Mapping):
        if odd := [name for name in value if not isinstance(name, str)]:
            raise TypeError(f"the name {odd[0]!r:.40} is not text")
        value = tuple(value.values())
    if isinstance(value, (list, tuple)):
        for each in value:
            _check_names(each)
