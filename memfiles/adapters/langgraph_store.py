"""LangGraph's ``BaseStore`` over a session: each item is an entry, whose key combines its namespace and key.

Items count towards the declared budget of the agent's entries: beyond it, the least valuable entries are evicted in the
same commit, as for any save. A put that cannot be stored raises, and nothing of its batch is stored.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from memfiles.adapters.agent_calls import needs
from memfiles.adapters.shapes.items import Item, ItemChange, Items, begins_with, ends_with
from memfiles.entries.drafts import MAX_TTL_SECONDS
from memfiles.errors import InvalidArgument
from memfiles.tools.session import Session
from memfiles.tools.worker_calls import checked_source, run_in_worker, session_of

with needs("LangGraph's store needs an extra: pip install 'memfiles[langgraph]'"):
    from langgraph.runtime import Runtime, get_runtime
    from langgraph.store import base

if TYPE_CHECKING:
    from memfiles.adapters.shapes.items import Namespace
    from memfiles.tools.worker_calls import SessionSource

T = TypeVar("T")


class MemfilesStore(base.BaseStore):
    """The store of one session, for ``graph.compile(store=...)`` or ``create_agent(..., store=...)``.

    ``session`` may be a function from the ``Runtime`` of a run to its session, so that one compiled graph serves many
    users: each batch is of the user in whose run it is made. Outside a run, use the store of a session.

    Items are sorted by key. ``query`` ranks by words (and by meaning, with ``memfiles[semantic]``): the 50 best matches
    come first, then the others with a score of 0. ``index=False`` excludes an item from that; a list of fields indexes
    the whole item. A deleted item is hidden, and a person can restore it.

    ``ttl`` is LangGraph's ``TTLConfig``: ``default_ttl`` in minutes, for items that are put without one, and
    ``refresh_on_read`` (True if left out): a read by the session whose item it is starts its time again. Expired items
    are never returned, and the workflow's retention erases them, without a sweeper. ``category`` names a category of
    the workflow, whose ``ttl`` is that of items without one.
    """

    supports_ttl = True

    def __init__(
        self, session: SessionSource[Runtime[Any]], *, category: str | None = None, ttl: base.TTLConfig | None = None
    ) -> None:
        self.ttl_config = _checked_ttl(ttl)
        self._session = checked_source(session)
        self._category = category
        if isinstance(session, Session):
            self._items()

    def batch(self, ops: Iterable[base.Op]) -> list[base.Result]:
        """Carry out operations: reads see the state before the batch, and the last of several puts of an item counts.

        All puts are one commit, and all deletions another.
        """
        asked = list(ops)
        changes = [_change(op) for op in asked if isinstance(op, base.PutOp)]
        items = self._items()
        read = list[Item]()
        results = [_read(items, op, read) for op in asked]
        items.change(changes)
        items.renew(read)
        return results

    async def abatch(self, ops: Iterable[base.Op]) -> list[base.Result]:
        """As ``batch``, in a worker thread; if it is cancelled, its changes were made whole or not at all."""
        asked = list(ops)
        return await run_in_worker(lambda: self.batch(asked))

    def _items(self) -> Items:
        return Items(session_in_run(self._session), category=self._category)


def session_in_run(source: SessionSource[Runtime[Any]]) -> Session:
    """The session, or what a function gives for the runtime of the graph's run that this call belongs to."""
    if isinstance(source, Session):
        return source
    try:
        runtime = get_runtime()
    except (KeyError, RuntimeError) as error:
        raise InvalidArgument(
            "outside a run of a graph, the function cannot be asked whose memory to use: pass a session instead"
        ) from error
    return session_of(source, runtime)


def _read(items: Items, op: base.Op, read: list[Item]) -> base.Result:
    """The answer of an operation; the items whose time it starts again are added to ``read``."""
    if isinstance(op, base.GetOp):
        item = items.get(op.namespace, op.key)
        read += [item] if item is not None and op.refresh_ttl else []
        return None if item is None else base.Item(**_fields(item))
    if isinstance(op, base.SearchOp):
        found = _page(items.search(op.namespace_prefix, query=op.query, wanted=op.filter), op)
        read += found if op.refresh_ttl else []
        return [base.SearchItem(**_fields(item), score=item.score) for item in found]
    if isinstance(op, base.ListNamespacesOp):
        matching = (each for each in items.namespaces() if _matches(each, op.match_conditions or ()))
        return _page(sorted({each[: op.max_depth] for each in matching}), op)
    if isinstance(op, base.PutOp):
        return None
    raise InvalidArgument(f"unknown store operation {type(op).__name__}")


def _change(op: base.PutOp) -> ItemChange:
    seconds = None if op.ttl is None else 60 * _checked_minutes(op.ttl)
    return ItemChange(tuple(op.namespace), op.key, op.value, is_searched=op.index is not False, ttl=seconds)


def _checked_ttl(config: base.TTLConfig | None) -> base.TTLConfig | None:
    if unknown := set(config or ()) - set(base.TTLConfig.__annotations__):
        raise InvalidArgument(f"ttl has no {sorted(unknown)[0]!r}: it takes default_ttl (in minutes), refresh_on_read")
    if config and (default := config.get("default_ttl")) is not None:
        _checked_minutes(default)
    return config


def _checked_minutes(ttl: object) -> float:
    if not isinstance(ttl, int | float) or isinstance(ttl, bool) or not 0 < ttl <= MAX_TTL_SECONDS / 60:
        raise InvalidArgument(f"ttl must be a number of minutes above 0, at most {MAX_TTL_SECONDS // 60}")
    return float(ttl)


def _fields(item: Item) -> dict[str, Any]:
    return {name: getattr(item, name) for name in ("namespace", "key", "value", "created_at", "updated_at")}


def _page(found: Iterable[T], op: base.SearchOp | base.ListNamespacesOp) -> list[T]:
    if not all(isinstance(number, int) and number >= 0 for number in (op.offset, op.limit)):
        raise InvalidArgument("limit and offset must be whole numbers, 0 or greater")
    return list(islice(found, min(op.offset, sys.maxsize), min(op.offset + op.limit, sys.maxsize)))


def _matches(namespace: Namespace, conditions: Iterable[base.MatchCondition]) -> bool:
    tests = {"prefix": begins_with, "suffix": ends_with}
    if odd := next((each.match_type for each in conditions if each.match_type not in tests), None):
        raise InvalidArgument(f"unknown match type {odd!r}: use prefix or suffix")
    return all(tests[each.match_type](namespace, each.path) for each in conditions)
