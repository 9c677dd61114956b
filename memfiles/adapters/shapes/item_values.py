"""What an item holds: an object, kept as JSON text, and whether it fits a filter.

Filters are MongoDB's comparisons (``$eq``, ``$ne``, ``$gt``, ``$gte``, ``$lt``, ``$lte``), as LangGraph's stores take
them. The rule this file guards: what was kept is given back as it was, or it is refused.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping
from typing import Any

from memfiles.errors import InvalidArgument

CONTENT = "content"

_ORDERS: dict[str, Callable[[float, float], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def to_text(value: Mapping[str, Any]) -> str:
    """The JSON text of an object; ``InvalidArgument`` for what JSON cannot hold. Tuples become lists."""
    try:
        _check_names(value)
        return json.dumps(dict(value), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"an item's value must be an object that JSON can hold: {error}") from None


def from_text(text: str) -> dict[str, Any]:
    """The object that a text is; ``{"content": text}`` where somebody made it something else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {CONTENT: text}
    return value if isinstance(value, dict) else {CONTENT: text}


def fits(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Whether an object has all that a filter wants; a field that is missing counts as null."""
    return all(_is_wanted(value.get(field), what) for field, what in (wanted or {}).items())


def _is_wanted(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if any(str(name).startswith("$") for name in wanted):
            return all(_holds(found, comparison, beside) for comparison, beside in wanted.items())
        return isinstance(found, Mapping) and fits(found, wanted)
    if isinstance(wanted, (list, tuple)):
        is_as_long = isinstance(found, (list, tuple)) and len(found) == len(wanted)
        return is_as_long and all(_is_wanted(*pair) for pair in zip(found, wanted, strict=True))
    return bool(found == wanted)


def _holds(found: Any, comparison: str, beside: Any) -> bool:
    """Whether a comparison holds; of what is no number, neither more nor less does."""
    if comparison == "$eq":
        return bool(found == beside)
    if comparison == "$ne":
        return bool(found != beside)
    if comparison not in _ORDERS:
        raise InvalidArgument(f"there is no comparison {comparison[:40]!r}: use $eq, $ne or {', '.join(_ORDERS)}")
    try:
        return _ORDERS[comparison](float(found), float(beside))
    except (TypeError, ValueError, OverflowError):
        return False


def _check_names(value: Any) -> None:
    """Refuse what JSON would write under another name: 1 and "1" would be one."""
    if isinstance(value, Mapping):
        if odd := [name for name in value if not isinstance(name, str)]:
            raise TypeError(f"the name {odd[0]!r:.40} is not text")
        value = tuple(value.values())
    if isinstance(value, (list, tuple)):
        for each in value:
            _check_names(each)
