"""Two copies of an entry become one: everything both were promised stays, nothing forgotten does."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from memfiles.records.entry import Entry, Retired
from memfiles.records.entry_codec import decode_entry, encode_entry
from memfiles.records.history import contents
from memfiles.records.marks import EntryRecord, Mark, buries, forgets, vacated
from memfiles.records.record import Stamp, successor
from memfiles.sync.merge.merge_entries import MarksById, merge_entries, merged_at_place
from memfiles.sync.merge.merge_files import ConflictPolicy, MergeResult
from tests.support.records import redact
from tests.support.saved import buried, deleted, location, refaceted, resaved, saved, saved_over, tombstone

HERE, THERE = "aaaaaaaaaaaa", "bbbbbbbbbbbb"
MERGED_AT = "2026-11-21T23:00:00.000Z"


def at(hour: int) -> str:
    return f"2026-11-21T{hour:02}:00:00.000Z"


def shared(content: str = "one\ntwo\nthree\n", **said: Any) -> Entry:
    """What both had before they parted."""
    entry = saved("steps", content, at=at(1), **said).stamped(HERE)
    assert isinstance(entry, Entry)
    return entry


def here(entry: EntryRecord) -> Any:
    return entry.stamped(HERE)


def there(entry: EntryRecord) -> Any:
    return entry.stamped(THERE)


def merged(
    local: EntryRecord, remote: EntryRecord, *, base: Any = None, on_conflict: ConflictPolicy = "local"
) -> MergeResult[EntryRecord]:
    """The merge, whose record is above both revisions or one of the two, and can be read back."""
    found = merge_entries(local, remote, base=base, on_conflict=on_conflict, at=MERGED_AT)
    record = found.record
    assert record in (local, remote) or record.revision > max(local.revision, remote.revision)
    assert record == decode_entry(encode_entry(record), path=record.path)
    return found


def entry_of(found: MergeResult[EntryRecord]) -> Entry:
    assert isinstance(found.record, Entry)
    return found.record


def test_equal_copies_are_no_news() -> None:
    """Neither is written again."""

    assert MergeResult(shared(), is_news=False) == merged(shared(), shared())


def test_the_copy_that_knows_more_is_taken_as_it_is() -> None:
    """Byte for byte, facets and all."""
    later = there(refaceted(there(resaved(shared(), "x", at=at(2))), at=at(3), tags=("a",), pinned=True))

    assert MergeResult(later, is_news=False) == merged(shared(), later)
    assert MergeResult(later) == merged(later, shared())


def test_notes_are_merged_as_text() -> None:
    """What each changed in other lines stands, and the entry is as new as the newer of the two changes."""
    local = here(resaved(shared(), "ONE\ntwo\nthree\n", at=at(2)))
    remote = there(resaved(shared(), "one\ntwo\nTHREE\n", at=at(3)))
    found = entry_of(merged(local, remote, base=shared()))

    assert ("ONE\ntwo\nTHREE\n", at(3), at(1)) == (found.content, found.updated_at, found.created_at)


@pytest.mark.parametrize("on_conflict", ["local", "remote"])
def test_a_loser_keeps_no_text_that_the_winner_redacted(on_conflict: ConflictPolicy) -> None:
    """Neither in its content nor in its history, whichever side it is on; and the result says which side that is."""
    start = shared("the word is hunter2\n")
    text, _ = redact(start.text, Stamp(at(2)), text="hunter2")
    assert text is not None
    redacted = resaved(replace(start, text=text), "blue\n", at=at(3))
    changed = resaved(start, "green\n", at=at(4))
    local, remote = (redacted, changed) if on_conflict == "local" else (changed, redacted)
    found = merged(here(local), there(remote), base=start, on_conflict=on_conflict)

    assert isinstance(found.loser, Entry)
    assert ("green\n", "remote" if on_conflict == "local" else "local") == (found.loser.content, found.lost)
    assert b"hunter2" not in encode_entry(found.loser)


def test_a_change_of_the_same_moment_as_a_redacted_one_stays() -> None:
    """Who redacted a text does not thereby know what another machine wrote in that millisecond."""
    one, other = (resaved(shared(), f"one\ntwo\nthree\n{text}\n", at=at(2)) for text in ("hunter2", "four"))
    text, _ = redact(one.text, Stamp(at(3)), text="hunter2")
    assert text is not None
    redacted = here(replace(one, text=text))

    for found in (merged(redacted, there(other), base=shared()), merged(there(other), redacted, base=shared())):
        kept = [entry_of(found).content, *([found.loser.content] if isinstance(found.loser, Entry) else [])]
        assert "four\n" in "".join(kept)


@pytest.mark.parametrize("on_conflict", ["local", "remote"])
def test_notes_that_cannot_be_merged_leave_a_loser(on_conflict: ConflictPolicy) -> None:
    """The policy says whose text stands; the other is kept whole, and in the history."""
    local = here(resaved(shared("red"), "green", at=at(2)))
    remote = there(resaved(shared("red"), "blue", at=at(3)))
    found = merged(local, remote, base=shared("red"), on_conflict=on_conflict)
    winner, loser = (local, remote) if on_conflict == "local" else (remote, local)

    assert (winner.content, loser) == (entry_of(found).content, found.loser)
    assert {"red", "green", "blue"} <= {text.decode() for _, text in contents(entry_of(found).text)}


@pytest.mark.parametrize("is_later", [True, False])
def test_of_facts_the_newest_statement_stands(is_later: bool) -> None:
    """Whatever the policy; what it takes the place of stays in the history, and expiry follows what stands."""
    local = here(replace(resaved(shared("red", kind="fact"), "green", at=at(4 if is_later else 2)), expires_at=at(8)))
    remote = there(replace(resaved(shared("red", kind="fact"), "blue", at=at(3)), expires_at=at(9)))
    found = merged(local, remote, base=shared("red", kind="fact"), on_conflict="remote" if is_later else "local")
    stands = local if is_later else remote

    assert None is found.loser
    assert (stands.content, stands.updated_at) == (entry_of(found).content, entry_of(found).updated_at)
    assert stands.expires_at == entry_of(found).expires_at
    assert {"green", "blue"} <= {text.decode() for _, text in contents(entry_of(found).text)}


def test_of_episodes_the_first_stands() -> None:
    """It never changes; the other one is kept as a conflict."""
    local = here(saved("day", "it rained", kind="episode", at=at(3)))
    remote = there(saved("day", "it snowed", kind="episode", at=at(2)))

    assert (remote.content, local) == (entry_of(merged(local, remote)).content, merged(local, remote).loser)
    assert (remote.content, local) == (entry_of(merged(remote, local)).content, merged(remote, local).loser)
    assert "the earlier one stays" in (merged(local, remote).note or "")


def test_labels_are_united_and_taken_away() -> None:
    """What one added is there, what one took away is not; without a base all are there."""
    base = shared(tags=("a", "b"), links=("x",))
    local = here(refaceted(base, at=at(2), tags=("a", "b", "c")))
    remote = there(refaceted(base, at=at(3), tags=("b", "d"), links=("x", "y")))
    found, blind = entry_of(merged(local, remote, base=base)), entry_of(merged(local, remote))

    assert (("b", "d", "c"), ("x", "y")) == (found.tags, found.links)
    assert {"a", "b", "c", "d"} == set(blind.tags)


def test_single_facets_are_of_whoever_changed_them() -> None:
    """And of the newer change where both did."""
    base = shared(importance=0.5, confidence=1.0)
    local = here(refaceted(base, at=at(2), importance=0.9, category="core", pinned=True))
    remote = there(refaceted(base, at=at(3), importance=0.1, confidence=0.4))
    found = entry_of(merged(local, remote, base=base))

    assert (0.1, 0.4, "core", True) == (found.importance, found.confidence, found.category, found.pinned)
    assert base.updated_at == found.updated_at


def test_facets_that_changed_at_the_same_time_are_the_same_on_every_machine() -> None:
    """Also where the two changes differ in nothing that has an order but in these."""
    base = shared(importance=0.5)
    one, other = (refaceted(base, at=at(2), importance=importance) for importance in (0.9, 0.1))
    results = [merged(here(one), there(other), base=base), merged(here(other), there(one), base=base)]

    assert 1 == len({entry_of(result).importance for result in results})


def test_signals_of_both_are_counted() -> None:
    """What each added to what both began with; where that is not known, the higher count."""
    base = shared(kind="procedure", successes=3, failures=1)
    local = here(refaceted(base, at=at(2), successes=5))
    remote = there(refaceted(base, at=at(3), successes=4, failures=2))
    found, blind = entry_of(merged(local, remote, base=base)), entry_of(merged(local, remote))

    assert (6, 2) == (found.successes, found.failures)
    assert (5, 2) == (blind.successes, blind.failures)


def test_two_saves_of_one_key_are_joined() -> None:
    """The smaller id stays and the other one is an alias, on either side."""
    one, other = here(saved("steps", "a\n", given_id="1" * 32)), there(saved("steps", "b\n", given_id="2" * 32))

    assert ("1" * 32, ("2" * 32,)) == (entry_of(merged(one, other)).id, entry_of(merged(one, other)).aliases)
    assert entry_of(merged(one, other)).ids == entry_of(merged(other, one)).ids


def test_too_many_aliases_are_not_joined() -> None:
    """The other copy is kept as a conflict, and no alias is lost."""
    many = tuple(f"{number:032x}" for number in range(1, 65))
    one = here(saved("steps", "a\n", given_id="0" * 32, aliases=many))
    other = there(saved("steps", "b\n", given_id="f" * 32))
    found = merged(one, other)

    assert (one.ids, other) == (entry_of(found).ids, found.loser)


@pytest.mark.parametrize("knows_base", [True, False])
def test_a_delete_loses_to_a_change_of_content(knows_base: bool) -> None:
    """Whoever deleted it did not know of the change, however much later that was."""
    base = shared()
    local, remote = here(deleted(base, at=at(9))), there(resaved(base, "changed\n", at=at(2)))
    known = base if knows_base else None

    assert None is entry_of(merged(local, remote, base=known)).retired
    assert None is entry_of(merged(remote, local, base=known)).retired


def test_a_delete_stands_over_other_facets() -> None:
    """Something said of an entry does not bring it back."""
    local, remote = here(deleted(shared(), at=at(2))), there(refaceted(shared(), at=at(3), pinned=True))
    found = entry_of(merged(local, remote, base=shared()))

    assert (local.retired, True) == (found.retired, found.pinned)


@pytest.mark.parametrize("is_restored_later", [True, False])
def test_the_newer_of_delete_and_restore_stands(is_restored_later: bool) -> None:
    """Where one machine brought back what another one deleted once more."""
    base = here(deleted(shared(), at=at(2)))
    local = here(refaceted(base, at=at(5 if is_restored_later else 3), op="restore", retired=None))
    again = refaceted(there(refaceted(base, at=at(3), op="restore", retired=None)), at=at(3))
    remote = there(deleted(again, at=at(4)))

    assert is_restored_later == (entry_of(merged(local, remote, base=base)).retired is None)


def test_a_tombstone_beats_every_copy_that_does_not_name_it() -> None:
    """Also one of a higher revision, above which it then stands, and no copy of that is kept."""
    tombstone = there(buried(shared()))
    stale = shared()
    for hour in range(2, 6):
        stale = here(resaved(stale, f"{hour}", at=at(hour)))
    pulled, pushed = merged(stale, tombstone), merged(tombstone, stale)

    assert (tombstone.id, tombstone.id) == (pulled.record.id, pushed.record.id)
    assert (True, False) == (pulled.forgets_local, pulled.forgets_remote)
    assert (False, True) == (pushed.forgets_local, pushed.forgets_remote)
    assert pulled.record.revision == pushed.record.revision == stale.revision + 1
    assert None is pulled.loser is pushed.loser


def test_a_save_over_a_tombstone_beats_it() -> None:
    """And everything that the tombstone beats: of that nothing gets into it."""
    tombstone = there(buried(shared()))
    anew = there(saved_over(tombstone, "steps", "new\n", at=at(4)))
    stale = here(resaved(shared(), "stale\n", at=at(9)))

    assert MergeResult(anew, is_news=False) == merged(tombstone, anew)
    assert MergeResult(anew) == merged(anew, tombstone)
    for found in (merged(stale, anew), merged(anew, stale)):
        assert "new\n" == entry_of(found).content
        assert b"stale" not in encode_entry(found.record)


def test_of_two_tombstones_one_stands_and_names_the_other() -> None:
    """So that an entry saved over it is no stale copy to whoever has the other one."""
    one, other = here(buried(shared(), id="1" * 12, at=at(2))), there(buried(shared(), id="2" * 12, at=at(3)))
    found, back = merged(one, other).record, merged(other, one).record

    assert isinstance(found, Mark)
    assert isinstance(back, Mark)
    assert ("2" * 12, ("1" * 12,)) == (found.id, found.forgotten) == (back.id, back.forgotten)
    assert not buries(one, saved_over(found, "steps", "new", at=at(4)))


def test_what_was_forgotten_and_saved_apart_is_merged() -> None:
    """Neither has anything of what the other's tombstone stands for."""
    one = here(saved_over(here(buried(shared(), id="1" * 12)), "steps", "by one\n", at=at(4)))
    other = there(saved_over(there(buried(shared(), id="2" * 12)), "steps", "by other\n", at=at(5)))
    found = merged(one, other, base=shared())

    assert {"1" * 12, "2" * 12} == set(entry_of(found).forgotten)
    assert b"three" not in encode_entry(found.record)
    assert other == found.loser


