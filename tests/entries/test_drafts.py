"""Drafts and categories: what may be saved, what a workflow may change, and when an entry expires."""

from __future__ import annotations

import inspect
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfiles.entries.drafts import LAST_MOMENT, Category, EntryRules, later
from memfiles.entries.entries import Entries
from memfiles.entries.lazy import rules_of
from memfiles.errors import InvalidArgument, MemfilesError, ReadOnly, RevisionConflict, WorkflowError
from memfiles.workflow.specs import CategorySpec, EntriesSpec, KindSpec
from memfiles.workflow.workflow import Workflow
from tests.support.records import SEEDED_AT, many_times
from tests.support.saved import Visitor, entries_in

RULES = EntryRules()


@pytest.mark.parametrize(
    "category",
    [
        Category("core"),
        Category("daily", ttl=72 * 3600),
        Category("conversation", ttl=24 * 3600, scope="run"),
        Category("workspace", scope="workspace"),
        Category("general"),
        Category("recipes"),
    ],
)
def test_what_is_built_in(category: Category) -> None:
    """Five categories have rules of their own; any other name is windowed by recency."""

    assert category == RULES.category(category.name)


def test_a_workflow_declares_lifetimes() -> None:
    """It changes how long an entry lives and nothing else; without a ttl the built-in one stays."""
    declared = EntriesSpec(
        categories={"daily": CategorySpec(ttl="48h"),  # type: ignore[arg-type] # as a workflow says it
                    "conversation": CategorySpec(max_entries=5),
                    "recipes": CategorySpec(ttl=60)}
    )  # fmt: skip
    rules = rules_of(Workflow.parse("memory: {entries: {}}"), declared)

    assert [
        Category("daily", ttl=48 * 3600),
        Category("conversation", ttl=24 * 3600, scope="run"),
        Category("recipes", ttl=60),
        Category("core"),
    ] == [rules.category(name) for name in ("daily", "conversation", "recipes", "core")]


@pytest.mark.parametrize(
    ("category", "expected"),
    [("daily", "2026-11-24T09:00:00.000Z"), ("conversation", "2026-11-22T09:00:00.000Z"), ("core", None), ("x", None)],
)
def test_expiry_counts_from_the_last_change(category: str, expected: str | None) -> None:
    """Three days for ``daily``, one for ``conversation``, never for the rest."""

    assert expected == RULES.expiry(category, SEEDED_AT)


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


@pytest.mark.parametrize(
    "said",
    [
        {"pinned": "no"},
        {"pinned": 1},
        {"ttl": True},
        {"source": 5},
        {"source": ""},
        {"source": "\ud800"},
        {"source": "x" * 256},
    ],
    ids=str,
)
def test_what_is_said_of_an_entry_is_checked(entries: Entries, said: dict[str, Any]) -> None:
    """A value of the wrong kind is refused, and not stored in a record that cannot be read again."""
    with pytest.raises(InvalidArgument):
        entries.save(Visitor(), "key", "content", **said)

    assert entries.get(Visitor(), "key") is None


def test_an_episode_keeps_its_kind(entries: Entries) -> None:
    """Otherwise it could be changed in two steps."""
    entries.save(Visitor(), "day", "as it was", kind="episode")
    with pytest.raises(ReadOnly):
        entries.update(Visitor(), "day", kind="note")


def test_a_delete_of_another_revision_is_refused(entries: Entries) -> None:
    """As every change of what the caller has not seen."""
    entries.save(Visitor(), "plan", "Free")
    entries.save(Visitor(), "plan", "Pro")
    with pytest.raises(RevisionConflict, match="is at revision 2, not 1"):
        entries.delete(Visitor(), "plan", expected_revision=1)

    assert 3 == entries.delete(Visitor(), "plan", expected_revision=2).revision
    assert entries.get(Visitor(), "plan") is None


@pytest.mark.parametrize("tags", ["ada", 5, None, [5]], ids=repr)
def test_a_filter_of_the_wrong_kind_is_refused(entries: Entries, tags: Any) -> None:
    """A text is not taken for the list of its letters."""
    with pytest.raises(InvalidArgument):
        entries.search(Visitor(), "ada", tags=tags)
    with pytest.raises(InvalidArgument):
        entries.list(Visitor(), tags=tags)


@pytest.mark.parametrize(
    "said",
    [
        {"successes": 10**30},
        {"failures": 2**63},
        {"expires_at": "2026-13-45T99:99:99.999Z"},
        {"updated": "2026-02-30T00:00:00.000Z", "category": "daily"},
        {"created": "yesterday"},
    ],
    ids=str,
)
def test_an_import_skips_what_no_entry_can_say(entries: Entries, tmp_path: Path, said: dict[str, Any]) -> None:
    """The rest is taken in, and what can be found still is."""
    source = tmp_path / "in.jsonl"
    documents = [{"key": "bad", "content": "zebra", **said}, {"key": "good", "content": "zebra"}]
    source.write_text("".join(json.dumps(each) + "\n" for each in documents))
    imported = entries.import_(Visitor(), source)

    assert (1, [f"{source.name}:1"]) == (imported.added, [each.where for each in imported.skipped])
    assert ["good"] == [match.found.key for match in entries.search(Visitor(), "zebra").matches]


