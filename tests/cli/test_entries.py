"""``memfiles entries``: save, find, list, explain and hydrate from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import memfiles
from tests.cli.command_line import run
from tests.cli.entry_commands import WORKFLOW, entries, saved
from tests.support.saved import without_ids
from tests.support.workflows import write_workflow


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a workflow that was never restored; commands run there."""
    write_workflow(tmp_path, WORKFLOW)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_save_and_get() -> None:
    """A text is printed as it was saved, and nothing else goes to stdout."""
    ran = entries("save", "plan", "Ada is on Pro\n")

    assert (0, "", "plan: saved at level INTERNAL, revision 1, 14 bytes\n") == (ran.code, ran.out, ran.err)
    assert (0, "Ada is on Pro\n", "") == tuple(vars(entries("get", "plan")).values())


def test_update() -> None:
    """What is named changes, the rest stays, and an unknown key is not found."""
    saved("plan", "Ada is on Pro", "--tag", "ada")
    ran = entries("update", "plan", "--content", "-", "--pinned", "--outcome", "success", stdin="Ada is on Max")
    found = entries("get", "plan", "--json").data

    assert (0, "plan: updated at level INTERNAL, revision 2, 13 bytes\nits tags stay: ada\n") == (ran.code, ran.err)
    assert ("Ada is on Max", ["ada"], True, 1) == tuple(
        found[name] for name in ("content", "tags", "pinned", "successes")
    )
    assert 3 == entries("update", "nothing", "--pinned").code


def test_the_life_of_an_entry() -> None:
    """Its log, a diff and an undo; then what is deleted, and what is left once it is forgotten."""
    for text in ("Ada is on Free\n", "Ada is on Pro\n"):
        saved("plan", text)
    undone = entries("undo", "plan", "--to", "1", "--call-id", "c1")
    log, short = entries("log", "plan", "--json").data, entries("log", "plan", "-n", "1")
    last, first = entries("diff", "plan"), entries("diff", "plan", "1", "2", "--json").data
    entries("delete", "plan")
    deleted, hint = entries("deleted"), entries("log", "plan")
    entries("forget", "--key", "plan", "--yes", "--why", "asked")
    tombstones = entries("tombstones", "--json").data["tombstones"]

    assert (0, "plan: undone at level INTERNAL, revision 3, 15 bytes\n") == (undone.code, undone.err)
    assert [("undo", 3, "c1"), ("save", 2, None), ("save", 1, None)] == [
        (each["op"], each["revision"], each["by"].get("call")) for each in log["changes"]
    ]
    assert (2, "undo") == (len(short.out.splitlines()), short.out.split()[8])
    assert "-Ada is on Pro\n+Ada is on Free\n" in last.out
    assert (1, 2, True) == (first["from_revision"], first["to_revision"], "+Ada is on Pro\n" in first["diff"])
    assert ("plan", "deleted") == tuple(deleted.out.splitlines()[1].split()[::2][:2])
    assert hint.err.startswith("now: plan at level INTERNAL, deleted; id ")
    assert [("asked", log["id"])] == [(each["why"], each["id"]) for each in tombstones]
    assert ("no such entry\n", [3, 3, 3]) == (
        entries("deleted").err,
        [entries(*args).code for args in (("log", "plan"), ("diff", "plan"), ("undo", "plan"))],
    )


def test_a_key_that_looks_like_another_is_in_quotes() -> None:
    """So that a person who reads what was done tells it from the other, and a shell takes it back."""
    saved()
    done = [entries("save", "plan ", "Max"), entries("update", "plan ", "--pinned"), entries("diff", "plan ", "1", "1")]

    assert 3 * ["'plan ':"] == [f"{ran.err.partition(':')[0]}:" for ran in done]
    assert entries("delete", "plan ").err.startswith("'plan ': deleted at level INTERNAL; ")


def test_save_as_json() -> None:
    """The receipt, as the tool gives it."""
    ran = entries("save", "plan", "x", "--json")

    assert {"saved": True, "key": "plan", "level": "INTERNAL", "revision": 1, "evicted": []} == without_ids(ran.data)
    assert "" == ran.err


def test_all_that_may_be_said() -> None:
    """Every facet has an option."""
    options = "--tag a --tag b --category core --kind fact --importance 0.9 --confidence 0.5 --pinned --link refund"
    saved("plan", "x", *options.split())
    found = entries("get", "plan", "--json").data

    assert (["a", "b"], "core", "fact", 0.9, 0.5, True, ["refund"]) == tuple(
        found[name] for name in ("tags", "category", "kind", "importance", "confidence", "pinned", "links")
    )


