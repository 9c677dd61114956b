"""Merging two copies of a record: rule by rule, what the one record is that knows both."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from msgspec.structs import replace

from memfiles.records.declared_metadata import Metadata, metadata_in, redeclared, seed
from memfiles.records.file_changes import Decision, append, edit, replace_content, undo
from memfiles.records.history import content_at, contents
from memfiles.records.lineage import all_origins, relation
from memfiles.records.record import MAX_HISTORY_CHANGES, Actor, Change, Record, Stamp, encode, extend
from memfiles.sync.merge.merge_files import ConflictPolicy, MergeResult, adopt, merge
from tests.support.records import LATER, SEEDED_AT, TickingClock, seeded

HERE, THERE, ELSEWHERE = "a" * 12, "b" * 12, "c" * 12
AT = "2026-11-22T00:00:00.000Z"
Call = Callable[[Record, Stamp], Decision]
now = TickingClock()


def stamp(call: str | None = None) -> Stamp:
    return Stamp(now(), Actor(agent="support", call=call))


def done(record: Record, *calls: Call, by: str | None) -> Record:
    """The record after these calls in one memory directory; the first has the id ``c1``."""
    for number, call in enumerate(calls, 1):
        changed = call(record, stamp(f"c{number}")).record
        assert changed is not None
        record = changed if by is None else changed.stamped(by)
    return record


def appends(*texts: str) -> list[Call]:
    return [partial(append, text=text) for text in texts]


def edits(old: str, new: str) -> Call:
    return partial(edit, old=old, new=new)


def shared(content: str = "# Notes\n") -> Record:
    """What both sides have: made there and taken over here."""
    return seeded(content).stamped(THERE)


def merged(
    local: Record, remote: Record, *, base: Record | None = None, on_conflict: ConflictPolicy = "local"
) -> MergeResult[Record]:
    """The merge, of which holds whatever was merged: it can be walked, is above both and knows both."""
    result = merge(local, remote, base=base, on_conflict=on_conflict, at=AT)
    record = result.record
    assert record.is_intact and not record.provisional
    assert len(record.history) == len(list(contents(record))) or any(one.opaque for one in record.history)
    if record not in (local, remote):
        assert record.revision > max(local.revision, remote.revision) or not result.is_news
        assert record.origins == all_origins(local, remote) or not result.is_news
    return result


# what only one side knows


def test_what_only_the_mirror_knows_is_taken_over_as_it_is() -> None:
    """Byte for byte; there is nothing to push."""
    local = shared()
    remote = done(local, *appends("theirs\n"), by=THERE)

    assert MergeResult(remote, is_news=False) == merged(local, remote)


def test_what_only_this_side_knows_stays_as_it_is() -> None:
    """It is to be pushed."""
    remote = shared()
    local = done(remote, *appends("ours\n"), by=HERE)

    assert MergeResult(local) == merged(local, remote)


def test_the_same_on_both_sides_is_no_news() -> None:
    """Also where it is declared otherwise here: two declarations must not answer each other for ever."""
    local = replace(shared(), description="another")

    assert MergeResult(local, is_news=False) == merged(local, shared())


# both know something


def test_appends_of_both_are_kept_the_mirror_s_first() -> None:
    """The main case, and always clean."""
    local = done(shared(), *appends("one\n", "two\n"), by=HERE)
    remote = done(shared(), *appends("theirs\n"), by=THERE)
    record = merged(local, remote).record

    assert "# Notes\ntheirs\none\ntwo\n" == record.content
    assert [("append", 2), ("append", 3), ("append", 4)] == [
        (change.op, change.revision) for change in record.history[1:]
    ]


def test_appends_are_put_together_exactly() -> None:
    """No newline is added or taken away."""
    local, remote = done(shared("a"), *appends("b"), by=HERE), done(shared("a"), *appends("c", "\nd"), by=THERE)

    assert "ac\ndb" == merged(local, remote).record.content


def test_a_line_that_both_appended_stands_twice() -> None:
    """Both were told that it is there."""
    local, remote = (done(shared(), *appends("same\n"), by=origin) for origin in (HERE, THERE))

    assert "# Notes\nsame\nsame\n" == merged(local, remote).record.content


def test_edits_of_different_lines_are_both_made() -> None:
    """Also of neighbouring ones, and beside appends."""
    start = shared("one\ntwo\nthree\n")
    local = done(start, edits("two", "2"), *appends("ours\n"), by=HERE)
    remote = done(start, edits("one", "1"), edits("three", "3"), *appends("theirs\n"), by=THERE)
    result = merged(local, remote)

    assert ("1\n2\n3\ntheirs\nours\n", None) == (result.record.content, result.loser)


def test_what_was_taken_back_here_is_not_there() -> None:
    """An undo of an own change is made again like any other."""
    local = done(shared(), *appends("ours\n", "wrong\n"), undo, by=HERE)
    remote = done(shared(), *appends("theirs\n"), by=THERE)

    assert "# Notes\ntheirs\nours\n" == merged(local, remote).record.content


def test_an_edit_finds_its_line_among_equal_ones() -> None:
    """The other side's copy of the line stays."""
    local = done(shared(), *appends("same\n"), edits("same", "ours"), by=HERE)
    remote = done(shared(), *appends("same\n"), by=THERE)

    assert ["# Notes\n", "ours\n", "same\n"] == sorted(merged(local, remote).record.content.splitlines(keepends=True))


