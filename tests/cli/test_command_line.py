"""What holds for every command: help, options before and after the name, errors, colours, interruptions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import click
import pytest

from memfiles.cli.failures import ToolFailed, failure_of
from memfiles.cli.program import COMMANDS, program
from memfiles.errors import MemfilesError
from tests.cli.command_line import WORKFLOW, run
from tests.conftest import unavailable
from tests.support.records import no_thread_starts
from tests.support.workflows import write_workflow

pytestmark = pytest.mark.usefixtures("project")

NAMES = [name for family in COMMANDS.values() for name in family]
PYTHON = [sys.executable, "-c", "from memfiles.cli import main; main()"]


def command(name: str) -> click.Command:
    """The command of that name."""
    found = program.get_command(click.Context(program), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", NAMES)
def test_help_of_every_command(name: str) -> None:
    """The help of a command opens with the sentence that the list of commands shows, and gives an example."""
    shown = run(name, "--help")

    family = next(family for family in COMMANDS.values() if name in family)
    sentence = " ".join((command(name).help or "").split("\n\n")[0].split())
    assert 0 == shown.code
    assert family[name][1] == sentence
    assert f"  memfiles {name}" in shown.out.partition("Example:")[2]


@pytest.mark.parametrize("name", NAMES)
def test_every_command_takes_the_shared_options(name: str) -> None:
    """-w, --json, --color and --debug are options of every command."""
    options = {option for parameter in command(name).params for option in parameter.opts}

    assert set() == {"-w", "--workflow", "--json", "--color", "--debug"} - options


@pytest.mark.parametrize("name", ["entries", "users", "sync"])
def test_the_help_of_a_group_has_whole_sentences(name: str) -> None:
    """What each command does, to its end."""
    _, _, listed = run(name, "--help").out.partition("Commands:\n")

    assert "." in listed and "..." not in listed


def test_help_loads_no_command() -> None:
    """The list of commands is printed without importing pydantic, yaml or any command."""
    code = "import sys\nfrom memfiles.cli import main\ntry: main()\nfinally: print(*sys.modules)"

    shown = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True).stdout

    loaded = set(shown.splitlines()[-1].split())
    ours = {name for name in loaded if name.startswith("memfiles")}
    parts = ("options", "program")
    assert {"memfiles", "memfiles.cli", *(f"memfiles.cli.{part}" for part in parts)} == ours
    assert set() == loaded & {"pydantic", "yaml", "watchdog", "boto3"}


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["append", "notes", "x", "--expected-revision", "abc"], "'abc' is not a whole number."),
        (["entries", "save", "k", "v", "--importance", "high"], "'high' is not a number."),
    ],
)
def test_a_word_in_place_of_a_number(args: list[str], why: str) -> None:
    """The error says what is wanted in plain words, not in those of the parser of options."""
    refused = run(*args)

    assert (2, True) == (refused.code, why in refused.err)


def test_no_command() -> None:
    """Without a command the help is shown on stderr, with code 2."""
    shown = run()

    assert (2, "") == (shown.code, shown.out)
    assert "Memory files:" in shown.err


@pytest.mark.parametrize(("args", "meant"), [(["reed", "notes"], "read"), (["entries", "serch", "x"], "search")])
def test_a_mistyped_command(args: list[str], meant: str) -> None:
    """An unknown command is answered with the nearest one, also in a group."""
    shown = run(*args)

    assert 2 == shown.code
    assert f"did you mean {meant!r}?" in shown.err


@pytest.mark.parametrize(
    "args",
    [
        ["-w", "other.yaml", "read", "notes"],
        ["read", "-w", "other.yaml", "notes"],
        ["read", "notes", "--workflow=other.yaml"],
    ],
)
def test_the_workflow_option_before_and_after(project: Path, args: list[str]) -> None:
    """-w names the workflow wherever it stands."""
    (project / "other.yaml").write_text(WORKFLOW.replace("# Notes", "# Others"))

    assert "# Others\n" == run(*args).out


def test_no_workflow(project: Path) -> None:
    """A missing workflow is an error with code 3 that says how to get one."""
    (project / "workflow.yaml").unlink()

    shown = run("read", "notes")

    assert (3, "") == (shown.code, shown.out)
    assert "memfiles init" in shown.err


@pytest.mark.parametrize(
    ("args", "code", "exit_code"),
    [
        (["--json", "read", "nots"], "file_not_declared", 3),
        (["read", "nots", "--json"], "file_not_declared", 3),
        (["read", "--json"], "usage", 2),
        (["--json", "--nonsense"], "usage", 2),
        (["undo", "notes", "--to", "x", "--json"], "usage", 2),
        (["append", "notes", "x", "--expected-revision", "9", "--json"], "revision_conflict", 4),
        (["call", "desk", "append_memory", '{"file": "rules", "content": "x"}', "--json"], "read_only", 6),
        (["-w", "nowhere.yaml", "--json", "check"], "not_found", 3),
        (["check", "-w", "", "--json"], "usage", 2),
        (["check", "-w", ".", "--json"], "usage", 2),
    ],
)
def test_errors_as_json(args: list[str], code: str, exit_code: int) -> None:
    """With --json an error is one JSON document on stderr, and stdout stays empty."""
    shown = run(*args)

    assert (exit_code, "") == (shown.code, shown.out)
    assert (code, False) == (shown.error["code"], shown.error["transient"])


def test_a_switch_of_the_environment_that_is_none() -> None:
    """The error names the variable, as nobody gave the option."""
    checked = run("check", env={"MEMFILES_DEBUG": "verbose"})

    assert (2, "error: Invalid value for 'MEMFILES_DEBUG': 'verbose' is") == (checked.code, checked.err[:55])


def test_every_error_has_an_exit_code() -> None:
    """A tool result's code leads to the exit code of the error of that code; a defect of a tool is no wrong usage."""
    kinds = [*MemfilesError.__subclasses__()]
    for kind in kinds:
        kinds += kind.__subclasses__()

    reported = {kind.code: ToolFailed("no", code=kind.code, data=None).failure.exit_code for kind in kinds}
    assert {"storage_refused", "mirror_refused", "copy_refused"} < reported.keys()
    assert {kind.code: kind.exit_code for kind in kinds} == reported
    assert 1 == ToolFailed("no", code="internal", data=None).failure.exit_code


