"""Users: what is kept for one user, no session of another one can observe, and shared things stay as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memfiles import BudgetExceeded, InvalidArgument, Memory, ReadOnly, RevisionConflict, Session
from memfiles.cli.doctor.checks import check_entries
from memfiles.records.entry import Kind
from memfiles.records.keys import USER_MAX, agent_folder, user_hash
from memfiles.storage.home import home_of
from memfiles.workflow.workflow import Workflow
from tests.support.records import files_under
from tests.support.stores import put_by_hand
from tests.support.workflows import opened

WORKFLOW = """\
memory:
  durability: os
  files:
    - {uid: notes-1, name: notes, content: "# Notes\\n"}
    - {uid: wall-1, name: wall, content: "# Wall\\n", from_users: true}
  entries:
    max_entries: 3
    categories:
      playbook: {scope: agent, from_users: true}
      board: {scope: workspace, from_users: true}
      rules: {scope: agent}
      diary: {scope: user}
agents:
  support: {memory: [{id: notes-1, mode: rw}, {id: wall-1, mode: rw}]}
  clinic: {users: required}
"""


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    """A memory of two agents, one of which has only users."""
    with opened(tmp_path, WORKFLOW) as memory:
        yield memory


def test_one_user_does_not_see_what_another_one_said(memory: Memory) -> None:
    """Nor does a session of nobody; all see what is the agent's."""
    ada, bob, nobody = (memory.session("support", user=user) for user in ("ada", "bob", None))
    memory.entries.save(nobody, "hours", "The desk opens at nine")
    memory.entries.save(ada, "plan", "Ada is on Pro")
    memory.entries.save(bob, "plan", "Bob is on Free")

    assert "Ada is on Pro" == memory.entries.get(ada, "plan").content  # type: ignore[union-attr]
    assert "Bob is on Free" == memory.entries.get(bob, "plan").content  # type: ignore[union-attr]
    assert memory.entries.get(nobody, "plan") is None
    assert [["hours", "plan"], ["hours", "plan"], ["hours"]] == [
        [each.key for each in memory.entries.list(session).memories] for session in (ada, bob, nobody)
    ]
    assert [] == [match.found.content for match in memory.entries.search(bob, "Ada Pro").matches]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ada", "Ada"),
        ("é", "e\u0301"),
        ("ada", "\u0430da"),
        ("ada", "ada "),
        ("ada", "ada\u200b"),
        ("users", "@workspace"),
        ("../../x", "..\\x"),
    ],
)
def test_users_are_told_apart_byte_for_byte(memory: Memory, one: str, other: str) -> None:
    """Case, Unicode forms and letters that look alike make different users."""
    memory.entries.save(memory.session("support", user=one), "k", "of one")

    assert memory.entries.get(memory.session("support", user=other), "k") is None
    assert memory.entries.get(memory.session("clinic", user=one), "k") is None


@pytest.mark.parametrize("user", ["", "a\nb", "a\x7f", "x" * (USER_MAX + 1), 7, "\ud800", "a\u2028"])
def test_a_name_that_cannot_be_one_is_refused(memory: Memory, user: str) -> None:
    """With a reason that a program's author can act on."""
    with pytest.raises(InvalidArgument, match="user"):
        memory.session("support", user=user)


def test_an_agent_may_need_a_user(memory: Memory) -> None:
    """A session without one is refused before anything is read."""
    with pytest.raises(InvalidArgument, match="agent clinic works for one user at a time: name the user"):
        memory.session("clinic")

    assert memory.session("clinic", user="ada").agent == "clinic"


def test_a_category_names_another_scope(memory: Memory) -> None:
    """What a user's session saves there, others see; the session must be allowed to."""
    ada, bob, nobody = (memory.session("support", user=user) for user in ("ada", "bob", None))
    memory.entries.save(ada, "how-to", "Ask for the invoice first", category="playbook")
    memory.entries.save(nobody, "rule", "No refunds", category="rules")

    assert "Ask for the invoice first" == memory.entries.get(bob, "how-to").content  # type: ignore[union-attr]
    for category in ("rules", "workspace"):
        with pytest.raises(ReadOnly, match=f"entries of category {category} are seen by other users"):
            memory.entries.save(ada, "rule", "Refunds for all", category=category)
    with pytest.raises(InvalidArgument, match="category diary belongs to a user, and this session has none"):
        memory.entries.save(nobody, "today", "rain", category="diary")


