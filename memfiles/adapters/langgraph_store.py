"""LangGraph's ``BaseStore`` over a session: an item is an entry whose key is made of its namespace and its key.

What is put stays under the declared budget of the agent's entries: over it, entries of least worth are evicted in the
same commit, as of any save. A put that cannot be kept raises, and nothing of its batch is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from memfiles.adapters.shapes.item_keys import begins_with, ends_with
from memfiles.adapters.shapes.items import ItemChange, Items
from memfiles.errors import ExtraMissing, InvalidArgument
from memfiles.tools.worker_calls import run_in_worker

try:
    from langgraph.store import base
except ImportError as error:
    raise ExtraMissing("LangGraph's store needs an extra: pip install 'memfiles[langgraph]'") from error

if TYPE_CHECKING:
    from memfiles.adapters.shapes.item_keys import Namespace
    from memfiles.adapters.shapes.items import Item
    from memfiles.tools.session import Session

T = TypeVar("T")


class MemfilesStore(base.BaseStore):
    """The store of one session, for ``graph.compile(store=...)`` or ``create_agent(..., store=...)``.

    Items come by key. ``query`` ranks by words (by meaning, too, with ``memfiles[semantic]``): the 50 that answer it
    best come first, the others behind them with a score of 0. ``index=False`` keeps an item out of that; lists of
    fields are not told apart. Items have no lifetime of their own, so ``ttl`` is refused: ``category`` names a category
    of the workflow, which may have one. To delete is to hide: a person can restore it.
    """

    supports_ttl = False

    def __init__(self, session: Session, *, category: str | None = None) -> None:
        self._items = Items(session, category=category)

    def batch(self, ops: Iterable[base.Op]) -> list[base.Result]:
        """Carry out operations: they read what was there before the batch, and of two puts of an item the last counts.

        All puts are one commit, all deletions another.
        """
        asked = list(ops)
        changes = [_change(op) for op in asked if isinstance(op, base.PutOp)]
        results = [self._read(op) for op in asked]
        self._items.change(changes)
        return results

    async def abatch(self, ops: Iterable[base.Op]) -> list[base.Result]:
        """As ``batch``, in a worker thread; when it is cancelled, its changes were made whole or not at all."""
        asked = list(ops)
        return await run_in_worker(lambda: self.batch(asked))

    def _read(self, op: base.Op) -> base.Result:
        if isinstance(op, base.GetOp):
            item = self._items.get(op.namespace, op.key)
            return None if item is None else base.Item(**_fields(item))
        if isinstance(op, base.SearchOp):
            items = self._items.search(op.namespace_prefix, query=op.query, wanted=op.filter)
            return [base.SearchItem(**_fields(item), score=item.score) for item in _part(items, op)]
        if isinstance(op, base.ListNamespacesOp):
            fitting = (each for each in self._items.namespaces() if _matches(each, op.match_conditions or ()))
            return _part(sorted({each[: op.max_depth] for each in fitting}), op)
        if isinstance(op, base.PutOp):
            return None
        raise InvalidArgument(f"there is no operation {type(op).__name__} of a store")


def _change(op: base.PutOp) -> ItemChange:
    if op.ttl is not None:
        raise NotImplementedError("TTL is not supported by MemfilesStore: declare a category with a ttl, and name it")
    return ItemChange(tuple(op.namespace), op.key, op.value, is_searched=op.index is not False)


def _fields(item: Item) -> dict[str, Any]:
    return {name: getattr(item, name) for name in ("namespace", "key", "value", "created_at", "updated_at")}


def _part(found: Iterable[T], op: base.SearchOp | base.ListNamespacesOp) -> list[T]:
    if op.offset < 0 or op.limit < 0:
        raise InvalidArgument("limit and offset must be whole numbers from 0")
    return list(islice(found, op.offset, op.offset + op.limit))


def _matches(namespace: Namespace, conditions: Iterable[base.MatchCondition]) -> bool:
    tests = {"prefix": begins_with, "suffix": ends_with}
    if odd := next((each.match_type for each in conditions if each.match_type not in tests), None):
        raise InvalidArgument(f"namespaces are matched by prefix or suffix, not by {odd!r}")
    return all(tests[each.match_type](namespace, each.path) for each in conditions)
