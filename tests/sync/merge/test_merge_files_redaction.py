"""Merging where a text was redacted: nothing of the other copy brings it back, into content or history."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from memfiles.errors import MemfilesError
from memfiles.records.file_changes import Decision, append, edit, replace_content, undo
from memfiles.records.history import contents
from memfiles.records.record import Actor, Record, Stamp, encode
from memfiles.sync.merge.merge_files import ConflictPolicy, MergeResult, merge
from tests.support.records import TickingClock, many_times, redact, seeded

HERE, THERE = "a" * 12, "b" * 12
AT = "2026-11-22T00:00:00.000Z"
NEEDLE = "hunter2"
Call = Callable[[Record, Stamp], Decision]
START = f"one\nthe word is {NEEDLE}\nthree\n"
now = TickingClock()
many: list[Call] = [partial(append, text=f"line {number}\n") for number in range(130)]


def done(record: Record, *calls: Call, by: str) -> Record:
    for call in calls:
        changed = call(record, Stamp(now(), Actor(agent=by, call=f"{by}-{record.revision}")))
        record = (changed.record or record).stamped(by)
    return record


def taken_out(record: Record, *, by: str, text: str = NEEDLE) -> Record:
    changed, _ = redact(record, Stamp(now()), text=text)
    assert changed is not None
    return changed.stamped(by)


def shared(content: str = START) -> Record:
    return seeded(content, cap=1 << 20).stamped(THERE)


def merged(
    local: Record, remote: Record, *, base: Record | None = None, on_conflict: ConflictPolicy = "local"
) -> MergeResult[Record]:
    result = merge(local, remote, base=base, on_conflict=on_conflict, at=AT)
    list(contents(result.record))
    assert result.record.revision > max(local.revision, remote.revision)
    return result


APPENDED: Call = partial(append, text="more\n")
SAME_LINE: Call = partial(edit, old="the word is", new="the word was")
OTHER_END: Call = partial(append, text="third\n")
OTHER_LINE: Call = partial(edit, old="three", new="3")


def both_ways(dirty: Record, clean: Record, **how: object) -> list[MergeResult[Record]]:
    """Merged by the side that has the text, and by the side that took it out."""
    return [merged(dirty, clean, **how), merged(clean, dirty, **how)]  # type: ignore[arg-type]


@pytest.mark.parametrize("on_conflict", ["local", "remote"])
@pytest.mark.parametrize("changes", [[APPENDED], [OTHER_LINE], [APPENDED, OTHER_LINE], [APPENDED, SAME_LINE]])
def test_the_text_is_nowhere_in_the_result(on_conflict: ConflictPolicy, changes: list[Call]) -> None:
    """Whoever merges and whoever wins; what the other side appended is kept."""
    dirty, clean = done(shared(), *changes, by=HERE), taken_out(shared(), by=THERE)

    for result in both_ways(dirty, clean, on_conflict=on_conflict):
        assert NEEDLE.encode() not in encode(result.record)
        assert (APPENDED in changes, None) == ("more\n" in result.record.content, result.loser)


def test_edits_of_other_lines_are_kept() -> None:
    """The redaction is about its own line alone."""
    dirty, clean = done(shared(), OTHER_LINE, by=HERE), taken_out(shared(), by=THERE)

    assert [("one\nthe word is [redacted]\n3\n", None)] * 2 == [
        (result.record.content, result.note) for result in both_ways(dirty, clean)
    ]


def test_an_edit_of_the_redacted_line_is_kept() -> None:
    """Both changes of the line are in the result: what was taken out of it, and what was put into it."""
    dirty, clean = done(shared(), SAME_LINE, by=HERE), taken_out(shared(), by=THERE)

    for result in both_ways(dirty, clean):
        assert ("one\nthe word was [redacted]\nthree\n", None) == (result.record.content, result.loser)


def test_what_is_left_of_a_text_edited_at_the_same_time_goes_too() -> None:
    """Only the inserted text stands; the change after it, and an edit of what nobody redacted, are not touched."""
    halves: list[Call] = [partial(edit, old="nt", new="n and t"), partial(edit, old="ter2", new="fer"), APPENDED]
    dirty, clean = done(shared(), *halves, by=HERE), taken_out(shared(), by=THERE)

    for result in both_ways(dirty, clean):
        assert "one\nthe word is [redacted] and fer\nthree\nmore\n" == result.record.content
        assert not any(part in encode(result.record) for part in (b"hu", b"ter2", b"hunter2"))


COMPLETED: dict[str, tuple[str, Call, str, list[str]]] = {
    "an edit": ("one\nthe word is hunt\n", partial(edit, old="hunt", new=NEEDLE), NEEDLE, ["hunt", "er2"]),
    "the next line": (
        "one\nour alpha\n",
        partial(append, text="our beta\n"),
        "our alpha\nour beta\n",
        ["alpha", "beta"],
    ),
    "the rest of the line": ("one\nalpha", partial(append, text="omega\n"), "alphaomega", ["alpha", "omega"]),
}


@pytest.mark.parametrize("on_conflict", ["local", "remote"])
@pytest.mark.parametrize("how", COMPLETED)
@pytest.mark.parametrize("what", ["append", "other line", "same line", "inside", "remove", "remove and undo"])
def test_the_part_of_a_text_that_the_other_side_has_alone_goes_too(
    what: str, how: str, on_conflict: ConflictPolicy
) -> None:
    """The side that redacted put the text together from it, and knows by its own history what it took out."""
    begun, completed, text, parts = COMPLETED[how]
    line = begun.splitlines()[1]
    changes: dict[str, list[Call]] = {
        "append": [partial(append, text="\nmore\n")],
        "other line": [partial(edit, old="one", new="1")],
        "same line": [partial(edit, old=line, new=f"- {line}")],
        "inside": [partial(edit, old=parts[0], new=f"{parts[0]}-new")],
        "remove": [partial(edit, old=line, new="")],
        "remove and undo": [partial(edit, old=line, new=""), undo],
    }
    start = done(shared("zero\n"), partial(append, text=begun), by=THERE)
    dirty = done(start, *changes[what], by=HERE)
    clean = taken_out(done(start, completed, by=THERE), by=THERE, text=text)

    for result in both_ways(dirty, clean, on_conflict=on_conflict):
        copies = [result.record, *([result.loser] if result.loser is not None else [])]
        assert [] == [part for part in parts for copy in copies if part in encode(copy).decode()]
        assert 1 == [change.revision for change, _ in contents(result.record)][-1]
        expected = {"append": "more", "other line": "zero\n1\n", "same line": "- ", "inside": "-new"}
        assert expected.get(what, "zero") in result.record.content


def test_each_side_has_a_part_of_what_the_other_one_took_out() -> None:
    """Each lost its own, and neither history is that of the result: both are told apart where they diverged."""
    start = shared("the word is hunt\nthe other is sword\n")
    ours = taken_out(done(start, partial(edit, old="hunt", new=NEEDLE), by=HERE), by=HERE)
    theirs = done(start, partial(edit, old="sword", new="swordfish"), by=THERE)
    theirs = taken_out(theirs, by=THERE, text="swordfish")

    for result in both_ways(ours, theirs):
        assert "the word is [redacted]\nthe other is [redacted]\n" == result.record.content
        assert not any(part in encode(result.record) for part in (b"hunt", b"sword"))


def test_a_change_next_to_the_part_is_the_callers_own_still() -> None:
    """It is only moved, so a replay of its call reports the same."""
    start = done(shared("x\n"), partial(append, text="the word is hunt\nlater\n"), by=THERE)
    clean = taken_out(done(start, partial(edit, old="hunt", new=NEEDLE), by=THERE), by=THERE)

    for result in both_ways(done(start, partial(edit, old="later", new="now"), by=HERE), clean):
        (change,) = (change for change in result.record.history if change.by.agent == HERE)
        assert ("later", 1, 3, False) == (change.old, change.matches, change.line, change.redacted)


def test_a_longer_declaration_of_a_file_elsewhere_loses_nothing() -> None:
    """Two seeds tell apart what was declared, not what was redacted."""
    ours = done(seeded("one\n").stamped(HERE), partial(append, text=f"{NEEDLE}\n"), by=HERE)
    theirs = done(seeded("one\ntwo\n").stamped(THERE), APPENDED, by=THERE)

    assert "one\ntwo\nmore\n[redacted]\n" == merged(taken_out(ours, by=HERE), theirs).record.content


def test_an_undo_brings_back_no_part_of_it() -> None:
    """What it inserts is what an earlier change had left of the text."""
    cuts: list[Call] = [partial(edit, old="ter2", new=""), partial(edit, old="hun", new=""), undo]
    dirty, clean = done(shared(), *cuts, by=HERE), taken_out(shared(), by=THERE)

    for result in both_ways(dirty, clean):
        assert "one\nthe word is [redacted]\nthree\n" == result.record.content
        assert b"hun" not in encode(result.record)


def test_a_line_after_a_removed_one_loses_nothing() -> None:
    """The removal may be told as taking the next line's beginning, which is no part of the text."""
    start = shared("- one\n- gone\n- two\n")
    dirty = done(start, partial(replace_content, content="- one\n- two\n"), by=HERE)

    for result in both_ways(dirty, taken_out(start, by=THERE, text="- gone\n")):
        assert result.record.content in ("- one\n- two\n", "- one\n[redacted]- two\n")


