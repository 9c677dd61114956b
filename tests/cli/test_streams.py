"""The standard streams of a command: closed, full, cut off."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

import memfiles
from memfiles.records.record import Actor
from tests.cli.command_line import WORKFLOW
from tests.support.workflows import opened, write_workflow

pytestmark = pytest.mark.slow

LINE = "- one line of many\n"
AS_MODULE = [sys.executable, "-m", "memfiles"]


@pytest.fixture(autouse=True)
def project(tmp_path: Path) -> Path:
    """A directory with a workflow whose files may be large."""
    large = WORKFLOW.replace('level: INTERNAL, content: "#', 'max_size_bytes: 900000, content: "#')
    write_workflow(tmp_path, large)
    return tmp_path


def shell(project: Path, command: str, *, unbuffered: bool = False) -> tuple[int, str, str]:
    """How a command of a shell ended and what it printed; ``memfiles`` stands for the program."""
    program = f"'{sys.executable}' -m memfiles"
    environment = {**os.environ, "PYTHONUNBUFFERED": "1" if unbuffered else ""}
    ran = subprocess.run(
        ["bash", "-c", command.replace("memfiles", program)],
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
    )
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.parametrize("arguments", [["--version"], ["ls", "--json"], ["read", "nothing"], []])
def test_as_a_module_it_is_the_command(project: Path, arguments: list[str]) -> None:
    """``python -m memfiles`` prints the same and ends with the same code."""
    command = [sys.executable, "-c", "from memfiles.cli import main; main()"]
    ran = [subprocess.run([*start, *arguments], cwd=project, capture_output=True) for start in (command, AS_MODULE)]

    assert (ran[0].returncode, ran[0].stdout, ran[0].stderr) == (ran[1].returncode, ran[1].stdout, ran[1].stderr)


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize("where", [">&-", "> /dev/full"])
@pytest.mark.parametrize("command", ["ls", "ls --json", "read notes", "doctor", "--help", "--version"])
def test_what_cannot_be_printed_is_an_error(project: Path, command: str, where: str, unbuffered: bool) -> None:
    """In one line on stderr that names the stream, as another disk may be full, with a code other than 0."""
    code, _, told = shell(project, f"memfiles {command} {where}", unbuffered=unbuffered)

    assert (1, 1) == (code, len(told.splitlines()))
    assert told.startswith(("error: stdout: ", '{"error": {"code": "os_error", "message": "stdout: '))


@pytest.mark.parametrize("where", ["2>&-", "2> /dev/full"])
def test_that_nobody_hears_stderr_changes_nothing(project: Path, where: str) -> None:
    """What was done is done, what was asked for is printed, and the code says how it went."""

    assert (0, "", "") == shell(project, f"memfiles append notes 'x' {where}")
    assert (0, "# Notes\nx", "") == shell(project, f"memfiles read notes {where}")
    assert (3, "", "") == shell(project, f"memfiles read nothing {where}")


def test_nothing_is_printed_into_a_record(project: Path) -> None:
    """With all streams closed the first files that are opened would have their numbers."""
    code, _, _ = shell(project, "memfiles append notes 'x' >&- 2>&- <&-; memfiles restore --json <&- >&- 2>&-")

    assert 1 == code
    assert (0, "# Notes\nx", "") == shell(project, "memfiles read notes")


def test_a_closed_stdin_is_no_empty_text(project: Path) -> None:
    """A command that reads it fails, and changes nothing; others do not care."""
    code, _, told = shell(project, "memfiles append notes - <&-")

    assert (1, "error: stdin: Bad file descriptor\n") == (code, told)
    assert (0, "# Notes\n") == shell(project, "memfiles read notes <&-")[:2]


@pytest.mark.parametrize("unbuffered", [False, True])
def test_a_reader_that_goes_away_is_no_success(project: Path, unbuffered: bool) -> None:
    """Not all was printed, so the code is not 0; and nobody is told, since that is how ``head`` works."""
    (project / "lines").write_text(LINE * 20_000)
    shell(project, "memfiles append notes - < lines")
    code, _, told = shell(
        project, "memfiles read notes | head -c 1 > /dev/null; exit ${PIPESTATUS[0]}", unbuffered=unbuffered
    )

    assert (1, "") == (code, told)
    assert (0, "# Notes\n" + LINE * 20_000, "") == shell(project, "memfiles read notes | cat", unbuffered=unbuffered)


def on_a_terminal(project: Path, *arguments: str, is_slow: bool = False, **environment: str) -> str:
    """Everything that a command prints where stdout and stderr are one terminal; a slow one rests most of the time."""
    kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*AS_MODULE, *arguments],
        cwd=project,
        env={**kept, "TERM": "xterm-256color", "COLUMNS": "200", **environment},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    ) as running:
        os.close(theirs)
        printed = bytearray()
        if is_slow:
            threading.Thread(target=_slow_down, args=(running,), daemon=True).start()
        with suppress(OSError):  # the end of a terminal
            while part := os.read(ours, 65536):
                printed += part
    os.close(ours)
    return printed.decode()


def _slow_down(running: subprocess.Popen[bytes]) -> None:
    """Let a process run a fifth of the time."""
    while running.poll() is None:
        running.send_signal(signal.SIGSTOP)
        time.sleep(0.08)
        running.send_signal(signal.SIGCONT)
        time.sleep(0.02)


@pytest.mark.parametrize("arguments", [["read", "nothing"], ["nonsense"], ["status", "-w", "none.yaml"]])
def test_no_color_holds_for_errors_too(project: Path, arguments: list[str]) -> None:
    """On a terminal, however it is said; without it there are colours."""

    assert "\x1b[31m" in on_a_terminal(project, *arguments)
    assert "\x1b" not in on_a_terminal(project, *arguments, NO_COLOR="1")
    assert "\x1b" not in on_a_terminal(project, *arguments, TERM="dumb")
    assert "\x1b[31m" not in on_a_terminal(project, "--no-color", *arguments)


HIDDEN = (
    "\u200b\u200c\u200d\u200e\u200f\u202e\u2060\u2066\u2069\ufeff\u00ad\u034f\u061c\u3164"
    "\U000e0041\U000e007f\ufe05\U000e0101"
)


def test_nothing_that_nobody_sees_reaches_a_terminal(project: Path) -> None:
    """Text of records is shown with escapes wherever a terminal shows it; a pipe gets its bytes."""
    hidden = f"a{HIDDEN}b \N{FAMILY}\ufe0f"
    workflow = (project / "workflow.yaml").read_text()
    described = workflow.replace("What is known.", f'"What {hidden} is known."')
    (project / "workflow.yaml").write_text(described.replace("memory:\n", "memory:\n  entries: {}\n", 1))
    agent = ["--agent", "desk"]
    with memfiles.open(project / "workflow.yaml", watch=False) as memory:
        memory.manager.append("notes-1", hidden, by=Actor(agent=f"d{HIDDEN}"))
        memory.entries.save(memory.session("desk"), f"k{HIDDEN}", hidden)
    commands = [
        *(["read", "notes"], ["ls"], ["log", "notes"], ["diff", "notes"], ["card", "desk"], ["undo", "notes"]),
        *(["entries", "list", *agent], ["entries", "search", "a", *agent], ["entries", "hydrate", *agent]),
        ["entries", "get", f"k{HIDDEN}", *agent],
        *(["entries", "explain", *agent], ["entries", "delete", f"k{HIDDEN}", *agent], ["read", f"n{HIDDEN}"]),
    ]
    piped = subprocess.run([*AS_MODULE, "read", "notes"], cwd=project, capture_output=True, check=True).stdout

    assert {} == {
        " ".join(command[:2]): "".join(sorted(found))
        for command in commands
        if (found := set(HIDDEN) & set(on_a_terminal(project, *command)))
    }
    assert piped == f"# Notes\n{hidden}".encode()


MANY = 3000


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which every look at all entries takes half a second."""
    folder = tmp_path_factory.mktemp("crowded")
    limits = f"entries: {{max_entries: {3 * MANY}}}"
    with opened(folder, WORKFLOW.replace("memory:\n", f"memory:\n  durability: os\n  {limits}\n", 1)) as memory:
        for user in (None, "ada"):
            drafts = [{"key": f"k{number}", "content": f"tea {number}"} for number in range(MANY)]
            memory.entries.save_many(memory.session("desk", user=user), drafts)
        memory.entries.export(memory.session("desk"), folder / "all.jsonl", format="jsonl")
    return folder


