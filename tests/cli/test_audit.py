"""``memfiles audit``: who did what, and ``--actor``, which says who acts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import WORKFLOW, files_under, run
from tests.support.workflows import write_workflow

pytestmark = pytest.mark.usefixtures("project")


@pytest.fixture
def busy(project: Path) -> Path:
    """A memory with a few changes and a refusal."""
    write_workflow(project, WORKFLOW.replace("agents:", "  entries: {}\nagents:"))
    run("append", "notes", "- Ada\n", "--actor", "grace")
    run("entries", "save", "plan/ada", "Pro", "--agent", "desk", "--actor", "nightly-job")
    run("entries", "update", "plan/ada", "--content", "Free", "--agent", "desk", "--run", "r1")
    run("call", "desk", "append_memory", '{"file": "rules", "content": "x"}', "--actor", "grace")
    return project


def told(*args: str) -> list[tuple[str, str]]:
    """Operations and outcomes, newest first."""
    return [(event["op"], event["outcome"]) for event in run("audit", "--json", *args).data["events"]]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], ["append_memory refused", "update ok", "save ok", "append ok"]),
        (["--record", "notes"], ["append ok"]),
        (["--record", "notes-1"], ["append ok"]),
        (["--record", "plan/ada"], ["update ok", "save ok"]),
        (["--actor", "grace"], ["append_memory refused", "append ok"]),
        (["--agent", "desk", "--op", "save"], ["save ok"]),
        (["--outcome", "refused"], ["append_memory refused"]),
        (["--since", "1h", "-n", "1"], ["append_memory refused"]),
        (["--until", "2001-01-01"], []),
        (["--level", "PUBLIC"], []),
    ],
)
def test_what_is_shown(busy: Path, args: list[str], expected: list[str]) -> None:
    """Newest first, each filter by itself; an entry is found by its key, which the audit does not hold."""
    assert expected == [" ".join(each) for each in told(*args)]


@pytest.mark.parametrize("name", ["--agent", "--actor", "--op", "--record"])
def test_a_blank_filter_is_refused(busy: Path, name: str) -> None:
    """As of a variable that is not set: "no such event" would be taken for the answer."""
    ran = run("audit", name, "")

    assert (2, True) == (ran.code, f"'{name}': it is blank" in ran.err)


def test_a_page_of_as_many_events_as_there_may_be_advises_no_larger_one(busy: Path) -> None:
    """More than these are never in one page."""
    (month,) = (busy / ".memory" / "audit").iterdir()
    month.write_bytes(month.read_bytes().splitlines(keepends=True)[0] * 10_001)

    assert [True, False] == ["or a larger -n" in run("audit", "-n", most).err for most in ("9999", "10000")]


def test_the_next_page_begins_where_the_last_one_ended(busy: Path) -> None:
    """Also where many events have one time, as those of an import: none is left out, and none comes twice."""
    (month,) = (busy / ".memory" / "audit").iterdir()
    lines = [json.loads(line) for line in month.read_text().splitlines()]
    month.unlink()
    same, last = {**lines[1], "at": "2026-11-27T09:00:00.000Z"}, {**lines[0], "at": "2026-11-27T09:00:01.000Z"}
    saves = [{**same, "path": f"entries/desk/{number:040}.json"} for number in range(6)]
    older = [{**line, "at": "2026-11-26T09:00:00.000Z"} for line in lines[:1]]
    month.with_name("2026-11.jsonl").write_text("".join(json.dumps(each) + "\n" for each in [*older, *saves, last]))
    pages: list[Any] = []
    until = ["--until", "2026-11-28"]
    while not pages or pages[-1]["more"]:
        pages.append(run("audit", "--json", "-n", "6", *until).data)
        until = ["--until", pages[-1]["older"]]

    assert [6, 2] == [len(page["events"]) for page in pages]
    told = run("audit", "--json", "--until", "2026-11-28").data["events"]
    assert told == [event for page in pages for event in page["events"]]
    assert "add --until 2026-11-27T09:00:00.000Z#5 or" in run("audit", "-n", "6", "--until", "2026-11-28").err
    assert 2 == run("audit", "--until", "2026-11-28#5").code


def test_an_export_is_always_in_the_audit(busy: Path) -> None:
    """Also one of a user, and reads if the workflow says so: these commands change no record."""
    run("export", "all.jsonl", "--agent", "desk")
    run("users", "export", "ada", "of-ada")
    run("entries", "get", "plan/ada", "--agent", "desk")
    assert [("export-user", "ok"), ("export", "ok")] == told()[:2]

    write_workflow(busy, WORKFLOW.replace("agents:", "  entries: {}\n  audit: {reads: true}\nagents:"))
    run("entries", "get", "plan/ada", "--agent", "desk")
    assert "get ok" == " ".join(told()[0])


def test_who_acted_is_shown(busy: Path) -> None:
    """In the audit, the log of the file, and for an agent's change together with the agent."""
    shown = run("audit")
    lines = {line.split()[1]: line for line in shown.out.splitlines()[1:]}

    assert "grace as cli" in lines["append"]
    assert "grace as desk" in lines["append_memory"]
    assert "nightly-job as desk" in lines["save"]
    assert "grace as cli" in run("log", "notes").out
    assert "grace" == run("log", "notes", "--json").data["changes"][0]["by"]["actor"]
    assert "plan/ada" not in shown.out