def test_a_list_of_tombstones_that_is_full_is_the_longer_one() -> None:
    """What fell out of it is not taken for news."""
    entry = shared()
    for number in range(12):
        tombstone = buried(entry, id=f"{number:012x}")
        entry = saved_over(tombstone, "steps", f"life {number}", at=at(2))
        early = entry if number == 1 else None
        if early is not None:
            stale = here(resaved(early, "stale", at=at(9)))
    found = merged(stale, there(entry))

    assert "life 11" == entry_of(found).content
    assert b"stale" not in encode_entry(found.record)


TARGET = saved("then").path


def moved(entry: Entry, target: str = TARGET) -> EntryRecord:
    """What an earlier build left at the old path of an entry, as it is read now."""
    hidden = replace(deleted(entry, at=at(3)), retired=Retired("deleted", at(3), f"moved to {target}"))
    return decode_entry(encode_entry(hidden), path=entry.path)


def test_a_tombstone_says_where_nobody_knew_that_it_went() -> None:
    """On either side, once; who forgot it when that was known meant this place alone."""
    tombstone, elsewhere = here(buried(shared(), at=at(4))), there(moved(shared()))
    known = here(buried(replace(shared(), text=successor(shared().text, revision=2, origins={THERE: 2})), at=at(5)))

    for local, remote in ((tombstone, elsewhere), (elsewhere, tombstone)):
        record = merged(local, remote).record
        assert isinstance(record, Mark)
        assert buries(record, saved("then"))
        assert not buries(record, saved("then", level="PUBLIC", forgotten=()))
        assert record == merged(record, elsewhere).record
    assert not buries(merged(known, elsewhere).record, saved("then"))