def test_a_search_does_not_tell_which_entries_of_all_come_from_one_run(memory: Memory) -> None:
    """Whose they are is hidden, so what was saved next to them is not found with them."""
    for user in ("ada", "carl"):
        session = memory.session("support", user=user, run=f"run of {user}")
        for word in ("invoice", "greeting"):
            memory.entries.save(session, f"{word} {user}", f"about the {word} by {user}", category="playbook")
    found = memory.entries.search(memory.session("support", user="bob"), "invoice by carl").matches

    assert {"words"} == {leg for match in found for leg in match.legs}


def test_a_save_without_a_category_shadows_for_one_user_alone(memory: Memory) -> None:
    """The entry of all stays as it is, also where its category lets users change it."""
    ada, bob, nobody = (memory.session("support", user=user) for user in ("ada", "bob", None))
    memory.entries.save(nobody, "tone", "formal")
    memory.entries.save(nobody, "how-to", "old", category="playbook")

    memory.entries.save(ada, "tone", "call me Ada")
    memory.entries.save(ada, "how-to", "new")

    assert ["call me Ada", "formal", "formal"] == [
        memory.entries.get(session, "tone").content  # type: ignore[union-attr]
        for session in (ada, bob, nobody)
    ]
    assert ["new", "old"] == [memory.entries.get(session, "how-to").content for session in (ada, bob)]  # type: ignore[union-attr]


@pytest.mark.parametrize("category", ["playbook", "board"])
def test_no_user_can_have_published_what_another_one_saves(memory: Memory, category: str) -> None:
    """Whoever puts a key where all see it does not draw there what others save under it."""
    ada, bob = memory.session("support", user="ada"), memory.session("support", user="bob")
    memory.entries.save(bob, "preferences", "none yet", category=category)

    memory.entries.save_many(ada, [{"key": "preferences", "content": "Ada is moving to Oslo"}])

    assert "Ada is moving to Oslo" == memory.entries.get(ada, "preferences").content  # type: ignore[union-attr]
    assert "none yet" == memory.entries.get(bob, "preferences").content  # type: ignore[union-attr]
    memory.entries.update(bob, "preferences", content="none")
    assert "none" == memory.entries.get(bob, "preferences").content  # type: ignore[union-attr]


def test_a_users_session_changes_nothing_that_others_see(memory: Memory) -> None:
    """Neither by an update, a delete, a pin, feedback, a rename, a restore nor a forget; the refusal says why."""
    ada, nobody = memory.session("support", user="ada"), memory.session("support")
    entries = memory.entries
    entries.save(nobody, "tone", "formal", tags=["style"])
    entries.save(nobody, "gone", "was here")
    entries.delete(nobody, "gone")

    for change in (
        lambda: entries.update(ada, "tone", content="casual"),
        lambda: entries.update(ada, "tone", pinned=True),
        lambda: entries.update(ada, "tone", outcome="failure"),
        lambda: entries.update(ada, "tone", category="playbook"),
        lambda: entries.delete(ada, "tone"),
        lambda: entries.delete_many(ada, ["tone"]),
        lambda: entries.relocate(ada, {"tone": "style"}),
        lambda: entries.restore(ada, "gone"),
        lambda: entries.forget(ada, key="tone"),
        lambda: entries.forget(ada, tag="style"),
    ):
        with pytest.raises(ReadOnly, match="(is|was) seen by other users, and this session is for one user"):
            change()

    assert ("formal", 1) == (entries.get(nobody, "tone").content, entries.get(nobody, "tone").revision)  # type: ignore[union-attr]


LATER = "2999-01-01T00:00:00.000Z"


