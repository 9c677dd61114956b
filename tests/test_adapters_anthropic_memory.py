"""Anthropic's memory tool works on a session as on the vendor's own folder, within what the workflow declares."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anthropic
import anyio
import httpx2 as httpx
import pytest
from agents_at_work import Held
from anthropic.lib.tools import ToolError
from anthropic.lib.tools._beta_builtin_memory_tool import BetaLocalFilesystemMemoryTool

import memfiles
from memfiles.adapters.anthropic_memory import AsyncMemoryTool, MemoryTool
from memfiles.errors import InvalidArgument
from memfiles.session import Session

FILES = """\
memory:
  durability: os
  files:
    - {uid: u-notes, name: notes, description: Customers., level: INTERNAL, max_size_bytes: 100}
    - {uid: u-play, name: playbook, description: Refunds., level: INTERNAL, content: "Be kind.\\n"}
    - {uid: u-deals, name: deals, description: Deals., level: CONFIDENTIAL, content: "secret deal\\n"}
    - {uid: u-news, name: news, description: News., level: PUBLIC, content: "old news\\n"}
agents:
  support:
    level: INTERNAL
    memory: [{id: u-notes, mode: rw}, {id: u-play, mode: r}, {id: u-deals, mode: rw}, {id: u-news, mode: rw}]