REPLACED = {
    "hunter2 as it was": "[redacted] as it was",
    "hun--ter2": "[redacted]--",
    "hunter3": "[redacted]3",
    "not hunter": "not [redacted]",
    "a fish": "a fish",
}


@pytest.mark.parametrize("new", REPLACED)
def test_only_what_is_new_in_an_edit_was_inserted(new: str) -> None:
    """An agent passes the whole line, of which most is what was there before."""
    change = partial(edit, old=f"the word is {NEEDLE}", new=f"the word is {new}")
    dirty, clean = done(shared(), change, by=HERE), taken_out(shared(), by=THERE)

    for result in both_ways(dirty, clean):
        assert f"one\nthe word is {REPLACED[new]}\nthree\n" == result.record.content


@pytest.mark.parametrize("shared_line", ["", "- known\n"])
def test_a_line_of_the_same_moment_as_the_redacted_one_stays(shared_line: str) -> None:
    """Two machines that had no mirror yet wrote under one revision, in one millisecond; one redacts its own line."""
    start = seeded(f"one\n{shared_line}")
    one, other = (append(start, Stamp(AT), text=text).record for text in (f"{NEEDLE}\n", "- Bob is on Pro\n"))
    assert one is not None and other is not None
    clean, _ = redact(one, Stamp(AT), text=NEEDLE)
    assert clean is not None

    for result in (*both_ways(other, clean), *both_ways(other.stamped(HERE), clean.stamped(THERE))):
        assert {"- Bob is on Pro", "[redacted]"} <= {*result.record.content.splitlines()}


