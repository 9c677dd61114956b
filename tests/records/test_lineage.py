"""Ancestry: which copy of a record knows what the other does not, and where the two parted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from msgspec.structs import replace

from memfiles.errors import InvalidArgument
from memfiles.records.file_changes import absorb, append, edit
from memfiles.records.lineage import (
    all_origins,
    are_among,
    base_revision,
    check_origin,
    common_revision,
    later_changes,
    relation,
)
from memfiles.records.record import MAX_ORIGINS, Change, Origins, Record, Stamp, decode, encode, grown, with_content
from tests.support.records import LATER, SEEDED_AT, TickingClock, redact, seeded

A, B, C = "a" * 12, "b" * 12, "c" * 12
now = TickingClock()
Call = Callable[[Record, Stamp], Record | None]


def done(record: Record, *calls: Call) -> Record:
    """The record after these changes, made where there is no mirror."""
    for call in calls:
        changed = call(record, Stamp(now()))
        assert changed is not None
        record = changed
    return record


def appended(text: str) -> Call:
    return lambda record, stamp: append(record, stamp, text=text).record


def edited(old: str, new: str) -> Call:
    return lambda record, stamp: edit(record, stamp, old=old, new=new).record


def redacted(text: str) -> Call:
    return lambda record, stamp: redact(record, stamp, text=text)[0]


def as_merged(record: Record, stamp: Stamp) -> Record:
    """The last change as a merge altered it."""
    return replace(record, history=(*record.history[:-1], replace(record.history[-1], merged=True)))


def written(record: Record, *texts: str, by: str | None) -> Record:
    """The record after these appends in one memory directory."""
    for text in texts:
        longer = append(record, Stamp(now()), text=text).record
        assert longer is not None
        record = longer if by is None else longer.stamped(by)
    return record


def knowing(revision: int, **origins: int) -> Record:
    """A record without a history that includes these changes."""
    of = {name * 12: at for name, at in origins.items()}
    return replace(seeded("x"), revision=revision, history=(), origins=of)


def test_a_change_is_stamped_with_its_directory() -> None:
    """The entry of the directory is the revision; the others' stay."""
    first = seeded("x").stamped(A)
    second = written(first, "y", by=B)

    assert ({A: 1}, {A: 1, B: 2}) == (first.origins, second.origins)


def test_stamping_twice_is_stamping_once() -> None:
    """A record that is written again is the same change."""
    record = seeded("x").stamped(A)

    assert record is record.stamped(A)


def test_stamping_encodes_nothing_anew() -> None:
    """What was derived for the version before is carried on: an append of one line stays cheap."""
    record = seeded("x" * 1000)
    encode(record)
    longer = grown(record, "y", Change(2, LATER, "append", bytes=1)).stamped(A)

    assert {"content_start", "size_bytes", "hasher", "history_json"} <= vars(longer).keys()
    assert encode(replace(longer)) == encode(longer)


def test_the_latest_32_directories_are_kept() -> None:
    """Of those at the same revision the first by name; the one that makes the change always."""
    many = {f"{number:012x}": 5 + (number == 39) for number in range(40)}
    kept = replace(seeded("x"), revision=6).with_origins(many)
    own = replace(kept, revision=5, origins=dict.fromkeys(kept.origins, 5)).stamped("f" * 12)

    assert [*list(many)[: MAX_ORIGINS - 1], f"{39:012x}"] == list(kept.origins)
    assert (MAX_ORIGINS, 5) == (len(own.origins), own.origins["f" * 12])


@pytest.mark.parametrize("origin", ["", "a" * 11, "a" * 13, "A" * 12, "g" * 12, "a" * 12 + "\n"])
def test_an_id_that_could_not_be_read_back_is_refused(origin: str) -> None:
    """A record with it would be unreadable."""
    with pytest.raises(InvalidArgument, match="is not 12 hexadecimal digits"):
        check_origin(origin)


def test_an_id_may_be_left_out() -> None:
    """A directory without a mirror needs none."""

    assert [None, A] == [check_origin(None), check_origin(A)]


RELATIONS: dict[str, tuple[Record, Record, str]] = {
    "the same": (knowing(2, a=1, b=2), knowing(2, a=1, b=2), "equal"),
    "theirs is newer": (knowing(1, a=1), knowing(2, a=1, b=2), "behind"),
    "ours is newer": (knowing(2, a=2), knowing(1, a=1), "ahead"),
    "both changed": (knowing(2, a=2), knowing(2, a=1, b=2), "diverged"),
    "nothing in common": (knowing(1, a=1), knowing(1, b=1), "diverged"),
    "ours does not say": (knowing(2), knowing(2, b=2), "unknown"),
    "theirs does not say": (knowing(2, a=2), knowing(2), "unknown"),
    "one origin, two contents": (knowing(2, a=2), replace(knowing(2, a=2), sha256="0" * 64), "unknown"),
}


