"""The end of a run consolidates where the workflow says so; a summariser that the program gives can do no harm."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from memfiles import InvalidArgument, Memory, Session
from memfiles.entries.consolidation.consolidator import CLOSE_SECONDS, CLOSE_SUMMARY_SECONDS
from memfiles.entries.results import Found
from memfiles.memory import look
from tests.secrets.secret_corpus import TOKENS
from tests.support.saved import files_holding
from tests.support.workflows import opened, write_workflow

WORKFLOW = """\
memory:
  durability: os
  entries:
    max_entries: 5
    consolidate: close
    categories: {playbook: {scope: agent, from_users: true}}
agents:
  support: {}
  guest: {entries: r}
"""
TELLING = "Ada called about the invoice of October, which was charged twice. She waits for an answer by Friday. " * 3
CREDENTIAL = next(secret.value for secret in TOKENS if secret.rule == "anthropic-key")


class Scribe:
    """A summariser that says what it is told to say, and notes what it was given."""

    def __init__(self, says: Callable[[Sequence[str]], Any] = lambda texts: "In short: an invoice") -> None:
        self.given: list[Sequence[str]] = []
        self._says = says

    def summarise(self, texts: Sequence[str], *, most_bytes: int) -> Any:
        self.given.append(tuple(texts))
        return self._says(texts)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    """A memory for five entries in each partition."""
    with opened(tmp_path, WORKFLOW) as memory:
        yield memory


def duplicates(memory: Memory, session: Session) -> None:
    """Five entries, two of which say the same: the budget is used up."""
    for key in ("one", "two", "three", "four", "five"):
        memory.entries.save(session, key, "the same" if key in ("one", "two") else f"content of {key}")


def episodes(memory: Memory, session: Session, told: str = TELLING) -> None:
    """Five episodes of one thread."""
    for number in range(5):
        memory.entries.save(session, f"call {number}", f"Call {number}. {told}", kind="episode")


def keys(memory: Memory, **who: Any) -> list[str]:
    return [each.key for each in memory.entries.list(memory.session("support", **who)).memories]


def note(memory: Memory, **who: Any) -> Found:
    (found,) = [each for each in memory.entries.list(memory.session("support", **who)).memories if each.kind == "note"]
    entry = memory.entries.get(memory.session("support", **who), found.key)
    assert entry is not None
    return entry


def test_the_end_of_a_run_merges_and_folds(memory: Memory) -> None:
    """The audit says so, with the plan that takes it back."""
    session = memory.session("support", run="r1", actor="ada")
    duplicates(memory, session)
    session.close()
    (event,) = memory.audit(op="close").events

    assert ["five", "four", "three", "two"] == keys(memory)
    assert ("ok", 1, "support", "r1", "ada") == (event.outcome, event.count, event.agent, event.run, event.actor)
    memory.entries.undo_plan(memory.session("support"), event.plan or "")
    assert "one" in keys(memory)


def test_what_the_close_did_is_one_change_of_each_entry(memory: Memory) -> None:
    """The figures count the changes, and not the event that sums them up."""
    session = memory.session("support")
    duplicates(memory, session)
    before = sum(period.writes for period in memory.stats().periods)
    session.close()

    assert before + 2 == sum(period.writes for period in memory.stats().periods)


@pytest.mark.parametrize("said", ["consolidate: off", "secrets_allow: []"])
def test_it_is_off_unless_it_is_declared(tmp_path: Path, said: str) -> None:
    """Only a save over a budget consolidates then."""
    with opened(tmp_path, WORKFLOW.replace("consolidate: close", said)) as memory:
        session = memory.session("support")
        duplicates(memory, session)
        session.close()

        assert 5 == len(keys(memory))


def test_nothing_is_done_below_four_fifths_of_the_budget(memory: Memory) -> None:
    """Duplicates stay while there is room."""
    session = memory.session("support")
    for key in ("one", "two"):
        memory.entries.save(session, key, "the same")
    session.close()

    assert (["one", "two"], ()) == (keys(memory), memory.audit(op="close").events)


def test_nothing_is_evicted(memory: Memory) -> None:
    """What says something that nothing else says stays until a save needs its place."""
    session = memory.session("support")
    for number in range(5):
        memory.entries.save(session, f"key {number}", f"content {number}")
    session.close()

    assert (5, ()) == (len(keys(memory)), memory.audit(op="close").events)


def test_the_last_session_of_a_run_ends_it(memory: Memory) -> None:
    """Closing one of two changes nothing, and closing twice is as closing once."""
    one, other = (memory.session("support", run="r1") for _ in range(2))
    duplicates(memory, one)
    one.close()
    one.close()
    kept = len(memory.entries.list(other).memories)
    other.close()

    assert (5, 4) == (kept, len(keys(memory)))


def test_closing_the_memory_ends_its_runs(tmp_path: Path) -> None:
    """Also those of sessions that never end the run itself, as those of a framework's context."""
    with opened(tmp_path, WORKFLOW) as memory:
        session = memory.session("support", ends_run=False)
        duplicates(memory, session)
    with opened(tmp_path, WORKFLOW) as memory:
        assert 4 == len(keys(memory))


