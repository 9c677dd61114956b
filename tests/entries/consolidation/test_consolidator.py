"""A plan is applied whole or not at all, and taken back so that everything is as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memfiles.entries.budgets import Budget
from memfiles.entries.consolidation.plan import plan_from
from memfiles.entries.drafts import Draft, EntryRules
from memfiles.entries.entries import Entries
from memfiles.errors import EntryNotFound, InvalidArgument, RevisionConflict, SecretRefused, SizeExceeded
from memfiles.records.entry import Merged, Reorganised
from memfiles.records.entry_codec import decode_entry, encode_entry
from tests.support.saved import Clock, Visitor, entries_in, saved

CREDENTIAL = "AKIA" + "QWERTYUIOPASDFGH"


@pytest.fixture
def entries(tmp_path: Path, clock: Clock) -> Iterator[Entries]:
    """Something to merge, to fold and to evict, over a budget of ten."""
    with entries_in(tmp_path, rules=EntryRules(budget=Budget(max_entries=12)), now=clock) as opened:
        drafts = [
            Draft("tea", "tea at four", tags=["a", "b"], links=["cake"], importance=0.9),
            Draft("tea again", "tea at four", tags=["c", "a"], links=["milk"]),
            Draft("pin", "never goes", pinned=True),
            Draft("soon", "goes by itself", ttl=3600),
            Draft("least", "worth least", importance=0.0),
            *(Draft(f"day/{n}", f"Something came up on day {n}. " * 20, kind="episode") for n in range(4)),
        ]
        for draft in drafts:
            clock.go_on(1)
            opened.save_many(Visitor(), [draft])
        clock.go_on(1)
        yield opened


def told(entries: Entries) -> dict[str, Any]:
    """Everything that is said of every entry that is seen, but for its history and revision."""
    seen = [each.key for each in entries.list(Visitor()).memories]
    found = {key: entries.get(Visitor(), key) for key in seen}
    return {key: {**each.to_dict(), "revision": 0} for key, each in found.items() if each is not None}


def applied_plan(entries: Entries, *, share: float = 0.2) -> str:
    """Have it reorganised with all means; the plan's id."""
    plan = entries.plan(Visitor(), share=share)
    assert {"merge", "fold", "evict"} == {step.action for step in plan.steps}
    return entries.apply(Visitor(), plan).plan


def test_everything_is_as_it_was(entries: Entries, clock: Clock) -> None:
    """Contents, labels in their order, times, pins and lifetimes, as often as a plan is applied and taken back."""
    before, block = told(entries), entries.hydrate(Visitor()).text
    for _ in range(2):
        clock.go_on(60)
        plan = applied_plan(entries)
        assert before != told(entries)
        clock.go_on(60)
        entries.undo_plan(Visitor(), plan)

        assert (before, block) == (told(entries), entries.hydrate(Visitor()).text)


def test_what_expired_meanwhile_does_not_come_back(entries: Entries, clock: Clock) -> None:
    """Its time goes on while it is hidden."""
    plan = entries.plan(Visitor(), share=0.1)
    entries.apply(Visitor(), plan)
    clock.go_on(3600)
    entries.undo_plan(Visitor(), plan.id)

    assert "soon" in [named.key for step in plan.steps for named in step.retired]
    assert entries.get(Visitor(), "soon") is None
    assert "expired" == entries.explain(Visitor(), "soon").reason


@pytest.mark.parametrize("what", ["survivor", "note", "restored", "forgotten"])
def test_what_changed_since_keeps_a_plan_from_being_taken_back(entries: Entries, what: str) -> None:
    """Not a part of it is done then, and it is said what changed."""
    plan = applied_plan(entries)
    (note,) = [each.key for each in entries.list(Visitor()).memories if each.key.startswith("folded")]
    changed = {"survivor": "tea", "note": note, "restored": "least", "forgotten": "1 of the"}[what]
    if what == "restored":
        entries.restore(Visitor(), "least")
    elif what == "forgotten":
        entries.forget(Visitor(), key="least")
    else:
        entries.save(Visitor(), changed, "something else")
    before = told(entries)

    with pytest.raises(RevisionConflict, match=changed):
        entries.undo_plan(Visitor(), plan)
    assert before == told(entries)


@pytest.mark.parametrize("key", ["tea", "tea again", "least", "day/2"])
def test_a_plan_is_not_applied_to_what_changed_since(entries: Entries, key: str) -> None:
    """Not a step of it is done then, and the keys are told."""
    plan = entries.plan(Visitor(), share=0.2)
    entries.delete(Visitor(), key)
    before = told(entries)

    with pytest.raises(RevisionConflict, match=f"'{key}'"):
        entries.apply(Visitor(), plan)
    assert before == told(entries)