def test_what_is_not_said_stays() -> None:
    """Saving again with a text alone changes the text alone."""
    saved("plan", "x", "--tag", "a", "--pinned")
    saved("plan", "y")
    found = entries("get", "plan", "--json").data

    assert ("y", ["a"], True, 2) == tuple(found[name] for name in ("content", "tags", "pinned", "revision"))


def test_a_time_that_is_blank_is_refused() -> None:
    """As of a variable that is not set: the entry would be said to be of today."""
    ran = entries("save", "tea", "Ada likes tea", "--said-at", "")

    assert (2, True) == (ran.code, "'--said-at': it is blank" in ran.err)


def test_a_lifetime() -> None:
    """--ttl takes a time span; a wrong one is a usage error."""
    saved("plan", "x", "--ttl", "72h")

    assert entries("get", "plan", "--json").data["expires_at"] > "2026"
    assert 2 == entries("save", "plan", "x", "--ttl", "soon").code


@pytest.mark.parametrize("given", [["-"], []])
def test_text_from_stdin(given: list[str]) -> None:
    """With -, or without a text, what is piped in is saved, exactly."""
    entries("save", "plan", *given, stdin="é\n\n")

    assert "é\n\n" == entries("get", "plan").out


def test_a_text_that_begins_with_a_dash() -> None:
    """A bullet is text, not an option."""
    saved("plan", "- Ada is on Pro")

    assert "- Ada is on Pro" == entries("get", "plan").out


def test_an_unknown_key() -> None:
    """Exit code 3, nothing on stdout; deleting and restoring what is not there is the same."""
    ran = entries("get", "nothing")

    assert (3, "") == (ran.code, ran.out)
    assert "entry_not_found" == entries("get", "nothing", "--json").error["code"]
    assert [3, 3, 3] == [entries(command, "nothing").code for command in ("delete", "restore", "explain")]


def test_delete_and_restore() -> None:
    """What was deleted is hidden, and comes back as it was."""
    saved()

    assert 0 == entries("delete", "plan").code
    assert 3 == entries("get", "plan").code
    assert 0 == entries("restore", "plan").code
    assert "Ada is on Pro" == entries("get", "plan").out


def test_restoring_what_is_there() -> None:
    """It says that the entry is not deleted, rather than that there is none."""
    saved()

    ran = entries("restore", "plan")

    assert (3, "error: 'plan' is not deleted: there is nothing to restore\n") == (ran.code, ran.err)


def test_the_agent_must_be_known(project: Path) -> None:
    """The only one there is need not be named; an unknown one ends with code 3."""
    text = (project / "workflow.yaml").read_text()
    write_workflow(project, text + "  idle: {}\n")

    unnamed, unknown = entries("list"), entries("list", "--agent", "nobody")

    assert (2, 3) == (unnamed.code, unknown.code)
    assert "desk, idle" in unnamed.err
    assert "desk, idle" in unknown.err
    assert 0 == entries("list", "--agent", "idle").code


def test_over_the_budget() -> None:
    """What had to go is named on stderr."""
    for number in range(20):
        saved(f"plan-{number}", f"text {number}")

    assert "warning: evicted to stay within the budget: plan-0" in entries("save", "plan-20", "text").err
    assert ["plan-1"] == entries("save", "plan-21", "another", "--json").data["evicted"]


def test_over_the_budget_with_duplicates() -> None:
    """What is merged is told, with the command that takes it back."""
    for number in range(20):
        saved(f"plan-{number}", f"text {number % 19}")
    told = entries("save", "plan-20", "another").err

    assert "hidden to stay within the budget, as others say the same: plan-0" in told
    plan = told.rpartition("--undo ")[2].strip()
    assert 0 == entries("consolidate", "--undo", plan).code
    assert "text 0" in entries("get", "plan-0").out


def test_a_command_is_not_the_end_of_a_run(project: Path) -> None:
    """It changes nothing but what it says, whatever the workflow has agents do at their ends."""
    write_workflow(project, WORKFLOW.replace("{max_entries: 20}", "{max_entries: 5, consolidate: close}"))
    for number in range(5):
        saved(f"plan-{number}", "the same")
    arguments = json.dumps({"key": "plan-0"})

    assert 0 == run("call", "desk", "memory_get", arguments).code
    assert 5 == len(entries("list", "--json").data["memories"])
    with memfiles.open(project / "workflow.yaml", watch=False) as memory:
        session = memory.session("desk")
    assert session.consolidates
    assert 1 == len(entries("list", "--json").data["memories"])