def test_a_user_who_leaves_changes_nothing_of_others(memory: Memory) -> None:
    """Nor of the agent's own entries, nor of her own at a level where her session never was."""
    ada, bob, nobody = (memory.session("support", user=user) for user in ("ada", "bob", None))
    higher = memory.session("support", user="ada", level="RESTRICTED", run="other")
    for session in (ada, bob, nobody, higher):
        duplicates(memory, session)
    before = [memory.entries.list(each) for each in (bob, nobody)], memory.entries.get(higher, "one")
    ada.close()

    assert before == ([memory.entries.list(each) for each in (bob, nobody)], memory.entries.get(higher, "one"))
    assert memory.entries.get(memory.session("support", user="ada"), "two") is not None
    (event,) = memory.audit(op="close").events
    assert 1 == event.count


def test_an_agent_that_may_only_read_changes_nothing(tmp_path: Path) -> None:
    """By closing its session either, though it saved something while it might."""
    with opened(
        tmp_path, WORKFLOW.replace("consolidate: close", "").replace("guest: {entries: r}", "guest: {}")
    ) as memory:
        duplicates(memory, memory.session("guest"))
    with opened(tmp_path, WORKFLOW) as memory:
        memory.session("guest").close()

        assert 5 == len(memory.entries.list(memory.session("guest")).memories)


def test_a_memory_that_is_only_looked_at_is_left_as_it_is(memory: Memory) -> None:
    """Whatever is closed."""
    kept = memory.session("support")
    duplicates(memory, kept)
    with look(memory.workflow) as seen:
        assert 5 == len(seen.entries.list(session := seen.session("support")).memories)
        session.close()

    assert (5, ()) == (len(keys(memory)), memory.audit(op="close").events)


def test_what_was_undone_is_not_done_again(memory: Memory) -> None:
    """The session that took it back closes, too."""
    session = memory.session("support")
    duplicates(memory, session)
    session.close()
    (event,) = memory.audit(op="close").events
    later = memory.session("support")
    memory.entries.undo_plan(later, event.plan or "")
    later.close()

    assert 5 == len(keys(memory))


def test_a_given_summariser_writes_the_note(tmp_path: Path) -> None:
    """The note names its episodes as ever."""
    scribe = Scribe()
    with opened(tmp_path, WORKFLOW, summariser=scribe) as memory:
        session = memory.session("support", thread="t")
        episodes(memory, session)
        session.close()
        folded = note(memory)

    assert "\nIn short: an invoice\n" in folded.content
    assert all(f'"call {number}"' in folded.content for number in range(5))
    assert [tuple(f"Call {number}. {TELLING}" for number in range(5))] == scribe.given


