"""What is told of an entry's life: everything to whoever could see it, and nothing that was hidden from them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memfiles.entries.budgets import Budget
from memfiles.entries.drafts import DAY_SECONDS, EntryRules, Retention
from memfiles.entries.entries import Entries
from memfiles.errors import EntryNotFound, InvalidArgument, ReadOnly, RevisionConflict, RevisionUnknown
from tests.support.records import files_under
from tests.support.saved import Clock, Visitor, entries_in
from tests.support.workflows import opened

MATE = Visitor("billing")
SHARED = """\
memory:
  durability: os
  audit: {reads: true}
  entries: {categories: {playbook: {scope: agent, from_users: true}}}
agents: {support: {}, guest: {entries: r}}
"""


def ops(entries: Entries, visitor: Visitor, key: str) -> list[str]:
    return [change.op for change in entries.log(visitor, key).changes]


def test_one_log_tells_the_whole_life(entries: Entries, clock: Clock) -> None:
    """What was done, by whom and in which call, the keys and the scopes that it had, and what it is now."""
    visitor = Visitor(run="evt-1")
    saved = entries.save(visitor, "plan", "Ada is on Free", call_id="c1")
    entries.save(visitor, "plan", "Ada is on Pro", call_id="c2")
    entries.update(visitor, "plan", tags=["ada"])
    entries.undo(visitor, "plan", call_id="c3")
    entries.relocate(visitor, {"plan": "ada/plan"})
    entries.update(visitor, "ada/plan", category="workspace", ttl=60)
    entries.delete(visitor, "ada/plan", call_id="c4")
    entries.restore(visitor, "ada/plan")
    clock.go_on(61)
    expired = entries.log(visitor, "ada/plan")
    entries.restore(visitor, "ada/plan")
    log = entries.log(visitor, "ada/plan")

    assert ("expired", "expire", None) == (expired.state, expired.changes[0].op, expired.changes[0].revision)
    assert [
        *("restore", "expire", "restore", "delete", "move", "update", "rename", "undo", "update", "save", "save")
    ] == [change.op for change in log.changes]
    told = {change.op: change for change in log.changes}
    assert ("plan", "ada/plan") == (told["rename"].from_key, told["rename"].key)
    assert ("agent", "workspace") == (told["move"].from_scope, told["move"].scope)
    assert ("c3", 2) == (told["undo"].by.call, told["undo"].undone_revision)
    assert ("support", "evt-1", "c4") == (told["delete"].by.agent, told["delete"].by.session, told["delete"].by.call)
    assert (14, 0, "plan", "agent") == tuple(
        getattr(log.changes[-1], name) for name in ("bytes", "removed_bytes", "key", "scope")
    )
    assert (saved.id, "live", "workspace", True) == (log.found.id, log.state, log.scope, log.is_complete)
    assert [each.revision for each in log.changes if each.revision] == list(range(log.found.revision, 0, -1))


def test_an_earlier_key_leads_to_where_the_entry_is_now(entries: Entries) -> None:
    """Of those that the session may see; an entry that has the key now comes first."""
    visitor, conversation = Visitor(), Visitor(run="r")
    for visit in (visitor, MATE):
        entries.save(visit, "a", f"of {visit.provenance.agent}")
        entries.relocate(visit, {"a": "b"})
        entries.relocate(visit, {"b": "c"})
    entries.save(visitor, "b", "another")
    entries.save(conversation, "talk", "x")
    entries.update(conversation, "talk", category="conversation")

    assert ["c", "b", "c"] == [entries.log(visitor, key).found.key for key in ("a", "b", "c")]
    assert "of support" == entries.log(visitor, "a").found.content
    assert entries.diff(visitor, "a", 1, 2) == ""
    assert ["move", "update", "save"] == ops(entries, conversation, "talk")
    with pytest.raises(EntryNotFound):
        entries.log(visitor, "talk")


def test_what_was_said_elsewhere_stays_there(entries: Entries) -> None:
    """Whoever sees an entry only since it is shared learns nothing of before: no text, no key, no number of bytes."""
    visitor = Visitor(run="evt-1")
    entries.save(visitor, "salary", "Ada earns 100", call_id="first call")
    entries.save(visitor, "salary", "Ada earns 2000", call_id="second call")
    entries.relocate(visitor, {"salary": "ada"})
    entries.update(visitor, "ada", content="Ada is here", category="workspace")
    entries.save(MATE, "ada", "Ada is there")
    log, told = entries.log(MATE, "ada"), str(entries.log(MATE, "ada").to_dict())

    assert [("save", 1, 0), ("move", None, None)] == [(it.op, it.bytes, it.removed_bytes) for it in log.changes]
    assert (False, False, False) == ("salary" in told, "first call" in told, log.is_complete)
    assert "-Ada is here" in entries.diff(MATE, "ada", log.changes[1].revision or 0, log.changes[0].revision or 0)
    for revision in (1, 2, 3, 4):
        with pytest.raises(RevisionUnknown):
            entries.diff(MATE, "ada", revision, log.found.revision)
        with pytest.raises(RevisionUnknown):
            entries.undo(MATE, "ada", revision)
    entries.undo(MATE, "ada")
    entries.undo(MATE, "ada")
    assert "Ada is there" == getattr(entries.get(MATE, "ada"), "content", None)
    assert "-Ada earns 100\n" in entries.diff(visitor, "ada", 1, 2)
    entries.undo(visitor, "ada", 1)
    assert "Ada earns 100" == getattr(entries.get(MATE, "ada"), "content", None)


def test_what_is_taken_back_has_an_older_text_again(entries: Entries, clock: Clock) -> None:
    """As a new revision, under the same id; its confidence goes, its tags stay, and a repeated call changes nothing."""
    visitor = Visitor()
    entries.save(visitor, "plan", "one", tags=["t"])
    entries.save(visitor, "plan", "two", confidence=0.25)
    clock.go_on(60)
    entries.update(visitor, "plan", pinned=True)
    undone = entries.undo(visitor, "plan", call_id="c1")
    again = entries.undo(visitor, "plan", call_id="c1")
    found: Any = entries.get(visitor, "plan")

    assert ("one", 4, 1.0, True, ("t",), clock.at) == tuple(
        getattr(found, name) for name in ("content", "revision", "confidence", "pinned", "tags", "updated_at")
    )
    assert (("t",), 0.25, False) == (undone.kept_tags, undone.confidence_was, undone.replayed)
    assert (4, True) == (again.revision, again.replayed)
    assert (5, "two") == (entries.undo(visitor, "plan").revision, getattr(entries.get(visitor, "plan"), "content", ""))
    assert (6, "one") == (entries.undo(visitor, "plan", 1).revision, entries.log(visitor, "plan").found.content)
    assert 6 == entries.undo(visitor, "plan", to_revision=6).revision


def test_an_undo_of_what_has_changed_meanwhile_is_refused(entries: Entries) -> None:
    """If the caller says what revision it saw; a call that is repeated still gets its receipt."""
    visitor = Visitor()
    for text in ("one", "two", "three"):
        entries.save(visitor, "plan", text)
    for to_revision in (None, 1, 3):
        with pytest.raises(RevisionConflict, match="'plan' is at revision 3, not 2"):
            entries.undo(visitor, "plan", to_revision, expected_revision=2)
    done = [entries.undo(visitor, "plan", expected_revision=3, call_id="c1") for _ in range(2)]

    assert [(4, False), (4, True)] == [(receipt.revision, receipt.replayed) for receipt in done]


def test_nothing_else_is_taken_back(entries: Entries) -> None:
    """Not the first text, not what is deleted, at another level or an episode; and nothing changes."""
    visitor = Visitor()
    entries.save(visitor, "first", "one")
    entries.save(visitor, "gone", "one")
    entries.delete(visitor, "gone")
    entries.save(Visitor(level="PUBLIC"), "low", "one")
    entries.save(visitor, "met", "one", kind="episode")
    entries.delete(visitor, "met")
    entries.save(visitor, "met", "two")
    with pytest.raises(RevisionUnknown, match="'first' has no earlier text in its history to go back to"):
        entries.undo(visitor, "first")
    with pytest.raises(RevisionUnknown, match="'first' has no revision 2 to read: its log has 1 to 1"):
        entries.undo(visitor, "first", 2)
    with pytest.raises(EntryNotFound):
        entries.undo(visitor, "gone")
    with pytest.raises(EntryNotFound, match="the one it sees is at level PUBLIC"):
        entries.undo(visitor, "low")
    with pytest.raises(ReadOnly):
        entries.undo(visitor, "met")
    with pytest.raises(InvalidArgument):
        entries.undo(visitor, "first", 1.0)  # type: ignore[arg-type]

    assert [1, 1, 3] == [entries.log(visitor, key).found.revision for key in ("first", "low", "met")]


def test_an_undo_stays_within_the_budget(tmp_path: Path) -> None:
    """Another entry makes room for the longer text, as for a save."""
    with entries_in(tmp_path / "memory", rules=EntryRules(budget=Budget(max_bytes=100))) as entries:
        entries.save(Visitor(), "plan", "x" * 80)
        entries.save(Visitor(), "plan", "y")
        entries.save(Visitor(), "other", "z" * 50)

        assert ("other",) == entries.undo(Visitor(), "plan").evicted
        assert ["evict", "save"] == ops(entries, Visitor(), "other")
        assert "plan-" == (entries.log(Visitor(), "other").changes[0].cause or "")[:5]


def test_a_log_tells_of_a_consolidation(tmp_path: Path) -> None:
    """Into what an entry was folded or merged, out of what a note was made, in which plan, and that it was undone."""
    rules = EntryRules(budget=Budget(max_entries=4))
    with entries_in(tmp_path / "memory", rules=rules) as entries:
        visitor = Visitor(run="r", thread="t")
        for number in range(3):
            entries.save(visitor, f"met {number}", f"Met Ada {number}. " * 20, kind="episode")
        entries.save(visitor, "same", "x")
        plan = entries.plan(visitor, share=0.3)
        entries.apply(visitor, plan)
        [note] = [step.note for step in plan.steps if step.note]
        episode, summary = entries.log(visitor, "met 0"), entries.log(visitor, note.key)
        entries.undo_plan(visitor, plan.id)

        assert ("deleted", "fold", plan.id) == (episode.state, episode.changes[0].op, episode.changes[0].cause)
        assert [note.key] == list(episode.made_into.values())
        assert ["met 0", "met 1", "met 2"] == sorted(summary.made_of.values())
        assert ("fold", plan.id) == (summary.changes[0].op, summary.changes[0].cause)
        assert ["undo_plan", "fold", "save"] == ops(entries, visitor, "met 0")


def test_what_is_hidden_and_can_be_restored_is_listed(entries: Entries, clock: Clock) -> None:
    """At the session's level and below, newest first: deleted, evicted, expired; not what it may not see."""
    visitor = Visitor()
    entries.save(visitor, "brief", "x", ttl=60)
    entries.save(visitor, "gone", "x", tags=["t"])
    entries.save(visitor, "stays", "x")
    clock.go_on(10)
    entries.delete(visitor, "gone", call_id="c1")
    clock.go_on(60)
    for other in (Visitor(level="PUBLIC"), Visitor(level="RESTRICTED"), MATE):
        entries.save(other, "other", "x")
        entries.delete(other, "other")
    found = entries.deleted(visitor)

    assert [("other", "PUBLIC", "deleted"), ("brief", "INTERNAL", "expired"), ("gone", "INTERNAL", "deleted")] == [
        (each.found.key, each.found.level, each.state) for each in found.entries
    ]
    assert ("c1", ["t"]) == (found.entries[2].by.call, found.entries[2].to_dict()["tags"])
    assert (1, True, False) == (
        len(entries.deleted(visitor, limit=1).entries),
        entries.deleted(visitor, limit=1).more,
        found.more,
    )
    entries.restore(visitor, "brief")
    entries.forget(visitor, key="gone")
    assert ["other"] == [each.found.key for each in entries.deleted(visitor).entries]
    with pytest.raises(InvalidArgument):
        entries.deleted(visitor, limit=0)


