"""Questions about conditions: nobody replaces or deletes an unseen version, and every call may be repeated."""

from __future__ import annotations

from functools import partial

from memfiles.errors import MirrorConflict
from memfiles.sync.mirror import ABSENT, ANY, equals
from mirrors.testing.place import Place, expect, expect_error, got, question


@question()
def different_bytes_have_different_versions(place: Place) -> None:
    """A condition on a version protects the bytes that its caller has seen."""
    mirror = place.open()
    versions = {mirror.put("a.json", place.body("a.json", text)) for text in ("1", "2", "1\n", " 1", "")}
    expect(5, len(versions), "five bodies have five versions")


@question()
def a_first_put_is_refused_after_another(place: Place) -> None:
    """ABSENT holds once."""
    version = place.open().put("a.json", place.body("a.json", "theirs"), when=ABSENT)
    ours = place.body("a.json", "ours")
    expect_error(MirrorConflict, lambda: place.open().put("a.json", ours, when=ABSENT), "a second first put")
    expect((place.body("a.json", "theirs"), version), got(place.open(), "a.json"), "a refused put changes nothing")


@question()
def a_put_over_a_version_that_is_gone_is_refused(place: Place) -> None:
    """Of two writers that saw the same version, the second learns of the first."""
    seen = place.open().put("a.json", place.body("a.json", "1"))
    second = place.open().put("a.json", place.body("a.json", "2"), when=equals(seen))
    third = place.body("a.json", "3")
    expect_error(MirrorConflict, lambda: place.open().put("a.json", third, when=equals(seen)), "a stale version")
    expect((place.body("a.json", "2"), second), got(place.open(), "a.json"), "a refused put changes nothing")


@question()
def a_put_over_a_version_of_nothing_is_refused(place: Place) -> None:
    """A missing object is not at any version."""
    version = place.open().put("a.json", place.body("a.json", "1"))
    body = place.body("b.json", "1")
    expect_error(MirrorConflict, lambda: place.open().put("b.json", body, when=equals(version)), "absent")
    expect(None, place.seen("b.json"), "a refused put changes nothing")


@question()
def what_others_wrote_counts(place: Place) -> None:
    """A handle that has seen an object does not answer from a stale cache."""
    mirror = place.open()
    seen = mirror.put("a.json", place.body("a.json", "1"))
    theirs = place.write("a.json", "2")
    expect(theirs, (got(mirror, "a.json") or (None,))[0], "a get sees what others wrote")
    ours = place.body("a.json", "3")
    expect_error(MirrorConflict, lambda: mirror.put("a.json", ours, when=equals(seen)), "a version others replaced")
    [(_, listed)] = mirror.list()
    mirror.put("a.json", ours, when=equals(listed))
    expect(ours, place.seen("a.json"), "a put over the version that is listed now")


@question()
def a_put_whose_answer_was_lost_may_be_repeated(place: Place) -> None:
    """The bytes are stored already, so the condition of the first call is not checked again."""
    first, second = place.body("a.json", "1"), place.body("a.json", "2")
    seen = place.open().put("a.json", first, when=ABSENT)
    done = place.open().put("a.json", second, when=equals(seen))
    for when in (equals(seen), equals(done), ABSENT, ANY):
        version = place.open().put("a.json", second, when=when)
        expect((second, version), got(place.open(), "a.json"), f"a put repeated with {when}")
    place.open().put("a.json", first, when=equals(version))
    expect(first, place.seen("a.json"), "the version of a repeated put can be built on")


@question("deleting")
def what_is_deleted_is_gone_for_everyone(place: Place) -> None:
    """It is gone from get, list and store, and may be put again like a new object."""
    version = place.open().put("a.json", place.body("a.json", "1"))
    place.open().put("b.json", place.body("b.json", "1"))
    place.open().delete("a.json", when=equals(version))
    expect(None, got(place.open(), "a.json"), "a deleted object is gone")
    expect(None, place.seen("a.json"), "a deleted object is gone from the store")
    expect(["b.json"], [key for key, _ in place.open().list()], "a deleted object is not listed")
    body = place.body("a.json", "2")
    expect_error(MirrorConflict, lambda: place.open().put("a.json", body, when=equals(version)), "it is not revived")
    place.open().put("a.json", body, when=ABSENT)
    expect(body, place.seen("a.json"), "a deleted object may be put again")


@question("deleting")
def a_delete_may_be_repeated(place: Place) -> None:
    """A missing object counts as deleted, whatever the condition."""
    version = place.open().put("a.json", place.body("a.json", "1"))
    for when in (equals(version), equals(version), ABSENT, ANY):
        place.open().delete("a.json", when=when)
    expect(None, place.seen("a.json"), "a deleted object is gone")


@question("deleting")
def a_delete_of_another_version_is_refused(place: Place) -> None:
    """A writer cannot delete a version that it has not seen."""
    seen = place.open().put("a.json", place.body("a.json", "1"))
    theirs = place.write("a.json", "2")
    for when in (equals(seen), ABSENT):
        expect_error(MirrorConflict, partial(place.open().delete, "a.json", when=when), f"a delete with {when}")
    expect(theirs, place.seen("a.json"), "a refused delete changes nothing")
