"""Records as values, their codecs and history, and the pure decisions over them.

Other rooms use ``declared_metadata``, ``entry``, ``entry_codec``, ``file_changes``, ``graphemes``, ``history``,
``keys``, ``levels``, ``lineage``, ``marks``, ``record`` and ``redactions``.

A LateValue and a late_pattern are a frozen dataclass and a regular expression that are made when first used.
Either takes up to a millisecond, as Python compiles it, and a command that only reads would make hundreds in vain.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, AnyStr, Self, cast, dataclass_transform

_making = Lock()
_made = set[type]()


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class LateValue:
    """Base of what would else be ``@dataclass(frozen=True)``; its first value, or ``made``, turns a class into one."""

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Turn the class into a dataclass if it is none; here, as other threads must wait until it is complete."""
        made(cls)
        return super().__new__(cls)


def made(kind: type) -> type:
    """The class, as a dataclass."""
    if kind not in _made and issubclass(kind, LateValue):
        with _making:
            if kind not in _made:
                dataclass(frozen=True)(kind)
                _made.add(kind)
    return kind


def late_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """The regular expression, compiled at the first use of one of its methods."""
    return cast("re.Pattern[AnyStr]", _LatePattern(pattern, flags))


class _LatePattern:
    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern = pattern
        self._flags = flags

    def __getattr__(self, method: str) -> Any:
        """The method of the compiled expression; kept, so that the next call finds it at once."""
        found = getattr(re.compile(self.pattern, self._flags), method)
        vars(self)[method] = found
        return found