def test_what_was_forgotten_leaves_a_tombstone_to_read(entries: Entries, clock: Clock) -> None:
    """Its id, when, by whom and why; to those who could see the entry, newest first, and no key or text."""
    visitor = Visitor(run="evt-1")
    ids = []
    for agent, key in ((visitor, "first"), (visitor, "second"), (MATE, "third"), (Visitor(level="RESTRICTED"), "top")):
        ids.append(entries.save(agent, key, f"text of {key}").id)
        clock.go_on(1)
        entries.forget(agent, key=key, why=f"asked {len(ids)}")
    found = entries.tombstones(visitor)

    assert [(ids[1], "asked 2"), (ids[0], "asked 1")] == [(each.id, each.why) for each in found.tombstones]
    assert ("support", "evt-1", "INTERNAL") == (
        *(found.tombstones[0].by.agent, found.tombstones[0].by.session, found.tombstones[0].level),
    )
    assert "first" not in str(found.to_dict())
    assert 3 == len(entries.tombstones(Visitor(level="RESTRICTED")).tombstones)
    assert (ids[1:2], True) == (
        [each.id for each in entries.tombstones(visitor, limit=1).tombstones],
        entries.tombstones(visitor, limit=1).more,
    )
    with pytest.raises(EntryNotFound):
        entries.log(visitor, "first")