def test_the_place_of_a_source_does_not_say_that_its_note_was_forgotten_but_by_a_tombstone() -> None:
    """Eight forgets under the source's key are none of the note's, which has earlier lives of its own."""
    many, source = tuple(f"{number:012x}" for number in range(8)), saved("then")
    note = saved("note", forgotten=("f" * 12,), made_of=(source.uid,))
    left = replace(vacated(source, at(3), is_private=False), forgotten=many, id="", format="memfiles/1")

    assert [False, True] == [forgets(record, note) for record in (left, replace(buried(source), forgotten=many[:7]))]


def test_a_place_where_nothing_can_be_is_followed_by_nobody() -> None:
    """A record in a mirror may say anything."""

    assert isinstance(moved(shared(), "../../etc/passwd"), Entry)


def test_an_earlier_tombstone_means_no_other_level_or_agent() -> None:
    """Only its own and the shared entries: an entry could be moved nowhere else."""
    others = [saved("then", level="PUBLIC"), saved("then", agent="sales")]
    own = [saved("then"), saved("then", agent="@workspace")]
    forged = replace(buried(shared()), moved=tuple(entry.path for entry in (*others, *own)))

    assert [False, False, True, True] == [buries(forged, entry) for entry in (*others, *own)]


X, Y = "1" * 32, "2" * 32
ELSEWHERE = {X: location(saved("then", given_id=X))}


