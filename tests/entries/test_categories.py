"""Categories: what is built in, what a workflow may change, and when an entry expires."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfiles.entries.drafts import LAST_MOMENT, Categories, Category, later
from memfiles.entries.lazy import rules_of
from memfiles.errors import InvalidArgument, WorkflowError
from memfiles.workflow.workflow import CategorySpec, EntriesSpec, KindSpec, Workflow
from tests.support.records import SEEDED_AT, many_times

BUILT_IN = Categories()


@pytest.mark.parametrize(
    "category",
    [
        Category("core", is_pinned=True),
        Category("daily", ttl=72 * 3600),
        Category("conversation", ttl=24 * 3600, is_of_one_run=True),
        Category("workspace", is_shared=True),
        Category("general"),
        Category("recipes"),
    ],
)
def test_what_is_built_in(category: Category) -> None:
    """Five categories have rules of their own; any other name is windowed by recency."""

    assert category == BUILT_IN.of(category.name)


def test_a_workflow_declares_lifetimes() -> None:
    """It changes how long an entry lives and nothing else; without a ttl the built-in one stays."""
    declared = EntriesSpec(
        categories={"daily": CategorySpec(ttl="48h"), "conversation": CategorySpec(max_entries=5),
                    "recipes": CategorySpec(ttl=60)}
    )  # fmt: skip
    categories = rules_of(Workflow.parse("memory: {entries: {}}"), declared).categories

    assert [
        Category("daily", ttl=48 * 3600),
        Category("conversation", ttl=24 * 3600, is_of_one_run=True),
        Category("recipes", ttl=60),
        Category("core", is_pinned=True),
    ] == [categories.of(name) for name in ("daily", "conversation", "recipes", "core")]


@pytest.mark.parametrize(
    ("category", "expected"),
    [("daily", "2026-11-24T09:00:00.000Z"), ("conversation", "2026-11-22T09:00:00.000Z"), ("core", None), ("x", None)],
)
def test_expiry_counts_from_the_last_change(category: str, expected: str | None) -> None:
    """Three days for ``daily``, one for ``conversation``, never for the rest."""

    assert expected == BUILT_IN.expiry(category, SEEDED_AT)


@many_times
@given(st.datetimes(datetime(1970, 1, 1), datetime(9000, 1, 1)), st.integers(1, 10**9))
def test_later_is_later_by_that_much(moment: datetime, seconds: int) -> None:
    """Over months, leap days and years, in the form in which records tell time."""
    said = moment.isoformat(timespec="milliseconds") + "Z"
    expected = datetime.fromisoformat(said) + timedelta(seconds=seconds)

    assert expected == datetime.fromisoformat(later(said, seconds))
    assert said < later(said, seconds) and len(said) == len(later(said, seconds))


def test_no_timestamp_is_later_than_the_last() -> None:
    """A lifetime beyond what a timestamp can tell ends at the last moment."""

    assert LAST_MOMENT == later("9999-12-31T00:00:00.000Z", 10**9)


@pytest.mark.parametrize("moment", ["", "soon", "2026-13-01T00:00:00.000Z", "0000-00-00T00:00:00.000Z"])
def test_what_is_no_moment_is_refused(moment: str) -> None:
    """A timestamp that fits the pattern may still name a day that does not exist."""
    with pytest.raises(InvalidArgument, match="is not a moment"):
        later(moment, 1)


def test_budgets_of_categories_and_kinds_are_declared() -> None:
    """Beside the budget of all entries; what is left out is not limited on its own."""
    entries = Workflow.parse(
        "memory: {entries: {categories: {daily: {max_entries: 7}}, kinds: {episode: {max_bytes: 99}}}}"
    ).memory.entries

    assert entries is not None
    assert CategorySpec(max_entries=7) == entries.categories["daily"]
    assert {"episode": KindSpec(max_bytes=99)} == entries.kinds


@pytest.mark.parametrize(
    "entries", ["kinds: {epos: {}}", "kinds: {note: {ttl: 5}}", "categories: {daily: {max_bytes: 0}}"]
)
def test_a_budget_that_cannot_be_is_refused(entries: str) -> None:
    """A kind that does not exist, a setting that is not a kind's, room for nothing."""
    with pytest.raises(WorkflowError, match=r"memory\.entries"):
        Workflow.parse(f"memory: {{entries: {{{entries}}}}}")