@pytest.mark.parametrize("hide", ["delete", "expire", "forget"])
def test_a_few_of_what_went_together_are_the_first_of_all(entries: Entries, clock: Clock, hide: str) -> None:
    """At any limit: a reader who asks for more is told of each once, and of none too late."""
    visitor = Visitor(level="RESTRICTED")
    for level in ("INTERNAL", "RESTRICTED"):
        for number in range(12):
            entries.save(Visitor(level=level), f"{level} {number}", "x", tags=["all"], ttl=60)
            if hide == "delete":
                entries.delete(Visitor(level=level), f"{level} {number}")
    clock.go_on(60 if hide == "expire" else 0)
    if hide == "forget":
        for level in ("INTERNAL", "RESTRICTED"):
            entries.forget(Visitor(level=level), tag="all")
        told = [[it.id for it in entries.tombstones(visitor, limit=most).tombstones] for most in range(1, 25)]
    else:
        told = [[it.found.id for it in entries.deleted(visitor, limit=most).entries] for most in range(1, 25)]

    assert 24 == len(set(told[-1]))
    assert all(few == told[-1][: len(few)] for few in told)


def test_a_log_does_not_say_for_which_user_others_things_were_changed(tmp_path: Path) -> None:
    """Of what is for all: neither the run, the call, the actor nor the reason; of a user's own things it says them."""
    with opened(tmp_path, SHARED) as memory:
        ada, bob = (
            memory.session("support", user="ada", run="r-ada", actor="acts for ada"),
            memory.session("support", user="bob"),
        )
        entries = memory.entries
        for key in ("how-to", "gone", "forgotten"):
            entries.save(ada, key, f"Ask first: {key}", category="playbook", call_id="c-ada")
        entries.update(ada, "how-to", content="Ask twice", call_id="c-ada-2")
        entries.undo(ada, "how-to", call_id="c-ada-3")
        entries.delete(ada, "gone", call_id="c-ada-4")
        entries.forget(ada, key="forgotten", why="for ada")
        entries.save(ada, "own", "Ada is on Pro", call_id="c-own")
        told = [
            *(entries.log(session, "how-to").to_dict() for session in (bob, memory.session("support"))),
            *(ask(bob).to_dict() for ask in (entries.deleted, entries.tombstones)),
        ]

        assert ["undo", "update", "save"] == [each["op"] for each in told[0]["changes"]]
        assert [{"agent": "support"}] * 5 == [
            *(each["by"] for each in told[0]["changes"]),
            *(each["by"] for each in (told[2]["deleted"][0], told[3]["tombstones"][0])),
        ]
        assert not re.search(r"\bada\b", str(told), re.IGNORECASE)
        assert ("r-ada", "c-own") == (
            entries.log(ada, "own").changes[0].by.session,
            entries.log(ada, "own").changes[0].by.call,
        )
        with pytest.raises(EntryNotFound):
            entries.log(bob, "own")


