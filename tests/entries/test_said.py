"""Entries may say when they were said: searches see what they tell from then."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from memfiles.entries.drafts import Draft
from memfiles.errors import InvalidArgument
from memfiles.workflow.fields import TOOL_NAMES, ToolNames, operations_of
from tests.support.saved import Visitor, entries_in
from tests.support.workflows import opened

ADA = Visitor()
WORKFLOW = """\
name: desk
memory: {{directory: .memory, entries: {{tool_names: {tool_names}}}}}
agents: {{support: {{level: INTERNAL}}}}
"""


def test_an_entry_says_when_it_was_said(tmp_path: Path) -> None:
    """A date, or a time in any zone; it is kept when the labels change, and gone with another text."""
    with entries_in(tmp_path) as entries:
        entries.save(ADA, "a", "Met Bob.", said_at="2026-05-04")
        entries.save(ADA, "b", "Met Eve.", said_at=datetime(2026, 5, 4, 1, tzinfo=timezone(timedelta(hours=2))))
        entries.update(ADA, "a", tags=["bob"])
        said = [found.said_at for key in "ab" if (found := entries.get(ADA, key)) is not None]
        entries.save(ADA, "a", "Met Bob again.")
        again = entries.get(ADA, "a")

    assert ["2026-05-04T00:00:00.000Z", "2026-05-03T23:00:00.000Z"] == said
    assert again is not None
    assert ("", False) == (again.said_at, "said_at" in again.to_dict())


def test_a_new_text_was_said_now_and_an_edited_one_when_it_was_said(tmp_path: Path) -> None:
    """An edit corrects what was said; another text takes its place."""
    with entries_in(tmp_path) as entries:
        entries.save(ADA, "a", "Met Bob last Friday.", said_at="2026-05-04")
        entries.edit(ADA, "a", "Bob", "Eve")
        edited = entries.get(ADA, "a")
        entries.update(ADA, "a", content="Met Bob yesterday.")
        updated = entries.get(ADA, "a")

    assert edited is not None
    assert updated is not None
    assert ("2026-05-04T00:00:00.000Z", "") == (edited.said_at, updated.said_at)


@pytest.mark.parametrize("said_at", ["yesterday", "2026-02-30", "24h", 7, float("nan"), ["2026-05-04"]])
def test_what_is_no_moment_is_refused(said_at: Any, tmp_path: Path) -> None:
    """With what it may be; nothing is saved."""
    with entries_in(tmp_path) as entries:
        with pytest.raises(InvalidArgument, match="said_at must be a date or a time"):
            entries.save(ADA, "a", "Met Bob.", said_at=said_at)
        found = entries.get(ADA, "a")

    assert found is None


def test_a_search_sees_what_was_said_from_then(tmp_path: Path) -> None:
    """What was meant by "last Friday" is found by its date; saying it anew moves it."""
    with entries_in(tmp_path) as entries:
        for key, said_at in ("a", "2026-05-06"), ("b", "2026-05-13"):
            entries.save(ADA, key, "We signed last Friday.", said_at=said_at)
        asked = ["What happened on 2026-05-01?", "What happened on 8 May 2026?"]
        first = [entries.search(ADA, each).matches[0].found.key for each in asked]
        entries.save(ADA, "a", "We signed last Friday.", said_at="2026-05-20")
        moved = entries.search(ADA, "on 2026-05-15", associate=False).matches

    assert ["a", "b"] == first
    assert "a" == moved[0].found.key


def test_an_export_takes_it_along(tmp_path: Path) -> None:
    """Into a folder of Markdown and into lines of JSON, and back."""
    with entries_in(tmp_path / "here") as entries:
        entries.save(ADA, "a", "Met Bob.", said_at="2026-05-04")
        entries.export(ADA, tmp_path / "notes")
        entries.export(ADA, tmp_path / "lines.jsonl", format="jsonl")
    found = []
    for name in "notes", "lines.jsonl":
        with entries_in(tmp_path / f"there-{name}") as entries:
            entries.import_(ADA, tmp_path / name)
            found += [each.said_at for each in [entries.get(ADA, "a")] if each is not None]

    assert ["2026-05-04T00:00:00.000Z"] * 2 == found


def test_an_update_says_when_it_was_said(tmp_path: Path) -> None:
    """Without another text, and "" takes it back."""
    with entries_in(tmp_path) as entries:
        entries.save_many(ADA, [Draft(key, "We signed last Friday.") for key in "ab"])

        def first(said_at: str) -> str:
            entries.update(ADA, "a", said_at=said_at)
            return entries.search(ADA, "2026-05-01").matches[0].found.key

        found = [first(said_at) for said_at in ("", "2026-05-06", "")]

    assert ["b", "a", "b"] == found


@pytest.mark.parametrize("tool_names", TOOL_NAMES)
def test_a_tool_takes_when_it_was_said(tool_names: ToolNames, tmp_path: Path) -> None:
    """Under every naming profile; an empty text, which some models send, says nothing."""
    (save,) = (name for name, operation in operations_of(tool_names).items() if operation in ("save", "write"))
    with opened(tmp_path, WORKFLOW.format(tool_names=tool_names)) as memory:
        session = memory.session("support")
        for key, said_at in ("a", "2026-05-06"), ("b", ""):
            session.call(save, {"key": key, "content": "We signed last Friday.", "said_at": said_at})
        wrong = session.call(save, {"key": "c", "content": "We signed.", "said_at": "last Friday"})
        found = [hit.found.key for hit in memory.entries.search(session, "2026-05-01").matches]

    assert (["a", "b"], "invalid_argument") == (found, wrong.code)