def test_what_was_left_of_a_text_before_stays() -> None:
    """Whoever redacted saw the fragment, and took out the whole text only."""
    start = done(shared(), partial(edit, old="ter2", new=""), by=THERE)
    dirty, clean = done(start, APPENDED, by=HERE), taken_out(start, by=THERE)

    for result in both_ways(dirty, clean):
        assert "one\nthe word is hun\nthree\nmore\n" == result.record.content
        assert NEEDLE.encode() not in encode(result.record)


def test_lines_that_only_together_make_the_text_are_cleaned() -> None:
    """Neither side held it after the merge base, and both appended a part of it without a line end."""
    start = done(shared("hunter2\nthe word is"), partial(edit, old="hunter2", new="x"), by=THERE)
    dirty = done(start, partial(append, text="ter2"), by=HERE)
    clean = taken_out(done(start, partial(append, text=" hun"), by=THERE), by=THERE)

    for result in (merged(dirty, clean), merged(clean, dirty)):
        assert NEEDLE.encode() not in encode(result.record)


def test_a_text_around_an_earlier_marker_is_cleaned() -> None:
    """The other copy has this text only once it has lost the text that the marker stands for."""
    start = shared("the word is hunter2, says ann\n")
    clean = taken_out(taken_out(start, by=THERE), by=THERE, text="is [redacted], says")

    for dirty in (done(start, APPENDED, by=HERE), done(taken_out(start, by=HERE), APPENDED, by=HERE)):
        for result in both_ways(dirty, clean):
            assert "the word [redacted] ann\nmore\n" == result.record.content
            assert not any(part in encode(result.record) for part in (NEEDLE.encode(), b"says"))


def test_what_was_around_an_earlier_marker_before_it_was_put_apart_goes_too() -> None:
    """The other copy's history has it in one piece, from before the text that the marker stands for was inserted."""
    start = done(
        shared("x\n"), partial(append, text="says ann\n"), partial(edit, old="says", new="says hunter2"), by=THERE
    )
    clean = taken_out(taken_out(start, by=THERE), by=THERE, text="says [redacted] ann")

    for result in both_ways(done(start, APPENDED, by=HERE), clean):
        assert "x\n[redacted]\nmore\n" == result.record.content
        assert not any(part in encode(result.record) for part in (NEEDLE.encode(), b"says", b"ann"))