def test_what_a_user_published_has_no_history(tmp_path: Path) -> None:
    """Others get neither the text nor the key of what was there before, and cannot go back to it."""
    with opened(tmp_path, SHARED) as memory:
        ada, bob = memory.session("support", user="ada"), memory.session("support", user="bob")
        entries = memory.entries
        entries.save(ada, "salary", "Ada earns 100")
        entries.relocate(ada, {"salary": "refunds"})
        entries.update(ada, "refunds", content="Ask first", category="playbook")
        entries.save(bob, "refunds", "Ask twice", category="playbook")
        log = entries.log(bob, "refunds")

        assert [("save", None), ("save", None)] == [(it.op, it.from_key) for it in log.changes]
        assert "salary" not in str(log.to_dict()) and "earns" not in str(log.to_dict())
        with pytest.raises(RevisionUnknown):
            entries.diff(bob, "refunds", (log.changes[-1].revision or 1) - 1, log.found.revision)
        with pytest.raises(EntryNotFound):
            entries.log(bob, "salary")
        entries.undo(bob, "refunds")
        assert "Ask first" == entries.log(bob, "refunds").found.content
        entries.undo(bob, "refunds", log.changes[-1].revision)
        assert "Ask first" == entries.log(bob, "refunds").found.content


def test_a_users_session_undoes_nothing_that_others_see(tmp_path: Path) -> None:
    """Unless the category lets it; and an agent that may only read undoes nothing."""
    with opened(tmp_path, SHARED) as memory:
        nobody, ada = memory.session("support"), memory.session("support", user="ada")
        for text in ("formal", "casual"):
            memory.entries.save(nobody, "tone", text)
        with pytest.raises(ReadOnly, match="'tone' is seen by other users"):
            memory.entries.undo(ada, "tone")
        with pytest.raises(ReadOnly):
            memory.entries.undo(memory.session("guest"), "tone")

        assert "casual" == memory.entries.log(ada, "tone").found.content


