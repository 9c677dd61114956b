"""What ``status`` and ``ls`` say of the entries: how many there are, against their budgets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from memfiles.cli import output
from memfiles.errors import StorageFailed
from memfiles.memory import look
from memfiles.workflow.workflow import Workflow

if TYPE_CHECKING:
    from memfiles.index.queries import Counted


def entries_in(workflow: Workflow) -> dict[str, Any] | None:
    """The entries of everybody as a JSON object, None where none are declared; sizes are bytes of content.

    ``index`` is what keeps the index from being used, None if it can be: then all numbers are 0.
    """
    declared = workflow.memory.entries
    if declared is None:
        return None
    trouble: str | None = None
    counts: Sequence[Counted] = ()
    try:
        with look(workflow) as memory:
            counts = memory.entries.counts()
    except StorageFailed as error:
        trouble = str(error)
    totals = {
        name: sum(getattr(each, name) for each in counts) for name in ("entries", "size_bytes", "expired", "retired")
    }
    budgets = {"max_entries": declared.max_entries, "max_bytes": declared.max_bytes}
    return {**totals, **budgets, "by_partition": [each.to_dict() for each in counts], "index": trouble}


def entry_lines(found: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    """What ``status`` says of that: a label and its text, for each line."""
    if found is None:
        yield "entries", "none declared"
        return
    if found["index"] is not None:
        yield "entries", found["index"]
        return
    hidden = f", {found['expired']} expired, {found['retired']} deleted or evicted"
    yield "entries", f"{output.count(found['entries'], 'entry', 'entries')}, {found['size_bytes']} bytes{hidden}"
    for each in found["by_partition"]:
        used = f"{each['entries']} of {found['max_entries']}, {each['size_bytes']} of {found['max_bytes']} bytes"
        run = f" in run {each['run']}" if each["run"] else ""
        yield "", f"{each['folder']} at {each['level']}{run}: {used}"
