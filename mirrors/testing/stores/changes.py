"""Questions about changes: several records together or not at all, decided on what is there, and never on less."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NoReturn

from memfiles.errors import InvalidArgument, RevisionConflict
from memfiles.storage.atomic import Signature
from memfiles.storage.record_store import NOTHING, ChangeSet, NewVersion, Records, RecordStore
from mirrors.testing.place import expect, expect_error
from mirrors.testing.stores.place import (
    PATIENCE_SECONDS,
    StorePlace,
    append,
    body_of,
    lines,
    next_version,
    put,
    read,
    remove,
    write,
)

ENTRY = f"entries/support/{'5' * 40}.json"
BAD_PATHS = (
    *("", "/", "/a.json", "../a.json", "a/../../b.json", "a.json/", "a", ".a.json", "a\0.json", "a\n.json", "a.json\n"),
    *("quarantine/a.json", "entries/a.json", f"entries/../{'5' * 40}.json", f"entries/support/{'5' * 39}/.json"),
)
_BLINK_SECONDS = 0.3  # after which a change that waits for ours is taken to wait


def what_is_changed_is_there_for_everyone(place: StorePlace) -> None:
    """A change returns the signature under which every handle finds the same bytes."""
    with place.open() as store, place.open() as other:
        for path in ("a.json", ENTRY):
            body = body_of(path, 1, "one ü\n")
            told = write(store, NewVersion(path, 1, body, None))
            expect((body, told[path]), other.find(path), "another handle finds what was written, and its signature")
            expect(told[path], other.signature(path), "the signature without the bytes is the same")
            expect(told[path], store.signature(path), "here as well")


def what_is_not_there_is_none(place: StorePlace) -> None:
    """Absence is an answer, also to a decision."""
    with place.open() as store:
        expect((None, None), (store.find("a.json"), store.signature("a.json")), "there is no record")
        result, told = store.change(["a.json"], lambda records: (records.find("a.json"), NOTHING))
        expect((None, {}), (result, dict(told)), "a decision finds none, writes nothing, and has a result")


def every_version_has_its_own_signature(place: StorePlace) -> None:
    """Also of the same bytes, also in quick succession: a signature stands for one version."""
    with place.open() as store:
        signatures = [put(store, {"a.json": "same"})["a.json"] for _ in range(20)]
        body = body_of("a.json", 21, "same")
        for _ in range(2):
            signatures.append(write(store, NewVersion("a.json", 21, body, signatures[-1]))["a.json"])
        expect(22, len(set(signatures)), "22 versions have 22 signatures")
        expect([len(body)] * 2, [each[1] for each in signatures[-2:]], "the second number is the size")


def several_records_change_together(place: StorePlace) -> None:
    """One decision writes many records, of which some are new."""
    texts = {f"a{number}.json": str(number) for number in range(300)}
    with place.open() as store:
        put(store, {"a7.json": "before", "b.json": "stays"})
        told = put(store, texts)
        expect(texts.keys(), told.keys(), "the signatures of all that was written")
    with place.open() as other:
        expect(texts, {path: read(other, path) for path in texts}, "all of them are there")
        expect("stays", read(other, "b.json"), "and what was not among them is as it was")


def records_are_listed_by_their_folder(place: StorePlace) -> None:
    """Without those of folders in it; a folder that nobody wrote to has none."""
    user = f"entries/support/users/{'7' * 40}"
    with place.open() as store, place.open() as other:
        put(store, {"b.json": "1", "a.json": "2", ENTRY: "3", f"{user}/{'6' * 40}.json": "4"})
        remove(store, ["b.json"])
        expect(["a.json"], other.paths(), "the paths of memory files")
        expect([ENTRY], other.paths("entries/support"), "the paths of an agent's entries")
        expect([f"{user}/{'6' * 40}.json"], other.paths(user), "the paths of a user's entries")
        expect([], other.paths("entries/other"), "the paths in a folder that is not there")


def several_records_can_be_looked_at_together(place: StorePlace) -> None:
    """A view tells of each what the store tells, and of no older version than when it was asked for."""
    with place.open() as store, place.open() as other:
        put(store, {"a.json": "1", "b.json": "2"})
        put(other, {"a.json": "3"})
        paths = ["a.json", "b.json", "c.json"]
        view = store.view(paths)
        expect([store.find(path) for path in paths], [view.find(path) for path in paths], "what a view finds")
        expect(
            [store.signature(path) for path in paths], [view.signature(path) for path in paths], "and its signatures"
        )
        expect("3", read(view, "a.json"), "the newest version at that time")


def a_big_record_comes_back_whole(place: StorePlace) -> None:
    """Bytes are bytes, however many."""
    text = "ü\u2028\x7f" * 1_000_000
    with place.open() as store, place.open() as other:
        put(store, {"a.json": text})
        expect(text, read(other, "a.json"), "a record of megabytes")


def a_decision_that_raises_changes_nothing(place: StorePlace) -> None:
    """Its error comes out, and the store is as before."""

    def decide(records: Records) -> NoReturn:
        read(records, "a.json")
        raise RevisionConflict("not this one")

    with place.open() as store:
        before = put(store, {"a.json": "1"})["a.json"]
        expect_error(RevisionConflict, lambda: store.change(["a.json", "b.json"], decide), "the error of a decision")
        expect((before, None), (store.signature("a.json"), store.signature("b.json")), "nothing was written")
        put(store, {"a.json": "2"})
        expect("2", read(store, "a.json"), "the records are free again")


def a_decision_sees_what_others_wrote(place: StorePlace) -> None:
    """A handle that has seen a version does not decide on it once it was replaced."""
    with place.open() as store, place.open() as other:
        for number in range(10):
            append(store if number % 2 else other, ["a.json"], str(number))
        expect([*map(str, range(10))], lines(store, "a.json"), "every line of both handles")


def a_change_on_a_stale_version_can_be_refused(place: StorePlace) -> None:
    """A caller that has seen a version compares it in its decision: of two that saw the same, the second learns it."""

    def replace(store: RecordStore, text: str) -> None:
        def decide(records: Records) -> tuple[None, ChangeSet]:
            if records.signature("a.json") != seen:
                raise RevisionConflict("it was changed meanwhile")
            return None, ChangeSet([next_version(records, "a.json", text)])

        store.change(["a.json"], decide)

    with place.open() as store, place.open() as other:
        seen = put(store, {"a.json": "1"})["a.json"]
        replace(other, "2")
        expect_error(RevisionConflict, lambda: replace(store, "3"), "a change on a stale version")
        expect("2", read(store, "a.json"), "the first of two is kept")


def a_refusal_counts_only_of_what_is_there(place: StorePlace) -> None:
    """A decision that refuses, or finds nothing to do, on what this handle knew is made again on what is there."""
    with place.open() as store, place.open() as other:
        for number in range(3):
            old = put(store, {"a.json": f"old {number}"})["a.json"]
            new = put(other, {"a.json": f"new {number}"})["a.json"]

            def decide(records: Records, old: Signature = old) -> tuple[Signature | None, ChangeSet]:
                if records.signature("a.json") == old:
                    raise RevisionConflict("refused on a version that was replaced before")
                return records.signature("a.json"), NOTHING

            expect(new, store.change(["a.json"], decide)[0], "what a refusal is made on")
            newer = put(other, {"a.json": f"newer {number}"})["a.json"]
            found, _ = store.change(["a.json"], lambda records: (records.signature("a.json"), NOTHING))
            expect(newer, found, "what a decision without a change is made on")


def decisions_on_several_records_take_turns(place: StorePlace) -> None:
    """What a decision saw of a record that it leaves as it is counts too: of two, only one can take the last."""
    both = ["a.json", "b.json"]

    def take(records: Records, path: str) -> tuple[None, ChangeSet]:
        left = sum(int(read(records, each) or 0) for each in both)
        return None, ChangeSet([next_version(records, path, "0")] if left > 1 else ())

    with place.open() as store, place.open() as other:
        put(store, dict.fromkeys(both, "1"))
        meanwhile = threading.Thread(target=other.change, args=(both, lambda records: take(records, "b.json")))

        def decide(records: Records) -> tuple[None, ChangeSet]:
            decided = take(records, "a.json")
            if meanwhile.ident is None:
                meanwhile.start()
                meanwhile.join(_BLINK_SECONDS)
            return decided

        store.change(both, decide)
        meanwhile.join(PATIENCE_SECONDS)
        expect(1, sum(int(read(store, each) or 0) for each in both), "what two decisions leave")


def a_change_in_the_middle_of_a_decision_is_not_lost(place: StorePlace) -> None:
    """It waits for the decision, or the decision is made again: either way both changes are there."""
    calls: list[str | None] = []
    with place.open() as store, place.open() as other:
        put(store, {"a.json": "first\n"})
        meanwhile = threading.Thread(target=append, args=(other, ["a.json"], "theirs"))

        def decide(records: Records) -> tuple[str, ChangeSet]:
            found = read(records, "a.json") or ""
            calls.append(found)
            if len(calls) == 1:
                meanwhile.start()
                meanwhile.join(_BLINK_SECONDS)
            return found, ChangeSet([next_version(records, "a.json", found + "ours\n")])

        result, _ = store.change(["a.json"], decide)
        meanwhile.join(PATIENCE_SECONDS)
        found = lines(store, "a.json")
        expect(["first", "ours", "theirs"], sorted(found), "both changes, each once")
        expect("first", found[0], "on top of what was there")
        expect(calls[-1], result, "the result is that of the decision that counted")
        expect(True, len(calls) == 1 or found[1] == "theirs", "a decision is made again only if it has to be")


def many_records_change_on_what_was_seen(place: StorePlace) -> None:
    """Others change one and make another in the middle of the decision: they wait for it, or all is decided again."""
    old, new = [f"a{number}.json" for number in range(20)], [f"b{number}.json" for number in range(20)]
    begun: list[bool] = []
    with place.open() as store, place.open() as other:
        put(store, dict.fromkeys(old, "first\n"))
        others = [threading.Thread(target=append, args=(other, [each], "theirs")) for each in (old[7], new[7])]

        def decide(records: Records) -> tuple[None, ChangeSet]:
            texts = {path: f"{read(records, path) or ''}ours\n" for path in (*old, *new)}
            for each in others if not begun else ():
                each.start()
                each.join(_BLINK_SECONDS)
            begun.append(True)
            return None, ChangeSet([next_version(records, *each) for each in texts.items()])

        store.change([*old, *new], decide)
        for each in others:
            each.join(PATIENCE_SECONDS)
        found = {path: sorted(lines(store, path)) for path in (*old, *new)}
        expected = dict.fromkeys(old, ["first", "ours"]) | dict.fromkeys(new, ["ours"])
        expected |= {old[7]: ["first", "ours", "theirs"], new[7]: ["ours", "theirs"]}
        expect(expected, found, "every line is there, once")
        append(other, [old[3]], "later")
        seen = {path: store.signature(path) for path in old}
        append(other, [old[3]], "after it was seen")
        named = {path: at for path, at in seen.items() if at is not None}
        store.change(old, lambda _: (None, ChangeSet(removed=named)))
        expect([old[3]], [path for path in old if store.signature(path)], "only what was seen is removed")


def a_hook_hears_of_a_change_before_and_after(place: StorePlace) -> None:
    """Before: nothing is changed yet; after: it is. A change that writes nothing is none."""
    heard: list[tuple[str, object, str | None]] = []

    class Hook:
        def before(self, paths: Sequence[str]) -> None:
            heard.append(("before", [*paths], read(store, "a.json")))

        def after(self, written: Mapping[str, object]) -> None:
            heard.append(("after", dict(written), read(store, "a.json")))

        def failed(self) -> None:
            heard.append(("failed", None, read(store, "a.json")))

    with place.open() as store:
        first = next_version(store, "a.json", "1")
        _, told = store.change(["a.json", "b.json"], lambda _: (None, ChangeSet([first])), hook=Hook())
        store.change(["a.json"], lambda _: (None, NOTHING), hook=Hook())
        store.change(["a.json"], lambda _: (None, ChangeSet(removed=told)), hook=Hook())
        expect(
            [
                ("before", ["a.json"], None),
                ("after", dict(told), "1"),
                ("before", ["a.json"], "1"),
                ("after", {}, None),
            ],
            heard,
            "what a hook hears, and what it finds then",
        )


def what_is_removed_is_gone_and_may_come_again(place: StorePlace) -> None:
    """A removed record is gone for everyone; a record that is not at the version named stays."""
    with place.open() as store, place.open() as other:
        first = put(store, {"a.json": "1", "b.json": "stays"})
        remove(other, ["a.json"])
        expect((None, None), (read(store, "a.json"), store.signature("a.json")), "it is gone")
        expect("stays", read(store, "b.json"), "another is not")
        put(store, {"a.json": "2"})
        store.change(["a.json"], lambda _: (None, ChangeSet(removed={"a.json": first["a.json"]})))
        expect("2", read(other, "a.json"), "a version that was not seen is not removed")
    with place.open() as later:
        expect(("2", "stays"), (read(later, "a.json"), read(later, "b.json")), "so it is after a restart")


def what_is_put_aside_makes_room(place: StorePlace) -> None:
    """A record that cannot be used goes into quarantine, with a new version in its place or none."""
    with place.open() as store, place.open() as other:
        put(store, {"a.json": "unusable 1", "b.json": "unusable 2"})
        why = "the exam says so"
        new = next_version(store, "a.json", "new")
        store.change(["a.json"], lambda _: (None, ChangeSet([new], aside={"a.json": why})))
        store.change(["b.json"], lambda _: (None, ChangeSet(aside={"b.json": why})))
        expect(("new", None), (read(other, "a.json"), read(other, "b.json")), "the new version, and no record")
        store.scrub()
        if place.holds is not None:
            expect([1, 1], [len(place.holds(b"unusable %d" % each)) for each in (1, 2)], "a copy of each is kept")


def what_is_put_aside_can_be_removed(place: StorePlace) -> None:
    """All copies of a record, or the ones that somebody does not want."""
    texts = {"a.json": "1", "b.json": "2", "c.json": "3"}
    with place.open() as store, place.open() as other:
        put(store, texts)
        store.change(texts, lambda _: (None, ChangeSet(aside=dict.fromkeys(texts, "the exam says so"))))
        expect(["the exam says so"] * 3, [why for _, why in other.kept.listing()], "the reasons of what is kept")
        expect((1, 0), (other.kept.remove("a.json"), other.kept.remove("a.json")), "how many copies were removed")
        seen: dict[str, bytes] = {}
        other.kept.remove_if(lambda path, data: bool(seen.update({path: data})) or path == "b.json")
        expect({path: body_of(path, 1, texts[path]) for path in ("b.json", "c.json")}, seen, "what is asked about")
        expect(1, len(store.kept.listing()), "what is left")
        expect(set(), {path for path in texts if read(store, path) is not None}, "a copy is no record")


def bad_paths_reach_nothing(place: StorePlace) -> None:
    """Where no record can be there is none, and none can be made, among good paths neither."""
    good = NewVersion("a.json", 1, body_of("a.json", 1, "good"), None)
    with place.open() as store:
        for path in BAD_PATHS:
            expect((None, None), (store.find(path), store.signature(path)), f"nothing is at {path!r}")
            bad = NewVersion(path, 1, body_of("a.json", 1, "bad"), None)
            expect_error(InvalidArgument, partial(write, store, good, bad), f"a change of {path!r}")
        expect({}, dict(store.changes().records), "nothing was written")


def a_closed_store_changes_nothing(place: StorePlace) -> None:
    """A change is refused, whoever still has the handle; what was written before is there."""
    with place.open() as store:
        put(store, {"a.json": "1"})
        store.close()
        expect_error(InvalidArgument, lambda: put(store, {"a.json": "2", "b.json": "2"}), "a change of a closed store")
    with place.open() as later:
        expect(("1", None), (read(later, "a.json"), read(later, "b.json")), "what was there before the close")
