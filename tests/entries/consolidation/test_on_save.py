"""A save over a budget loses as little as it can: duplicates are merged and episodes folded before anything goes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from memfiles.entries.budgets import Budget, Limit
from memfiles.entries.drafts import Draft, EntryRules
from memfiles.entries.entries import Entries
from memfiles.errors import EntryNotFound, RevisionConflict, SecretRefused
from tests.secrets.secret_corpus import TOKENS
from tests.support.another_process import another_process
from tests.support.saved import Clock, Visitor, entries_in

LONG = "Ada called about the invoice of October, which was charged twice. She was calm, and wants an answer by Friday. "
TELLING = LONG * 4
SAVER = """
import json, sys
from pathlib import Path
from memfiles.entries.budgets import Budget
from memfiles.entries.drafts import EntryRules
from tests.support.saved import Visitor, entries_in
directory, number, saves = Path(sys.argv[1]), *map(int, sys.argv[2:])
with entries_in(directory, rules=EntryRules(budget=Budget(max_entries=40)), durability="fsync") as entries:
    print("ready", flush=True)
    input()
    receipts = []
    for turn in range(saves):
        same, told = f"said in turn {turn}", {"kind": "episode"}
        receipts.append(entries.save(Visitor(), f"same-{number}-{turn}", same).to_dict())
        text = f"{number} {turn} " * 60
        receipts.append(entries.save(Visitor(thread="t"), f"told-{number}-{turn}", text, **told).to_dict())
    print(json.dumps(receipts), flush=True)
    input()