def test_a_save_over_a_budget_goes_without_the_given_summariser(tmp_path: Path) -> None:
    """It holds locks, for which nobody should wait."""
    scribe = Scribe()
    with opened(tmp_path, WORKFLOW, summariser=scribe) as memory:
        session = memory.session("support", thread="t")
        episodes(memory, session)
        receipt = memory.entries.save(session, "new", "news")

    assert (5, []) == (len(receipt.folded), scribe.given)


def test_a_summariser_sees_one_level_of_one_user_at_a_time(tmp_path: Path) -> None:
    """Of a session that was raised the lower level comes first, and nothing above it is in what it is given."""
    scribe = Scribe()
    with opened(tmp_path, WORKFLOW, summariser=scribe) as memory:
        for user, level in (("bob", "INTERNAL"), (None, "INTERNAL"), ("ada", "RESTRICTED")):
            other = memory.session("support", user=user, level=level, thread="t", run="stays open")
            episodes(memory, other, f"{TELLING} {user} {level}")
        ada = memory.session("support", user="ada", level="INTERNAL", thread="t")
        episodes(memory, ada, f"{TELLING} ada INTERNAL")
        ada.raise_level("CONFIDENTIAL")
        episodes(memory, ada, f"{TELLING} ada CONFIDENTIAL")
        ada.close()
        levels = [{text.rpartition(" ")[2] for text in texts} for texts in scribe.given]

        assert [{"INTERNAL"}, {"CONFIDENTIAL"}] == levels
        assert all(" ada " in text[-20:] for texts in scribe.given for text in texts)
        assert "INTERNAL" == note(memory, user="ada", level="INTERNAL").level


def raises(texts: Sequence[str]) -> Any:
    raise ValueError("out of tokens")


def ends_its_thread(texts: Sequence[str]) -> Any:
    raise SystemExit(3)


async def later(texts: Sequence[str]) -> str:
    return "later"


BAD: dict[str, tuple[Callable[[Sequence[str]], Any], str]] = {
    "raises": (raises, "summariser_failed"),
    "ends its thread": (ends_its_thread, "summariser_failed"),
    "says nothing": (lambda texts: "", "summariser_failed"),
    "says blanks": (lambda texts: " \n\t", "summariser_failed"),
    "is no text": (lambda texts: {"summary": "x"}, "summariser_failed"),
    "is not Unicode": (lambda texts: "a \ud800 b", "summariser_failed"),
    "tells a credential": (lambda texts: f"The key is {CREDENTIAL}", "secret_refused"),
    "tells one where it would be cut": (lambda texts: f"{'x ' * 700}{CREDENTIAL}", "secret_refused"),
}


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize("what", [*BAD, "is a coroutine"])
def test_the_default_writes_the_note_if_a_summariser_cannot(tmp_path: Path, what: str) -> None:
    """Nothing is lost, no file holds what was refused, and the audit says so."""
    says, code = BAD.get(what, (later, "summariser_failed"))
    with opened(tmp_path, WORKFLOW, summariser=Scribe(says)) as memory:
        session = memory.session("support", thread="t")
        episodes(memory, session)
        session.close()
        done = {
            (event.op, event.outcome, event.code)
            for op in ("close", "summarise")
            for event in memory.audit(op=op).events
        }

        assert {("close", "ok", None), ("summarise", "failed", code)} == done
        assert all(f"- Call {number}." in note(memory).content for number in range(5))
        restored = memory.session("support")
        assert [memory.entries.restore(restored, f"call {number}").key for number in range(5)]
    assert [] == files_holding(tmp_path, CREDENTIAL)


def test_a_summary_that_is_too_long_is_cut(tmp_path: Path) -> None:
    """The note is shorter than the episodes in any case."""
    with opened(tmp_path, WORKFLOW, summariser=Scribe(lambda texts: "very long " * 1_000_000)) as memory:
        session = memory.session("support", thread="t")
        episodes(memory, session)
        session.close()

        assert len(note(memory).content) < 5 * len(TELLING)
        assert "very long very long" in note(memory).content


