"""Records as values, their codecs and history, and the pure decisions over them.

Other rooms use ``declared_metadata``, ``entry``, ``entry_codec``, ``file_changes``, ``graphemes``, ``history``,
``keys``, ``levels``, ``lineage``, ``marks``, ``record`` and ``redactions``.

A late_pattern is a regular expression that is compiled at its first use: that takes up to a millisecond, and a
command that only reads would compile dozens in vain.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

from msgspec.json import Encoder


def _plain(value: object) -> object:
    """A value of a class that inherits from text or numbers, as frameworks pass them, as plain text or number."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (int, float)):
        return int(value) if isinstance(value, int) else float(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


to_json = Encoder(enc_hook=_plain).encode
"""The JSON of a value, as every record is written: UTF-8 without spaces."""


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
