"""``memfiles entries`` that reads: search, list, hydrate, recall and explain; no look changes a record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import memfiles
from tests.cli.command_line import files_under, run
from tests.cli.entry_commands import WORKFLOW, entries, records, saved
from tests.support.workflows import write_workflow


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a workflow that was never restored; commands run there."""
    write_workflow(tmp_path, WORKFLOW)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_levels() -> None:
    """A session sees what is at or below its level, and the highest first; it changes what is at its level."""
    saved("plan", "public", "--level", "PUBLIC")
    saved("plan", "internal")

    assert ["public", "internal", "internal"] == [
        entries("get", "plan", "--level", level).out for level in ("PUBLIC", "INTERNAL", "RESTRICTED")
    ]
    assert 3 == entries("delete", "plan", "--level", "RESTRICTED").code
    assert 2 == entries("get", "plan", "--level", "SECRET").code


def test_search() -> None:
    """The best match first, with what found it; as JSON as the tool gives it."""
    saved("plan", "Ada is on Pro")
    saved("refund", "Refund at once")
    ran = entries("search", "which plan is Ada on?")

    assert 0 == ran.code
    assert "plan" == ran.out.splitlines()[1].split()[0]
    found = entries("search", "ada", "--json").data
    assert [("plan", "Ada is on Pro")] == [(each["key"], each["content"]) for each in found["results"]]


def test_a_search_that_finds_nothing() -> None:
    """It says so on stderr and ends well; any text is a query."""
    ran = entries("search", '"AND ( * ^ NEAR')

    assert (0, "", "nothing found\n") == (ran.code, ran.out, ran.err)


def test_a_list() -> None:
    """Keys and sizes without texts; a cursor leads on."""
    for number in range(3):
        saved(f"plan-{number}", "secret plans")
    first = entries("list", "--prefix", "plan", "--limit", "2")
    page = entries("list", "--limit", "2", "--json").data
    rest = entries("list", "--cursor", page["next"], "--json").data

    assert ["KEY", "plan-0", "plan-1"] == [line.split()[0] for line in first.out.splitlines()]
    assert "secret" not in first.out
    assert "--cursor" in first.err
    assert (["plan-2"], None) == ([each["key"] for each in rest["memories"]], rest["next"])


def test_a_wrong_cursor_or_number() -> None:
    """Usage errors end with code 2."""

    assert [2, 2, 2, 2] == [
        entries("list", "--cursor", "a\nb").code,
        entries("list", "--limit", "0").code,
        entries("search", "x", "-n", "51").code,
        entries("list", "--kind", "skill").code,
    ]


def test_filters() -> None:
    """By tag, category and kind."""
    saved("a", "Ada", "--tag", "x", "--kind", "fact")
    saved("b", "Ada", "--category", "core")

    def keys(*options: str) -> list[str]:
        return [each["key"] for each in entries("list", *options, "--json").data["memories"]]

    assert [["a"], ["a"], ["b"], []] == [
        keys("--tag", "x"), keys("--kind", "fact"), keys("--category", "core"), keys("--tag", "y")
    ]  # fmt: skip


def test_hydrate_and_explain() -> None:
    """The block of the system prompt, and why an entry is in it or is not."""
    saved("plan", "Ada is on Pro")
    saved("large", "x" * 1000)

    assert "| Ada is on Pro" in entries("hydrate").out
    small = entries("hydrate", "--budget", "500", "--json").data
    assert (["plan"], True) == (small["keys"], small["size_bytes"] <= 500)
    assert "plan (INTERNAL): shown" in entries("explain", "plan").out
    assert (True, "windowed") == tuple(entries("explain", "plan", "--json").data[name] for name in ("shown", "reason"))


def test_recall() -> None:
    """The block for one turn, within the budget; what must be in is in."""
    saved("plan", "Ada is on Pro")
    saved("desk", "The desk opens at nine")
    found = entries("recall", "which plan is Ada on?", "--include", "desk", "--include", "nothing", "--json").data
    small = entries("recall", "Ada", "--budget", "10")

    assert ["desk", "plan"] == [each["key"] for each in found["entries"]]
    assert ["included", "answer"] == [each["role"] for each in found["entries"]]
    assert found["text"] + "\n" == entries("recall", "which plan is Ada on?", "--include", "desk").out
    assert (0, "") == (small.code, small.out)
    assert "nothing recalled" in small.err


def test_search_within_a_budget() -> None:
    """As compact JSON the results take no more."""
    for number in range(20):
        saved(f"plan/{number}", "Ada is on Pro")
    found = entries("search", "Ada", "--budget-bytes", "900", "--json").data

    assert 0 < len(found["results"]) < 10
    assert len(json.dumps(found, separators=(",", ":")).encode()) <= 900
    assert 2 == entries("search", "Ada", "--budget-bytes", "9").code


