"""``memfiles sync push``, ``pull`` and ``status``, and what every command that writes does for the mirror."""

from __future__ import annotations

import os
import pty
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from memfiles.cli.doctor.command import mirror_findings
from memfiles.workflow.workflow import Workflow
from tests.cli.command_line import WORKFLOW, files_under, run
from tests.cli.two_machines import away, back, machine
from tests.mirrors import servers
from tests.mirrors.servers import BUCKET, aws_environment  # noqa: F401 (a fixture)
from tests.support.workflows import write_workflow

pytestmark = pytest.mark.usefixtures("installed", "here")


def test_a_write_is_mirrored_by_the_end_of_its_command(here: Path, there: Path) -> None:
    """The mirror holds the bytes of the record on disk, and nothing is said about it."""
    appended = run("append", "notes", "one")

    assert (0, 1) == (appended.code, appended.err.count("\n"))
    assert (here / ".memory" / "notes-1.json").read_bytes() == (there / "notes-1.json").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["append", "notes", "one"],
        ["edit", "notes", "--old", "#", "--new", "##"],
        ["call", "desk", "append_memory", '{"file": "notes", "content": "one"}'],
        ["restore"],
    ],
)
def test_a_write_while_the_mirror_is_away(there: Path, command: list[str]) -> None:
    """The change is made, the code is 0, one warning says that it is pushed later; the next command pushes it."""
    run("restore")
    moved = away(there)
    run("append", "notes", "before")
    written = run(*command)
    back(there)

    assert (0, 1) == (written.code, written.err.count("not mirrored yet: "))
    assert "`memfiles sync push`" in written.err
    assert "before" not in (there / "notes-1.json").read_text()
    assert not moved.exists()
    assert "" == run("append", "rules", "x", "--json").err
    assert "before" in (there / "notes-1.json").read_text()


def test_a_first_start_while_the_mirror_is_away(there: Path, other: list[str]) -> None:
    """Files begin with what is declared, which is said once for all of them; later both sides are merged."""
    run("append", "notes", "- from here\n")
    away(there)

    started = run("append", "notes", "- from there\n", *other)
    back(there)

    assert (0, 1) == (started.code, started.err.count("start with the declared content"))
    assert "notes, small, rules" in started.err
    assert 0 == run("sync", "push", *other).code
    assert {"# Notes", "- from here", "- from there"} == set(run("read", "notes", *other).out.splitlines())


def test_push_says_what_it_did(there: Path) -> None:
    """What was pushed is named, and pushing again has nothing to do."""
    away(there)
    run("append", "notes", "one")
    back(there)

    pushed, again = run("sync", "push"), run("sync", "push")

    assert (0, ["notes", "pushed"]) == (pushed.code, pushed.out.splitlines()[1].split())
    assert (0, "", "nothing to do; the mirror and this directory are equal\n") == (again.code, again.out, again.err)


def test_a_push_of_many_records(there: Path, here: Path) -> None:
    """More than a screen can hold are counted, and listed in JSON."""
    files = ", ".join(f"{{uid: f{number}, name: f{number}}}" for number in range(30))
    write_workflow(here, f'memory:\n  mirror: {{url: "file://{there}"}}\n  files: [{files}]\n')
    moved = away(there)
    run("restore")
    back(there)

    assert (0, "30 records pushed\n") == ((pushed := run("sync", "push")).code, pushed.out)
    assert not moved.exists()


@pytest.mark.slow
def test_push_to_a_mirror_that_is_away(there: Path) -> None:
    """What is still pending when the time is over is named with the reason; the code is 7, and JSON has it too."""
    run("restore")
    away(there)
    run("append", "notes", "one")

    pushed, as_json = run("sync", "push", "--timeout", "1"), run("sync", "push", "--timeout", "0", "--json")

    assert (7, "") == (pushed.code, pushed.out)
    assert "not mirrored yet: notes (" in pushed.err
    assert "does not exist: create the directory or mount the share" in pushed.err
    assert (7, "", ["notes-1.json"]) == (as_json.code, as_json.err, as_json.data["pending"])


def test_pull_from_a_mirror_that_is_away(there: Path) -> None:
    """A mirror that cannot be listed is an error with code 7."""
    run("restore")
    away(there)

    pulled = run("sync", "pull", "--json")

    assert (7, "", "mirror_unavailable") == (pulled.code, pulled.out, pulled.error["code"])


