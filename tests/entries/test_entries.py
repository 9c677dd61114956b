"""Entries, through the one class that every surface calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memfiles.entries.budgets import Budget
from memfiles.entries.drafts import Draft, EntryRules
from memfiles.entries.entries import Entries
from memfiles.errors import (
    EntryNotFound,
    InvalidArgument,
    ReadOnly,
    RevisionConflict,
    SecretRefused,
    SizeExceeded,
)
from tests.support.saved import Clock, Visitor, entries_in, files_holding, without_ids

ODD_AGENTS = ["agent_1", "agentX1", "AGENT_1", "a", "a:PUBLIC", "%", "../x"]


def keys_of(entries: Entries, visitor: Visitor, query: str) -> list[str]:
    """The keys that a search finds, best first."""
    return [match.found.key for match in entries.search(visitor, query).matches]


def test_what_is_saved_is_found_at_once(entries: Entries) -> None:
    """By its key, by words, in the list and in the prompt."""
    visitor = Visitor()
    entries.save(visitor, "user:name", "Ann Lee", tags=["people"])
    found = entries.get(visitor, "user:name")

    assert found is not None
    assert ("Ann Lee", "INTERNAL", ("people",), 1) == (found.content, found.level, found.tags, found.revision)
    assert ["user:name"] == keys_of(entries, visitor, "what is the user's name?")
    assert ["user:name"] == [each.key for each in entries.list(visitor).memories]
    assert "Ann Lee" in entries.hydrate(visitor).text


def test_a_raised_level_counts_for_the_very_next_call(entries: Entries) -> None:
    """A save goes to the level at which the session is at that moment; nothing it says can choose another."""
    visitor = Visitor(level="PUBLIC")
    entries.save(visitor, "plan", "open")
    visitor.level = "RESTRICTED"
    entries.save(visitor, "plan", "secret")
    levels = [
        found.level for at in ("PUBLIC", "INTERNAL", "RESTRICTED") if (found := entries.get(Visitor(level=at), "plan"))
    ]

    assert ["PUBLIC", "PUBLIC", "RESTRICTED"] == levels


@pytest.mark.parametrize("agent", ODD_AGENTS)
def test_agents_never_see_each_other(entries: Entries, agent: str) -> None:
    """Whatever they are called: neither by key, nor in lists, searches or prompts."""
    for name in ODD_AGENTS:
        entries.save(Visitor(name), "mine", f"of {name}")
    visitor = Visitor(agent)
    found = entries.get(visitor, "mine")

    assert found is not None
    assert f"of {agent}" == found.content
    assert 1 == len(entries.list(visitor).memories)
    assert [f"of {agent}"] == [match.found.content for match in entries.search(visitor, "of mine").matches]
    assert 1 == len(entries.hydrate(visitor).keys)


@pytest.mark.parametrize("key", ["RESTRICTED:secret", "a/b", "..", "é" * 127 + "x", "%", "' OR 1=1 --"])
def test_any_key_is_stored_exactly(entries: Entries, key: str) -> None:
    """A key never becomes a path, a level or a pattern."""
    entries.save(Visitor(), key, "here")

    assert [key] == [each.key for each in entries.list(Visitor()).memories]
    assert entries.get(Visitor(), key) is not None
    assert entries.get(Visitor(), key[:-1] + "_") is None


@pytest.mark.parametrize("key", ["", " ", "a\nb", "é" * 128, "\ud800"])
def test_what_cannot_be_a_key_is_refused(entries: Entries, key: str) -> None:
    """Nothing is written for it."""
    with pytest.raises(InvalidArgument):
        entries.save(Visitor(), key, "here")

    assert () == entries.list(Visitor()).memories


@pytest.mark.slow
def test_hidden_entries_change_nothing(tmp_path: Path, clock: Clock) -> None:
    """With 1,000 hidden matches and one visible, everything is as in a store without the hidden ones."""
    shown = []
    for hidden in (0, 1000):
        with entries_in(tmp_path / str(hidden), now=clock) as entries:
            low = Visitor(level="PUBLIC")
            entries.save_many(Visitor(level="RESTRICTED"), [Draft(f"k{n}", "tea tea time") for n in range(hidden)])
            entries.save(low, "tea", "the tea is at four, after the long meeting")
            entries.save(low, "coffee", "the coffee is at ten")
            results = entries.search(low, "when is tea?").to_dict()
            page, prompt = entries.list(low, limit=1).to_dict(), entries.hydrate(low).text
            shown.append(
                without_ids([results, page, prompt, entries.explain(low, "tea").to_dict(), entries.get(low, "k1")])
            )

    assert shown[0] == shown[1]
    assert "tea" == shown[1][0]["results"][0]["key"]


def test_the_highest_visible_level_shadows_the_others(entries: Entries) -> None:
    """A stale text of a lower level is not found by its words while a higher one is visible."""
    entries.save(Visitor(level="PUBLIC"), "price", "nine crowns")
    high = Visitor(level="RESTRICTED")
    entries.save(high, "price", "seven crowns")

    assert ["seven crowns"] == [match.found.content for match in entries.search(high, "crowns").matches]
    assert [] == keys_of(entries, high, "nine")
    assert ["price"] == keys_of(entries, Visitor(level="PUBLIC"), "nine")
    entries.delete(high, "price")
    assert ["price"] == keys_of(entries, high, "nine")


CHANGES: dict[str, Callable[[Entries, Visitor], object]] = {
    "update": lambda entries, visitor: entries.update(visitor, "note", pinned=True),
    "delete": lambda entries, visitor: entries.delete(visitor, "note"),
    "restore": lambda entries, visitor: entries.restore(visitor, "note"),
    "relocate": lambda entries, visitor: entries.relocate(visitor, {"note": "other"}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_session_changes_only_its_own_level(entries: Entries, change: str) -> None:
    """The refusal names the level of an entry that the session sees, and nothing of one that it does not see."""
    with pytest.raises(EntryNotFound) as nowhere:
        CHANGES[change](entries, Visitor())
    entries.save(Visitor(level="RESTRICTED"), "note", "high")
    with pytest.raises(EntryNotFound) as hidden:
        CHANGES[change](entries, Visitor())
    entries.save(Visitor(level="PUBLIC"), "note", "low")
    with pytest.raises(EntryNotFound, match="the one it sees is at level PUBLIC, and only a session at that level may"):
        CHANGES[change](entries, Visitor())

    assert str(nowhere.value) == str(hidden.value)
    assert [("low", 1), ("high", 1)] == [
        (found.content, found.revision)
        for level in ("PUBLIC", "RESTRICTED")
        if (found := entries.get(Visitor(level=level), "note"))
    ]


def test_a_delete_says_what_is_visible_again(entries: Entries) -> None:
    """The entry of a lower level, or of all agents, that the deleted one shadowed; else nothing."""
    low = entries.save(Visitor(level="PUBLIC"), "note", "low")
    shared = entries.save(Visitor(), "note", "of all", category="workspace")
    entries.save(Visitor("billing"), "note", "of another agent")
    entries.save(Visitor(level="RESTRICTED"), "note", "high")
    deleted = entries.delete(Visitor(level="RESTRICTED"), "note")
    shown = entries.delete(Visitor(), "note").to_dict()
    [last] = entries.delete_many(Visitor(level="PUBLIC"), ["note"])

    assert ("INTERNAL", shared.id) == deleted.revealed
    assert {"level": "PUBLIC", "id": low.id} == shown["visible_again"]
    assert (low.id, None, False) == (last.id, last.revealed, "visible_again" in last.to_dict())


@pytest.mark.parametrize("content", ["", " ", "\n\t ", "\u3000"])
def test_blank_content_is_refused(entries: Entries, content: str) -> None:
    """In a save and in an update; what is there stays."""
    entries.save(Visitor(), "note", "text")
    for change in (entries.save, entries.update):
        with pytest.raises(InvalidArgument, match="the content is blank: say what to remember, or delete the entry"):
            change(Visitor(), "note", content=content)

    assert 1 == getattr(entries.get(Visitor(), "note"), "revision", None)


def test_another_text_loses_the_confidence_of_the_first(entries: Entries) -> None:
    """Unless a new one is given; tags stay, and the receipt says both. The same text again changes nothing."""
    visitor = Visitor()
    entries.save(visitor, "note", "first", tags=["a", "b"], confidence=0.25)
    same = entries.save(visitor, "note", "first")
    other = entries.save(visitor, "note", "second")
    found: Any = entries.get(visitor, "note")
    given = entries.update(visitor, "note", content="third", confidence=0.5, tags=["c"])
    moved = entries.update(visitor, "note", content="fourth", category="workspace")

    assert ((), None) == (same.kept_tags, same.confidence_was)
    assert (("a", "b"), 0.25) == (other.kept_tags, other.confidence_was)
    assert (1.0, ("a", "b")) == (found.confidence, found.tags)
    assert {"kept_tags": ["a", "b"], "confidence": 1.0, "confidence_was": 0.25}.items() <= other.to_dict().items()
    assert ((), None) == (given.kept_tags, given.confidence_was)
    assert (("c",), 0.5) == (moved.kept_tags, moved.confidence_was)


def test_whatever_is_returned_says_where_it_comes_from(entries: Entries, tmp_path: Path) -> None:
    """Its id, and the agent, run, channel, thread, call and source of its content; a receipt has the id."""
    visitor = Visitor(run="evt-1", thread="T-1")
    receipt = entries.save(visitor, "plan", "Ada is on Pro", source="email", call_id="c1")
    entries.export(visitor, tmp_path / "out.jsonl", format="jsonl")
    [exported] = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    shown: list[Any] = [
        entries.get(visitor, "plan"),
        *(match for match in entries.search(visitor, "Ada").matches),
        *(found.to_line() for found in entries.list(visitor).memories),
        *(found.to_line() for found in entries.hydrate(visitor).entries),
    ]
    said = {"agent": "support", "session": "evt-1", "run": "evt-1", "thread": "T-1", "call": "c1", "source": "email"}

    assert [(receipt.id, said)] * 4 == [
        (each["id"], each["provenance"])
        for each in (each if isinstance(each, dict) else each.to_dict() for each in shown)
    ]
    assert receipt.id == exported["id"]
    assert {f"{name}={value}" for name, value in said.items()} <= {*exported["provenance"]}
    assert receipt.id == receipt.to_dict()["id"] == entries.delete(visitor, "plan").to_dict()["id"]


def test_saving_the_same_again_changes_nothing(entries: Entries, clock: Clock) -> None:
    """Neither the revision nor the time, and so nothing that expires lives longer for it."""
    entries.save(Visitor(), "note", "text", category="daily")
    before = entries.get(Visitor(), "note")
    clock.go_on(60)

    assert 1 == entries.save(Visitor(), "note", "text").revision
    assert before == entries.get(Visitor(), "note")


def test_a_replayed_call_changes_nothing(entries: Entries) -> None:
    """A call that is made again with its id is answered with what it did the first time."""
    entries.save(Visitor(), "n", "one", call_id="c1")
    entries.save(Visitor(), "n", "two", call_id="c2")
    again = entries.save(Visitor(), "n", "one", call_id="c1")
    found = entries.get(Visitor(), "n")

    assert (1, True) == (again.revision, again.replayed)
    assert found is not None
    assert "two" == found.content


def test_an_update_under_the_id_of_another_call_is_made(entries: Entries) -> None:
    """Some servers of models give one id to many calls; and a success that is told again is counted once."""
    entries.save(Visitor(), "n", "one", call_id="c1")
    entries.update(Visitor(), "n", pinned=True, call_id="c1")
    entries.update(Visitor(), "n", importance=1, outcome="success", call_id="c1")
    again = entries.update(Visitor(), "n", importance=1, outcome="success", call_id="c1")
    found = entries.get(Visitor(), "n")

    assert found is not None
    assert (True, 1.0, 1) == (found.pinned, found.importance, found.successes)
    assert (3, True) == (again.revision, again.replayed)


def test_an_update_that_is_made_again_later_takes_nothing_back(entries: Entries) -> None:
    """What somebody said since stays, as with a save."""
    entries.save(Visitor(), "n", "one")
    entries.update(Visitor(), "n", importance=1, call_id="c1")
    entries.update(Visitor(), "n", importance=0, call_id="c2")
    again = entries.update(Visitor(), "n", importance=1, call_id="c1")
    found = entries.get(Visitor(), "n")

    assert found is not None
    assert (0.0, 2, True) == (found.importance, again.revision, again.replayed)


def test_an_expected_revision_is_checked(entries: Entries) -> None:
    """0 means that nothing is there yet."""
    entries.save(Visitor(), "n", "one", expected_revision=0)
    with pytest.raises(RevisionConflict, match="at revision 1, not 0"):
        entries.save(Visitor(), "n", "two", expected_revision=0)

    assert 2 == entries.save(Visitor(), "n", "two", expected_revision=1).revision


def test_an_episode_never_changes(entries: Entries) -> None:
    """What happened has happened; its labels may change."""
    entries.save(Visitor(), "e", "it rained", kind="episode")
    with pytest.raises(ReadOnly, match="episode"):
        entries.save(Visitor(), "e", "it did not rain")
    entries.update(Visitor(), "e", tags=["weather"])
    found = entries.get(Visitor(), "e")

    assert found is not None
    assert ("it rained", ("weather",)) == (found.content, found.tags)


def test_a_procedure_counts_how_it_went(entries: Entries) -> None:
    """Successes and failures are told by updates."""
    entries.save(Visitor(), "how", "turn it off and on", kind="procedure")
    for outcome in ("success", "failure", "success"):
        entries.update(Visitor(), "how", outcome=outcome)
    found = entries.get(Visitor(), "how")

    assert found is not None
    assert (2, 1) == (found.successes, found.failures)


def test_the_workspace_is_shared(entries: Entries) -> None:
    """By every agent, at the level at which it was saved."""
    entries.save(Visitor("one"), "holiday", "closed on Monday", category="workspace")

    assert ["holiday"] == keys_of(entries, Visitor("two"), "Monday")
    assert entries.get(Visitor("two", level="PUBLIC"), "holiday") is None
    entries.save(Visitor("two"), "holiday", "closed on Tuesday")
    found = entries.get(Visitor("one"), "holiday")
    assert found is not None
    assert "closed on Tuesday" == found.content


def test_a_conversation_belongs_to_its_run(entries: Entries, tmp_path: Path) -> None:
    """Other runs of the agent do not see it, and it is gone when the run ends, its file included."""
    one, two = Visitor(run="r1"), Visitor(run="r2")
    entries.save(one, "topic", "the lost parcel", category="conversation")
    entries.save(two, "topic", "the late train", category="conversation")

    assert ["the lost parcel"] == [match.found.content for match in entries.search(one, "the lost late train").matches]
    assert 1 == entries.end_run(one)
    assert entries.get(one, "topic") is None
    assert [] == files_holding(tmp_path / "memory" / "entries", "parcel")
    assert entries.get(two, "topic") is not None


def test_a_conversation_needs_a_run(entries: Entries) -> None:
    """Without one nobody could see it again."""
    with pytest.raises(InvalidArgument, match="belongs to a run, and this session has none: use another category"):
        entries.save(Visitor(), "topic", "x", category="conversation")


def test_a_key_moves_with_its_category(entries: Entries) -> None:
    """What is saved last is what is seen, wherever the key was before."""
    visitor = Visitor(run="r1")
    for category in ("conversation", "core", "workspace", "general", "conversation"):
        entries.save(visitor, "k", f"as {category}", category=category)
        found = entries.get(visitor, "k")
        assert found is not None
        assert (f"as {category}", category) == (found.content, found.category)


def test_a_credential_is_refused(entries: Entries) -> None:
    """Under every write path, in the content and in the labels, and the error does not repeat it."""
    token = "ghp_" + "".join("aB3dE6gH9jK2mN5pQ8sT"[n % 20] for n in range(36))
    private = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" * 4 + "\n-----END PRIVATE KEY-----"
    for write in (
        lambda: entries.save(Visitor(), "k", private),
        lambda: entries.save_many(Visitor(), [Draft("fine", "fine"), Draft("k", private)]),
        lambda: entries.save(Visitor(), "k", "fine", tags=["password: hunter2hunter2X9"]),
    ):
        with pytest.raises((SecretRefused, InvalidArgument)) as error:
            write()
        assert token not in str(error.value)
        assert "MIIEvQ" not in str(error.value)

    assert () == entries.list(Visitor()).memories


def test_too_large_a_content_is_refused(entries: Entries) -> None:
    """With the numbers and what to do."""
    with pytest.raises(SizeExceeded, match="65537 bytes, over the 65536"):
        entries.save(Visitor(), "k", "x" * 65537)


@pytest.mark.parametrize("format", ["markdown", "jsonl"])
def test_export_then_import_is_a_zero_diff(tmp_path: Path, clock: Clock, format: str) -> None:
    """Into the same store, and into an empty one, from which the next export is the same."""
    first, second = tmp_path / f"first.{format}", tmp_path / f"second.{format}"
    with entries_in(tmp_path / "one", now=clock) as entries:
        entries.save(Visitor(), "a: b", "line\n---\nkey: x\n", tags=["t, u", "v"], importance=0.9)
        clock.go_on(5)
        entries.save(Visitor(), "a: b", "line\n---\nkey: y\n\n")
        entries.save(Visitor(), "p", "steps", kind="procedure", links=["a: b"], pinned=True)
        entries.update(Visitor(), "p", outcome="success")
        entries.save(Visitor(), "d", "x", category="daily")
        entries.export(Visitor(), first, format=format)  # type: ignore[arg-type]
        imported = entries.import_(Visitor(), first)
        assert (0, 0, 3, ()) == (imported.added, imported.updated, imported.unchanged, imported.skipped)
    clock.go_on(60)
    with entries_in(tmp_path / "two", now=clock) as entries:
        imported = entries.import_(Visitor(), first)
        assert (3, 0, 0, ()) == (imported.added, imported.updated, imported.unchanged, imported.skipped)
        entries.export(Visitor(), second, format=format)  # type: ignore[arg-type]

    read = [
        {path.name: path.read_bytes() for path in sorted(each.glob("*"))} if each.is_dir() else each.read_bytes()
        for each in (first, second)
    ]
    assert read[0] == read[1]


def test_an_import_goes_through_every_gate(entries: Entries, tmp_path: Path) -> None:
    """What may not be saved is reported with the reason; the rest is taken in, in one commit."""
    lines = [
        {"key": "fine", "content": "fine"},
        {"key": "high", "content": "x", "level": "RESTRICTED"},
        {"key": "large", "content": "x" * 70000},
        {"key": "none", "content": "x", "level": "COSMIC"},
        {"key": "secret", "content": "password = hunter2hunter2X9!"},
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    imported = entries.import_(Visitor(), source)

    assert 1 == imported.added
    assert 4 == len(imported.skipped)
    assert "hunter2" not in json.dumps(imported.to_dict())
    assert ["fine"] == [each.key for each in entries.list(Visitor()).memories]


def test_lists_are_paged(entries: Entries) -> None:
    """By key, each key once, whatever the limit."""
    entries.save_many(Visitor(), [Draft(f"k{n:02}", "x") for n in range(25)])
    seen, cursor = [], None
    while True:
        page = entries.list(Visitor(), limit=10, cursor=cursor)
        seen += [each.key for each in page.memories]
        cursor = page.next
        if cursor is None:
            break

    assert [f"k{n:02}" for n in range(25)] == seen


@pytest.mark.parametrize("count", [0, 51, -1, True, "5", 2.5])
def test_the_number_of_results_is_checked(entries: Entries, count: object) -> None:
    """Neither none nor a flood."""
    with pytest.raises(InvalidArgument, match="max_results"):
        entries.search(Visitor(), "x", max_results=count)  # type: ignore[arg-type]


def test_a_plan_is_applied_and_taken_back(tmp_path: Path, clock: Clock) -> None:
    """Least destructive first: what is said twice is merged, and nothing is lost by it."""
    with entries_in(tmp_path, rules=EntryRules(budget=Budget(max_entries=4)), now=clock) as entries:
        for key, text in (("a", "tea at four"), ("b", "tea at four"), ("c", "cake"), ("d", "milk")):
            clock.go_on(1)
            entries.save(Visitor(), key, text, tags=[key])
        plan = entries.plan(Visitor())
        applied = entries.apply(Visitor(), plan)

        assert ["merge"] == [step.action for step in plan.steps]
        assert 1 == len(applied.hidden)
        assert 3 == len(entries.list(Visitor()).memories)
        assert applied.hidden == entries.undo_plan(Visitor(), plan.id).shown
        assert 4 == len(entries.list(Visitor()).memories)


@pytest.mark.directory("only files can be changed by hand")
def test_a_hand_edit_is_found(entries: Entries, tmp_path: Path) -> None:
    """A record is a file that people may open: what they change is what is read."""
    entries.save(Visitor(), "k", "rain")
    path = next((tmp_path / "memory" / "entries").rglob("*.json"))
    path.write_text(path.read_text().replace('"content":"rain"', '"content":"snow"'))
    found = entries.get(Visitor(), "k")

    assert found is not None
    assert ("snow", 2) == (found.content, found.revision)


@pytest.mark.directory("only files can be changed by hand")
@pytest.mark.parametrize("later", [{"tags": ["weather"]}, {"content": "snow"}], ids=str)
def test_a_credential_that_a_hand_edit_brings_is_told(
    entries: Entries, tmp_path: Path, caplog: pytest.LogCaptureFixture, later: dict[str, Any]
) -> None:
    """As of a memory file: nothing is refused, and the log names the record and the place, never the value.

    Also if the change that finds the hand edit replaces it, as its text stays in the history; and only once.
    """
    entries.save(Visitor(), "k", "rain")
    path = next((tmp_path / "memory" / "entries").rglob("*.json"))
    path.write_text(path.read_text().replace('"content":"rain"', '"content":"password: Tr0ub4dor&3x!"'))
    entries.update(Visitor(), "k", **later)
    path.write_text(path.read_text().replace('"content":"password', '"content":"The password'))
    entries.update(Visitor(), "k", tags=["rain"])
    where = path.relative_to(tmp_path / "memory")

    assert [f"{where}: a change by hand appears to contain a credential: password at byte 10"] == caplog.messages


@pytest.mark.directory("the file of its index is spoilt")
def test_another_start_finds_everything(tmp_path: Path) -> None:
    """With the index as it was left, without one, and with one that is damaged."""
    with entries_in(tmp_path) as entries:
        entries.save(Visitor(), "k", "the heron stands in the reeds")
    found = []
    for spoil in (lambda path: None, Path.unlink, lambda path: path.write_bytes(b"x" * 5000)):
        spoil(tmp_path / ".state" / "index.sqlite")
        with entries_in(tmp_path) as entries:
            found.append(keys_of(entries, Visitor(), "heron"))

    assert [["k"], ["k"], ["k"]] == found