@pytest.mark.parametrize(
    ("label", "arguments"),
    [
        ("Exporting", ["export", "all", "--agent", "desk"]),
        ("Checking", ["import", "all.jsonl", "--agent", "idle", "--level", "INTERNAL", "--dry-run"]),
        ("Importing", ["import", "all.jsonl", "--agent", "idle", "--level", "INTERNAL", "--take-over"]),
        ("Planning", ["entries", "consolidate", "--agent", "desk"]),
        ("Exporting", ["users", "export", "ada", "ada"]),
        ("Checking", ["doctor"]),
    ],
)
def test_waiting_is_shown_on_a_terminal_alone(crowded: Path, label: str, arguments: list[str]) -> None:
    """Once it takes long, without colours, and not where a program reads or nobody looks."""
    shown = on_a_terminal(crowded, *arguments, NO_COLOR="1")
    if f"{label}  [" not in shown:  # a machine on which it does not take long
        shown = on_a_terminal(crowded, *arguments, NO_COLOR="1", is_slow=True)
    as_json = on_a_terminal(crowded, *arguments, "--json")
    piped = subprocess.run([*AS_MODULE, *arguments], cwd=crowded, capture_output=True, text=True)

    assert f"{label}  [" in shown
    assert "####]" in shown
    assert "\x1b[3" not in shown
    assert (True, False) == (as_json.lstrip().startswith("{"), f"{label}  [" in as_json)
    assert f"{label}  [" not in piped.stdout + piped.stderr