def _rename(memory: Memory, ada: Session) -> None:
    memory.entries.save(ada, "mine", "casual", category="playbook")
    memory.entries.relocate(ada, {"mine": "tone"})


Change = Callable[[Memory, Session], object]
TAKE_OVERS: dict[str, Change] = {
    "save": lambda memory, ada: memory.entries.save(ada, "tone", "casual", category="playbook"),
    "save of many": lambda memory, ada: memory.entries.save_many(
        ada, [{"key": key, "content": "casual", "category": "playbook"} for key in ("new", "tone")]
    ),
    "save for more": lambda memory, ada: memory.entries.save(ada, "tone", "casual", category="board"),
    "publishing": lambda memory, ada: (
        memory.entries.save(ada, "tone", "casual"),
        memory.entries.update(ada, "tone", category="playbook"),
    ),
    "rename": _rename,
}


@pytest.mark.parametrize(
    ("way", "hidden"),
    [*((way, False) for way in TAKE_OVERS), *((way, True) for way in TAKE_OVERS if "more" not in way)],
)
def test_a_category_for_users_opens_no_other_entry(memory: Memory, way: str, hidden: bool) -> None:
    """What lies at the target is changed only if its own category says so, though it was deleted."""
    nobody, ada = memory.session("support"), memory.session("support", user="ada")
    memory.entries.save(nobody, "tone", "formal", importance=0.9)
    if hidden:
        memory.entries.delete(nobody, "tone")

    with pytest.raises((ReadOnly, RevisionConflict)):
        TAKE_OVERS[way](memory, ada)

    if hidden:
        memory.entries.restore(nobody, "tone")
    found = memory.entries.get(nobody, "tone")
    assert found is not None and ("formal", 0.9, "general") == (found.content, found.importance, found.category)
    assert memory.entries.get(ada, "new") is None