"""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def entries(tmp_path: Path, clock: Clock) -> Iterator[Entries]:
    """A memory for four entries."""
    with entries_in(tmp_path / "memory", rules=EntryRules(budget=Budget(max_entries=4)), now=clock) as opened:
        yield opened


def keys(entries: Entries, visitor: Visitor | None = None) -> list[str]:
    return [each.key for each in entries.list(visitor or Visitor()).memories]


def save(entries: Entries, clock: Clock, *saved: str, visitor: Visitor | None = None, **said: object) -> None:
    """Entries of these keys and contents, ``key=content``, one after the other."""
    for each in saved:
        key, _, content = each.partition("=")
        clock.go_on(1)
        entries.save(visitor or Visitor(), key, content, **said)  # type: ignore[arg-type]


def test_duplicates_are_merged_before_anything_is_evicted(entries: Entries, clock: Clock) -> None:
    """The oldest entry, which eviction would take, stays; the one that remains has the tags and links of both."""
    save(entries, clock, "unique=only here")
    entries.save(Visitor(), "one", "said twice", tags=["a"], links=["x"])
    save(entries, clock, "two=said twice", tags=["b"])
    save(entries, clock, "three=else")

    receipt = entries.save(Visitor(), "new", "news")
    found = entries.get(Visitor(), "two")

    assert ((), ("one",), ()) == (receipt.evicted, receipt.merged, receipt.folded)
    assert ["new", "three", "two", "unique"] == keys(entries)
    assert found is not None and (("b", "a"), ("x",)) == (found.tags, found.links)
    shown = receipt.to_dict()
    assert ([], ["one"], receipt.plan, False) == (
        *(shown["evicted"], shown["merged"]), *(shown["plan"], "folded" in shown)
    )  # fmt: skip


def test_episodes_are_folded_before_anything_is_evicted(entries: Entries, clock: Clock) -> None:
    """Those of one thread become one note, which names them."""
    save(entries, clock, "unique=only here")
    save(entries, clock, *(f"call {n}={TELLING}" for n in range(3)), visitor=Visitor(thread="t"), kind="episode")

    receipt = entries.save(Visitor(), "new", "news")
    note = entries.get(Visitor(), next(key for key in keys(entries) if key.startswith("folded ")))

    assert ((), (), {"call 0", "call 1", "call 2"}) == (receipt.evicted, receipt.merged, {*receipt.folded})
    assert {"new", "unique"} < {*keys(entries)}
    assert note is not None and note.kind == "note"
    assert all(f'"call {number}"' in note.content for number in range(3))


def test_expired_entries_go_first(entries: Entries, clock: Clock) -> None:
    """Nobody sees them any more, so nothing has to be merged, and no receipt names them."""
    entries.save(Visitor(), "short", "lived", ttl=60)
    save(entries, clock, "one=same", "two=same", "three=else")
    clock.go_on(100)

    receipt = entries.save(Visitor(), "new", "news")

    assert ((), (), ()) == (receipt.evicted, receipt.merged, receipt.folded)
    assert ["new", "one", "three", "two"] == keys(entries)


def test_short_episodes_are_evicted_as_before(entries: Entries, clock: Clock) -> None:
    """A note would be longer than they are."""
    save(entries, clock, *(f"call {n}=rang" for n in range(4)), kind="episode")

    assert (("call 0",), ()) == ((it := entries.save(Visitor(), "new", "news")).evicted, it.folded)


def test_what_was_just_saved_is_never_hidden(entries: Entries, clock: Clock) -> None:
    """An older entry of the same content gives way to it, with its tags, unless it is worth more."""
    save(entries, clock, "old=same", tags=["a"])
    save(entries, clock, "one=1", "two=2", "three=3")
    merged = entries.save(Visitor(), "new", "same")
    found = entries.get(Visitor(), "new")

    assert (("old",), (), ("a",)) == (merged.merged, merged.evicted, found.tags if found else None)
    assert found is not None and found.revision == merged.revision == 1
    entries.update(Visitor(), "new", pinned=True)
    clock.go_on(1)
    evicted = entries.save(Visitor(), "newer", "same")
    assert (("one",), ()) == (evicted.evicted, evicted.merged)
    assert {"new", "newer"} < {*keys(entries)}


def test_an_episode_that_was_just_saved_is_not_folded(entries: Entries, clock: Clock) -> None:
    """The older ones of its thread are."""
    visitor = Visitor(thread="t")
    save(entries, clock, *(f"call {n}={TELLING}" for n in range(4)), visitor=visitor, kind="episode")

    receipt = entries.save(visitor, "call 4", TELLING, kind="episode")

    assert {f"call {number}" for number in range(4)} == {*receipt.folded}
    assert "call 4" in keys(entries)


def test_no_more_goes_than_is_over(entries: Entries, clock: Clock) -> None:
    """One merge is enough, so the second pair stays, and the episodes do."""
    save(entries, clock, "one=same", "two=same", "three=other", "four=other")

    receipt = entries.save(Visitor(), "new", "news")

    assert (("one",), ()) == (receipt.merged, receipt.evicted)
    assert ["four", "new", "three", "two"] == keys(entries)


def test_only_entries_of_one_sort_are_merged(entries: Entries, clock: Clock) -> None:
    """Not a fact and a note, nor two categories, nor what expires and what stays; episodes never."""
    entries.save(Visitor(), "fact", "same", kind="fact")
    save(entries, clock, "own=same", category="own")
    entries.save(Visitor(), "short", "same", ttl=3600)
    save(entries, clock, "told=same", kind="episode")

    receipt = entries.save(Visitor(), "new", "same")

    assert ((), ()) == (receipt.merged, receipt.folded)
    assert 1 == len(receipt.evicted)


def test_a_budget_of_bytes_and_one_of_a_kind(tmp_path: Path, clock: Clock) -> None:
    """The same for every limit: what does not count for it stays."""
    budget = Budget(max_bytes=2000, per_kind={"fact": Limit(max_entries=2)})
    with entries_in(tmp_path, rules=EntryRules(budget=budget), now=clock) as entries:
        save(entries, clock, "note one=same", "note two=same")
        save(entries, clock, "one=equal", "two=equal", kind="fact")
        of_kind = entries.save(Visitor(), "three", "another", kind="fact")
        save(entries, clock, "large=" + "x" * 1980)
        of_bytes = entries.save(Visitor(), "more", "y")

    assert (("one",), ()) == (of_kind.merged, of_kind.evicted)
    assert ((), ("note one",)) == (of_bytes.evicted, of_bytes.merged)


def test_many_duplicates_go_at_once(tmp_path: Path, clock: Clock) -> None:
    """As many as a batch is over; those of several contents, and those in the batch itself stay."""
    with entries_in(tmp_path, rules=EntryRules(budget=Budget(max_entries=200)), now=clock) as entries:
        entries.save_many(Visitor(), [Draft(f"old{n:03}", f"same {n % 3}") for n in range(200)])
        clock.go_on(1)
        receipt = entries.save_many(Visitor(), [Draft(f"new{n:03}", "one text") for n in range(150)])[0]
        found = [key for page in _pages(entries) for key in page]

    assert ((), True) == (receipt.evicted, 150 <= len(receipt.merged) <= 197)
    assert {f"new{n:03}" for n in range(150)} < {*found}
    assert 3 <= len([key for key in found if key.startswith("old")]) <= 50


def test_a_note_does_not_stay_where_all_others_go(entries: Entries, clock: Clock) -> None:
    """What is saved fills the budget: the episodes are evicted, and no note is made of them."""
    save(entries, clock, *(f"call {n}={TELLING}" for n in range(4)), visitor=Visitor(thread="t"), kind="episode")

    receipt = entries.save_many(Visitor(), [Draft(f"new {number}", f"news {number}") for number in range(4)])[0]

    assert (4, ()) == (len(receipt.evicted), receipt.folded)
    assert [f"new {number}" for number in range(4)] == keys(entries)


def test_undo_shows_everything_again(entries: Entries, clock: Clock) -> None:
    """Merged, folded and evicted entries, each as it was, and the note is gone; what was saved stays."""
    save(entries, clock, "one=same", tags=["a"])
    save(entries, clock, "two=same", tags=["b"])
    save(entries, clock, *(f"call {n}={TELLING}" for n in range(2)), visitor=Visitor(thread="t"), kind="episode")
    before = {key: entries.get(Visitor(), key) for key in keys(entries)}
    drafts = [Draft(f"new {number}", f"news {number}") for number in range(3)]
    receipt = entries.save_many(Visitor(), drafts)[0]

    assert ({"one"}, {"call 0", "call 1"}, 1) == ({*receipt.merged}, {*receipt.folded}, len(receipt.evicted))
    entries.undo_plan(Visitor(), receipt.plan)
    after = {key: entries.get(Visitor(), key) for key in keys(entries)}
    assert {*before} | {draft.key for draft in drafts} == {*after}
    assert all(_seen(before[key]) == _seen(after[key]) for key in before)
    with pytest.raises(EntryNotFound):
        entries.undo_plan(Visitor(), receipt.plan)


def test_undo_is_refused_once_something_changed(entries: Entries, clock: Clock) -> None:
    """Nothing is half undone."""
    save(entries, clock, "one=same", "two=same", "three=3", "four=4")
    receipt = entries.save(Visitor(), "new", "news")
    entries.update(Visitor(), "two", tags=["later"])

    with pytest.raises(RevisionConflict, match="changed since: 'two'"):
        entries.undo_plan(Visitor(), receipt.plan)
    assert ["four", "new", "three", "two"] == keys(entries)


@pytest.mark.parametrize(
    ("other", "category"),
    [
        (Visitor("sales"), "general"),
        (Visitor(level="RESTRICTED"), "general"),
        (Visitor(level="PUBLIC"), "general"),
        (Visitor(run="r"), "conversation"),
        (Visitor(), "workspace"),
    ],
)
def test_other_partitions_are_left_alone(entries: Entries, clock: Clock, other: Visitor, category: str) -> None:
    """Nothing there is merged or folded, nor is it a reason to merge; it is not a byte different afterwards."""
    for name in ("a", "b"):
        entries.save(other, f"theirs {name}", "same", category=category)
        save(entries, clock, f"told {name}={TELLING}", visitor=other, kind="episode", category=category)
    before = [entries.get(other, key) for key in ("theirs a", "theirs b", "told a", "told b")]
    save(entries, clock, "one=same", "two=2", "three=3", "four=4")

    receipt = entries.save(Visitor(), "new", "news")

    assert (("one",), (), ()) == (receipt.evicted, receipt.merged, receipt.folded)
    assert before == [entries.get(other, key) for key in ("theirs a", "theirs b", "told a", "told b")]


def test_a_note_that_would_hold_a_credential_is_not_saved(tmp_path: Path, clock: Clock) -> None:
    """Not even if each episode was saved before the rule was there; eviction does it then."""
    token = next(secret.value for secret in TOKENS if secret.rule == "anthropic-key")
    budget = Budget(max_entries=3)
    with entries_in(tmp_path / "m", rules=EntryRules(secrets="off", budget=budget), now=clock) as entries:
        told = [f"call {n}=The key is {token}. {TELLING}" for n in range(3)]
        save(entries, clock, *told, visitor=Visitor(thread="t"), kind="episode")
    with entries_in(tmp_path / "m", rules=EntryRules(secrets="block", budget=budget), now=clock) as entries:
        receipt = entries.save(Visitor(), "new", "news")
        with pytest.raises(SecretRefused):
            entries.save(Visitor(), "other", token)

    assert (("call 0",), ()) == (receipt.evicted, receipt.folded)


@pytest.mark.slow
def test_processes_that_save_over_the_budget_at_once(tmp_path: Path) -> None:
    """No save is refused, the budget holds but for those under way at once, and no text of a merged entry is lost."""
    with ExitStack() as stack:
        savers = [stack.enter_context(another_process(SAVER, tmp_path / "m", number, 25)) for number in range(6)]
        for saver in savers:
            assert "ready" == saver.hear()
        for saver in savers:
            saver.tell()
        receipts = [receipt for saver in savers for receipt in json.loads(saver.hear())]
        for saver in savers:
            saver.tell()
    with entries_in(tmp_path / "m", rules=EntryRules(budget=Budget(max_entries=40))) as entries:
        assert len([key for page in _pages(entries) for key in page]) < 40 + 6
        last = entries.save(Visitor(), "last", "of all")
        left = [key for page in _pages(entries) for key in page]
        texts = {found.content for key in left if (found := entries.get(Visitor(), key)) is not None}
    evicted = {*last.evicted, *(key for receipt in receipts for key in receipt["evicted"])}
    merged = {key for receipt in receipts for key in receipt.get("merged", ())}
    folded = [key for receipt in receipts for key in receipt.get("folded", ())]

    assert len(left) <= 40
    assert (True, True) == (bool(merged), bool(folded))
    assert len(folded) == len({*folded})
    for key in merged:
        said = f"said in turn {key.rpartition('-')[2]}"
        assert said in texts or any(other.endswith(f"-{key.rpartition('-')[2]}") for other in evicted), key


def _pages(entries: Entries) -> Iterator[list[str]]:
    page = entries.list(Visitor(), limit=100)
    yield [each.key for each in page.memories]
    while page.next is not None:
        page = entries.list(Visitor(), limit=100, cursor=page.next)
        yield [each.key for each in page.memories]


def _seen(found: object) -> dict[str, object]:
    """What an agent sees of an entry, except how often it was changed."""
    assert found is not None
    return {name: value for name, value in found.to_dict().items() if name != "revision"}  # type: ignore[attr-defined]