def test_pull_fetches_and_merges(other: list[str]) -> None:
    """What another machine wrote comes here with a pull, beside what was written here."""
    run("restore")
    run("append", "notes", "- there\n", *other)
    run("append", "rules", "- here\n")

    pulled = run("sync", "pull")

    assert (0, ["notes", "pulled"]) == (pulled.code, pulled.out.splitlines()[1].split())
    assert "# Notes\n- there\n" == run("read", "notes").out
    assert {} == run("sync", "pull", "--json").data["records"]


def test_two_machines_append(other: list[str]) -> None:
    """Both machines' lines survive on both machines."""
    run("restore")
    run("append", "notes", "- there\n", *other)
    run("append", "notes", "- here\n")

    assert 0 == run("sync", "pull", *other).code
    assert {"# Notes", "- here", "- there"} == set(run("read", "notes").out.splitlines())
    assert run("read", "notes").out == run("read", "notes", *other).out


def test_status_looks_only(here: Path, there: Path) -> None:
    """Neither the mirror nor the directory is touched, also before the first restore."""
    shown = run("sync", "status", "--json")

    assert (0, 0, f"file://{there}") == (shown.code, shown.data["pending"], shown.data["mirror"])
    assert ({}, ["workflow.yaml"]) == (files_under(there), list(files_under(here)))

    run("append", "notes", "one")
    before = files_under(here), files_under(there)
    run("sync", "status")
    run("status")
    run("plan")
    assert before == (files_under(here), files_under(there))


def test_status_of_a_mirror_that_is_behind(there: Path) -> None:
    """What is pending, the oldest of it and the last error are told, and are gone once all is pushed."""
    run("restore")
    away(there)
    run("append", "notes", "one")

    behind, shown = run("sync", "status", "--json").data, run("status").out
    back(there)
    run("sync", "push")
    after = run("sync", "status", "--json").data

    assert (1, "notes-1.json") == (behind["pending"], behind["oldest_pending"])
    assert "does not exist" in behind["last_error"]
    assert re.search(r"^pending +1 record, the oldest \(notes\) for \d+ s$", shown, re.MULTILINE)
    assert (0, None, None, 0.0) == (
        after["pending"],
        after["oldest_pending"],
        after["last_error"],
        after["lag_seconds"],
    )


def test_status_of_another_mirror(here: Path, there: Path) -> None:
    """What one mirror acknowledged counts for nothing once another one is declared."""
    run("restore")
    text = (here / "workflow.yaml").read_text()
    write_workflow(here, text.replace("/there", "/elsewhere"))

    assert 3 == run("sync", "status", "--json").data["pending"]


@pytest.mark.parametrize("command", ["push", "pull"])
def test_no_mirror(here: Path, command: str) -> None:
    """Without a declared mirror the two transfers are usage errors; the status says that there is none."""
    write_workflow(here, WORKFLOW)

    refused, shown = run("sync", command, "--json"), run("sync", "status")

    assert (2, "no_mirror", "") == (refused.code, refused.error["code"], refused.out)
    assert (0, "none declared") == (shown.code, shown.out.splitlines()[0].split(maxsplit=1)[1])


@pytest.mark.parametrize(
    "args", [[], ["psh"], ["push", "--timeout", "soon"], ["push", "--timeout", "-1"], ["pull", "x"]]
)
def test_usage(args: list[str]) -> None:
    """What is no command or no number of seconds is a usage error."""
    assert 2 == run("sync", *args).code


@pytest.mark.parametrize("command", ["push", "pull", "status"])
def test_help(command: str) -> None:
    """Each command takes the shared options and shows an example."""
    shown = run("sync", command, "--help").out

    assert f"  memfiles sync {command}" in shown.partition("Example:")[2]
    assert {"--workflow", "--json", "--color", "--debug"} <= set(re.findall(r"--[a-z]+", shown))


def test_a_url_that_cannot_be(here: Path) -> None:
    """Check names the place of the URL, with code 1, and never what may be a credential."""
    text = (here / "workflow.yaml").read_text()
    write_workflow(here, re.sub(r'url: "[^"]+"', 'url: "s3://me:hush@bucket"', text))

    checked = run("check")

    assert (1, "") == (checked.code, checked.out)
    assert "workflow.yaml:3:17: memory.mirror.url: " in checked.err
    assert "hush" not in checked.err