def test_every_earlier_content_can_be_told() -> None:
    """The mirror's revisions stand as they were; after them come the local changes, one by one."""
    local = done(shared("a\nb\n"), *appends("c\n"), edits("a", "A"), by=HERE)
    remote = done(shared("a\nb\n"), *appends("d\n"), edits("b", "B"), by=THERE)
    record = merged(local, remote).record

    assert ["a\nb\n", "a\nb\nd\n", "a\nB\nd\n", "a\nB\nd\nc\n", "A\nB\nd\nc\n"] == [
        content_at(record, revision) for revision in range(1, 6)
    ]


def test_what_was_done_to_the_declaration_stays_in_the_log() -> None:
    """A change without effect on the content is carried on as it is."""
    local = redeclared(shared(), Metadata("notes", "new", 4096, "INTERNAL"), at=LATER).stamped(HERE)
    remote = done(shared(), *appends("theirs\n"), by=THERE)
    record = merged(local, remote).record

    assert (["seed", "append", "declare"], "new") == ([change.op for change in record.history], record.description)


def test_a_change_without_effect_fits_any_text() -> None:
    """The other side's may be shorter than the place that it names."""
    start = shared("a long beginning\n")
    local = extend(start, Change(revision=2, at=now(), op="external", offset=start.size_bytes))
    remote = done(start, edits("a long beginning", "a"), by=THERE)

    assert "a\n" == content_at(merged(local.stamped(HERE), remote).record, 2)


def test_an_acknowledgement_that_got_lost_doubles_nothing() -> None:
    """Part of what is unsynced here is in the mirror, with another's changes on top."""
    pushed = done(shared(), *appends("one\n"), by=HERE)
    remote = done(pushed, *appends("theirs\n"), by=THERE)
    local = done(pushed, *appends("two\n"), by=HERE)

    assert "# Notes\none\ntheirs\ntwo\n" == merged(local, remote, base=shared()).record.content


# replays