def test_what_was_kept_long_enough_is_told_to_nobody(entries: Entries, clock: Clock) -> None:
    """Whether or not anybody has erased it yet: not its text, not its log, not that it was there; only the date."""
    visitor = Visitor()
    entries.save(visitor, "brief", "x", ttl=60)
    for text in ("one", "two"):
        entries.save(visitor, "gone", text)
    entries.delete(visitor, "gone")
    clock.go_on(60 + 7 * 86400)
    entries.save(visitor, "late", "x", ttl=60)
    clock.go_on(60)
    after_a_week = entries.deleted(visitor, limit=1), entries.deleted(visitor)
    clock.go_on(90 * 86400)

    assert [(["late"], True), (["late", "gone"], False)] == [
        ([each.found.key for each in it.entries], it.more) for it in after_a_week
    ]
    assert ((), False) == (entries.deleted(visitor).entries, entries.deleted(visitor).more)
    asked: tuple[Callable[[], Any], ...] = (
        lambda: entries.log(visitor, "gone"),
        lambda: entries.undo(visitor, "gone"),
        lambda: entries.diff(visitor, "gone", 1, 2),
    )
    for ask in asked:
        with pytest.raises(EntryNotFound, match="'gone' had expired or was deleted, and its content was erased on 20"):
            ask()


def test_the_end_of_what_one_run_knew_is_not_told(entries: Entries, tmp_path: Path) -> None:
    """Nobody outside of it learns that an entry of a run was forgotten; the tombstone is there all the same."""
    talk = Visitor(run="r")
    for key, category in (("said", "conversation"), ("known", None)):
        id = entries.save(talk, key, "x", category=category).id
        entries.forget(talk, key=key)

    assert [id] == [each.id for each in entries.tombstones(Visitor()).tombstones]
    assert 2 == len([path for path in files_under(tmp_path) if "@ids/" in path])


def test_whose_log_was_read_is_in_the_audit(tmp_path: Path) -> None:
    """The records of what was told, hidden and moved ones too, if the workflow asks for reads."""
    with opened(tmp_path, SHARED) as memory:
        session, entries = memory.session("support"), memory.entries
        entries.save(session, "plan", "x")
        entries.relocate(session, {"plan": "ada/plan"})
        entries.delete(session, "ada/plan")
        entries.log(session, "plan")
        entries.diff(session, "plan", 1, 1)
        entries.deleted(session)
        entries.tombstones(session)
        events = [event for event in memory.audit().events if event.op in ("log", "diff", "deleted", "tombstones")]

    (path,) = {path for event in events for path in event.paths or ()}
    assert (path.startswith("entries/support/"), [0, 1, 1, 1]) == (
        True,
        [event.count for event in sorted(events, key=lambda event: event.count or 0)],
    )