@pytest.mark.slow
def test_a_summariser_that_hangs_holds_nobody_up(tmp_path: Path) -> None:
    """The memory of many runs closes in the time of one, and each has its note by then."""
    release, called = threading.Event(), threading.Event()

    def hangs(texts: Sequence[str]) -> str:
        called.set()
        release.wait()
        return "too late"

    users = ("ada", "bob", "eve")
    try:
        with opened(tmp_path, WORKFLOW, summariser=Scribe(hangs)) as memory:
            for user in users:
                episodes(memory, memory.session("support", user=user, thread="t", run=f"of {user}"))
            kept = [memory.session("support", user=user, run=f"of {user}") for user in users]
            began = time.monotonic()
        took = time.monotonic() - began
    finally:
        release.set()
    with opened(tmp_path, WORKFLOW) as memory:
        notes = [note(memory, user=user).content for user in users]

    assert (True, 3) == (called.is_set(), len(kept))
    assert CLOSE_SUMMARY_SECONDS <= took < CLOSE_SECONDS
    assert all("- Call 0." in each for each in notes)


def replaced(memory: Memory, number: int) -> None:
    """One episode is deleted, and another one of its thread is saved."""
    session = memory.session("support", thread="t")
    memory.entries.delete(session, f"call {number}")
    memory.entries.save(session, f"call {number + 5}", f"Call {number + 5}. {TELLING}", kind="episode")


def test_the_entries_can_be_changed_while_it_sums_up(tmp_path: Path) -> None:
    """No lock is held. What changed is planned again, and the change is in what comes of it."""
    changed: list[int] = []

    def changes(texts: Sequence[str]) -> str:
        if not changed:
            replaced(busy, 0)
            changed.append(0)
        return f"Of {len(texts)} calls the first was: {texts[0][:6]}"

    with opened(tmp_path, WORKFLOW, summariser=Scribe(changes)) as busy:
        session = busy.session("support", thread="t")
        episodes(busy, session)
        session.close()

        assert "Of 5 calls the first was: Call 1" in note(busy).content


def test_entries_that_never_keep_still_are_left_alone(tmp_path: Path) -> None:
    """The close gives up and says so; nothing is lost."""
    numbers = count()

    def changes(texts: Sequence[str]) -> str:
        replaced(busy, next(numbers))
        return "too late"

    with opened(tmp_path, WORKFLOW, summariser=Scribe(changes)) as busy:
        session = busy.session("support", thread="t")
        episodes(busy, session)
        session.close()
        (event,) = busy.audit(op="close").events
        done = next(numbers)

        assert ("failed", "revision_conflict") == (event.outcome, event.code)
        assert [f"call {number}" for number in range(done, done + 5)] == keys(busy)


def test_a_plan_that_is_shown_holds_no_credential_of_the_summariser(tmp_path: Path) -> None:
    """It is made with the default, so that it can be applied."""
    with opened(tmp_path, WORKFLOW, summariser=Scribe(lambda texts: f"It is {CREDENTIAL}")) as memory:
        session = memory.session("support", thread="t")
        episodes(memory, session)
        plan = memory.entries.plan(session)

        assert CREDENTIAL not in str(plan.to_dict())
        assert 5 == len(memory.entries.apply(session, plan).hidden)


@pytest.mark.parametrize("given", [len, "FirstSentences", object()])
def test_what_is_not_a_summariser_is_refused_at_once(tmp_path: Path, given: Any) -> None:
    """Before anything is on the disk."""
    path = write_workflow(tmp_path, WORKFLOW)
    with pytest.raises(InvalidArgument, match="summarise"):
        opened(tmp_path, WORKFLOW, summariser=given)

    assert [path] == list(tmp_path.iterdir())