def test_a_directory_that_the_locale_cannot_name(project: Path) -> None:
    """The workflow says so: it was reported as a bug in memfiles."""
    write_workflow(project, WORKFLOW.replace("memory:\n", "memory:\n  directory: .mémoire\n", 1))
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    shown = subprocess.run([*PYTHON, "ls"], env={**os.environ, **plain}, capture_output=True, text=True)

    assert 1 == shown.returncode
    assert "directory: this path cannot be written in the encoding of this locale (ascii)" in shown.stderr


def test_an_unexpected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect is one line that says what to do; --debug shows the traceback."""

    def broken() -> None:
        raise ZeroDivisionError("a defect that quotes a secret")

    monkeypatch.setattr(command("ls"), "callback", broken)

    shown, debugged = run("ls"), run("ls", "--debug")

    assert (1, 1) == (shown.code, shown.err.count("\n"))
    assert "--debug" in shown.err
    assert "secret" not in shown.err
    assert "Traceback" in debugged.err


@pytest.mark.parametrize(
    ("args", "env", "colored"),
    [
        ([], {}, False),
        (["--color"], {}, True),
        (["--color"], {"NO_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "1"}, True),
        (["--no-color"], {"FORCE_COLOR": "1"}, False),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colors(args: list[str], env: dict[str, str | None], colored: bool) -> None:
    """Without a terminal there are colours only on demand; NO_COLOR wins over FORCE_COLOR, an option over both."""
    assert colored == ("\x1b[" in run("ls", *args, env=env).out)
    assert colored == ("\x1b[" in run(*args, "ls", env=env).out)


def test_a_reader_that_goes_away(project: Path) -> None:
    """A closed pipe ends the command quietly."""
    run("append", "notes", "- one line of many\n" * 500)
    with subprocess.Popen([*PYTHON, "read", "notes"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reading:
        assert reading.stdout is not None and reading.stderr is not None
        reading.stdout.close()
        shown = reading.stderr.read()

    assert b"" == shown


def test_an_interrupt(project: Path) -> None:
    """Ctrl-C ends with 130 and one word."""
    with subprocess.Popen([*PYTHON, "append", "notes", "-"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as waiting:
        wait_until_reading(waiting.pid)
        waiting.send_signal(signal.SIGINT)
        assert waiting.stderr is not None
        shown = waiting.stderr.read().decode()

    assert (130, ["error: interrupted"]) == (waiting.returncode, shown.split("\n")[-2:-1])
    assert "Traceback" not in shown


INTERRUPTED = """
import os, signal, sys
moment = sys.argv.pop(1)
def hook(event, args):
    if event == "import" and args[0] == moment:
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(hook)
from memfiles.__main__ import run
run()
"""


@pytest.mark.parametrize(
    "moment",
    [
        *(
            "memfiles.cli",
            "re",
            "typing",
            "memfiles.cli.program",
            "click",
            "click.core",
            "memfiles.cli.opening",
            "memfiles.workflow.workflow",
        ),
        *("msgspec", "memfiles.records.record", "yaml", "memfiles.files.restorer"),
    ],
)
@pytest.mark.parametrize("args", [(), ("--json",)], ids=["plain", "json"])
@pytest.mark.slow
def test_an_interrupt_during_the_imports(project: Path, moment: str, args: tuple[str, ...]) -> None:
    """Ctrl-C while a command still loads its modules ends with 130 and one line as well, whichever module it is."""
    command = [sys.executable, "-c", INTERRUPTED, moment, "read", "notes", *args]
    ended = subprocess.run(command, capture_output=True, text=True)
    (line,) = ended.stderr.strip().splitlines()
    said = json.loads(line)["error"]["message"] if args else line.removeprefix("error: ")

    assert (130, "", "interrupted") == (ended.returncode, ended.stdout, said)


def test_an_interrupt_at_the_end(project: Path) -> None:
    """Ctrl-C while a command that has done its work ends is one line as well, and no traceback."""
    kill = "import atexit; atexit._run_exitfuncs = lambda: os.kill(os.getpid(), signal.SIGINT)"
    command = [sys.executable, "-c", f"{kill}{INTERRUPTED}", "nothing", "append", "notes", "--line", "one"]
    ended = subprocess.run(command, capture_output=True, text=True)

    assert (130, "error: interrupted") == (ended.returncode, ended.stderr.strip().splitlines()[-1])
    assert 2 == len(ended.stderr.strip().splitlines())


def wait_until_reading(pid: int) -> None:
    """Return once a process waits for its stdin; skip where the system does not tell."""
    where = Path(f"/proc/{pid}/wchan")
    if not where.exists():
        unavailable("needs /proc")
    deadline = time.monotonic() + 30
    while "pipe" not in where.read_text():
        assert time.monotonic() < deadline, "the command never read its stdin"
        time.sleep(0.02)


def test_a_server_that_may_have_no_threads_says_so() -> None:
    """What a task of a server met is reported, not that it was a task; and no bug in memfiles."""
    with no_thread_starts(), pytest.raises(RuntimeError) as met:
        threading.Thread(target=int).start()
    failure = failure_of(ExceptionGroup("of tasks", [met.value]))

    assert ("no_threads", True) == (failure.code, "ulimit -u" in failure.message)
