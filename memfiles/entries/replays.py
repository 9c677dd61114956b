"""Whether a change of an entry was made before: by the same caller, in a call of the same id, with the same content.

Pure functions of the entry, as it is stored, and of what is asked for.
"""

from __future__ import annotations

from memfiles.entries.drafts import Draft, facets_of
from memfiles.records.entry import Entry
from memfiles.records.history import contents
from memfiles.records.record import Stamp


def saved_before(entry: Entry, content: str | None, stamp: Stamp) -> int | None:
    """The revision that this very call made: same caller, same call id, same content."""
    if stamp.by.call is None or not any(change.by.call == stamp.by.call for change in entry.text.history):
        return None
    wanted = (content or "").encode()
    for change, after in contents(entry.text):
        if change.by == stamp.by and change.op in ("save", "update") and (change.is_altered or after == wanted):
            return change.revision
    return None


def updated_before(entry: Entry, draft: Draft, stamp: Stamp) -> int | None:
    """The revision that this very update made.

    Of one that says nothing of the content, no history has what it said. But where nothing was changed since, the
    entry is as it said.
    """
    if draft.content is not None:
        return saved_before(entry, draft.content, stamp)
    history = entry.text.history
    made = [change for change in history if change.by == stamp.by and change.op == "update"] if stamp.by.call else []
    if not made:
        return None
    is_other = any(getattr(entry, name) != said for name, said in facets_of(draft).items())
    return None if is_other and made[-1] == history[-1] else made[-1].revision


def called_before(entry: Entry, stamp: Stamp) -> int | None:
    """The revision that a call with this id made, whatever it was."""
    if stamp.by.call is None:
        return None
    made = (change.revision for change in reversed(entry.text.history) if change.by == stamp.by)
    return next(made, None)