@pytest.mark.parametrize(
    ("known", "stands"), [({X: tombstone(X)}, "y"), ({Y: tombstone(Y)}, "x"), (ELSEWHERE, "y"), ({}, "both")]
)
def test_two_entries_of_one_key_are_joined_if_both_are_here(known: MarksById, stands: str) -> None:
    """One that was forgotten or moved away is not merged with what has its key now, and leaves no loser."""
    x, y = here(saved("steps", "x\n", given_id=X)), there(saved("steps", "y\n", given_id=Y))
    for local, remote in ((x, y), (y, x)):
        found = merge_entries(local, remote, on_conflict="local", at=MERGED_AT, known=known)
        entry = entry_of(found)
        assert {"x": (X,), "y": (Y,), "both": (X, Y)}[stands] == entry.ids
        assert (stands == "both") == (found.loser is not None)
        if stands != "both":
            assert stands + "\n" == entry.content
            assert {"x\n", "y\n"} - {stands + "\n"} == {"x\n", "y\n"} - {t.decode() for _, t in contents(entry.text)}


@pytest.mark.parametrize("changes", [0, 1])
def test_two_machines_with_one_id_are_told_apart(changes: int) -> None:
    """One began with a copy of the other's directory: neither knew of the entry that the other one had here."""
    x, y = here(saved("steps", "x\n", given_id=X)), here(saved("steps", "y\n", given_id=Y))
    for _ in range(changes):
        x = here(resaved(x, "x\nmore\n", at=at(2)))
    left = here(vacated(x, at(3)))

    assert [(X, Y)] * 2 == [entry_of(merged(*pair)).ids for pair in ((x, y), (y, x))]
    if not changes:  # else y may be what was here before x
        assert ["y\n"] * 2 == [entry_of(merged(*pair)).content for pair in ((left, y), (y, left))]