def test_a_plan_asks_the_mirror(other: list[str], tmp_path: Path) -> None:
    """Plan tells which files come from the mirror, and makes nothing."""
    run("append", "notes", "one")

    planned = run("plan", "--json", *other).data["files"]

    assert {"notes": "hydrated", "small": "hydrated", "rules": "hydrated"} == {
        row["name"]: row["status"] for row in planned
    }
    assert ["workflow.yaml"] == list(files_under(tmp_path / "other"))


def test_pulling_at_every_restore(there: Path, tmp_path: Path) -> None:
    """With pull: restore, restore fetches what changed elsewhere and says so."""
    options = ["-w", str(machine(tmp_path / "eager", f"file://{there}", settings=", pull: restore") / "workflow.yaml")]
    run("restore", *options)
    run("append", "notes", "- new\n")

    restored = run("restore", *options)

    assert (0, "notes: pulled\n") == (restored.code, restored.err)
    assert "# Notes\n- new\n" == run("read", "notes", *options).out


@pytest.mark.slow
@pytest.mark.parametrize(("options", "is_shown"), [([], True), (["--json"], False)])
def test_a_bar_on_a_terminal(there: Path, options: list[str], is_shown: bool) -> None:
    """What takes long shows a bar on a terminal's stderr; with --json it does not."""
    run("restore")
    away(there)
    run("append", "notes", "one")
    control, terminal = pty.openpty()

    command = [sys.executable, "-m", "memfiles", "sync", "push", "--timeout", "2", *options]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=terminal, env=on_terminal(), timeout=180)
    os.close(terminal)
    shown = everything_on(control)

    assert (7, is_shown) == (ran.returncode, "Pushing" in shown)
    assert "Pushing" not in ran.stdout.decode()


@pytest.mark.slow
def test_what_is_waited_for(there: Path, tmp_path: Path) -> None:
    """On a terminal, a start that has to wait for the mirror says so after a second."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        options = ["-w", str(machine(tmp_path / "slow", f"http://127.0.0.1:{deaf.getsockname()[1]}") / "workflow.yaml")]
        control, terminal = pty.openpty()
        command = [sys.executable, "-m", "memfiles", "plan", *options]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=terminal, env=on_terminal()) as asking:
            os.close(terminal)
            waiting = os.read(control, 4096)  # nothing is said before
            threading.Thread(target=hang_up, args=(deaf,), daemon=True).start()
            rest = everything_on(control)

    assert (0, True) == (asking.returncode, "asking the mirror ..." in waiting.decode() + rest)


def hang_up(server: socket.socket) -> None:
    """End every connection without an answer."""
    server.settimeout(30)
    with suppress(OSError):  # the test is over
        while True:
            server.accept()[0].close()


def on_terminal() -> dict[str, str]:
    """The environment of a command whose stderr is a terminal."""
    return {**os.environ, "TERM": "xterm"}


def everything_on(control: int) -> str:
    """What was written to a terminal that nobody writes to any more."""
    shown = b""
    try:
        while part := os.read(control, 4096):
            shown += part
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(control)
    return shown.decode()


@pytest.fixture(scope="module")
def bucket(aws_environment: None) -> Iterator[str]:  # noqa: F811
    """The URL of a moto server with an empty bucket."""
    with servers.moto() as url:
        yield url


@pytest.mark.slow
def test_the_way_through_s3(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write is in the bucket by the end of its command, and a wiped machine starts with it."""
    folder = machine(tmp_path / "cloud", f"s3://{BUCKET}/way?endpoint={bucket}")
    monkeypatch.chdir(folder)
    run("append", "notes", "one")
    before = (folder / ".memory" / "notes-1.json").read_bytes()
    shutil.rmtree(folder / ".memory")

    restored = run("restore", "--json").data["files"]

    assert {"hydrated"} == {row["status"] for row in restored}
    assert before == (folder / ".memory" / "notes-1.json").read_bytes()