@pytest.mark.parametrize("ours", [[], [APPENDED]])
@pytest.mark.parametrize(
    ("start", "one", "other", "left"),
    [
        ("- no, alpha secret beta, yes\n", "secret", "alpha secret beta", "- no, [redacted], yes\n"),
        ("- no, alpha secret beta, yes\n", "alpha secret", "secret beta", "- no, [redacted], yes\n"),
        ("- no, alpha secret beta yes\n", "secret", "secret beta", "- no, alpha [redacted] yes\n"),
        ("no\nalpha\nsecret\nbeta\nyes\n", "secret", "alpha\nsecret\nbeta", "no\n[redacted]\nyes\n"),
        ("no\nalpha\nsecret\nbeta\nyes\n", "pha\nsecret", "secret\nbeta", "no\nal[redacted]\nyes\n"),
        ("alpha secret beta", "secret", "alpha secret beta", "[redacted]"),
    ],
)
def test_overlapping_texts_redacted_apart_leave_nothing(
    start: str, one: str, other: str, left: str, ours: list[Call]
) -> None:
    """Neither side has the other's text whole any more; and of a third one that has both, nothing comes back."""
    begun = shared(f"first\n{start}")
    here = done(taken_out(begun, by=HERE, text=one), *ours, by=HERE)
    there = done(taken_out(begun, by=THERE, text=other), partial(append, text="theirs\n"), by=THERE)
    words = {word for word in re.findall(r"\w+", f"{one} {other}") if word not in left}

    for result in both_ways(here, there):
        for each in (result, *both_ways(done(begun, OTHER_END, by="c" * 12), result.record)):
            held = re.findall(r"\w+", each.record.content)
            assert [] == [word for word in words if word in encode(each.record).decode()]
            assert each.record.content.startswith(f"first\n{left}")
            assert ("theirs" in held, "more" in held) == (True, APPENDED in ours)


def test_an_undo_does_not_bring_it_back() -> None:
    """The text was out of the content already, and an undo on the other side put it in again."""
    start = done(shared(), partial(edit, old=f"the word is {NEEDLE}\n", new=""), by=THERE)
    dirty, clean = done(start, undo, APPENDED, by=HERE), taken_out(start, by=THERE)

    for result in both_ways(dirty, clean):
        assert NEEDLE.encode() not in encode(result.record)
        assert "one\nthe word is [redacted]\nthree\nmore\n" == result.record.content


def test_text_written_again_by_who_knew_of_the_redaction_stands() -> None:
    """Only what was written before it, or at the same time, loses the text."""
    clean = done(taken_out(shared(), by=THERE), partial(append, text=f"again {NEEDLE}\n"), by=THERE)
    dirty = done(shared(), APPENDED, by=HERE)

    for result in both_ways(dirty, clean):
        assert {f"again {NEEDLE}", "more", "the word is [redacted]"} <= set(result.record.content.split("\n"))
        assert 1 == result.record.content.count(NEEDLE)
    later = merged(done(clean, OTHER_LINE, by=THERE), merged(dirty, clean).record.stamped(HERE))
    assert 1 == later.record.content.count(NEEDLE)


def test_two_lines_redacted_at_once_leave_the_line_between_them() -> None:
    """The markers are not one line that both have."""
    start = shared("one\ntwo\nthree\n")
    ours, theirs = taken_out(start, by=HERE, text="one"), taken_out(start, by=THERE, text="three")

    for result in both_ways(ours, theirs):
        assert "[redacted]\ntwo\n[redacted]\n" == result.record.content


def test_the_same_text_redacted_at_once_leaves_one_marker() -> None:
    """Each side has a piece of its own, and both stay."""
    ours, theirs = taken_out(shared(), by=HERE), taken_out(shared(), by=THERE)

    for result in both_ways(ours, theirs):
        assert ("one\nthe word is [redacted]\nthree\n", 2) == (result.record.content, len(result.record.redactions))


def test_each_side_redacts_what_the_other_has_only_now() -> None:
    """One appends a text that the other redacts elsewhere at the same time, and the other way round."""
    start = shared("alice and bob\n")
    ours = done(taken_out(start, by=HERE, text="alice"), partial(append, text="bob again\n"), by=HERE)
    theirs = done(taken_out(start, by=THERE, text="bob"), partial(append, text="alice again\n"), by=THERE)

    for result in both_ways(ours, theirs):
        assert {"[redacted] and [redacted]", "[redacted] again"} == set(result.record.content.strip().split("\n"))
        assert not any(name in encode(result.record) for name in (b"alice", b"bob"))


@pytest.mark.parametrize("knows_base", [True, False])
def test_more_changes_than_the_history_holds_do_not_bring_it_back(knows_base: bool) -> None:
    """All lines of the other side are kept, whether or not the copy that was acknowledged is known."""
    dirty, clean = done(shared(), *many, by=HERE), taken_out(shared(), by=THERE)

    for result in both_ways(dirty, clean, base=shared() if knows_base else None):
        assert NEEDLE.encode() not in encode(result.record)
        assert [1] * 130 == [result.record.content.count(f"line {number}\n") for number in range(130)]