CALLS: dict[str, Call] = {
    "append": partial(append, text="- Bob\n"),
    "edit": partial(edit, old="two", new="2"),
    "an edit in a line without an end": partial(edit, old="four", new="4"),
    "replace": partial(replace_content, content="one\ntwo\nthree\n4"),
    "undo": undo,
    "undo to a revision": partial(undo, to_revision=1),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("theirs", [partial(append, text="\ntheirs\n"), edits("one", "1"), edits("three", "3")])
def test_a_call_is_known_after_it_was_made_again(call: str, theirs: Call) -> None:
    """Whatever became of it on the other text, its replay changes nothing."""
    start = done(shared("one\ntwo\nthree\n"), *appends("four"), by=THERE)
    local, remote = done(start, CALLS[call], by=HERE), done(start, theirs, by=THERE)
    record = merged(local, remote).record

    again = CALLS[call](record, Stamp(LATER, Actor(agent="support", call="c1")))
    assert (None, True) == (again.record, again.receipt.replayed)


def test_an_edit_that_only_moved_is_still_told_by_its_text() -> None:
    """The same id with another payload is then another call."""
    local = done(shared("one\ntwo\n"), edits("two", "2"), by=HERE)
    record = merged(local, done(shared("one\ntwo\n"), edits("one", "1, and more"), by=THERE)).record
    change = record.history[-1]

    assert ("two", 1, False, 1, 2) == (change.old, change.bytes, change.merged, change.matches, change.line)


# conflicts


@pytest.mark.parametrize(("on_conflict", "content"), [("local", "ours\nb\nC\n"), ("remote", "theirs\nb\nC\n")])
def test_lines_that_both_changed_are_the_winner_s(on_conflict: ConflictPolicy, content: str) -> None:
    """What else the loser did is kept, and the loser is handed out whole."""
    start = shared("a\nb\nc\n")
    local = done(start, edits("a", "ours"), by=HERE)
    remote = done(start, edits("a", "theirs"), edits("c", "C"), by=THERE)
    result = merged(local, remote, on_conflict=on_conflict)

    assert (content, remote if on_conflict == "local" else local) == (result.record.content, result.loser)


@pytest.mark.parametrize("on_conflict", ["local", "remote"])
def test_the_loser_s_text_is_in_the_history(on_conflict: ConflictPolicy) -> None:
    """An undo of the last change brings it back, whoever won."""
    local, remote = (done(shared("a\n"), edits("a", text), by=by) for text, by in (("ours", HERE), ("theirs", THERE)))
    record = merged(local, remote, on_conflict=on_conflict).record
    back = undo(record, stamp()).record
    assert back is not None

    assert {"ours\n", "theirs\n"} == {record.content, back.content}


@pytest.mark.parametrize("on_conflict", ["local", "remote"])
def test_no_conflict_costs_an_appended_line(on_conflict: ConflictPolicy) -> None:
    """Also where it stands right behind the line that the conflict is about."""
    start = shared("a\n")
    local = done(start, edits("a\n", ""), *appends("ours\n"), by=HERE)
    remote = done(start, edits("a\n", ""), *appends("b\n", "theirs\n"), edits("b", "B"), by=THERE)
    start_over = done(start, edits("a", "x"), *appends("ours\n"), by=HERE)

    for one in (local, start_over):
        assert {"theirs", "ours"} <= set(merged(one, remote, on_conflict=on_conflict).record.content.split("\n"))


# more than the history holds


@pytest.mark.parametrize("on_conflict", ["local", "remote"])
def test_an_append_to_a_line_without_an_end_is_not_doubled_by_a_conflict(on_conflict: ConflictPolicy) -> None:
    """It is there, though not as a line of its own; and so is the line without an end."""
    ends = done(shared("first\nlast\n"), edits("first", "theirs"), *appends("open"), by=THERE)
    appended = done(shared("first\nlast\n"), edits("first", "ours"), *appends("more\n", "more\n"), by=HERE)

    for one, other in ((ends, appended), (appended, ends)):
        content = merged(one, other, on_conflict=on_conflict).record.content
        assert (1, 2) == (content.count("open"), content.count("more"))


@pytest.mark.parametrize("on_conflict", ["local", "remote"])
def test_an_append_to_an_open_line_survives_an_edit_of_that_line(on_conflict: ConflictPolicy) -> None:
    """It joined the line on one side, and the other side completed and edited it: both stand, once."""
    completed = done(shared("foo one"), *appends(" bar two\n"), edits("foo", "qux"), by=HERE)
    appended = done(shared("foo one"), *appends("baz\n"), by=THERE)

    for one, other in ((completed, appended), (appended, completed)):
        result = merged(one, other, on_conflict=on_conflict)
        assert ("qux one bar two\nbaz\n", None) == (result.record.content, result.loser)


def test_more_changes_than_the_history_holds_are_kept() -> None:
    """The base is then in the other side's history; what is left of the changes is made again one by one."""
    local = done(shared(), *appends(*[f"ours {number}\n" for number in range(150)]), by=HERE)
    remote = done(shared(), *appends("theirs\n"), by=THERE)
    result = merged(local, remote)

    lines = ["# Notes", "theirs", *[f"ours {number}" for number in range(150)], ""]
    assert (lines, None) == (result.record.content.split("\n"), result.loser)
    assert ["append"] * MAX_HISTORY_CHANGES == [change.op for change in result.record.history]


def test_more_changes_than_both_histories_hold_are_kept_with_what_the_mirror_acknowledged() -> None:
    """Edits beyond the history are then merged as a whole."""
    start = shared("a\nb\nc\n")
    ours, theirs = ([f"{who} {number}\n" for number in range(150)] for who in ("ours", "theirs"))
    local = done(start, edits("a", "A"), *appends(*ours), by=HERE)
    remote = done(start, edits("c", "C"), *appends(*theirs), by=THERE)
    result = merged(local, remote, base=start)

    assert ("A\nb\nC\n" + "".join(theirs) + "".join(ours), None) == (result.record.content, result.loser)


def test_a_base_from_before_a_lost_acknowledgement_doubles_nothing() -> None:
    """What was pushed since is in both then, and the histories do not reach back to it."""
    pushed = done(shared(), *appends("one\n"), by=HERE)
    ours, theirs = ([f"{who} {number}\n" for number in range(150)] for who in ("ours", "theirs"))
    local, remote = done(pushed, *appends(*ours), by=HERE), done(pushed, *appends(*theirs), by=THERE)
    result = merged(local, remote, base=shared())

    assert "# Notes\none\n" + "".join(theirs) + "".join(ours) == result.record.content


@pytest.mark.parametrize("on_conflict", ["local", "remote"])
def test_more_changes_than_both_histories_hold_are_kept_even_if_nobody_knows_the_base(
    on_conflict: ConflictPolicy,
) -> None:
    """Both went on from one beginning, and that is what they still share."""
    ours, theirs = ([f"{who} {number}\n" for number in range(150)] for who in ("ours", "theirs"))
    local, remote = done(shared(), *appends(*ours), by=HERE), done(shared(), *appends(*theirs), by=THERE)
    result = merged(local, remote, on_conflict=on_conflict)

    assert "# Notes\n" + "".join(theirs[:50]) in result.record.content
    assert {*ours, *theirs, "# Notes\n"} == set(result.record.content.splitlines(keepends=True))


def test_a_change_too_large_for_the_history_is_merged_as_a_whole() -> None:
    """Its text before is not kept; that the other side still has."""
    start = shared("".join(f"{number}\n" for number in range(20_000)))
    start = replace(start, max_size_bytes=1 << 20)
    local = done(start, partial(replace_content, content="0\n19999\nours\n"), *appends("more\n"), by=HERE)
    remote = done(start, *appends("theirs\n"), by=THERE)
    result = merged(local, remote)

    assert ("0\n19999\nours\ntheirs\nmore\n", None) == (result.record.content, result.loser)
    assert partial(replace_content, content="0\n19999\nours\n")(
        result.record, Stamp(LATER, Actor(agent="support", call="c1"))
    ).receipt.replayed


# nothing in common, or nobody knows


def test_without_origins_the_common_history_is_the_base() -> None:
    """Records from before a mirror was declared are merged as well."""
    start = done(seeded("a\n"), *appends("b\n"), by=None)
    local, remote = done(start, *appends("ours\n"), by=None), done(start, *appends("theirs\n"), by=None)

    assert "a\nb\ntheirs\nours\n" == merged(local, remote).record.content
    assert MergeResult(remote, is_news=False) == merged(start, remote)
    assert MergeResult(local) == merged(local, start)


def own_seed(content: str, *, by: str) -> Record:
    """A file that began in this directory, with a moment of its own."""
    return seed("notes", metadata_in(seeded()), content=content, at=now()).stamped(by)


def test_a_seed_that_nobody_touched_gives_way() -> None:
    """To the mirror's copy, whatever that is."""
    remote = done(own_seed("theirs\n", by=THERE), *appends("more\n"), by=THERE)

    assert MergeResult(remote, is_news=False) == merged(own_seed("ours\n", by=HERE), remote)


def test_a_seed_in_the_mirror_that_nobody_touched_gives_way() -> None:
    """To what was written here."""
    local = done(own_seed("ours\n", by=HERE), *appends("more\n"), by=HERE)
    result = merged(local, own_seed("theirs\n", by=THERE))

    assert ("ours\nmore\n", None) == (result.record.content, result.loser)


@pytest.mark.parametrize("content", ["# Notes\n", ""])
def test_two_that_began_with_the_same_declaration_are_both_kept(content: str) -> None:
    """The seed is the base, although each made its own."""
    local = done(own_seed(content, by=HERE), *appends("ours\n"), by=HERE)
    remote = done(own_seed(content, by=THERE), *appends("theirs\n"), by=THERE)
    result = merged(local, remote)

    assert (content + "theirs\nours\n", None) == (result.record.content, result.loser)


def test_a_provisional_seed_is_the_base_of_what_was_written_on_it() -> None:
    """The mirror did not answer at the start; its copy began with another declaration."""
    local = done(replace(own_seed("# New\n", by=HERE), provisional=True), *appends("ours\n"), by=HERE)
    remote = done(own_seed("# Old\n", by=THERE), *appends("theirs\n"), by=THERE)

    assert "# Old\ntheirs\nours\n" == merged(local, remote).record.content


def without_past(content: str, *, by: str, revision: int = 7) -> Record:
    """A record of which nothing but its content is known."""
    return replace(own_seed(content, by=by), revision=revision, history=(), origins={by: revision})


def test_of_two_unrelated_copies_the_longer_is_kept_if_it_begins_with_the_other() -> None:
    """It has all of both."""
    short, long = without_past("a\n", by=HERE), without_past("a\nb\n", by=THERE, revision=9)

    assert [("a\nb\n", None)] * 2 == [
        (result.record.content, result.loser) for result in (merged(short, long), merged(long, short))
    ]


@pytest.mark.parametrize("on_conflict", ["local", "remote"])
def test_two_unrelated_copies_are_a_conflict(on_conflict: ConflictPolicy) -> None:
    """The winner's content as a whole; the loser is handed out, and is in the history."""
    local, remote = without_past("ours\n", by=HERE), without_past("theirs\n", by=THERE)
    result = merged(local, remote, on_conflict=on_conflict)
    winner, loser = (local, remote) if on_conflict == "local" else (remote, local)

    assert (winner.content, loser) == (result.record.content, result.loser)
    assert loser.content in {content.decode() for _, content in contents(result.record)} | {remote.content}


def test_what_was_acknowledged_is_the_base_where_nothing_else_tells() -> None:
    """Neither origins nor histories."""
    base = without_past("a\nb\n", by=ELSEWHERE, revision=3)
    base = replace(base, history=done(seeded("a\n"), *appends("b\n", "c\n"), by=None).history, origins={})
    texts = ("A\nb\nours\n", "a\nB\ntheirs\n")
    local, remote = (replace(without_past(text, by=HERE), origins={}) for text in texts)

    assert "A\nB\ntheirs\nours\n" == merged(local, remote, base=base).record.content


def test_a_directory_that_was_copied_loses_nothing() -> None:
    """Both copies stamp with one id, so the origins say that one includes the other."""
    local, remote = done(shared(), *appends("ours\n"), by=HERE), done(shared(), *appends("one\n", "two\n"), by=HERE)

    assert "# Notes\none\ntwo\nours\n" == merged(local, remote).record.content


# what surrounds the content


def test_the_declaration_here_is_the_result_s() -> None:
    """Name, description, cap and level; the content may be over the cap, and may then only shrink."""
    local = replace(done(shared(), *appends("ours\n"), by=HERE), description="here", max_size_bytes=10, level="SECRET")
    record = merged(local, done(shared(), *appends("theirs\n"), by=THERE)).record

    assert (metadata_in(local), "# Notes\ntheirs\nours\n") == (metadata_in(record), record.content)


def test_the_earlier_creation_is_the_result_s() -> None:
    """And the last change tells when it was updated; no clock decides which text comes first."""
    local = replace(done(shared(), *appends("ours\n"), by=HERE), created_at="2020-01-01T00:00:00.000Z")
    record = merged(local, done(shared(), *appends("theirs\n"), by=THERE)).record

    assert ("2020-01-01T00:00:00.000Z", local.updated_at) == (record.created_at, record.updated_at)


def test_the_result_knows_both() -> None:
    """Neither side has anything then that it lacks."""
    local, remote = done(shared(), *appends("ours\n"), by=HERE), done(shared(), *appends("theirs\n"), by=THERE)
    record = merged(local, remote).record.stamped(HERE)

    assert ("behind", {HERE: 3, THERE: 2}) == (relation(remote, record), record.origins)


def test_a_copy_from_before_its_changes_were_renumbered_adds_nothing() -> None:
    """A directory that was put back to a backup finds its own changes in the mirror, under other revisions."""
    local, remote = done(shared(), *appends("ours\n"), by=HERE), done(shared(), *appends("theirs\n"), by=THERE)
    pushed = merged(local, remote).record.stamped(HERE)

    assert MergeResult(pushed, is_news=False) == merged(local, pushed)


def test_a_change_that_was_made_again_on_a_mirror_put_back_is_not_doubled() -> None:
    """Somebody put the mirror back to before a change, and its maker rebased it on what came then."""
    third = "c" * 12
    pushed = done(shared(), *appends("ours\n"), by=HERE)
    local = done(pushed, *appends("third\n"), by=third)
    again = merged(pushed, done(shared(), *appends("theirs\n"), by=THERE)).record.stamped(HERE)

    assert "# Notes\ntheirs\nours\nthird\n" == merged(local, again).record.content


def test_a_copy_is_adopted_byte_for_byte() -> None:
    """If it is declared alike and above the revision here."""
    remote = done(shared(), *appends("theirs\n"), by=THERE)

    assert encode(remote) == encode(adopt(remote, metadata=metadata_in(remote), revision=1, at=AT))


def test_a_copy_is_adopted_with_the_declaration_here() -> None:
    """As no change of its own."""
    remote = replace(done(shared(), *appends("theirs\n"), by=THERE), provisional=True)
    record = adopt(remote, metadata=Metadata("notes", "here", 9, "SECRET"), revision=1, at=AT)

    assert (("notes", "here", 9, "SECRET"), remote.history, False) == (
        metadata_in(record),
        record.history,
        record.provisional,
    )


def test_a_provisional_copy_is_adopted_as_a_settled_one() -> None:
    """Whoever made it did not reach the mirror then; it has been there now."""
    remote = replace(shared(), provisional=True)

    assert shared() == adopt(remote, metadata=metadata_in(remote), revision=0, at=AT)


def test_a_copy_is_adopted_above_the_revision_here() -> None:
    """What a reader saw here never goes back."""
    record = adopt(shared(), metadata=metadata_in(shared()), revision=5, at=AT)

    assert (6, "hydrate", AT, SEEDED_AT) == (
        record.revision,
        record.history[-1].op,
        record.updated_at,
        record.created_at,
    )