@pytest.mark.slow
def test_a_bucket_that_is_not_there(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing works, with the answer of the store as a warning."""
    monkeypatch.chdir(machine(tmp_path / "cloud", f"s3://no-such-bucket/p?endpoint={bucket}"))

    written = run("append", "notes", "one")

    assert (0, True) == (written.code, "NoSuchBucket" in written.err)
    assert 7 == run("sync", "push", "--timeout", "1").code
    found = next(mirror_findings(Workflow.load("workflow.yaml"), seconds=60))
    assert ("fail", "refuses: ") == (found.state, found.detail[:9])


def test_nobody_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aws_environment: None) -> None:  # noqa: F811
    """An endpoint that refuses connections costs some seconds and a warning."""
    monkeypatch.chdir(machine(tmp_path / "cloud", "s3://bucket/p?endpoint=http://127.0.0.1:9"))

    written = run("append", "notes", "one")

    assert (0, True) == (written.code, "not mirrored yet: " in written.err)
    assert "# Notes\none" == run("read", "notes").out


@pytest.mark.slow
def test_a_copy_of_a_later_version_is_told_until_it_is_gone(there: Path, other: list[str]) -> None:
    """A pull names it, and so do a push, a status and doctor of later processes; with the earlier copy, nobody does."""
    run("append", "notes", "one")
    run("sync", "pull", *other)
    sound = (there / "notes-1.json").read_bytes()
    later = sound.replace(b'"memfiles/1"', b'"memfiles/9"')
    (there / "notes-1.json").write_bytes(later)
    told = [run("sync", which, *other) for which in ("pull", "push", "push", "pull")]
    status, doctor = run("sync", "status", *other), run("doctor", *other)
    fails = [line for line in doctor.out.splitlines() if line.startswith("fail")]
    why = "notes-1.json: the mirror's copy has the format 'memfiles/9', which this version of memfiles does not know"

    assert [(7, 1)] * 4 == [(each.code, each.err.count(f"warning: refused: {why}")) for each in told]
    assert (1, 2) == (doctor.code, sum(why in line for line in fails))
    assert why in status.out
    run("append", "notes", "two", *other)
    assert (7, later) == (run("sync", "push", *other).code, (there / "notes-1.json").read_bytes())
    (there / "notes-1.json").write_bytes(sound)
    assert [0, 0] == [run("sync", "push", *other).code, run("doctor", *other).code]
    assert "refused" not in run("sync", "status", *other).out


def test_an_object_that_is_genuine_again_is_no_longer_refused(there: Path, other: list[str]) -> None:
    """A folder stood in its place for a while; the object that returns has the version that is known here."""
    run("append", "notes", "one")
    run("sync", "pull", *other)
    copy = there / "notes-1.json"
    copy.rename(there / "aside")
    (copy / "x").mkdir(parents=True)
    while_away = [run("sync", "pull", *other), run("sync", "push", *other)]
    shutil.rmtree(copy)
    (there / "aside").rename(copy)
    after = [run("sync", "pull", *other), run("sync", "push", *other), run("doctor", *other)]

    assert [7, 7] == [each.code for each in while_away]
    assert [0, 0, 0] == [each.code for each in after], after
    assert "refused" not in run("sync", "status", *other).out


def test_an_object_that_is_not_an_entry_is_told(there: Path, tmp_path: Path) -> None:
    """It is left in the mirror, named by a pull, a push and doctor until it is gone, and keeps no entry back."""
    machines = []
    for name in ("one", "two"):
        text = f"memory:\n  mirror: {{url: 'file://{there}'}}\n  entries: {{}}\nagents: {{desk: {{}}}}\n"
        machines.append(["-w", str(write_workflow(tmp_path / name, text))])
    run("entries", "save", "k", "sound", "--agent", "desk", *machines[0])
    names = ["entries/desk/" + "0" * 40 + ".json", "entries/@ids/" + "0" * 32 + ".json"]
    for name in names:
        (there / name).parent.mkdir(exist_ok=True)
        (there / name).write_bytes(b"{}")
    told = [run("sync", which, "--json", *machines[1]) for which in ("pull", "push", "pull")]
    doctor = run("doctor", *machines[1])

    assert [(7, sorted(names))] * 3 == [(each.code, sorted(each.data["refused"])) for each in told]
    assert all(f"{names[0]}: the mirror's copy cannot be used: " in each.data["refused"][names[0]] for each in told)
    assert (1, True) == (doctor.code, names[0] in doctor.out)
    assert "sound" in run("entries", "get", "k", "--agent", "desk", *machines[1]).out
    assert [b"{}"] * 2 == [(there / name).read_bytes() for name in names]
    for name in names:
        (there / name).unlink()
    assert [0, 0] == [run("sync", "push", *machines[1]).code, run("doctor", *machines[1]).code]