def test_an_import_of_a_user_skips_what_she_may_not_change(memory: Memory, tmp_path: Path) -> None:
    """And says why; the rest is imported."""
    nobody, ada = memory.session("support"), memory.session("support", user="ada")
    memory.entries.save(nobody, "tone", "formal")
    memory.entries.save(nobody, "gone", "formal")
    memory.entries.delete(nobody, "gone")
    lines = [
        {"key": key, "content": "casual", "category": "playbook", "updated": LATER} for key in ("tone", "gone", "new")
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    report = memory.entries.import_(ada, source)

    assert (1, 0) == (report.added, report.updated)
    assert all("seen by other users" in each.why for each in report.skipped) and 2 == len(report.skipped)
    assert "formal" == memory.entries.get(nobody, "tone").content  # type: ignore[union-attr]


def test_a_shared_entry_becomes_one_of_a_user_without_its_past(memory: Memory, tmp_path: Path) -> None:
    """Who said it, and what it said before, stays where it was; others see it no more."""
    ada, bob = memory.session("support", user="ada"), memory.session("support", user="bob", run="r-bob")
    memory.entries.save(bob, "refunds", "Bob's first words", category="playbook")
    memory.entries.save(bob, "refunds", "a week", category="playbook", tags=["money"])

    draft: dict[str, Any] = {"category": "general", "content": "a week, says Bob", "ttl": 3600, "expected_revision": 2}
    saved = memory.entries.update(ada, "refunds", **draft)

    assert memory.entries.get(bob, "refunds") is None
    found = memory.entries.get(ada, "refunds")
    assert found is not None and found.expires_at is not None
    assert ("a week, says Bob", ("money",), 1) == (found.content, found.tags, saved.revision)
    kept = files_under(tmp_path / ".memory/entries/support")
    (own,) = (body for path, body in kept.items() if path.startswith(f"users/{user_hash('ada')}/"))
    assert not any(word in own for word in (b"first words", b"r-bob", b'bob"'))
    assert not any(b"says Bob" in body for path, body in kept.items() if "/" not in path)
    memory.entries.restore(bob, "refunds")
    assert "a week" == memory.entries.get(bob, "refunds").content  # type: ignore[union-attr]


def test_a_forget_of_a_user_takes_what_is_theirs_alone(memory: Memory) -> None:
    """Entries of all that match as well stay."""
    ada, bob, nobody = (memory.session("support", user=user) for user in ("ada", "bob", None))
    for session in (ada, bob, nobody):
        memory.entries.save(session, "plan", f"plan of {session.provenance.user}", tags=["plan"])

    assert ("plan",) == memory.entries.forget(ada, tag="plan").keys

    assert "plan of None" == memory.entries.get(ada, "plan").content  # type: ignore[union-attr]
    assert "plan of bob" == memory.entries.get(bob, "plan").content  # type: ignore[union-attr]


def test_what_a_user_publishes_leaves_its_history_behind(memory: Memory, tmp_path: Path) -> None:
    """A change of category publishes the content that is there, not what it said before."""
    ada, bob = memory.session("support", user="ada"), memory.session("support", user="bob")
    memory.entries.save(ada, "refunds", "my card is 4111-secret")
    memory.entries.save(ada, "refunds", "refunds take a week")

    memory.entries.update(ada, "refunds", category="playbook")

    assert "refunds take a week" == memory.entries.get(bob, "refunds").content  # type: ignore[union-attr]
    kept = files_under(tmp_path / ".memory/entries/support")
    shared = [body for path, body in kept.items() if "/" not in path]
    assert not any(b"4111-secret" in body for body in shared) and len(shared) == 1
    assert ["refunds"] == [each.key for each in memory.entries.list(ada).memories]


def test_what_a_user_publishes_does_not_say_who_said_it(memory: Memory, tmp_path: Path) -> None:
    """Neither a read, an export nor a selection tells other users her name, her run or her thread."""
    ada = memory.session("support", user="ada", run="r-ada", thread="t-ada", channel="c-ada")
    bob = memory.session("support", user="bob")
    memory.entries.save(ada, "how-to", "refunds take a week", category="playbook", call_id="call-ada")

    page, found = memory.entries.list(bob), memory.entries.get(bob, "how-to")
    results, block = memory.entries.search(bob, "refunds"), memory.entries.hydrate(bob)
    memory.entries.export(bob, tmp_path / "out.jsonl", format="jsonl")
    told = f"{page} {found} {results} {block} {(tmp_path / 'out.jsonl').read_text()} {bob.recall('refunds')}"

    assert "refunds take a week" in told
    assert [] == [word for word in ("'ada'", '"ada"', "r-ada", "t-ada", "c-ada", "call-ada") if word in told]
    assert 0 == memory.entries.forget(bob, provenance={"user": "ada"}, dry_run=True).count


def test_each_user_has_a_budget_alone(memory: Memory) -> None:
    """Nobody's entry goes for another one's."""
    ada, bob, nobody = (memory.session("support", user=user) for user in ("ada", "bob", None))
    for session in (bob, nobody):
        memory.entries.save(session, "first", "stays")

    receipts = [memory.entries.save(ada, f"k{number}", f"text {number}") for number in range(5)]

    assert [(), (), (), ("k0",), ("k1",)] == [each.evicted for each in receipts]
    assert all(memory.entries.get(session, "first") for session in (bob, nobody))


def test_a_run_is_within_its_user(memory: Memory) -> None:
    """Sessions of one run and of different users share nothing, and end alone."""
    ada, bob = (memory.session("support", user=user, run="r1") for user in ("ada", "bob"))
    for session in (ada, bob):
        memory.entries.save(session, "now", f"of {session.provenance.user}", category="conversation")

    ada.close()

    assert "of bob" == memory.entries.get(bob, "now").content  # type: ignore[union-attr]
    assert memory.entries.get(memory.session("support", user="ada", run="r1"), "now") is None


def test_files_of_all_are_read_only_for_a_user(memory: Memory) -> None:
    """Unless the file says that users may write it."""
    ada = memory.session("support", user="ada")

    assert [("notes", False), ("wall", True)] == [(file.card.name, file.writable) for file in ada.files()]
    refused = ada.call("append_memory", {"file": "notes", "content": "- Ada is angry\n"})
    assert (True, "read_only") == (refused.is_error, refused.code)
    assert not ada.call("append_memory", {"file": "wall", "content": "- hello\n"}).is_error
    assert not memory.session("support").call("append_memory", {"file": "notes", "content": "- x\n"}).is_error


@pytest.mark.directory("only files can be changed by hand")
def test_users_are_there_after_a_restart(tmp_path: Path) -> None:
    """From the records alone, as the index is derived; a hand edit counts; no name is in a path."""
    with opened(tmp_path, WORKFLOW) as memory:
        memory.entries.save(memory.session("support", user="ada"), "plan", "Ada is on Pro")
    record = tmp_path / ".memory/entries/support/users" / user_hash("ada")
    (path,) = record.glob("*.json")
    path.write_text(path.read_text().replace("Ada is on Pro", "Ada is on Max"))
    for derived in (tmp_path / ".memory/.state").glob("index*"):
        derived.unlink()

    with opened(tmp_path, WORKFLOW) as memory:
        ada = memory.session("support", user="ada")
        assert ["Ada is on Max"] == [match.found.content for match in memory.entries.search(ada, "max").matches]
        assert not any(re.search(r"\bada\b", str(each)) for each in (tmp_path / ".memory").rglob("*"))
        assert [] == [each for each in check_entries(Workflow.load(tmp_path / "workflow.yaml")) if each.state != "ok"]


def test_a_record_in_another_users_folder_is_refused(tmp_path: Path) -> None:
    """The folder must be that of the user whom the record names."""
    with opened(tmp_path, WORKFLOW) as memory:
        memory.entries.save(memory.session("support", user="ada"), "plan", "Ada is on Pro")
    ((path, body),) = files_under(tmp_path / ".memory/entries/support/users").items()
    theirs = path.replace(user_hash("ada"), user_hash("bob"))
    put_by_hand(tmp_path / ".memory", f"entries/support/users/{theirs}", body)

    with opened(tmp_path, WORKFLOW) as memory:
        bob = memory.session("support", user="bob")
        assert memory.entries.get(bob, "plan") is None
        assert () == memory.entries.search(bob, "Pro").matches


def test_a_users_entries_reach_another_machine(tmp_path: Path) -> None:
    """Under the same path in the mirror; its first start fetches them, later ones the changes."""
    (tmp_path / "mirror").mkdir()
    mirrored = WORKFLOW.replace(
        "memory:\n", f"memory:\n  mirror: {{url: 'file://{tmp_path}/mirror', pull: restore}}\n", 1
    )
    with opened(tmp_path / "one", mirrored) as memory:
        memory.entries.save(memory.session("support", user="ada"), "plan", "Ada is on Pro")
    with opened(tmp_path / "two", mirrored) as memory:
        ada = memory.session("support", user="ada")
        assert "Ada is on Pro" == memory.entries.get(ada, "plan").content  # type: ignore[union-attr]
        memory.entries.update(ada, "plan", content="Ada is on Max")
    with opened(tmp_path / "one", mirrored) as memory:
        memory.sync.pull()
        assert "Ada is on Max" == memory.entries.get(memory.session("support", user="ada"), "plan").content  # type: ignore[union-attr]

    assert [user_hash("ada")] == [path.name for path in (tmp_path / "mirror/entries/support/users").iterdir()]


def test_a_user_over_budget_merges_only_what_is_hers(memory: Memory) -> None:
    """Not what is the same for another user, in the agent's own entries, or at another level."""
    ada, bob, nobody = (memory.session("support", user=user) for user in ("ada", "bob", None))
    higher = memory.session("support", user="ada", level="RESTRICTED")
    for session in (bob, nobody, higher, ada):
        memory.entries.save(session, "one", "The same")
        memory.entries.save(session, "two", "The same")
    others = [(session, key) for session in (bob, nobody, higher) for key in ("one", "two")]
    before = [memory.entries.get(*each) for each in others]
    memory.entries.save(ada, "three", "Else")

    receipt = memory.entries.save(ada, "four", "News")

    assert (("one",), ()) == (receipt.merged, receipt.evicted)
    assert before == [memory.entries.get(*each) for each in others]
    assert ["four", "one", "three", "two"] == [each.key for each in memory.entries.list(ada).memories]


@pytest.mark.parametrize("kind", ["note", "episode"])
def test_a_user_over_the_budget_of_all_hides_only_what_she_may_change(memory: Memory, kind: Kind) -> None:
    """Neither by an eviction, nor a merge of what is the same, nor a fold; else the save is refused."""
    nobody, ada, bob = (memory.session("support", user=user) for user in (None, "ada", "bob"))
    for number in range(2):
        memory.entries.save(nobody, f"rule {number}", "The same rule for all. " * 20, kind=kind, importance=0.1)

    receipts = [memory.entries.save(ada, f"how {number}", f"How {number}", category="playbook") for number in range(3)]

    assert [(), ("how 0",), ("how 1",)] == [each.evicted for each in receipts]
    assert [(), ()] == [(*each.merged, *each.folded) for each in receipts[1:]]
    memory.entries.delete(ada, "how 2")
    memory.entries.save(nobody, "rule 2", "Another rule", importance=0.1)
    with pytest.raises(BudgetExceeded, match="used up by entries that other users see.*save without a category"):
        memory.entries.save(ada, "how 3", "How 3", category="playbook")
    assert ["rule 0", "rule 1", "rule 2"] == [each.key for each in memory.entries.list(bob).memories]
    assert () == memory.entries.save(ada, "how 3", "How 3").evicted


def test_a_user_erases_nothing_that_she_may_not_change(memory: Memory) -> None:
    """Many hidden entries of hers are thinned out, and older ones of the agent stay."""
    nobody, ada = memory.session("support"), memory.session("support", user="ada")
    memory.entries.save(nobody, "rule", "A rule for all")
    memory.entries.delete(nobody, "rule")

    for number in range(80):
        memory.entries.save(ada, f"how {number}", f"How {number}", category="playbook")

    assert 67 >= sum(each.retired for each in memory.entries.counts())
    memory.entries.restore(nobody, "rule")
    assert "A rule for all" == memory.entries.get(ada, "rule").content  # type: ignore[union-attr]


def test_a_note_for_all_does_not_tell_whose_session_folded_it(memory: Memory) -> None:
    """A user's save over the budget of what all share folds the agent's episodes."""
    nobody, ada = memory.session("support"), memory.session("support", user="ada", run="ada-run")
    told = "A guest called about the invoice of October, which was charged twice, and waits for an answer. " * 4
    for number in range(3):
        memory.entries.save(nobody, f"call {number}", told, kind="episode", category="playbook")

    receipt = memory.entries.save(ada, "greet", "Say hello", category="playbook")
    note = next(
        each for each in memory.entries.list(memory.session("support", user="bob")).memories if each.kind == "note"
    )

    assert 3 == len(receipt.folded)
    assert {"agent": "support", "source": receipt.plan} == note.provenance.shown


@pytest.mark.parametrize("agent", ["客户支持助理机器人中文名称", "a" * 120])
def test_a_damaged_entry_of_a_user_is_saved_again_whatever_the_agents_name(tmp_path: Path, agent: str) -> None:
    """The copy that is kept of it has the path in its note, as a file name may have 255 bytes."""
    with opened(tmp_path, f"memory: {{durability: os, entries: {{}}}}\nagents: {{{agent}: {{}}}}\n") as memory:
        ada = memory.session(agent, user="ada")
        memory.entries.save(ada, "plan", "Ada is on Pro")
        (path,) = (it for it in memory.manager.records.paths(f"entries/{agent_folder(agent)}/users/{user_hash('ada')}"))
        put_by_hand(tmp_path / ".memory", path, b"{")
        memory.entries.save(ada, "plan", "Ada is on Free")
        found, kept = memory.entries.get(ada, "plan"), home_of(memory.workflow.place).kept.notes("quarantine")

    assert found is not None
    assert ("Ada is on Free", [path]) == (found.content, [note.path for note in kept])
