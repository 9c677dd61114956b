"""Anthropic's memory tool works on a session with the vendor's own client, and as the vendor's own tool on a disk."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anthropic
import anyio
import httpx2
import pytest
from anthropic.lib.tools import ToolError
from anthropic.lib.tools._beta_builtin_memory_tool import BetaLocalFilesystemMemoryTool

from memfiles.adapters.anthropic_memory import AsyncMemoryTool, MemoryTool
from memfiles.tools.session import Session
from tests.adapters.agents_at_work import Call, Script, ScriptedClaude
from tests.adapters.exam import TextExam
from tests.adapters.memory_desk import Opening, calls, said_by


class TestAnthropicMemory(TextExam):
    module = "memfiles.adapters.anthropic_memory"
    vendors = ("anthropic",)
    extra_error = "Anthropic's memory tool needs an extra: pip install 'memfiles[anthropic]'"
    needs_entries = False

    def read(self, session: Session, name: str) -> str | None:
        said = said_by(MemoryTool(session), "view", path=f"/memories/{name}")
        return None if said.startswith("error: ") else said.partition("\t")[2]

    def write(self, session: Session, name: str, text: str) -> str | None:
        said = said_by(MemoryTool(session), "create", path=f"/memories/{name}", file_text=text)
        return said if said.startswith("error: ") else None

    async def awrite(self, session: Session, name: str, text: str) -> object:
        command = {"command": "create", "path": f"/memories/{name}", "file_text": text}
        return await AsyncMemoryTool(session).call(command)


def test_a_closed_session_is_a_tool_error(files_alone: Session) -> None:
    """Where there are only files, too."""
    files_alone.close()
    said = calls(files_alone, {"command": "view", "path": "/memories"}, {"command": "view", "path": "/memories/x"})

    assert [True, True] == ["session of agent support is closed" in text for text in said]


def test_the_asynchronous_tool_does_the_same(files_alone: Session) -> None:
    """One thread a command."""
    tool = AsyncMemoryTool(files_alone)

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
    assert {"type": "memory_20250818", "name": "memory"} == tool.to_dict() == MemoryTool(files_alone).to_dict()


def test_a_cancelled_command_leaves_the_record_whole(files_alone: Session) -> None:
    """It was carried out or not, and the next one goes on from there."""
    tool = AsyncMemoryTool(files_alone)

    async def cancelled() -> None:
        for number in range(5):
            with anyio.move_on_after(0.001 * number):
                await tool.call({"command": "insert", "path": "/memories/notes", "insert_line": 0, "insert_text": "x"})
        await tool.call({"command": "insert", "path": "/memories/notes", "insert_line": 0, "insert_text": "end"})

    anyio.run(cancelled)
    text = files_alone.manager.read("u-notes")

    assert "end\n" + "x\n" * text.count("x") == text
    assert files_alone.manager.snapshot("u-notes").revision == 1 + len(text.splitlines())


def test_the_vendor_s_tool_runner_drives_it(files_alone: Session) -> None:
    """A conversation with the real client and a server that answers from a script: results and errors come back."""
    create = {"command": "create", "path": "/memories/notes", "file_text": "- Ada is on Pro\n"}
    delete = {"command": "delete", "path": "/memories/playbook"}
    claude = ScriptedClaude(Script([Call("memory", create)], [Call("memory", delete)]))
    transport = httpx2.MockTransport(claude.answer)
    client = anthropic.Anthropic(api_key="none", http_client=httpx2.Client(transport=transport))
    asked: Any = {"model": "claude", "max_tokens": 9, "messages": [{"role": "user", "content": "Remember."}]}
    client.beta.messages.tool_runner(tools=[MemoryTool(files_alone)], **asked).until_done()
    created, refused = claude.results

    assert [{"type": "memory_20250818", "name": "memory"}] == claude.requests[0]["tools"]
    assert ["File created successfully at: /memories/notes", True] == [created["content"], refused["is_error"]]
    assert "playbook is read-only here" in refused["content"]
    assert "- Ada is on Pro\n" == files_alone.manager.read("u-notes")


def test_a_folder_is_listed_as_by_the_vendor_s_own_tool(open_memory: Opening, tmp_path: Path) -> None:
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


def test_the_folder_lists_what_the_session_may_see(files_alone: Session) -> None:
    """A file above its level is not there, and asking for it tells nothing."""
    listed, hidden, never = calls(
        files_alone,
        {"command": "view", "path": "/memories"},
        {"command": "view", "path": "/memories/deals"},
        {"command": "view", "path": "/memories/never"},
    )

    assert (
        "Here're the files and directories up to 2 levels deep in /memories, excluding hidden items:\n"
        "18B\t/memories\n9B\t/memories/news\n0B\t/memories/notes\n9B\t/memories/playbook"
    ) == listed
    assert hidden.replace("deals", "never") == never


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
        "error: 'plan' is at level INTERNAL and this session is at CONFIDENTIAL: a session changes only entries at "
        "its own level"
    )
    assert [why] * 3 == refused
    assert None is entries.get(with_entries, "other")


def test_of_many_writers_at_once_none_overwrites_another(files_alone: Session) -> None:
    """Who comes too late is told so, and what was acknowledged is there."""
    tool = MemoryTool(files_alone)

    def insert(number: int) -> bool:
        said = said_by(tool, "insert", path="/memories/notes", insert_line=0, insert_text=f"{number:02}")
        return not said.startswith("error: ")

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(insert, range(24)))

    assert sorted(f"{number:02}" for number in range(24) if done[number]) == sorted(
        files_alone.manager.read("u-notes").split()
    )


FOLDERS: list[dict[str, Any]] = [
    {"command": "create", "path": "/memories/notes/a.md", "file_text": "a\n"},
    {"command": "create", "path": "/memories//notes/./deep/../b.md", "file_text": "b\n"},
    {"command": "create", "path": "/memories/notes/deep/er/c.md", "file_text": "c\n"},
    {"command": "create", "path": "/memories/.hidden", "file_text": "h"},
    {"command": "create", "path": "/memories/notes/.git/x", "file_text": "h"},
    {"command": "create", "path": "/memories/node_modules/x.js", "file_text": "h"},
    {"command": "create", "path": "/memories/%2e%2e/x", "file_text": "encoded"},
    {"command": "create", "path": "/memories/..\\x", "file_text": "backslash"},
    {"command": "view", "path": "/memories/notes/a.md/"},
    {"command": "view", "path": "/memories/notes//b.md"},
    {"command": "view", "path": "/memories/.hidden"},
    {"command": "view", "path": "/memories/%2e%2e/x"},
    {"command": "view", "path": "/memories/..\\x"},
    {"command": "view", "path": "/memories/notes/../../etc/passwd"},
    {"command": "view", "path": "/memories/never/"},
    {"command": "create", "path": "/memories/notes", "file_text": "x"},
    {"command": "create", "path": "/memories", "file_text": "x"},
    {"command": "insert", "path": "/memories/notes/", "insert_line": 0, "insert_text": "x"},
    {"command": "delete", "path": "/memories/never"},
    {"command": "delete", "path": "/memories/"},
    {"command": "delete", "path": "/memories/notes/.."},
    {"command": "rename", "old_path": "/memories/never", "new_path": "/memories/x"},
    {"command": "rename", "old_path": "/memories/never", "new_path": "/memories/notes"},
    {"command": "rename", "old_path": "/memories/notes/a.md", "new_path": "/memories/notes"},
    {"command": "rename", "old_path": "/memories/notes/a.md", "new_path": "/memories"},
    {"command": "rename", "old_path": "/memories/notes/a.md", "new_path": "/memories/notes/a.md"},
    {"command": "rename", "old_path": "/memories/notes/", "new_path": "/memories/old/notes"},
    {"command": "view", "path": "/memories/notes"},
    {"command": "view", "path": "/memories/old/notes/deep/er/c.md"},
    {"command": "view", "path": "/memories/old/notes/.git/x"},
    {"command": "rename", "old_path": "/memories/old/notes", "new_path": "/memories/notes"},
    {"command": "delete", "path": "/memories/notes/deep"},
    {"command": "view", "path": "/memories/notes/deep/er/c.md"},
    {"command": "view", "path": "/memories/notes/a.md"},
    {"command": "delete", "path": "/memories/notes"},
    {"command": "view", "path": "/memories/notes"},
    {"command": "create", "path": "/memories/notes/a.md", "file_text": "anew"},
    {"command": "view", "path": "/memories/notes/a.md"},
]


def test_folders_are_as_in_the_vendor_s_own_tool(with_entries: Session, tmp_path: Path) -> None:
    """Word for word, also for paths that are spelled otherwise and for what is refused."""
    vendors = BetaLocalFilesystemMemoryTool(str(tmp_path / "vendor"))
    renamed = [dict(command) for command in FOLDERS]
    for command in renamed:  # the workflow declares a file of that name
        for place in ("path", "old_path", "new_path"):
            if place in command:
                command[place] = command[place].replace("notes", "people")

    assert [said_by(vendors, **command) for command in renamed] == calls(with_entries, *renamed)


@pytest.mark.parametrize("path", ["/memories", "/memories/people", "/memories/people/", "/memories/.git"])
def test_hidden_items_are_not_listed(open_memory: Opening, tmp_path: Path, path: str) -> None:
    """What begins with a dot, and all below it; who knows its path can view it."""
    session = open_memory("memory: {durability: os, entries: {}}\nagents: {a: {}}\n").session("a")
    vendors = BetaLocalFilesystemMemoryTool(str(tmp_path / "vendor"))
    names = [".env", ".git/config", "people/.a", "people/b", "people/.c/d", "people/e/.f", "node_modules/x"]
    for tool in (vendors, MemoryTool(session)):
        for name in names:
            said_by(tool, "create", path=f"/memories/{name}", file_text="x")
    theirs, ours = (
        [
            line.partition("\t")[2].replace("//", "/").rstrip("/")
            for line in said_by(tool, "view", path=path).splitlines()
        ]
        for tool in (vendors, MemoryTool(session))
    )

    shown = [line for line in theirs if line != "/memories/people/e"]  # a folder with nothing to show holds nothing
    assert shown == ours


def test_a_folder_goes_in_one_commit_or_not_at_all(with_entries: Session) -> None:
    """Where one text in it is at a lower level nothing is deleted or renamed, and the error names it."""
    entries = with_entries.entries
    assert entries is not None
    entries.save(with_entries, "people/ada", "lower")
    with_entries.raise_level("CONFIDENTIAL")
    entries.save_many(with_entries, [{"key": f"people/{n}", "content": "x"} for n in range(150)])
    deleted, renamed, listed = calls(
        with_entries,
        {"command": "delete", "path": "/memories/people"},
        {"command": "rename", "old_path": "/memories/people", "new_path": "/memories/x"},
        {"command": "view", "path": "/memories/people"},
    )

    assert "error: 'people/ada' is at level INTERNAL and this session is at CONFIDENTIAL" in deleted
    assert deleted == renamed
    assert 153 == len(listed.splitlines())


def test_many_texts_of_a_folder_go_together(with_entries: Session) -> None:
    """More than a page of them, and nothing beside the folder that begins alike."""
    entries = with_entries.entries
    assert entries is not None
    keys = ["peoples", "people.md", *(f"people/{number:03}/x" for number in range(230))]
    entries.save_many(with_entries, [{"key": key, "content": "x"} for key in keys])
    renamed, deleted = calls(
        with_entries,
        {"command": "rename", "old_path": "/memories/people", "new_path": "/memories/folk"},
        {"command": "delete", "path": "/memories/folk/"},
    )

    assert ["Successfully renamed /memories/people to /memories/folk", "Successfully deleted /memories/folk/"] == [
        renamed,
        deleted,
    ]
    assert ["people.md", "peoples"] == [found.key for found in entries.list(with_entries).memories]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ({"command": "create", "path": "/memories/plan/x", "file_text": "x"}, "/memories/plan is a file, not a folder"),
        (
            {"command": "create", "path": "/memories/notes/x", "file_text": "x"},
            "/memories/notes is a file, not a folder",
        ),
        (
            {"command": "rename", "old_path": "/memories/plan", "new_path": "/memories/plan/x"},
            "is a file, not a folder",
        ),
        ({"command": "rename", "old_path": "/memories/people", "new_path": "/memories/people/x"}, "is inside it"),
        ({"command": "rename", "old_path": "/memories/people", "new_path": f"/memories/{'x' * 253}"}, "255 bytes"),
        ({"command": "rename", "old_path": "/memories/notes", "new_path": "/memories/people"}, "already exists"),
        ({"command": "create", "path": f"/memories/{'x' * 256}", "file_text": "x"}, "255 bytes"),
        ({"command": "create", "path": "/memories/a\x00b", "file_text": "x"}, "control character"),
        ({"command": "view", "path": "/memories/a\nb"}, "control character"),
    ],
)
def test_what_no_folder_allows_is_a_tool_error(with_entries: Session, command: dict[str, Any], why: str) -> None:
    """Nothing is changed by it."""
    entries = with_entries.entries
    assert entries is not None
    entries.save_many(with_entries, [{"key": key, "content": "x"} for key in ("plan", "people/ada")])
    (told,) = calls(with_entries, command)

    assert told.startswith("error: ")
    assert why in told
    assert ["people/ada", "plan"] == [found.key for found in entries.list(with_entries).memories]


def test_what_another_surface_saved_can_be_reached(with_entries: Session) -> None:
    """Under keys that are no path of a file, and under one that is a file's and a folder's at once."""
    entries = with_entries.entries
    assert entries is not None
    keys = ["https://example.com/a", "/rooted", "ends/", "notes/ada", "a/../b"]
    entries.save_many(with_entries, [{"key": key, "content": f"it is {key}"} for key in keys])
    views = calls(with_entries, *({"command": "view", "path": f"/memories/{key}"} for key in keys))
    listed, file, deleted = calls(
        with_entries,
        {"command": "view", "path": "/memories/notes/"},
        {"command": "view", "path": "/memories/notes"},
        {"command": "delete", "path": "/memories/notes/"},
    )

    assert [f"it is {key}" for key in keys] == [view.partition("\t")[2] for view in views]
    assert "/memories/notes/ada" == listed.splitlines()[-1].partition("\t")[2]
    assert "with line numbers" in file
    assert "Successfully deleted /memories/notes/" == deleted
    assert None is entries.get(with_entries, "notes/ada")
