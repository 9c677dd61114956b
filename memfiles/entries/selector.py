"""Which entries are meant by what is said of them: for a forget, which must not take one more.

The rule this file guards: who says nothing means nothing, and what no entry can have is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from memfiles.entries.drafts import check_category, checked_tags
from memfiles.errors import InvalidArgument
from memfiles.records.entry import KINDS, Entry, Provenance
from memfiles.records.keys import ENTRY_UID_PATTERN, check_key
from memfiles.records.record import check_text

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
        if self.uid is not None and not (isinstance(self.uid, str) and re.fullmatch(ENTRY_UID_PATTERN[1:-1], self.uid)):
            raise InvalidArgument("uid must be that of an entry: 40 hexadecimal digits")
        if self.tag is not None:
            checked_tags([self.tag])
        if self.kind is not None and self.kind not in KINDS:
            raise InvalidArgument(f"kind {str(self.kind)[:40]!r} is not known: use one of {', '.join(KINDS)}")
        if self.category is not None:
            check_category(self.category)
        if not isinstance(self.provenance, Mapping):
            raise InvalidArgument("provenance must be an object such as {'run': 'evt-1'}")
        for name, value in self.provenance.items():
            if name not in _SOURCES:
                raise InvalidArgument(f"provenance has no {str(name)[:40]!r}: use one of {', '.join(_SOURCES)}")
            if not isinstance(value, str) or not value:
                raise InvalidArgument(f"provenance {name} must be text that is not empty")
            check_text(value)

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