def test_hydrate_without_entries() -> None:
    """Nothing on stdout, and a word on stderr."""
    ran = entries("hydrate")

    assert (0, "") == (ran.code, ran.out)
    assert "no entries shown" in ran.err


def test_the_block_is_the_one_in_the_system_prompt(project: Path) -> None:
    """Byte for byte the same, whenever it is asked for."""
    saved()
    blocks = [entries("hydrate").out for _ in range(2)]
    with memfiles.open(project / "workflow.yaml", watch=False) as memory:
        prompt = memory.session("desk").system_prompt()

    assert blocks[0] == blocks[1]
    assert "Ada is on Pro" in blocks[0]
    assert blocks[0].rstrip("\n") in prompt


LOOKING = [
    ["get", "plan"],
    ["get", "nothing"],
    ["search", "ada"],
    ["list"],
    ["hydrate"],
    ["recall", "ada"],
    ["explain", "plan"],
    ["log", "plan"],
    ["diff", "plan"],
    ["deleted"],
    ["tombstones"],
    ["consolidate"],
    ["forget", "--key", "plan", "--dry-run"],
]


@pytest.mark.parametrize("command", LOOKING, ids=lambda command: " ".join(command))
@pytest.mark.parametrize("is_json", [False, True])
def test_looking_changes_no_record(project: Path, command: list[str], is_json: bool) -> None:
    """Only what is derived may be written; also where the workflow was changed meanwhile."""
    saved()
    text = (project / "workflow.yaml").read_text()
    write_workflow(project, text.replace("What is known.", "Something else."))
    before = records(project)

    entries(*command, *(["--json"] if is_json else []))

    assert before == records(project)


@pytest.mark.parametrize("command", LOOKING, ids=lambda command: " ".join(command))
def test_looking_before_the_first_restore_creates_nothing(project: Path, command: list[str]) -> None:
    """Where there is no memory directory, there is nothing to see, and none is made."""
    ran = entries(*command)

    assert ran.code in (0, 3)
    assert ["workflow.yaml"] == list(files_under(project))


def test_an_export_changes_no_record(project: Path) -> None:
    """It writes its target, and a line of the audit."""
    saved()
    before = records(project)
    run("export", "out.jsonl")
    (project / "out.jsonl").unlink()
    changed = {name for name, body in records(project).items() if before.get(name) != body}

    assert {".memory/audit"} == {name.rpartition("/")[0] for name in changed}


@pytest.mark.parametrize(
    "target", ["", ".memory", ".memory/entries/x.jsonl", "linked/x.zip"], ids=["blank", "memory", "folder", "linked"]
)
def test_an_export_into_the_memory_directory_is_refused(project: Path, target: str) -> None:
    """No forget would reach what it wrote there; a blank target of a user's export was the folder one is in."""
    saved()
    run("entries", "save", "hers", "Ada drinks tea", "--user", "ada")
    (project / "linked").symlink_to(".memory")
    before = set(files_under(project))
    ran = [run("export", target), run("users", "export", "ada", target)]

    assert [2, 2] == [each.code for each in ran]
    assert before == set(files_under(project))


@pytest.mark.parametrize("command", [*LOOKING, ["save", "k", "x"], ["delete", "k"], ["forget", "--key", "k", "--yes"]])
def test_a_workflow_without_entries(project: Path, command: list[str]) -> None:
    """Every command says what to declare, and nothing is made."""
    text = (project / "workflow.yaml").read_text()
    write_workflow(project, text.replace("  entries: {max_entries: 20}\n", ""))

    ran = entries(*command)

    assert (2, "") == (ran.code, ran.out)
    assert "entries: {}" in ran.err
    assert ["workflow.yaml"] == list(files_under(project))


@pytest.mark.parametrize("command", [["export"], ["users", "export", "ada"]])
def test_an_export_to_stdout_is_refused(project: Path, command: list[str]) -> None:
    """It would be a folder "-" or a file of that name."""
    before = files_under(project)
    ran = run(*command, "-")

    assert (2, True) == (ran.code, "not to stdout" in ran.err)
    assert before == files_under(project)


def test_wide_characters_take_two_columns() -> None:
    """As in a terminal: what is next to them stays in line."""
    for key in ("ab", "東京"):
        saved(key, "x")

    assert ["KEY   LEVEL     ", "ab    INTERNAL  ", "東京  INTERNAL  "] == [
        row[: row.index("CATEGORY" if number == 0 else "general")]
        for number, row in enumerate(entries("list").out.splitlines())
    ]