def test_an_entry_that_followed_another_one_takes_its_place() -> None:
    """It was saved, or moved there, over the mark that the other one left, in the directory that had both."""
    x = here(saved("steps", "x\n", given_id=X))
    mark = here(vacated(x, at(2)))
    y = here(saved_over(mark, "steps", "y\n", at=at(3), given_id=Y))
    elsewhere = here(saved("then", "z\n", given_id=Y))
    z = entry_of(merged_at_place(elsewhere, mark, location(x), on_conflict="local", at=at(3), known={})).stamped(HERE)

    assert [(y, y), (z, z)] == [(merged(x, it).record, merged(it, x).record) for it in (y, z)]


def test_nothing_is_left_where_both_are_gone() -> None:
    """A mark says that they were here."""
    x, y = here(saved("steps", "x\n", given_id=X)), there(saved("steps", "y\n", given_id=Y))
    known = {**ELSEWHERE, Y: tombstone(Y)}
    found = merge_entries(x, y, on_conflict="local", at=MERGED_AT, known=known).record

    assert isinstance(found, Mark)
    assert ((X, Y), x.path) == (found.left, found.path)
    assert found.revision > max(x.revision, y.revision)


def test_a_mark_takes_the_place_of_what_was_known_to_whoever_left_it() -> None:
    """A change that was not known then stays visible, unless it is known where the entry is now."""
    entry = here(saved("steps", "x\n", given_id=X))
    mark = here(vacated(entry, at(3)))
    changed = there(resaved(entry, "changed\n", at=at(2)))

    assert mark == merged(entry, mark).record == merged(mark, entry).record
    assert "changed\n" == entry_of(merged(mark, changed)).content == entry_of(merged(changed, mark)).content
    assert isinstance(merge_entries(changed, mark, on_conflict="local", at=MERGED_AT, known=ELSEWHERE).record, Mark)


