"""What one machine forgets while another one gives it a new key or place, and what it was there before."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from memfiles.entries.drafts import later
from memfiles.errors import MemfilesError
from memfiles.storage.events import utc_now
from mirrors import MirrorKeys, SealedMirror
from mirrors.memory import MemoryMirror
from tests.support.saved import Visitor, entries_in
from tests.sync.entry_machine import EntryMachine, bodies_of, objects_holding
from tests.sync.mirrors_for_tests import AbsentMirror

pytestmark = pytest.mark.slow

AGENT = Visitor("support", run="monday")
SECRET = "the needle in it"


class Pair:
    """Two machines that share a mirror; the first can be offline."""

    def __init__(self, folder: Path, ending: ExitStack) -> None:
        self.mirror = MemoryMirror()
        self.way = AbsentMirror(self.mirror, is_away=False)
        self.one = ending.enter_context(EntryMachine(folder / "one", self.way))
        self.two = ending.enter_context(EntryMachine(folder / "two", self.mirror))

    def come_together(self) -> None:
        """Both sync until nothing is new, and both are read."""
        for each in (self.one, self.two, self.one, self.two):
            each.flush(60)
            each.pull()
            each.entries.search(AGENT, "needle")
        self.one.flush(60)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """The first is offline; afterwards what the second did is in the mirror, and they come together."""
        self.way.is_away = True
        yield
        self.two.flush(60)
        self.way.is_away = False
        for _ in range(2):
            self.come_together()

    def seen(self) -> dict[str, str]:
        """What both see, by key; the same on both, and each entry under one key."""
        found = [{it.key: it for it in machine.entries.list(AGENT).memories} for machine in (self.one, self.two)]
        shown = [{key: (it.content, it.id) for key, it in entries.items()} for entries in found]
        assert shown[0] == shown[1]
        assert len({id for _, id in shown[0].values()}) == len(shown[0])
        return {key: content for key, (content, _) in shown[0].items()}

    def holding(self, text: str) -> list[str]:
        """Every file and object that holds the text."""
        return [*self.one.holding(text), *self.two.holding(text), *objects_holding(self.mirror, text)]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with ExitStack() as ending:
        yield Pair(tmp_path, ending)


def test_what_was_private_before_it_was_shared_is_forgotten_with_it(pair: Pair) -> None:
    """The machine that forgets it never had what belonged to the run alone."""
    pair.one.entries.save(AGENT, "key", SECRET, category="conversation")
    pair.one.entries.update(AGENT, "key", category="general")
    pair.come_together()
    pair.two.entries.forget(AGENT, key="key")
    pair.come_together()

    assert [] == pair.holding(SECRET)


@pytest.mark.parametrize("steps", [["b"], ["b", "c"]])
@pytest.mark.parametrize("is_first", [True, False])
def test_what_was_renamed_while_another_machine_forgot_it_is_forgotten(
    pair: Pair, steps: list[str], is_first: bool
) -> None:
    """Whichever of the two comes to the mirror first, and however often it was renamed."""
    pair.two.entries.save(AGENT, "a", SECRET)
    pair.come_together()
    pair.way.is_away = True
    for key, new in zip(["a", *steps], steps, strict=False):
        pair.one.entries.relocate(AGENT, {key: new})
    if not is_first:
        pair.two.entries.forget(AGENT, key="a", why="asked to")
        pair.two.flush(60)
    pair.way.is_away = False
    pair.one.flush(60)
    if is_first:
        pair.two.entries.forget(AGENT, key="a", why="asked to")
    pair.come_together()
    pair.come_together()

    assert [] == pair.holding(SECRET)
    pair.two.entries.save(AGENT, steps[-1], "new")
    pair.come_together()
    assert "new" == getattr(pair.one.entries.get(AGENT, steps[-1]), "content", None)


def test_what_was_saved_under_a_key_in_between_is_not_taken_for_it(pair: Pair) -> None:
    """It was renamed twice, and then its second key was used for something else, while another machine forgot it."""
    pair.two.entries.save(AGENT, "a", SECRET)
    pair.come_together()
    with pair.apart():
        for key, new in (("a", "b"), ("b", "c")):
            pair.one.entries.relocate(AGENT, {key: new})
        pair.one.entries.save(AGENT, "b", "new")
        pair.two.entries.forget(AGENT, key="a")

    assert [] == pair.holding(SECRET)
    assert "new" == getattr(pair.two.entries.get(AGENT, "b"), "content", None)


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_what_was_changed_while_another_machine_moved_it_is_kept(pair: Pair, is_forgotten: bool) -> None:
    """It comes to a path where more was changed before than in the entry itself."""
    for content in ("first", "second", "third"):
        pair.one.entries.save(AGENT, "a", content)
    pair.one.entries.save(AGENT, "b", "original")
    pair.come_together()
    with pair.apart():
        if is_forgotten:
            pair.two.entries.forget(AGENT, key="a")
            pair.two.entries.relocate(AGENT, {"b": "a"})
        else:
            pair.two.entries.relocate(AGENT, {"a": "b", "b": "a"})
        pair.one.entries.update(AGENT, "b", content="changed meanwhile")

    assert "changed meanwhile" == pair.seen()["a"]


def test_what_was_given_to_all_while_another_machine_forgot_it_is_forgotten(pair: Pair) -> None:
    """Another category is another place."""
    pair.two.entries.save(AGENT, "key", SECRET)
    pair.come_together()
    with pair.apart():
        pair.one.entries.update(AGENT, "key", category="workspace")
        pair.two.entries.forget(AGENT, key="key")

    assert [] == pair.holding(SECRET)


def test_what_was_known_to_have_been_renamed_stays(pair: Pair) -> None:
    """Who forgets an earlier key on another machine is told which one it has now."""
    pair.one.entries.save(AGENT, "a", "tea at four")
    pair.one.entries.relocate(AGENT, {"a": "b"})
    pair.come_together()
    held_by = pair.two.entries.forget(AGENT, key="a").held_by
    pair.come_together()

    assert ("b",) == held_by
    assert all(machine.entries.get(AGENT, "b") is not None for machine in (pair.one, pair.two))


Step = tuple[str, ...]


def _do(machine: EntryMachine, *steps: Step) -> None:
    """Renames ("a", "b"), swaps ("a", "<>", "b"), saves ("a", "=", "text"), and other verbs with their key."""
    for step in steps:
        match step:
            case (key, "=", content):
                machine.entries.save(AGENT, key, content)
            case (key, "<>", other):
                machine.entries.relocate(AGENT, {key: other, other: key})
            case ("share", key):
                machine.entries.update(AGENT, key, category="workspace")
            case ("own", key):
                machine.entries.update(AGENT, key, category="general")
            case ("delete", key):
                machine.entries.delete(AGENT, key)
            case ("forget", key):
                machine.entries.forget(AGENT, key=key)
            case (key, new):
                machine.entries.relocate(AGENT, {key: new})


A, B = "alpha\nbeta\ngamma\n", "one\ntwo\nthree\n"
A_HERE, A_THERE, A_BOTH = A.replace("alpha", "ALPHA"), A.replace("gamma", "GAMMA"), "ALPHA\nbeta\nGAMMA\n"


@pytest.mark.parametrize(
    ("one", "two", "seen"),
    [
        ([("a", "c")], [], {"c": A, "b": B}),
        ([("a", "c"), ("c", "d")], [("a", "=", A_THERE)], {"d": A_THERE, "b": B}),
        ([("a", "=", A_HERE), ("a", "c")], [("a", "=", A_THERE)], {"c": A_BOTH, "b": B}),
        ([("a", "c"), ("c", "a")], [("a", "=", A_THERE)], {"a": A_THERE, "b": B}),
        ([("a", "<>", "b")], [], {"a": B, "b": A}),
        ([("a", "<>", "b")], [("a", "=", A_THERE), ("b", "=", B + "four\n")], {"a": B + "four\n", "b": A_THERE}),
        ([("a", "c"), ("a", "=", "new")], [("a", "=", A_THERE)], {"a": "new", "b": B, "c": A_THERE}),
        ([("share", "a"), ("own", "a")], [("a", "=", A_THERE)], {"a": A_THERE, "b": B}),
        ([("share", "a"), ("a", "c")], [("a", "=", A_THERE)], {"c": A_THERE, "b": B}),
        ([("a", "c"), ("b", "a")], [("a", "=", A_THERE)], {"c": A_THERE, "a": B}),
        ([("a", "c")], [("forget", "a")], {"b": B}),
        ([("a", "c"), ("a", "=", "new")], [("forget", "a")], {"a": "new", "b": B}),
        ([("a", "=", A_HERE)], [("forget", "a")], {"b": B}),
        ([("a", "<>", "b")], [("forget", "a")], {"a": B}),
        ([("a", "c"), ("forget", "c")], [("a", "d")], {"b": B}),
    ],
)
@pytest.mark.parametrize("is_turned", [False, True])
def test_an_entry_is_one_and_the_same_under_every_key(
    pair: Pair, one: list[Step], two: list[Step], seen: dict[str, str], is_turned: bool
) -> None:
    """Whatever one machine did with it while another one did something else, and whichever comes first."""
    _do(pair.one, ("a", "=", A), ("b", "=", B))
    pair.come_together()
    with pair.apart():
        _do(pair.one, *(two if is_turned else one))
        _do(pair.two, *(one if is_turned else two))

    assert seen == pair.seen()
    if any("forget" in step for step in (*one, *two)):
        assert [] == pair.holding("beta")
    assert pair.one.bodies() == pair.two.bodies() == bodies_of(pair.mirror)


@pytest.mark.parametrize(
    ("one", "two", "seen"),
    [
        ([], [], {"a": A, "b": B}),
        ([("a", "c")], [], {"c": A, "b": B}),
        ([("a", "<>", "b")], [], {"a": B, "b": A}),
        ([("share", "a")], [], {"a": A, "b": B}),
        ([], [("forget", "a")], {"b": B}),
        ([("a", "c")], [("forget", "a")], {"b": B}),
        ([], [("forget", "a"), ("a", "=", "new"), ("a", "c")], {"b": B, "c": "new"}),
    ],
)
@pytest.mark.parametrize("is_turned", [False, True])
def test_an_export_that_two_machines_import_is_the_same_entries(
    pair: Pair, tmp_path: Path, one: list[Step], two: list[Step], seen: dict[str, str], is_turned: bool
) -> None:
    """Neither knows of the other; what one does with them is done to those of the other, too."""
    with entries_in(tmp_path / "exporter") as entries:
        for key, content in (("a", A), ("b", B)):
            entries.save(AGENT, key, content)
        entries.export(AGENT, tmp_path / "out.jsonl", format="jsonl")
        ids = {it.content: it.id for key in "ab" if (it := entries.get(AGENT, key)) is not None}
    with pair.apart():
        for machine, steps in ((pair.one, two if is_turned else one), (pair.two, one if is_turned else two)):
            assert 2 == machine.entries.import_(AGENT, tmp_path / "out.jsonl").added
            _do(machine, *steps)

    assert seen == pair.seen()
    found = {it.content: it.id for it in pair.one.entries.list(AGENT).memories if it.content in ids}
    assert found == {content: id for content, id in ids.items() if content in seen.values()}
    if any("forget" in step for step in (*one, *two)):
        assert [] == pair.holding("alpha")
    assert pair.one.bodies() == pair.two.bodies() == bodies_of(pair.mirror)


def test_of_two_new_keys_the_later_one_stands(pair: Pair) -> None:
    """What was changed under the other one is merged into it."""
    _do(pair.one, ("a", "=", A))
    pair.come_together()
    with pair.apart():
        _do(pair.one, ("a", "b"), ("b", "=", A_HERE))
        _do(pair.two, ("a", "c"), ("c", "=", A_THERE))

    assert {"c": A_BOTH} == pair.seen()
    assert pair.one.bodies() == pair.two.bodies() == bodies_of(pair.mirror)


def test_two_saves_of_one_key_are_forgotten_together(pair: Pair) -> None:
    """By either id: both were promised to whoever forgets the key."""
    with pair.apart():
        _do(pair.one, ("a", "=", f"{SECRET} here"))
        _do(pair.two, ("a", "=", f"{SECRET} there"))
    ids = {machine.entries.list(AGENT).memories[0].id for machine in (pair.one, pair.two)}
    pair.one.entries.relocate(AGENT, {"a": "b"})
    pair.come_together()
    pair.two.entries.forget(AGENT, id=ids.pop())
    pair.come_together()

    assert ({}, set()) == (pair.seen(), ids)
    assert [] == pair.holding(SECRET)


def test_an_earlier_text_is_no_longer_in_the_index_where_the_tombstone_is_only_pulled(
    pair: Pair, tmp_path: Path
) -> None:
    """Saved, renamed, its key saved again, and forgotten elsewhere: no three letters stay, after a start either."""
    pair.one.entries.save(AGENT, "a", "zyxwvutsr")
    pair.come_together()
    pair.two.entries.relocate(AGENT, {"a": "b"})
    pair.two.entries.save(AGENT, "a", "new")
    pair.come_together()
    pair.two.entries.forget(AGENT, key="b")
    pair.come_together()
    terms = [text[at : at + 3] for text in ("zyxwvutsr",) for at in range(7)]
    held = {term: pair.one.holding(term) + pair.two.holding(term) for term in terms if term != "uts"}
    pair.one.close()
    with EntryMachine(tmp_path / "one", pair.way) as again:
        again.entries.search(AGENT, "new")
        held |= {term + " later": again.holding(term) for term in terms}

    assert {} == {term: files for term, files in held.items() if files}


@pytest.mark.parametrize("is_signed", [True, False])
def test_one_bad_object_does_not_keep_a_pull_from_the_others(tmp_path: Path, is_signed: bool) -> None:
    """Whoever may write to the bucket could stop every machine by an object that is unsigned, or of a later format."""
    bucket = MemoryMirror()
    mirror = SealedMirror(bucket, MirrorKeys.parse(secrets.token_hex(32), source="the test")) if is_signed else bucket
    with EntryMachine(tmp_path / "one", mirror) as one, EntryMachine(tmp_path / "two", mirror) as two:
        one.entries.save(AGENT, "gone", SECRET)
        one.entries.forget(AGENT, key="gone")
        one.flush(60)
        two.pull()
        (altered,) = [path for path, _ in bucket.list() if path.startswith("entries/@ids/")]
        bucket.put(altered, b'{"format": "memfiles/9", "type": "tombstone"}\n')
        one.manager.append("notes", "- by one\n")
        one.entries.save(AGENT, "key", "by one")
        one.flush(60)
        with suppress(MemfilesError):
            two.pull()

        assert "# notes\n- by one\n" == two.manager.read("notes")
        assert ["key"] == [it.key for it in two.entries.list(AGENT).memories]


@pytest.mark.parametrize("is_joined", [False, True])
def test_a_later_key_stands_whatever_the_clocks_say(tmp_path: Path, *, is_joined: bool) -> None:
    """The clock of the machine that gave the entry a key first is a day ahead of that of the next one."""
    mirror = MemoryMirror()
    ahead = lambda: later(utc_now(), 86400.0)  # noqa: E731
    with EntryMachine(tmp_path / "one", mirror, now=ahead) as one, EntryMachine(tmp_path / "two", mirror) as two:
        one.entries.save(AGENT, "first", "text")
        if is_joined:
            two.entries.save(AGENT, "first", "text")
        for machine in (one, two, one, two):
            machine.pull()
        one.entries.relocate(AGENT, {"first": "second"})
        for machine in (one, two):
            machine.pull()
        two.entries.relocate(AGENT, {"second": "third"})
        for machine in (two, one, two, one):
            machine.pull()

        assert [["third"]] * 2 == [[it.key for it in each.entries.list(AGENT).memories] for each in (one, two)]


@pytest.mark.parametrize("way", ["key", "place"])
@pytest.mark.parametrize("done", ["delete", "tags", "pinned"])
def test_what_was_done_after_an_entry_came_back_to_its_path_stands(pair: Pair, way: str, done: str) -> None:
    """The other machine still had it where it was before, and moves its own copy."""
    pair.one.entries.save(AGENT, "a", "text", tags=["old"], pinned=True)
    if way == "key":
        pair.one.entries.relocate(AGENT, {"a": "b"})
    else:
        pair.one.entries.update(AGENT, "a", category="workspace")
    pair.come_together()
    if way == "key":
        pair.two.entries.relocate(AGENT, {"b": "a"})
    else:
        pair.two.entries.update(AGENT, "a", category="general")
    if done == "delete":
        pair.two.entries.delete(AGENT, "a")
    else:
        pair.two.entries.update(AGENT, "a", **{"tags": ["new"]} if done == "tags" else {"pinned": False})
    pair.two.flush(60)
    pair.come_together()
    found = [each.entries.get(AGENT, "a") for each in (pair.one, pair.two)]
    kept = {"tags": (("new",), True, "general"), "pinned": (("old",), False, "general")}

    assert [kept.get(done)] * 2 == [it and (it.tags, it.pinned, it.category) for it in found]


@pytest.mark.parametrize("was_shared", [False, True], ids=["", "shared before"])
def test_an_entry_that_moved_to_the_key_of_a_deleted_one_keeps_its_text(pair: Pair, *, was_shared: bool) -> None:
    """The other machine, which has both where they were, takes it as it is: the deleted text is not seen again."""
    pair.one.entries.save(AGENT, "a", "deleted text")
    pair.one.entries.save(AGENT, "b", "text")
    pair.come_together()
    if was_shared:
        pair.one.entries.update(AGENT, "b", category="workspace")
        pair.come_together()
    with pair.apart():
        pair.two.entries.delete(AGENT, "a")
        pair.two.entries.update(AGENT, "b", category="general")
        pair.two.flush(60)
        pair.two.entries.relocate(AGENT, {"b": "a"})

    assert {"a": "text"} == pair.seen()


def test_two_changes_in_one_millisecond_are_two(tmp_path: Path) -> None:
    """One of them is in the mirror when another machine changes the entry; the other one is not lost."""
    moment = ["2026-11-21T09:00:00.000Z"]
    mirror = MemoryMirror()
    way = AbsentMirror(mirror, is_away=False)
    with (
        EntryMachine(tmp_path / "one", way, now=lambda: moment[0]) as one,
        EntryMachine(tmp_path / "two", mirror, now=lambda: moment[0]) as two,
    ):
        one.entries.save(AGENT, "plan", "first\n")
        one.entries.update(AGENT, "plan", content="first\nsecond\n")
        one.flush(60)
        two.pull()
        way.is_away = True
        one.entries.update(AGENT, "plan", content="first\nsecond\nthird\n")
        moment[0] = "2026-11-21T09:00:01.000Z"
        two.entries.update(AGENT, "plan", content="first\nsecond\nof the other\n")
        two.flush(60)
        way.is_away = False
        for each in (one, two, one, two):
            each.pull()
            each.flush(60)
        found = [each.entries.list(AGENT).memories[0].content.split() for each in (one, two)]

    assert found[0] == found[1]
    assert {"first", "second", "third", "other"} <= {*found[0]}