def test_an_actor_is_checked_like_other_labels(busy: Path) -> None:
    """A control character, or what looks like a credential, is refused."""
    for actor in ("a\nb", "", "sk-ant-api03-" + "A1b2C3d4" * 12):
        for command in (["append", "notes", "x"], ["entries", "save", "k", "x", "--agent", "desk"]):
            ran = run(*command, "--actor", actor)

            assert 0 != ran.code, (actor, command)
            assert "Traceback" not in ran.err


def test_a_bad_time_is_refused(busy: Path) -> None:
    """With what a time may look like."""
    shown = run("audit", "--since", "yesterday")

    assert (2, "") == (shown.code, shown.out)
    assert "24h" in shown.err


def test_damage_is_told(busy: Path) -> None:
    """On stderr, and with --json in the document; the other lines are shown."""
    (month,) = (busy / ".memory" / "audit").iterdir()
    month.write_bytes(b"{\n" + month.read_bytes())
    shown, data = run("audit"), run("audit", "--json").data

    assert (0, 5) == (shown.code, len(shown.out.splitlines()))
    assert "1 line of the audit cannot be read" in shown.err
    assert (4, 1) == (len(data["events"]), data["damaged"])


def test_looking_at_the_audit_writes_nothing(busy: Path) -> None:
    """Not even to the audit."""
    before = files_under(busy)
    run("audit")

    assert before == files_under(busy)


@pytest.mark.slow
def test_the_status_is_shown_again_when_it_changes(busy: Path) -> None:
    """``--watch`` shows the overview, and again after a change by another process."""
    command = [sys.executable, "-m", "memfiles", "--json", "status", "--watch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        run("append", "small", "- 18 bytes more -\n", "--actor", "grace")
        second = json.loads(watching.stdout.readline())
        watching.kill()

    assert ([], ["small"]) == tuple([it["name"] for it in shown["attention"]] for shown in (first, second))
    assert [1, 2] == [shown["files"][1]["revision"] for shown in (first, second)]
    assert {"mirror": None, "pending": 0} == {name: second["mirror"][name] for name in ("mirror", "pending")}


def test_users_and_keys_that_look_alike_are_shown_apart(busy: Path) -> None:
    """A blank at the end is in quotes, as the shell takes it back."""
    for user in ("ada", "ada "):
        run("entries", "save", f"{user}plan", "Pro", "--agent", "desk", "--user", user)
    run("entries", "save", "plan ", "Pro", "--agent", "desk", "--user", "ada ")
    users = run("users", "list").out
    keys = run("entries", "list", "--agent", "desk", "--user", "ada ").out

    assert ("\n'ada '  ", "\nada     ") == tuple(it for it in ("\n'ada '  ", "\nada     ") if it in users)
    assert "\n'plan '" in keys


def test_users_who_were_forgotten_are_proved_by_their_names(busy: Path) -> None:
    """``users tombstones`` says when, by whom and why; ``users list`` has the latest first if asked to."""
    for user in ("ada", "bob"):
        run("entries", "save", "plan", "Pro", "--agent", "desk", "--user", user)
    listed = run("users", "list", "--order", "updated", "-n", "1", "--json").data["users"]
    run("users", "forget", "ada", "--why", "asked to", "--actor", "grace", "--yes")
    [found] = run("users", "tombstones", "ada", "--json").data["tombstones"]

    assert ["bob"] == [it["user"] for it in listed]
    assert ("asked to", "grace") == (found["why"], found["by"]["actor"])
    assert "asked to" in run("users", "tombstones").out
    assert "this user was not forgotten" in run("users", "tombstones", "bob").err