@pytest.mark.parametrize("what", RELATIONS)
def test_origins_tell_how_two_copies_stand(what: str) -> None:
    """Without looking at their text."""
    local, remote, expected = RELATIONS[what]

    assert expected == relation(local, remote)


BASES: dict[str, tuple[Record, Record, int]] = {
    "one change on each side": (knowing(2, a=2), knowing(2, a=1, b=2), 1),
    "an acknowledgement got lost": (knowing(4, a=4, b=2), knowing(4, a=3, b=4), 3),
    "theirs was taken over, then changed": (knowing(9, a=9, b=7), knowing(8, b=8), 7),
    "ours was taken over by two": (knowing(9, a=9, b=7), knowing(12, a=8, b=10, c=12), 8),
    "nothing in common": (knowing(3, a=3), knowing(5, b=5), 0),
    "everything is known": (knowing(3, a=3), knowing(5, a=3, b=5), 3),
}


@pytest.mark.parametrize("what", BASES)
def test_origins_tell_where_two_copies_parted(what: str) -> None:
    """The local changes after that revision are those that the other side lacks."""
    local, remote, expected = BASES[what]

    assert expected == base_revision(local, remote)


def test_what_is_joined_knows_both() -> None:
    """Directory by directory, the later change."""

    assert {A: 3, B: 5, C: 1} == all_origins(knowing(4, a=3, b=2, c=1), knowing(5, b=5, a=1))


def test_the_copy_of_a_directory_contradicts_it() -> None:
    """Both stamp with one id; that the shorter one is included in the longer one is then not believed."""
    record = seeded("x").stamped(A)
    one, other = written(record, "one", by=A), written(record, "other", "more", by=A)

    assert ("unknown", "behind") == (relation(one, other), relation(record, other))
    assert 1 == common_revision(one, other)


def test_a_revision_that_a_history_lacks_contradicts_the_origins() -> None:
    """It is that of another record at the path from which, or to which, this one was moved."""
    record = written(seeded("x").stamped(A), "one", by=A)
    local = replace(written(replace(record, revision=6), "moved", by=B), origins={A: 5, B: 7})
    remote = written(record, "more", by=A)

    assert ["unknown", "unknown"] == [relation(local, remote), relation(remote, local)]
    assert 2 == common_revision(local, remote)


def test_a_full_list_that_may_have_dropped_a_directory_tells_nothing() -> None:
    """The entry may be missing because it was early, not because the change is unknown there."""
    full: Origins = {f"{number:012x}": 50 + number for number in range(MAX_ORIGINS)}
    remote = replace(seeded("x"), revision=max(full.values()), history=(), origins=full)

    assert ["unknown", "diverged"] == [relation(knowing(at, a=at), remote) for at in (50, 51)]


def test_without_origins_the_histories_tell_the_newest_common_change() -> None:
    """Same revision, time, operation and actor, and the same content after it."""
    record = written(seeded("x"), "a", "b", by=None)
    one, other = written(record, "c", by=None), written(record, "d", "e", by=None)

    assert [3, 3, 0] == [
        common_revision(one, other),
        common_revision(other, one),
        common_revision(one, seeded("another")),
    ]


def test_a_change_at_the_same_moment_is_not_the_same_change() -> None:
    """Two machines' clocks may agree; the contents after the change do not."""
    one, other = (append(seeded("x"), Stamp(SEEDED_AT), text=text).record for text in ("one", "two"))
    assert one is not None and other is not None

    assert 1 == common_revision(one, other)


def test_a_redaction_hides_no_common_change() -> None:
    """It alters the text of what both know, not who made it and when."""
    record = written(seeded("x"), "hunter2", by=None)
    redacted, _ = redact(record, Stamp(now()), text="hunter2")
    assert redacted is not None

    assert 2 == common_revision(written(record, "y", by=None), redacted)


def test_a_redacted_change_is_not_another_one_of_its_millisecond() -> None:
    """Another machine's line of the same revision has another text, whatever the redacted one was."""
    one, other = (append(seeded("x"), Stamp(LATER), text=text).record for text in ("hunter2", "hello"))
    assert one is not None and other is not None
    redacted, _ = redact(one, Stamp(LATER), text="hunter2")
    assert redacted is not None

    assert [1, 1, 2] == [common_revision(*pair) for pair in ((redacted, other), (other, redacted), (redacted, one))]