def test_of_two_places_the_one_that_knew_the_other_stands() -> None:
    """Whatever the clocks of their machines said, on either side."""
    first = here(replace(location(saved("then", given_id=X)), at=at(9)))
    second = there(replace(location(saved("later", given_id=X)), at=at(2), revision=2, origins=first.origins))

    assert second == merged(first, second).record == merged(second, first).record


def test_of_two_places_the_later_one_stands_and_a_tombstone_over_both() -> None:
    """At one moment, the smaller path: on every machine the same."""
    one, other = (location(saved(key, given_id=X), at=at(2)) for key in ("one", "other"))
    later, gone = location(saved("later", given_id=X), at=at(3)), tombstone(X, at=at(1))
    first = min(one, other, key=lambda mark: mark.target)

    for marks, wanted in (((one, later), later), ((one, other), first), ((later, gone), gone)):
        for local, remote in (marks, marks[::-1]):
            found = merged(local, remote).record
            assert isinstance(found, Mark)
            assert (wanted.type, wanted.key) == (found.type, found.key)


def test_a_copy_of_a_moved_entry_is_merged_where_it_is_now() -> None:
    """With all that was changed in it, and under its own key again nowhere."""
    before = here(saved("steps", "one\ntwo\nthree\n", given_id=X))
    place = location(saved("then", given_id=X))
    now = merged_at_place(
        here(resaved(before, "ONE\ntwo\nthree\n", at=at(2))), None, place, on_conflict="local", at=at(4), known={}
    ).record
    copy = there(resaved(before, "one\ntwo\nTHREE\n", at=at(3)))
    found = entry_of(merged_at_place(copy, now, place, on_conflict="local", at=at(5), known={}))

    assert ("ONE\ntwo\nTHREE\n", "then", X, place.target) == (found.content, found.key, found.id, found.path)
    assert now == merged_at_place(before, now, place, on_conflict="local", at=at(5), known={}).record


def test_a_mark_of_another_entry_takes_nothing_from_one_that_is_moved_there() -> None:
    """What the two paths say of versions cannot be compared, however alike it looks."""
    other = there(here(resaved(saved("then", "other\n", given_id=Y), "again\n", at=at(2))))
    copy = here(resaved(here(saved("steps", "x\n", given_id=X)), "changed\n", at=at(3)))
    found = merged_at_place(
        copy, vacated(other, at(4)), location(saved("then", given_id=X)), on_conflict="local", at=at(5), known={}
    )

    assert ("changed\n", "then") == (entry_of(found).content, entry_of(found).key)
    assert entry_of(found).revision > other.revision


def test_a_change_of_a_moved_entry_is_kept_whatever_its_new_path_knows_of_other_records() -> None:
    """The record there is made above five revisions of the entry that was there before."""
    before = here(saved("steps", "one\n", given_id=X))
    place = location(saved("then", given_id=X))
    arrived = saved("then", "one\n", given_id=X).text
    moved_there = replace(before, text=successor(arrived, origins={HERE: 5}, revision=5), key="then")
    now = there(refaceted(moved_there, at=at(3)))
    copy = here(resaved(before, "changed\n", at=at(2)))
    found = entry_of(merged_at_place(copy, now, place, on_conflict="local", at=at(5), known={}))

    assert "changed\n" in [content.decode() for _, content in contents(found.text)]


def test_an_entry_that_takes_the_path_of_another_is_merged_with_all_of_its_history() -> None:
    """Their version vectors have revisions of one path in common, but the two have not a single change in common."""
    x = here(refaceted(here(saved("steps", "x\n", given_id=X, kind="fact")), at=at(2)))
    y = there(refaceted(here(saved("steps", "y\n", given_id=Y, kind="fact")), at=at(3)))
    for local, remote in ((x, y), (y, x)):
        found = entry_of(merged(local, remote))

        assert {"x\n", "y\n"} <= {content.decode() for _, content in contents(found.text)}
        assert {HERE, THERE} == found.origins.keys()