def test_both_took_something_out() -> None:
    """Neither text comes back, and what both appended is kept."""
    start = shared("one hunter2\nthe word is hunter2\nthe other is swordfish\nthree swordfish\n")
    start = done(start, partial(edit, old=" hunter2\n", new="\n"), by=THERE)
    start = done(start, partial(edit, old=" swordfish\n", new=" a fish\n"), by=THERE)
    start = done(start, partial(edit, old=" swordfish\n", new="\n"), by=THERE)
    start = done(start, partial(edit, old="a fish", new="swordfish"), by=THERE)
    ours = done(taken_out(start, by=HERE), APPENDED, by=HERE)
    theirs = done(taken_out(start, by=THERE, text="swordfish"), partial(append, text="theirs\n"), by=THERE)

    for local, remote in ((ours, theirs), (theirs, ours)):
        result = merged(local, remote)
        assert not any(word in encode(result.record) for word in (b"hunter2", b"swordfish"))
        assert {"one", "three", "more", "theirs"} <= set(result.record.content.split("\n"))


def test_both_took_something_out_long_ago() -> None:
    """Without the base only what both still have is safe."""
    start = shared("one\nthe word is hunter2\nthe other is swordfish\nthree\n")
    ours = taken_out(done(start, APPENDED, by=HERE), by=HERE)
    theirs = taken_out(done(start, APPENDED, by=THERE), by=THERE, text="swordfish")
    result = merged(replace(ours, history=ours.history[2:]), replace(theirs, history=theirs.history[2:]))

    assert not any(word in encode(result.record) for word in (b"hunter2", b"swordfish"))
    assert {"one", "three"} <= set(result.record.content.split("\n"))


def test_a_third_copy_does_not_bring_it_back() -> None:
    """What was merged with the redaction is told from what was before it, also by one who had part of that."""
    theirs = done(shared(), APPENDED, by=THERE)
    result = merged(taken_out(shared(), by=HERE), theirs).record.stamped(HERE)
    third = done(theirs, SAME_LINE, by="c" * 12)

    for record in (merged(third, result).record, merged(result, third).record):
        assert NEEDLE.encode() not in encode(record)
        assert 1 == record.content.count("more\n")


def test_two_copies_with_nothing_in_common_lose_it_too() -> None:
    """Both are kept, one of them as the copy that lost, and neither holds the text."""
    clean = replace(taken_out(shared(), by=THERE), origins={THERE: 2})
    history = done(seeded("x"), *many, by=HERE).history
    dirty = replace(seeded("theirs " + NEEDLE), revision=history[-1].revision, history=history, origins={HERE: 9})
    clean = replace(clean, history=clean.history[1:])

    for result in both_ways(dirty, clean):
        assert result.loser is not None
        assert {clean.content, "theirs [redacted]"} == {result.record.content, result.loser.content}
        assert NEEDLE.encode() not in encode(result.record) + encode(result.loser)


actions = st.lists(
    st.sampled_from(
        [
            APPENDED,
            OTHER_LINE,
            SAME_LINE,
            undo,
            partial(edit, old="one", new="1"),
            partial(edit, old=f"the word is {NEEDLE}\n", new=""),
            partial(edit, old=NEEDLE, new="x"),
            partial(replace_content, content="all new\n"),
        ]
    ),
    max_size=6,
)


def tried(record: Record, calls: list[Call], *, by: str) -> Record:
    """As far as the calls can be made."""
    for call in calls:
        try:
            record = done(record, call, by=by)
        except MemfilesError:
            continue
    return record


@many_times
@given(actions, actions, actions, actions, st.booleans(), st.sampled_from(["local", "remote"]))
def test_whatever_both_did_before_and_after(
    before: list[Call],
    dirty_changes: list[Call],
    clean_changes: list[Call],
    later: list[Call],
    knows_base: bool,
    on_conflict: ConflictPolicy,
) -> None:
    """No bytes of the result hold the text."""
    start = tried(shared(), before, by=THERE)
    dirty = tried(start, dirty_changes, by=HERE)
    clean = tried(start, clean_changes, by=THERE)
    redacted = redact(clean, Stamp(now()), text=NEEDLE)[0]
    if redacted is None or dirty == start:
        return
    clean = tried(redacted.stamped(THERE), later, by=THERE)

    for result in both_ways(dirty, clean, base=start if knows_base else None, on_conflict=on_conflict):
        assert NEEDLE.encode() not in encode(result.record)
        assert result.loser is None or NEEDLE.encode() not in encode(result.loser)