def test_two_redactions_of_one_millisecond_do_not_make_what_was_before_the_same() -> None:
    """A redaction puts in no text that could tell it from another one."""
    start = append(seeded("kitten hunter2"), Stamp(LATER), text="y").record
    assert start is not None
    sides = []
    for line, word in (("- one\n", "hunter2"), ("- other\n", "kitten")):
        longer = append(start, Stamp(LATER), text=line).record
        assert longer is not None
        sides.append(redact(longer, Stamp(LATER), text=word)[0])
    one, other = sides
    assert one is not None and other is not None
    again, _ = redact(one, Stamp(LATER), text="y")
    assert again is not None

    assert [2, 2, 4] == [common_revision(*pair) for pair in ((one, other), (other, one), (one, again))]


def test_two_redacted_lines_of_one_millisecond_do_not_make_what_was_before_the_same() -> None:
    """Each machine's line before it is whole, and another one."""
    sides = []
    for name in ("one", "other"):
        record = seeded("x")
        for text in (f"- {name}\n", f"- the password of {name}\n"):
            longer = append(record, Stamp(LATER), text=text).record
            assert longer is not None
            record = longer
        sides.append(redact(record, Stamp(LATER), text=f"the password of {name}")[0])
    one, other = sides
    assert one is not None and other is not None

    assert [1, 1] == [common_revision(one, other), common_revision(other, one)]


COMPLETED: dict[str, tuple[str, list[Call], str]] = {
    "an edit": ("pass hun\n", [edited("hun", "hunter2")], "hunter2"),
    "two edits": ("h\n", [edited("h", "hun"), edited("hun", "hunter2")], "hunter2"),
    "an edit that was merged": ("pass hun\n", [edited("hun", "hunter2"), as_merged], "hunter2"),
    "the next line": ("secret one\n", [appended("secret two\n")], "secret one\nsecret two\n"),
    "part of the next line": ("secret one\n", [appended("secret two\n")], "one\nsecret"),
    "the next but one, redacted too": (
        "pass hun\n",
        [appended("abc kitten\n"), edited("hun", "hunter2"), redacted("abc")],
        "hunter2",
    ),
}


@pytest.mark.parametrize("how", COMPLETED)
def test_a_change_with_the_beginning_of_a_redacted_text_is_still_the_same(how: str) -> None:
    """The copy that has only the beginning cannot find the text, and that alone does not make another change of it."""
    begun, calls, text = COMPLETED[how]
    start = done(seeded("x\n"), appended(begun))
    clean, dirty = done(start, *calls, redacted(text)), done(start, appended("mine\n"))

    assert [2, 2] == [common_revision(*pair) for pair in ((clean, dirty), (dirty, clean))]
    assert are_among(*later_changes(start, clean))


def test_a_removed_line_is_not_another_one_of_its_millisecond() -> None:
    """Its removal, redacted as well, completes no text."""
    one, other = (append(seeded("x\n"), Stamp(LATER), text=text).record for text in ("hunter2\n", "hello\n"))
    assert one is not None and other is not None
    gone = done(one, edited("hunter2\n", ""), redacted("hunter2"))

    assert [1, 1] == [common_revision(*pair) for pair in ((gone, other), (other, gone))]


def test_a_change_behind_an_unknown_past_is_still_known() -> None:
    """A change by hand leaves no text of what was before, but the log of it."""
    record = written(seeded("x"), "y", by=None)
    by_hand = absorb(replace(record, content="by hand"), known=None, at=SEEDED_AT)

    assert 2 == common_revision(by_hand, record)


def test_a_history_damaged_by_hand_is_no_reason_to_fail() -> None:
    """What it says of who and when is still compared."""
    record = written(seeded("x"), "yyyy", by=None)

    assert 1 == common_revision(with_content(record, ""), record)


def test_origins_survive_the_disk() -> None:
    """What was written and read back stands the same."""
    back = partial(decode, uid="notes")
    one = written(seeded("x").stamped(A), "y", by=B)

    assert "equal" == relation(back(encode(one)), one)


def test_a_change_that_no_origin_speaks_of_is_known_to_nobody() -> None:
    """What was changed while no mirror was declared is not behind a copy that knows all of its origins."""
    record = seeded("x").stamped(A)
    newer = written(record, "there", by=B)

    assert "behind" == relation(record, newer)
    assert "unknown" == relation(written(record, "here", by=None), newer)
    assert "unknown" == relation(written(record, "here", by=A), written(record, "there", by=None))