"""
ENTRIES = FILES.replace("  files:", "  entries: {max_entries: 500}\n  files:")


@pytest.fixture
def open_memory(tmp_path: Path) -> Iterator[Callable[[str], memfiles.Memory]]:
    opened: list[memfiles.Memory] = []

    def opening(workflow: str) -> memfiles.Memory:
        path = tmp_path / f"{len(opened)}" / "workflow.yaml"
        path.parent.mkdir()
        path.write_text(workflow)
        opened.append(memfiles.open(path, watch=False))
        return opened[-1]

    yield opening
    for memory in opened:
        memory.close()


@pytest.fixture
def session(open_memory: Callable[[str], memfiles.Memory]) -> Session:
    """Of a workflow that declares memory files alone."""
    return open_memory(FILES).session("support", run="monday")


@pytest.fixture
def with_entries(open_memory: Callable[[str], memfiles.Memory]) -> Session:
    return open_memory(ENTRIES).session("support", run="monday")


def said_by(tool: Any, command: str, **arguments: Any) -> str:
    """The result as the model gets it, an error marked."""
    try:
        return str(tool.call({"command": command, **arguments}))
    except ToolError as error:
        return f"error: {error}"


def calls(session: Session, *commands: dict[str, Any]) -> list[str]:
    tool = MemoryTool(session)
    return [said_by(tool, **command) for command in commands]


SCRIPT: list[dict[str, Any]] = [
    {"command": "view", "path": "/memories/plan.md"},
    {"command": "create", "path": "/memories/plan.md", "file_text": "one\ntwo\nthree\nfour\nfive\nsix\n"},
    {"command": "create", "path": "/memories/plan.md", "file_text": "again"},
    {"command": "view", "path": "/memories/plan.md"},
    {"command": "view", "path": "/memories/plan.md", "view_range": [2, 3]},
    {"command": "view", "path": "/memories/plan.md", "view_range": [5, -1]},
    {"command": "view", "path": "/memories/plan.md", "view_range": [0, 99]},
    {"command": "view", "path": "/memories/plan.md", "view_range": [50, 60]},
    {"command": "str_replace", "path": "/memories/plan.md", "old_str": "four", "new_str": "4\n4b"},
    {"command": "str_replace", "path": "/memories/plan.md", "old_str": "nothing", "new_str": "x"},
    {"command": "str_replace", "path": "/memories/plan.md", "old_str": "e\n", "new_str": "x"},
    {"command": "str_replace", "path": "/memories/plan.md", "old_str": "six\n", "new_str": ""},
    {"command": "str_replace", "path": "/memories/none.md", "old_str": "a", "new_str": "x"},
    {"command": "insert", "path": "/memories/plan.md", "insert_line": 0, "insert_text": "zero"},
    {"command": "insert", "path": "/memories/plan.md", "insert_line": 2, "insert_text": "in between\n"},
    {"command": "insert", "path": "/memories/plan.md", "insert_line": 8, "insert_text": "the end\n\n"},
    {"command": "insert", "path": "/memories/plan.md", "insert_line": 99, "insert_text": "x"},
    {"command": "insert", "path": "/memories/plan.md", "insert_line": -1, "insert_text": "x"},
    {"command": "insert", "path": "/memories/none.md", "insert_line": 0, "insert_text": "x"},
    {"command": "view", "path": "/memories/plan.md"},
    {"command": "create", "path": "/memories/empty.md", "file_text": " "},
    {"command": "view", "path": "/memories/empty.md"},
    {"command": "create", "path": "/memories/bare.md", "file_text": "no line feed"},
    {"command": "insert", "path": "/memories/bare.md", "insert_line": 1, "insert_text": "second"},
    {"command": "view", "path": "/memories/bare.md"},
    {"command": "create", "path": "/memories/people/ada.md", "file_text": "é\n"},
    {"command": "view", "path": "/memories/people/ada.md"},
    {"command": "str_replace", "path": "/memories/people", "old_str": "a", "new_str": "x"},
    {"command": "insert", "path": "/memories/people", "insert_line": 0, "insert_text": "x"},
    {"command": "rename", "old_path": "/memories/plan.md", "new_path": "/memories/old/plan.md"},
    {"command": "rename", "old_path": "/memories/bare.md", "new_path": "/memories/empty.md"},
    {"command": "rename", "old_path": "/memories", "new_path": "/memories/x"},
    {"command": "view", "path": "/memories/plan.md"},
    {"command": "view", "path": "/memories/old/plan.md"},
    {"command": "delete", "path": "/memories/old/plan.md"},
    {"command": "view", "path": "/memories/old/plan.md"},
    {"command": "create", "path": "/memories/old/plan.md", "file_text": "anew\n"},
    {"command": "delete", "path": "/memories"},
    {"command": "view", "path": "/elsewhere"},
    {"command": "view", "path": "/memories/../etc/passwd"},
    {"command": "view", "path": "/memories/old/plan.md"},
]


def test_it_says_what_the_vendor_s_own_tool_says(with_entries: Session, tmp_path: Path) -> None:
    """Word for word, results and errors, where the workflow lets the model make texts of its own."""
    vendors = BetaLocalFilesystemMemoryTool(str(tmp_path / "vendor"))

    assert [said_by(vendors, **command) for command in SCRIPT] == calls(with_entries, *SCRIPT)


def test_a_folder_is_listed_as_by_the_vendor_s_own_tool(
    open_memory: Callable[[str], memfiles.Memory], tmp_path: Path
) -> None:
    """Two levels deep with sizes; a folder's own size is that of what it holds, not of the disk's blocks."""
    session = open_memory("memory: {durability: os, entries: {}}\nagents: {a: {}}\n").session("a")
    vendors = BetaLocalFilesystemMemoryTool(str(tmp_path / "vendor"))
    texts = {"a.md": "x" * 1536, "b.md": "", "people/ada.md": "x" * 2048, "people/far/away.md": "x" * 10}
    for name, text in texts.items():
        for tool in (vendors, MemoryTool(session)):
            said_by(tool, "create", path=f"/memories/{name}", file_text=text or "y")
    shown = {
        path: [said_by(tool, "view", path=path).splitlines() for tool in (vendors, MemoryTool(session))]
        for path in ("/memories", "/memories/people")
    }

    def files(lines: list[str]) -> list[str]:
        return [line for line in lines if line.endswith(".md")]

    for theirs, ours in shown.values():
        assert theirs[0] == ours[0]
        assert [line.split("\t")[1] for line in theirs[1:]] == [line.split("\t")[1] for line in ours[1:]]
        assert files(theirs) == files(ours)
    assert "3.5K\t/memories" == shown["/memories"][1][1]


def test_a_declared_file_is_read_and_written_under_its_name(session: Session) -> None:
    """An empty one can be created, as a model does; what is there can be changed, and deleting empties it."""
    path = "/memories/notes"
    results = calls(
        session,
        {"command": "create", "path": path, "file_text": "- Ada is on Free\n"},
        {"command": "create", "path": path, "file_text": "again"},
        {"command": "insert", "path": path, "insert_line": 1, "insert_text": "- Bob is on Pro"},
        {"command": "str_replace", "path": path, "old_str": "Ada is on Free", "new_str": "Ada is on Pro"},
        {"command": "view", "path": path},
        {"command": "delete", "path": path},
        {"command": "view", "path": path},
    )

    assert [
        "File created successfully at: /memories/notes",
        "error: File /memories/notes already exists",
        "The file /memories/notes has been edited.",
        "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n"
        "     1\t- Ada is on Pro\n     2\t- Bob is on Pro\n     3\t",
        "Here's the content of /memories/notes with line numbers:\n"
        "     1\t- Ada is on Pro\n     2\t- Bob is on Pro\n     3\t",
        "Successfully deleted the content of /memories/notes; the file is declared, so it stays, empty",
        "Here's the content of /memories/notes with line numbers:\n     1\t",
    ] == results
    assert ["append", "append", "edit", "edit"] == [change.op for change in session.manager.log("u-notes")][-4:]
    assert {"support"} == {change.by.agent for change in session.manager.log("u-notes")[-4:]}


def test_the_folder_lists_what_the_session_may_see(session: Session) -> None:
    """A file above its level is not there, and asking for it tells nothing."""
    listed, hidden, never = calls(
        session,
        {"command": "view", "path": "/memories"},
        {"command": "view", "path": "/memories/deals"},
        {"command": "view", "path": "/memories/never"},
    )

    assert (
        "Here're the files and directories up to 2 levels deep in /memories, excluding hidden items:\n"
        "18B\t/memories\n9B\t/memories/news\n0B\t/memories/notes\n9B\t/memories/playbook"
    ) == listed
    assert hidden.replace("deals", "never") == never


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (
            {"command": "create", "path": "/memories/new", "file_text": "x"},
            "none can be made: there are news, notes, play",
        ),
        ({"command": "create", "path": "/memories/deals", "file_text": "x"}, "there is no memory file 'deals'"),
        (
            {"command": "insert", "path": "/memories/playbook", "insert_line": 0, "insert_text": "x"},
            "is read-only here",
        ),
        ({"command": "str_replace", "path": "/memories/playbook", "old_str": "kind", "new_str": "x"}, "read-only here"),
        ({"command": "delete", "path": "/memories/playbook"}, "playbook is read-only here"),
        ({"command": "delete", "path": "/memories/news"}, "is at level PUBLIC and this session is at INTERNAL"),
        ({"command": "rename", "old_path": "/memories/notes", "new_path": "/memories/n"}, "its name is declared"),
        ({"command": "rename", "old_path": "/memories/notes", "new_path": "/memories/news"}, "already exists"),
        ({"command": "create", "path": "/memories/notes", "file_text": "x" * 101}, "101 bytes"),
        ({"command": "create", "path": "/memories/notes", "file_text": "AKIAIOSFODNN7EXAMPL3"}, "aws"),
        ({"command": "create", "path": "/memories/notes"}, "'file_text' is missing. Call it as memory create(path, f"),
        ({"command": "view"}, "'path' is missing"),
        ({"command": "view", "path": 7}, "'path' must be text, not int"),
        ({"command": "view", "path": "/memories/notes", "view_range": [1]}, "'view_range'"),
        ({"command": "view", "path": "/memories/notes", "colour": "x"}, "'colour' is not an argument"),
        ({"command": "view", "path": "/memoriesque"}, "Path must start with /memories"),
        ({"command": "view", "path": "/memories/\ud800"}, "half of a surrogate pair"),
        ({"command": "str_replace", "path": "/memories/notes", "old_str": ""}, "'old_str'"),
        (
            {"command": "str_replace", "path": "/memories/playbook", "old_str": "x" * 1_000_000},
            "did not appear verbatim",
        ),
        ({"command": "format", "path": "/memories"}, "there is no command 'format': use one of view, create"),
        ({}, "use one of view, create, str_replace, insert, delete, rename"),
    ],
)
def test_what_is_not_allowed_is_a_tool_error_that_says_why(session: Session, command: dict[str, Any], why: str) -> None:
    """And it changes nothing."""
    before = [session.manager.snapshot(uid) for uid in session.manager.uids()]
    with pytest.raises(ToolError) as refused:
        MemoryTool(session).call(command)

    assert why.lower() in str(refused.value).lower()
    assert len(str(refused.value)) < 500
    assert before == [session.manager.snapshot(uid) for uid in session.manager.uids()]


@pytest.mark.parametrize("sent", [None, "view", 7, [], {"command": ["view"]}])
def test_what_is_no_command_is_a_tool_error(session: Session, sent: object) -> None:
    """Whatever a model sends."""
    with pytest.raises(ToolError, match="use one of view, create"):
        MemoryTool(session).call(sent)


def test_names_that_are_obviously_meant_are_understood(session: Session) -> None:
    """And a null means "not given"."""
    results = calls(
        session,
        {"command": "create", "file_path": "/memories/notes", "content": "one\n"},
        {"command": "str_replace", "path": "/memories/notes", "old_string": "one\n", "new_string": None},
        {"command": "insert", "path": "/memories/notes", "line": 0.0, "text": "two"},
        {"command": "view", "path": "/memories/notes", "view_range": None},
    )

    assert "Here's the content of /memories/notes with line numbers:\n     1\ttwo\n     2\t" == results[-1]


def test_a_refusal_is_in_the_audit_log(session: Session) -> None:
    """Like that of every other surface, once."""
    calls(session, {"command": "delete", "path": "/memories/playbook"})
    lines = "".join(path.read_text() for path in (session.manager.directory / "audit").iterdir()).splitlines()
    told = [json.loads(line) for line in lines if "refused" in line]

    assert [("memory", "read_only", "support")] == [(line["op"], line["code"], line["agent"]) for line in told]


def test_a_declared_file_goes_before_an_entry_of_its_name(with_entries: Session) -> None:
    """It is listed once, and what the model writes under its name goes into the file."""
    entries = with_entries.entries
    assert entries is not None
    entries.save(with_entries, "notes", "an entry")
    results = calls(
        with_entries,
        {"command": "view", "path": "/memories/notes"},
        {"command": "create", "path": "/memories/notes", "file_text": "a file"},
        {"command": "view", "path": "/memories"},
    )

    assert "an entry" not in results[0]
    assert "a file" == with_entries.manager.read("u-notes")
    assert 1 == results[2].count("/memories/notes")


def test_an_entry_keeps_what_is_said_of_it(with_entries: Session) -> None:
    """Through a change and a new name."""
    entries = with_entries.entries
    assert entries is not None
    entries.save(with_entries, "plan", "Ada is on Free", tags=["ada"], importance=0.75, pinned=True, kind="note")
    calls(
        with_entries,
        {"command": "str_replace", "path": "/memories/plan", "old_str": "Free", "new_str": "Pro"},
        {"command": "rename", "old_path": "/memories/plan", "new_path": "/memories/customers/ada"},
    )
    found = entries.get(with_entries, "customers/ada")

    assert found is not None
    assert ("Ada is on Pro", ("ada",), 0.75, True, "note") == (
        found.content,
        found.tags,
        found.importance,
        found.pinned,
        found.kind,
    )
    assert None is entries.get(with_entries, "plan")


def test_an_entry_of_a_lower_level_is_read_and_not_changed(with_entries: Session) -> None:
    """No write-down, and no second text under the same name."""
    entries = with_entries.entries
    assert entries is not None
    entries.save(with_entries, "plan", "Ada is on Free")
    with_entries.raise_level("CONFIDENTIAL")
    path = "/memories/plan"
    view, *refused = calls(
        with_entries,
        {"command": "view", "path": path},
        {"command": "str_replace", "path": path, "old_str": "Free", "new_str": "Pro"},
        {"command": "delete", "path": path},
        {"command": "rename", "old_path": path, "new_path": "/memories/other"},
    )

    assert view.endswith("Ada is on Free")
    why = (
        "error: 'plan' is at level INTERNAL and this session is at CONFIDENTIAL: a session changes only what is at its "
        "own level"
    )
    assert [why] * 3 == refused
    assert None is entries.get(with_entries, "other")


def test_of_many_writers_at_once_none_overwrites_another(session: Session) -> None:
    """Who comes too late is told so, and what was acknowledged is there."""
    tool = MemoryTool(session)

    def insert(number: int) -> bool:
        said = said_by(tool, "insert", path="/memories/notes", insert_line=0, insert_text=f"{number:02}")
        return not said.startswith("error: ")

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(insert, range(24)))

    assert sorted(f"{number:02}" for number in range(24) if done[number]) == sorted(
        session.manager.read("u-notes").split()
    )


def test_a_closed_session_is_a_tool_error(session: Session, with_entries: Session) -> None:
    """For files and entries alike."""
    for each in (session, with_entries):
        each.close()
        said = calls(each, {"command": "view", "path": "/memories"}, {"command": "view", "path": "/memories/x"})
        assert [True, True] == ["session of agent support is closed" in text for text in said]
    with pytest.raises(InvalidArgument):
        session.check_open()


def test_the_asynchronous_tool_does_the_same(session: Session) -> None:
    """One thread a command."""
    tool = AsyncMemoryTool(session)

    async def used() -> list[Any]:
        created = await tool.call({"command": "create", "path": "/memories/notes", "file_text": "x"})
        try:
            await tool.call({"command": "view", "path": "/memories/never"})
        except ToolError as error:
            return [created, str(error)]
        return [created]

    assert [
        "File created successfully at: /memories/notes",
        "The path /memories/never does not exist. Please provide a valid path.",
    ] == anyio.run(used)
    assert {"type": "memory_20250818", "name": "memory"} == tool.to_dict() == MemoryTool(session).to_dict()


def test_a_cancelled_command_leaves_the_record_whole(session: Session) -> None:
    """It was carried out or not, and the next one goes on from there."""
    tool = AsyncMemoryTool(session)

    async def cancelled() -> None:
        for number in range(5):
            with anyio.move_on_after(0.001 * number):
                await tool.call({"command": "insert", "path": "/memories/notes", "insert_line": 0, "insert_text": "x"})
        await tool.call({"command": "insert", "path": "/memories/notes", "insert_line": 0, "insert_text": "end"})

    anyio.run(cancelled)
    text = session.manager.read("u-notes")

    assert "end\n" + "x\n" * text.count("x") == text
    assert session.manager.snapshot("u-notes").revision == 1 + len(text.splitlines())


def test_a_cancelled_task_waits_for_its_command(open_memory: Callable[[str], memfiles.Memory]) -> None:
    """Also where the loop itself cancels it: the change that had begun is made before the task is over."""
    memory = open_memory(FILES)
    held, tool = Held(memory), AsyncMemoryTool(memory.session("support"))

    async def cancelled() -> tuple[bool, bool]:
        command = {"command": "insert", "path": "/memories/notes", "insert_line": 0, "insert_text": "x"}
        running = asyncio.create_task(tool.call(command))
        await asyncio.to_thread(held.wait)
        running.cancel()
        await asyncio.wait([running], timeout=0.1)
        was_over = running.done()
        held.go_on.set()
        await asyncio.wait([running])
        return was_over, running.cancelled()

    assert (False, True) == asyncio.run(cancelled())
    assert "x\n" == memory.manager.read("u-notes")


def test_the_vendor_s_tool_runner_drives_it(session: Session) -> None:
    """A conversation with the real client and a server that answers from a script: results and errors come back."""
    asked = [
        {"command": "create", "path": "/memories/notes", "file_text": "- Ada is on Pro\n"},
        {"command": "delete", "path": "/memories/playbook"},
    ]
    turns: list[list[dict[str, Any]]] = [
        [{"type": "tool_use", "id": f"toolu_{number}", "name": "memory", "input": command}]
        for number, command in enumerate(asked)
    ]
    turns.append([{"type": "text", "text": "Done."}])
    requests: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(json.loads(request.content))
        content = turns[len(requests) - 1]
        said = {"id": "msg", "type": "message", "role": "assistant", "model": "claude", "content": content}
        usage = {"input_tokens": 1, "output_tokens": 1}
        reason = "tool_use" if content[0]["type"] == "tool_use" else "end_turn"
        return httpx.Response(200, json={**said, "usage": usage, "stop_reason": reason, "stop_sequence": None})

    client = anthropic.Anthropic(api_key="none", http_client=httpx.Client(transport=httpx.MockTransport(answer)))
    runner = client.beta.messages.tool_runner(
        model="claude", max_tokens=9, messages=[{"role": "user", "content": "Remember."}], tools=[MemoryTool(session)]
    )
    runner.until_done()
    results = [request["messages"][-1]["content"][0] for request in requests[1:]]

    assert [{"type": "memory_20250818", "name": "memory"}] == requests[0]["tools"]
    assert ["File created successfully at: /memories/notes", True] == [results[0]["content"], results[1]["is_error"]]
    assert "playbook is read-only here" in results[1]["content"]
    assert "- Ada is on Pro\n" == session.manager.read("u-notes")


def test_without_the_extra_the_error_says_which() -> None:
    """And nothing of the vendor's is loaded by anything else."""
    program = (
        "import sys; sys.modules['anthropic'] = None\nimport memfiles\n"
        "try:\n    import memfiles.adapters.anthropic_memory\nexcept memfiles.ExtraMissing as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=180)

    assert "Anthropic's memory tool needs an extra: pip install 'memfiles[anthropic]'\n" == done.stdout