def test_a_plan_is_not_applied_to_what_expired_since(entries: Entries, clock: Clock) -> None:
    """Nobody sees it any more, and nothing is to stand for it."""
    plan = entries.plan(Visitor(), share=0.1)
    clock.go_on(3600)

    with pytest.raises(RevisionConflict, match="'soon'"):
        entries.apply(Visitor(), plan)


def test_being_read_changes_what_is_planned_and_no_plan_that_was_made(tmp_path: Path) -> None:
    """What is read goes last of equals; a read is no change."""
    with entries_in(tmp_path, rules=EntryRules(budget=Budget(max_entries=4))) as entries:
        entries.save_many(Visitor(), [Draft(f"key {n}", f"content {n}") for n in range(4)])
        plan = entries.plan(Visitor(), share=0.75)
        entries.get(Visitor(), "key 0")
        later = entries.plan(Visitor(), share=0.75)
        entries.get(Visitor(), "key 1")

        assert ["key 0", "key 1"] == [each.steps[0].retired[0].key for each in (plan, later)]
        assert ("key 1",) == entries.apply(Visitor(), later).hidden


def test_a_note_that_was_brought_back_does_not_stop_the_next_plan(entries: Entries) -> None:
    """Its key is taken: the next one has another."""
    plan = applied_plan(entries)
    (note,) = [each.key for each in entries.list(Visitor()).memories if each.key.startswith("folded")]
    entries.undo_plan(Visitor(), plan)
    entries.restore(Visitor(), note)
    applied_plan(entries)

    assert {note, f"{note} 2"} >= {each.key for each in entries.list(Visitor()).memories if "folded" in each.key}
    assert entries.get(Visitor(), f"{note} 2") is not None


def test_a_plan_can_be_kept_as_json(entries: Entries) -> None:
    """It is shown, kept, read back and applied."""
    plan = entries.plan(Visitor(), share=0.2)

    assert plan == plan_from(plan.to_dict())
    assert plan.id == entries.apply(Visitor(), plan_from(plan.to_dict())).plan


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"content": f"The key is {CREDENTIAL}"}, SecretRefused),
        ({"tags": [CREDENTIAL]}, SecretRefused),
        ({"content": "x" * 65537}, SizeExceeded),
        ({"category": "../x"}, InvalidArgument),
        ({"run": "of another"}, InvalidArgument),
    ],
)
def test_what_a_plan_writes_is_checked_like_any_save(entries: Entries, said: Any, error: type[Exception]) -> None:
    """It may have been kept where somebody changed it, and a summariser may be a model."""
    document = json.loads(json.dumps(entries.plan(Visitor(), share=0.2).to_dict()))
    (note,) = [step["note"] for step in document["steps"] if step["note"]]
    note |= said
    before = told(entries)
    with pytest.raises(error):
        entries.apply(Visitor(), plan_from(document))

    assert before == told(entries)


def test_what_a_plan_says_of_an_entry_is_checked_like_any_save(entries: Entries) -> None:
    """A merge gives labels to the entry that stays."""
    document = json.loads(json.dumps(entries.plan(Visitor(), share=0.2).to_dict()))
    (merge,) = [step for step in document["steps"] if step["action"] == "merge"]
    merge["tags"] = [CREDENTIAL]

    with pytest.raises(SecretRefused):
        entries.apply(Visitor(), plan_from(document))


@pytest.mark.parametrize("plan", [None, 7, "", "plan-0", [], {}])
def test_what_is_no_plan_is_refused(entries: Entries, plan: Any) -> None:
    """In words, whatever it is; a text may be the id of a plan that is not known here."""
    with pytest.raises(EntryNotFound if isinstance(plan, str) else InvalidArgument, match="plan"):
        entries.undo_plan(Visitor(), plan)
    with pytest.raises(InvalidArgument, match="plan"):
        entries.apply(Visitor(), plan)


def test_what_plans_made_of_an_entry_is_in_its_record() -> None:
    """Canonical, and read back as it was; a record without any of it says nothing of it."""
    entry = saved(
        made_of=("a" * 40, "b" * 40),
        merged=(Merged("c" * 40, ("tag",), ()), Merged("d" * 40)),
        reorganised=Reorganised("plan-1", 3, 1),
    )

    assert entry == decode_entry(encode_entry(entry), path=entry.path)
    assert ("a" * 40, "b" * 40, "c" * 40, "d" * 40) == entry.sources
    assert not any(name in encode_entry(saved()) for name in (b"made_of", b"merged", b"reorganised"))