@pytest.mark.parametrize(("expired", "deleted"), [(1, 100), (100, 1)])
def test_what_is_to_be_erased_takes_no_place_in_a_list(tmp_path: Path, expired: int, deleted: int) -> None:
    """So nobody can tell from a list of few whether others have come along and erased it."""
    clock, visitor = Clock(), Visitor()
    kept = Retention(expired * DAY_SECONDS, deleted * DAY_SECONDS)
    with entries_in(tmp_path, rules=EntryRules(retention=kept), now=clock) as entries:
        for key in ("stays", "one", "two"):
            clock.go_on(60)
            if (key == "stays") == (expired > deleted):
                entries.save(visitor, key, "x", ttl=1)
            else:
                entries.save(visitor, key, "x")
                entries.delete(visitor, key)
        clock.go_on(2 * DAY_SECONDS)
        found = entries.deleted(visitor, limit=1)

    assert (["stays"], False) == ([each.found.key for each in found.entries], found.more)


def test_the_latest_of_one_moment_are_the_same_in_every_index(tmp_path: Path) -> None:
    """What was deleted or forgotten together is listed in one order, however few of it are asked for."""
    visitor, listed = Visitor(), []
    with entries_in(tmp_path) as entries:
        for tag in ("forgotten", "deleted"):
            entries.save_many(
                visitor, [{"key": f"{tag}{number}", "content": "x", "tags": [tag]} for number in range(40)]
            )
        entries.forget(visitor, tag="forgotten")
        entries.delete_many(visitor, [f"deleted{number}" for number in range(40)])
        for limit in (1, 3, 40):
            listed.append([each.id for each in entries.tombstones(visitor, limit=limit).tombstones])
            listed.append([each.found.key for each in entries.deleted(visitor, limit=limit).entries])

    assert [*(ids[:1] for ids in listed[4:]), *(ids[:3] for ids in listed[4:])] == listed[:4]


def test_from_the_first_save_to_the_tombstone(tmp_path: Path) -> None:
    """Saved, updated, moved, renamed, merged, restored and deleted: one log has it all; a tombstone is left of it."""
    visitor, rules = Visitor(run="evt-1"), EntryRules(budget=Budget(max_entries=10))
    with entries_in(tmp_path, rules=rules) as entries:
        id = entries.save(visitor, "plan", "Ada is on Free", category="workspace").id
        entries.update(visitor, "plan", content="Ada is on Pro")
        entries.update(visitor, "plan", category="general")
        entries.relocate(visitor, {"plan": "ada/plan"})
        entries.save(visitor, "ada/plan again", "Ada is on Pro", pinned=True)
        plan = entries.plan(visitor, share=0.1)
        entries.apply(visitor, plan)
        merged = entries.log(visitor, "plan")
        entries.restore(visitor, "ada/plan")
        entries.delete(visitor, "ada/plan", call_id="c9")
        log = entries.log(visitor, "plan")
        entries.forget(visitor, id=id, why="asked to")

        assert ("deleted", ["ada/plan again"]) == (merged.state, [*merged.made_into.values()])
        assert [
            *[("delete", "ada/plan", "agent"), ("restore", "ada/plan", "agent"), ("merge", "ada/plan", "agent")],
            *[("rename", "ada/plan", "agent"), ("move", "plan", "agent")],
            *[("update", "plan", "workspace")] * 2,
            ("save", "plan", "workspace"),
        ] == [(each.op, each.key, each.scope) for each in log.changes]
        assert (plan.id, "plan", "workspace", "c9") == (
            *(log.changes[2].cause, log.changes[3].from_key, log.changes[4].from_scope, log.changes[0].by.call),
        )
        assert (id, "ada/plan", "deleted", True) == (log.found.id, log.found.key, log.state, log.is_complete)
        assert [(id, "asked to")] == [(each.id, each.why) for each in entries.tombstones(visitor).tombstones]
        with pytest.raises(EntryNotFound):
            entries.log(visitor, "plan")