def test_a_stale_or_repeated_save() -> None:
    """An expected revision and a call id make a save safe to base on a look, and to repeat."""
    saved()

    assert 4 == entries("save", "plan", "Max", "--expected-revision", "7").code
    assert 0 == entries("save", "plan", "Max", "--expected-revision", "1", "--call-id", "c1").code
    again = entries("save", "plan", "Max", "--call-id", "c1", "--json").data
    assert (True, 2) == (again["replayed"], again["revision"])


def test_what_belongs_to_one_run() -> None:
    """It is seen in that run only; a command joins the run and does not end it."""
    saved("plan", "for now", "--category", "conversation", "--run", "monday")

    assert ["for now", ""] == [entries("get", "plan", "--run", run).out for run in ("monday", "tuesday")]
    assert "for now" == entries("get", "plan", "--run", "monday").out
    assert 2 == entries("save", "plan", "x", "--category", "conversation").code


def test_a_hostile_text_cannot_drive_the_terminal() -> None:
    """Keys, tags and snippets are shown on one line without control characters."""
    saved("plan\u202e", "\x1b[31mred Ada\nforged  line", "--tag", "a")
    shown = entries("list").out + entries("search", "Ada").out

    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert 4 == len(shown.splitlines())


def test_no_colours_behind_a_pipe() -> None:
    """Output that is piped on is plain."""
    saved()

    assert "\x1b" not in entries("list").out


@pytest.mark.parametrize("command", ["entries", "export", "import"])
def test_help(command: str) -> None:
    """Every command explains itself."""

    assert 0 == run(command, "--help").code


@pytest.mark.parametrize(
    "command",
    "save get search list delete restore forget hydrate recall explain consolidate".split(),
)
def test_help_of_the_group(command: str) -> None:
    """Each with an example."""

    assert "Example:" in entries(command, "--help").out


def test_the_tools_of_an_agent() -> None:
    """``memfiles tools`` shows those for entries, under the names that are asked for."""

    def names(*options: str) -> list[str]:
        return [tool["name"] for tool in run("tools", "desk", *options).data][3:]

    assert ["memory_save", "memory_get", "memory_search", "memory_list", "memory_delete", "memory_update"] == names()
    assert ["memory_store", "memory_recall", "memory_list", "memory_delete"] == names("--tool-names", "store-recall")


def test_a_tool_call_on_entries() -> None:
    """``memfiles call`` makes it as an agent would."""
    run("call", "desk", "memory_save", json.dumps({"key": "plan", "content": "Ada is on Pro"}))
    ran = run("call", "desk", "memory_read", '{"key": "plan"}', "--tool-names", "crud")

    assert "Ada is on Pro" == ran.data["content"]


def test_status_counts_them() -> None:
    """How many there are and how large, against the budgets, and what is hidden."""
    saved("plan", "Ada is on Pro")
    saved("old", "x", "--level", "PUBLIC")
    saved("gone", "y")
    entries("delete", "gone")
    shown = run("status", "--json").data["entries"]

    assert (2, 14, 0, 1, 20, None) == tuple(
        shown[name] for name in ("entries", "size_bytes", "expired", "retired", "max_entries", "index")
    )
    assert [("desk", "INTERNAL", 1), ("desk", "PUBLIC", 1)] == [
        (each["folder"], each["level"], each["entries"]) for each in shown["by_partition"]
    ]
    assert "desk at INTERNAL: 1 of 20, 13 of 1048576 bytes" in run("status").out
    assert "and 2 entries: memfiles entries list" in run("ls").err


def test_status_sums_the_users_of_an_agent() -> None:
    """One line for an agent and level, however many users it has."""
    for user, content in ("ada", "Ada is on Pro"), ("bob", "Bob"):
        saved("plan", content, "--user", user)
    saved("sum", "two", "--user", "bob")

    assert "desk/users at INTERNAL: 2 users with 3 entries, 19 bytes; the fullest: 2 of 20, 13 of 1048576 bytes" in (
        run("status").out
    )


@pytest.mark.parametrize("command", ["status", "ls"])
def test_a_lost_index_changes_no_number(project: Path, command: str) -> None:
    """It is derived: deleted or broken, it is made anew."""
    saved()
    before = run(command).out
    index = project / ".memory" / ".state" / "index.sqlite"
    index.write_bytes(b"no database")

    assert before == run(command).out
    index.unlink()
    assert before == run(command).out