def test_a_store_without_any_entry_left_is_searched(entries: Entries) -> None:
    """Nothing is found, and nothing raised, after the only entry was deleted or forgotten."""
    entries.save(Visitor(), "only", "zebra")
    entries.search(Visitor(), "zebra")
    entries.delete(Visitor(), "only")
    deleted = entries.search(Visitor(), "zebra")
    entries.forget(Visitor(), key="only")

    assert ((), ()) == (deleted.matches, entries.search(Visitor(), "zebra").matches)


def test_what_every_entry_says_teaches_nothing(entries: Entries) -> None:
    """The best match is first although its words stand in all the others, which share more words still."""
    entries.save(Visitor(), "user/name", "The user's name is Ada Lovelace.")
    entries.save_many(
        Visitor(),
        [{"key": f"n/{n}", "content": f"some user note {n} about member discounts and name tags"} for n in range(300)],
    )
    found = entries.search(Visitor(), "what is the user's name?").matches

    assert "user/name" == found[0].found.key


ODD: list[Any] = [
    *(None, True, 7, -1, 2.5, float("nan"), "", " ", "\x00", "\ud800", "x" * 300, b"x", 10**30, ...),
    *([], [1], ["a", None], ["\ud800"], [[]], {}, {"a": 1}, {1: 2}, {"run": 7}, {"run": None}, (), ("a",), set()),
    *(object(), ValueError, print),
]


USUAL: dict[str, dict[str, Any]] = {
    "save": {"key": "k", "content": "c"},
    "save_many": {"drafts": []},
    "get": {"key": "k"},
    "search": {"query": "q"},
    "list": {},
    "update": {"key": "k"},
    "delete": {"key": "k"},
    "delete_many": {"keys": []},
    "restore": {"key": "k"},
    "forget": {"key": "none such"},
    "hydrate": {},
    "explain": {"key": "k"},
    "plan": {},
    "apply": {"plan": None},
    "undo": {"key": "safe"},
    "log": {"key": "safe"},
    "diff": {"key": "safe", "from_revision": 1, "to_revision": 1},
    "deleted": {},
    "tombstones": {},
    "undo_plan": {"plan_id": "plan-0"},
    "export": {"target": "out"},
    "import_": {"source": "in"},
}


PARAMETERS = [
    (method, name)
    for method in USUAL
    for name in inspect.signature(getattr(Entries, method)).parameters
    if name not in ("self", "session")
]


FIELDS = [*inspect.signature(Entries.update).parameters, "source"][2:]


def refused_or_done(method: Any, *args: Any, **said: Any) -> None:
    """Anything but an error in words fails the test."""
    try:
        method(*args, **said)
    except MemfilesError as error:
        assert str(error)


@pytest.mark.parametrize(("method", "name"), PARAMETERS, ids=str)
def test_an_odd_value_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, name: str
) -> None:
    """And what was there can be read as before."""
    monkeypatch.chdir(tmp_path)
    with entries_in(tmp_path / "memory") as entries:
        entries.save(Visitor(), "safe", "as it was")
        for value in ODD:
            refused_or_done(getattr(entries, method), Visitor(), **{**USUAL[method], name: value})
    with entries_in(tmp_path / "memory") as entries:
        assert "as it was" == getattr(entries.get(Visitor(), "safe"), "content", None)
        assert "safe" in [found.key for found in entries.list(Visitor()).memories]


@pytest.mark.parametrize("name", FIELDS)
def test_an_odd_field_of_a_draft_is_refused_in_words(tmp_path: Path, name: str) -> None:
    """Of several that are saved together, too."""
    with entries_in(tmp_path) as entries:
        for value in ODD:
            refused_or_done(entries.save_many, Visitor(), [{"key": "k", "content": "c", name: value}])
            refused_or_done(entries.save_many, Visitor(), [value])


@pytest.mark.parametrize("method", [*USUAL, "end_run"])
def test_what_is_no_session_is_refused(tmp_path: Path, method: str) -> None:
    """With what one is."""
    with entries_in(tmp_path) as entries:
        for value in ODD:
            with pytest.raises(InvalidArgument, match="session"):
                getattr(entries, method)(value, **USUAL.get(method, {}))


@pytest.mark.parametrize("provenance", [{"run": None}, {"run": ""}, {"run": 7}, {"run": "\udc80"}])
def test_an_origin_that_is_nothing_means_no_entry(tmp_path: Path, provenance: Any) -> None:
    """A program whose run is not known does not forget everything that has none."""
    with entries_in(tmp_path) as entries:
        entries.save(Visitor(), "safe", "x")
        with pytest.raises(InvalidArgument):
            entries.forget(Visitor(), provenance=provenance)

        assert entries.get(Visitor(), "safe") is not None


@pytest.mark.parametrize("dry_run", ["false", 0, None])
def test_a_switch_is_no_text(tmp_path: Path, dry_run: Any) -> None:
    """What is not True or False is neither taken for the one nor for the other."""
    with entries_in(tmp_path) as entries:
        entries.save(Visitor(), "safe", "x")
        with pytest.raises(InvalidArgument, match="dry_run"):
            entries.forget(Visitor(), key="safe", dry_run=dry_run)

        assert entries.get(Visitor(), "safe") is not None
