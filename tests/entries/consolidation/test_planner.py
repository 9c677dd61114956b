"""Consolidation: a plan that destroys as little as it can, shown before it is applied."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from memfiles.entries.budgets import ALL, Budget, FolderTotals, Limit, Tally, excess
from memfiles.entries.consolidation.plan import (
    FirstSentences,
    Plan,
    PlannedEntry,
    Step,
    Summariser,
    SummaryNote,
    changed_since,
    cut,
    first_sentence,
    plan_from,
)
from memfiles.entries.consolidation.planner import (
    Member,
    near_duplicates,
    normalised,
    normalised_words,
    plan_consolidation,
    says_all_of,
)
from memfiles.entries.questions import summary_of
from memfiles.errors import InvalidArgument
from memfiles.index.rows import row_of
from memfiles.records.entry import Provenance
from tests.entries.summaries import NOW
from tests.support.records import SEEDED_AT, many_times
from tests.support.saved import saved

EMPTY = Plan("0123456789ab", NOW, "support", "INTERNAL", Tally(), Tally())
BUDGETS = st.builds(
    Budget,
    st.none() | st.integers(1, 6),
    st.none() | st.integers(20, 400),
    st.dictionaries(st.sampled_from(["note", "episode"]), st.builds(Limit, st.integers(1, 4)), max_size=2),
)


class Loud:
    """A summariser that says more than it was asked for."""

    def summarise(self, texts: Sequence[str], *, most_bytes: int) -> str:
        return "é" * 10**6


def member(key: str = "color", content: str = "blue", *, accesses: int = 0, **said: Any) -> Member:
    """An entry as its first save left it; the facets by their names."""
    source = {name: said.pop(name) for name in ("source_run", "thread") if name in said}
    provenance = Provenance(run=source.get("source_run"), thread=source.get("thread"), ordinal=said.pop("ordinal", 0))
    entry = saved(key, content, provenance=provenance, **said)
    return Member(summary_of(row_of(entry, None), reads=(accesses, None)), entry)


def planned(budget: Budget, *members: Member, summariser: Summariser | None = None) -> Plan:
    """The plan for these entries."""
    return plan_consolidation(members, budget.limits, plan=EMPTY, summariser=summariser)


def told(plan: Plan) -> list[tuple[str, list[str]]]:
    """What is done, to which keys."""
    return [(step.action, [named.key for named in step.retired]) for step in plan.steps]


def episodes(
    count: int, content: str = "Asked for a refund. Got it after a long talk about the receipt.", **said: Any
) -> list[Member]:
    """Episodes of one run, in their order."""
    about = {"kind": "episode", "source_run": "run-1", **said}
    return [member(f"e{number}", f"{number}: {content}", ordinal=number, **about) for number in range(count)]


def test_within_the_budget_nothing_is_planned() -> None:
    """Duplicates included: what fits is left alone."""
    plan = planned(Budget(2, 8), member("a"), member("b"))

    assert Plan("0123456789ab", NOW, "support", "INTERNAL", Tally(2, 8), Tally(2, 8)) == plan


def test_the_steps_come_in_order_of_least_destruction() -> None:
    """Duplicates, near duplicates, episodes, and evictions last."""
    plan = planned(
        Budget(max_entries=3),
        member("a", "Blue", tags=("x",)),
        member("b", " blue\n", tags=("y",), importance=0.6),
        member("old", "she likes green tea in the morning"),
        member("new", "she likes green tea in the early morning", ordinal=1, importance=0.9),
        *episodes(3),
        member("worthless", "?", importance=0.1),
        member("worth little", "??", importance=0.2),
    )

    assert [
        ("merge", ["a"]),
        ("merge", ["old"]),
        ("fold", ["e0", "e1", "e2"]),
        ("evict", ["worthless"]),
        ("evict", ["worth little"]),
    ] == told(plan)
    assert (9, 3, True) == (plan.before.entries, plan.after.entries, plan.is_enough)


def test_it_stops_as_soon_as_the_budget_is_met() -> None:
    """The least that is worth least: nothing more is merged, folded or evicted."""
    members = [member("a"), member("b", ordinal=1), member("c", "red"), member("d", "red", ordinal=1, importance=0.9)]

    assert [("merge", ["a"])] == told(planned(Budget(max_entries=3), *members))


def test_a_merge_keeps_the_best_and_gives_it_all_tags_and_links() -> None:
    """Of three that say the same the most important stays, with its own labels first; links among them go."""
    plan = planned(
        Budget(max_entries=1),
        member("a", "Blue", tags=("x", "z"), links=("b", "sky")),
        member("b", "blue ", tags=("y", "x"), importance=0.9, links=("sea",)),
        member("c", "BLUE", pinned=False, tags=("w",), ordinal=1),
    )
    step = plan.steps[0]

    assert ("b", ["a", "c"]) == (step.survivor and step.survivor.key, [named.key for named in step.retired])
    assert (("y", "x", "w", "z"), ("sea", "sky")) == ((*step.tags[:2], *sorted(step.tags[2:])), step.links)
    assert ("deleted", Tally(2, 8)) == (step.state, step.freed)


@pytest.mark.parametrize(
    "other",
    [
        {"kind": "fact"},
        {"category": "daily"},
        {"run": "r1", "category": "conversation"},
        {"expires_at": "2027-01-01T00:00:00.000Z"},
        {"kind": "episode"},
    ],
)
def test_only_entries_of_one_sort_are_merged(other: dict[str, Any]) -> None:
    """Nothing that expires, or that others do not see, stands in for what does not; and what happened happened."""

    assert [("evict", ["a"])] == told(planned(Budget(max_entries=1), member("a"), member("b", ordinal=1, **other)))


@pytest.mark.parametrize(
    ("older", "newer", "expected"),
    [
        ("she likes green tea in the morning", "she likes green tea in the early morning", True),
        ("order 1001 went to Alice on Monday", "order 1002 went to Alice on Monday", False),
        ("the red team owes the blue one", "the blue team owes the red one", False),
        ("she likes tea", "she likes green tea", False),
        ("she likes green tea in the early morning", "she likes green tea in the morning", False),
        ("one two three four five", "one two three four five " * 2, False),
    ],
)
def test_a_near_duplicate_is_said_again_in_more_words(older: str, newer: str, expected: bool) -> None:
    """Every word of the older stands in the newer, in its order; a number or a name that differs is another thing."""
    plan = planned(Budget(max_entries=1), member("old", older), member("new", newer, ordinal=1))

    assert expected == ("merge" in [step.action for step in plan.steps])


@pytest.mark.parametrize("older", [{"pinned": True}, {"importance": 0.6}, {"category": "core"}, {"updated": True}])
def test_what_is_worth_more_does_not_give_way(older: dict[str, Any]) -> None:
    """A near duplicate that is pinned, more important or newer stays as it is."""
    at = "2026-11-22T09:00:00.000Z" if older.pop("updated", False) else SEEDED_AT
    category = {"category": older["category"]} if "category" in older else {}
    kept = member("old", "she likes green tea in the morning", at=at, **older)
    plan = planned(Budget(max_bytes=79), kept, member("new", "she likes green tea in the early morning", **category))

    assert "merge" not in [step.action for step in plan.steps]


def test_a_fold_is_a_note_of_first_sentences_that_names_its_sources() -> None:
    """It is as important as the most important of them and as sure as the least, and has all their labels."""
    members = episodes(3, tags=("refund",), links=("e1", "policy"))
    members += [member("e3", "3: Done. And so on, at some length, about this and that.", kind="episode", ordinal=3,
                       source_run="run-1", importance=0.8, confidence=0.5, tags=("done",))]  # fmt: skip
    step = planned(Budget(max_entries=1), *members).steps[0]
    expected = (
        "4 episodes, 2026-11-21:\n- 0: Asked for a ref…\n- 1: Asked for a ref…\n- 2: Asked for a ref…\n- 3: Done.\n"
        'Sources: "e0", "e1", "e2", "e3"'
    )

    assert step.note is not None
    assert expected == step.note.content
    made_of = tuple(each.entry.uid for each in members)
    note = SummaryNote(
        step.note.key, expected, "", ("refund", "done"), ("policy",), "general", 0.8, 0.5, made_of=made_of
    )
    assert note == step.note
    assert step.note.key.startswith("folded 2026-11-21 ")
    assert Tally(3, sum(each.entry.size_bytes for each in members) - len(expected.encode())) == step.freed


def test_episodes_are_folded_by_run_and_thread_or_else_by_day() -> None:
    """Those of the oldest group first, and only as many groups as must."""
    groups: dict[str, dict[str, Any]] = {
        "r": {"source_run": "r1", "at": "2026-11-22T09:00:00.000Z"},
        "t": {"source_run": None, "thread": "t1", "at": "2026-11-21T09:00:00.000Z"},
        "d": {"source_run": None, "at": "2026-11-20T09:00:00.000Z"},
        "x": {"source_run": None, "at": "2026-11-23T09:00:00.000Z"},
    }
    members = [
        member(f"{name}{number}", "A long talk about a receipt. " * 5, kind="episode", ordinal=number, **about)
        for name, about in groups.items()
        for number in range(1 if name == "x" else 3)
    ]

    assert [("fold", ["d0", "d1", "d2"]), ("fold", ["t0", "t1", "t2"])] == told(planned(Budget(6), *members))


def test_a_note_takes_up_a_bounded_number_of_episodes() -> None:
    """However long a run was, its notes stay small."""
    plan = planned(Budget(max_entries=4), *episodes(200))

    assert [64, 64, 64, 8] == [len(step.retired) for step in plan.steps]
    assert all(step.note and step.note.size_bytes < 8192 for step in plan.steps)


def test_a_note_expires_with_the_last_of_its_episodes() -> None:
    """Folding makes nothing live longer, and nothing shorter."""
    members = [
        member(
            f"e{day}", "A long talk about a receipt. " * 5, kind="episode", expires_at=f"2026-12-0{day}T00:00:00.000Z"
        )
        for day in (1, 2)
    ]
    note = planned(Budget(max_entries=1), *members).steps[0].note

    assert note is not None and note.expires_at == "2026-12-02T00:00:00.000Z"


def test_a_note_that_would_be_larger_is_not_made() -> None:
    """Folding what is short already would help nobody; it is evicted in its order."""
    members = [member(f"e{number}", "ok", kind="episode", ordinal=number) for number in range(3)]

    assert [("evict", ["e0"])] == told(planned(Budget(max_entries=2), *members))


def test_a_summariser_that_says_too_much_is_cut() -> None:
    """The bound holds whoever summarises, to the byte and between characters."""
    members = episodes(4)
    note = planned(Budget(max_entries=1), *members, summariser=Loud()).steps[0].note

    assert note is not None and note.content.endswith('…\nSources: "e0", "e1", "e2", "e3"')
    assert note.size_bytes < sum(each.entry.size_bytes for each in members)


def test_what_is_not_seen_is_not_counted() -> None:
    """Expired, deleted and evicted entries are no part of it."""
    gone = member("gone", expires_at=SEEDED_AT)
    plan = planned(
        Budget(max_entries=1), member("a"), gone, replace(gone, summary=replace(gone.summary, state="deleted"))
    )

    assert (Tally(1, 4), ()) == (plan.before, plan.steps)


def test_only_what_helps_is_done() -> None:
    """Over a budget of facts, notes are left alone, duplicates or not."""
    members = [member("a"), member("b"), member("f", "1", kind="fact"), member("g", "2", kind="fact", ordinal=1)]

    assert [("evict", ["f"])] == told(planned(Budget(per_kind={"fact": Limit(max_entries=1)}), *members))


CONTENTS = st.sampled_from(
    ["blue", "Blue ", "she likes tea with milk and", "she likes tea with milk and honey"]
) | st.text(max_size=80)


def numbered(drawn: list[dict[str, Any]]) -> list[Member]:
    """Entries under keys of their own."""
    return [member(f"k{number}", **said) for number, said in enumerate(drawn)]


FACETS: dict[str, st.SearchStrategy[Any]] = {
    "content": CONTENTS,
    "kind": st.sampled_from(["note", "episode"]),
    "importance": st.sampled_from([0.2, 0.5]),
    "pinned": st.booleans(),
    "source_run": st.sampled_from([None, "r"]),
    "ordinal": st.integers(0, 3),
}
MEMBERS = st.lists(st.fixed_dictionaries(FACETS), min_size=1, max_size=10).map(numbered)


@many_times
@given(MEMBERS, BUDGETS)
def test_a_plan_does_what_it_says(members: list[Member], budget: Budget) -> None:
    """The numbers add up, the budget is met or it says so, no step comes after that, and none goes twice."""
    plan = planned(budget, *members)
    retired = [named.uid for step in plan.steps for named in step.retired]
    left = [each.summary for each in members if each.entry.uid not in retired]
    notes = [member(step.note.key, step.note.content).summary for step in plan.steps if step.note]
    freed = Tally()
    for step in plan.steps:
        freed = freed.plus(step.freed)

    assert len(set(retired)) == len(retired)
    assert FolderTotals.of([*left, *notes]).within(ALL) == plan.after == plan.before.minus(freed)
    assert plan.is_enough == (not excess(budget.limits, FolderTotals.of([*left, *notes])))
    if plan.steps:
        undone = {named.uid for named in plan.steps[-1].retired}
        kept = [each.summary for each in members if each.entry.uid in undone]
        last = notes[:-1] if plan.steps[-1].note else notes
        assert excess(budget.limits, FolderTotals.of([*left, *kept, *last]))


@many_times
@given(MEMBERS, BUDGETS, st.randoms(use_true_random=False))
def test_the_same_entries_give_the_same_plan(members: list[Member], budget: Budget, random: Any) -> None:
    """In whatever order they are read; and its JSON is the plan."""
    shuffled = [*members]
    random.shuffle(shuffled)
    plan = planned(budget, *members)

    assert plan == planned(budget, *shuffled)
    assert plan == plan_from(json.loads(json.dumps(plan.to_dict())))


@pytest.mark.parametrize("document", [None, [], {}, {"id": "x"}, {"steps": [{"action": "burn"}]}, "\ud800"])
def test_what_is_no_plan_is_refused(document: object) -> None:
    """With the first place where it is none, and without what stands there."""
    with pytest.raises(InvalidArgument, match="invalid plan: "):
        plan_from(document)


def test_what_changed_since_a_plan_was_made_is_named() -> None:
    """Changed, gone or come meanwhile, each once; nothing if all is as it was."""
    members = [member("a"), member("b", importance=0.9), *episodes(3), member("z", "?", importance=0.1)]
    plan = planned(Budget(max_entries=2), *members)
    now: dict[str, int] = {each.entry.uid: 1 for each in members}
    (note,) = [step.note for step in plan.steps if step.note is not None]
    survivor, gone = members[1].entry.uid, members[5].entry
    there = {**now, survivor: 2, plan.uid_of(note): 1}

    assert [] == changed_since(plan, revision_of=now.get)
    assert {"b", note.key} == set(changed_since(plan, revision_of=there.get))
    assert [gone.key] == changed_since(plan, revision_of=lambda uid: None if uid == gone.uid else now.get(uid))
    assert set(plan.uids) == {*now, plan.uid_of(note)}


def test_the_first_sentence() -> None:
    """Up to a full stop, a question or exclamation mark, of East Asian scripts also, or the end of the line."""
    texts = ["Paid 3.50 at noon. Then left.", "Why? Because.", "終わり。次", "\n a  b\nc", ""]

    assert ["Paid 3.50 at noon.", "Why?", "終わり。", "a b", ""] == [first_sentence(text) for text in texts]


@many_times
@given(st.lists(st.text(max_size=40), min_size=1, max_size=70), st.integers(64, 400))
def test_a_summary_is_bounded(texts: list[str], most_bytes: int) -> None:
    """However many texts there are and whatever is in them."""

    assert len(FirstSentences().summarise(texts, most_bytes=most_bytes).encode()) <= most_bytes


@pytest.mark.parametrize(("most", "expected"), [(9, "ééé bc"), (8, "éé…"), (3, "…"), (2, "")])
def test_a_cut_shows(most: int, expected: str) -> None:
    """Between characters, with an ellipsis that counts."""

    assert expected == cut("ééé bc", most)


def test_what_is_normalised_is_compared() -> None:
    """Case, white space and the way an accent is written make no difference; words do."""

    assert normalised("Caf\u00e9  NOIR\n") == normalised("cafe\u0301 noir")
    assert ("user_s", "email", "is", "a", "b", "org") == normalised_words("user_s email: is <a@b.org>!")


@many_times
@given(st.lists(st.lists(st.sampled_from("abcdefg"), max_size=8).map(tuple), max_size=8))
def test_near_duplicates_are_those_that_comparing_all_finds(texts: list[tuple[str, ...]]) -> None:
    """The shortcut by the rarest word leaves none out."""
    gone: dict[int, int] = {}
    for position, text in enumerate(texts):
        for other in range(position):
            if other not in gone and position not in gone and says_all_of(texts[other], text):
                gone[position] = other

    assert gone == {goes: stays for stays, goes in near_duplicates(texts)}


def test_a_step_names_what_it_rests_on() -> None:
    """The retired, and the survivor."""
    one, two = (PlannedEntry(name, name, 1) for name in "ab")

    assert (one, two) == Step("merge", "", retired=(one,), survivor=two).named
