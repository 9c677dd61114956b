"""A deep agent's files are the memory of a session, within what the workflow declares."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from deepagents import create_deep_agent
from deepagents.backends import CompositeBackend, StateBackend, StoreBackend
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatResult
from langgraph.store.memory import InMemoryStore

from memfiles.adapters.deepagents import MemfilesBackend
from memfiles.tools.session import Session
from tests.adapters.exam import TextExam
from tests.adapters.memory_desk import ENTRIES, FILES, Opening
from tests.support.workflows import opened


@pytest.fixture
def session(open_memory: Opening) -> Session:
    return open_memory(ENTRIES).session("support", run="monday")


@pytest.fixture
def backend(session: Session) -> MemfilesBackend:
    return MemfilesBackend(session)


class TestDeepAgents(TextExam):
    module = "memfiles.adapters.deepagents"
    vendors = ("deepagents",)
    extra_error = "the backend for deepagents needs an extra: pip install 'memfiles[deepagents]'"
    needs_entries = False

    def read(self, session: Session, name: str) -> str | None:
        return text_of(MemfilesBackend(session), f"/{name}")

    def write(self, session: Session, name: str, text: str) -> str | None:
        return MemfilesBackend(session).write(f"/{name}", text).error

    async def awrite(self, session: Session, name: str, text: str) -> object:
        return await MemfilesBackend(session).awrite(f"/{name}", text)


class Scripted(GenericFakeChatModel):
    """A model that answers from a script, and keeps the prompts that it was given."""

    prompts: list[str] = []

    def _generate(self, messages: list[BaseMessage], *arguments: Any, **options: Any) -> ChatResult:
        self.prompts.append(messages[0].text)
        return super()._generate(messages, *arguments, **options)

    def bind_tools(self, tools: Any, **options: Any) -> Scripted:
        """Itself."""
        return self


def used(session: Session, *wanted: tuple[str, dict[str, Any]], way: str = "invoke") -> list[tuple[str, str]]:
    """What a deep agent is answered that calls all these tools at once: whether it went well, and the text."""
    calls = [
        {"name": name, "args": arguments, "id": f"call_{number}", "type": "tool_call"}
        for number, (name, arguments) in enumerate(wanted)
    ]
    model = Scripted(messages=iter([AIMessage("", tool_calls=calls), AIMessage("done")]))
    backend = CompositeBackend(default=StateBackend(), routes={"/memories/": MemfilesBackend(session)})
    agent: Any = create_deep_agent(model, backend=backend)
    asked = {"messages": [{"role": "user", "content": "go"}]}
    done = agent.invoke(asked) if way == "invoke" else asyncio.run(agent.ainvoke(asked))
    return [(each.status, each.text) for each in done["messages"] if isinstance(each, ToolMessage)]


def paths(backend: MemfilesBackend, folder: str = "/") -> list[str]:
    return [entry["path"] for entry in backend.ls(folder).entries or []]


def text_of(backend: MemfilesBackend, path: str) -> str | None:
    data = backend.read(path).file_data
    return data["content"] if data else None


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_a_deep_agent_works_on_it_as_on_files(session: Session, way: str) -> None:
    """With every file tool, in a folder of its own; what is forbidden is an error that says why."""
    session.manager.append("u-notes", "one\ntwo\n")
    answers = used(
        session,
        ("ls", {"path": "/memories"}),
        ("read_file", {"file_path": "/memories/playbook"}),
        ("edit_file", {"file_path": "/memories/notes", "old_string": "two", "new_string": "three"}),
        ("write_file", {"file_path": "/memories/people/ada.md", "content": "Ada is on Pro.\n"}),
        ("write_file", {"file_path": "/memories/playbook", "content": "x"}),
        ("write_file", {"file_path": "/memories/news", "content": "x"}),
        ("delete", {"file_path": "/memories/deals"}),
        ("grep", {"pattern": "kind", "path": "/memories"}),
        ("glob", {"pattern": "play*", "path": "/memories"}),
        way=way,
    )

    assert ["success"] * 4 + ["error"] * 3 + ["success"] * 2 == [status for status, _ in answers]
    assert answers[0][1].startswith("['/memories/news', '/memories/notes', '/memories/p")
    assert "Be kind." in answers[1][1]
    assert "playbook is read-only here" in answers[4][1]
    assert "news is at level PUBLIC and this session is at INTERNAL" in answers[5][1]
    assert "there is nothing at /deals" in answers[6][1]
    assert ["/memories/playbook" in text for _, text in answers[7:]] == [True, True]
    assert "one\nthree\n" == session.manager.read("u-notes")
    assert session.entries is not None
    found = session.entries.get(session, "people/ada.md")
    assert found is not None
    assert "Ada is on Pro.\n" == found.content


def test_parallel_edits_never_overwrite_each_other(backend: MemfilesBackend, session: Session) -> None:
    """Who comes too late is told so, and what was acknowledged is there."""
    lines = [f"line{number:02}\n" for number in range(12)]
    session.manager.append("u-notes", "".join(lines))

    def edited(line: str) -> str:
        return line if backend.edit("/notes", line, line.upper()).error else line.upper()

    with ThreadPoolExecutor(8) as pool:
        done = "".join(pool.map(edited, lines))

    assert done == session.manager.read("u-notes")
    assert done != "".join(lines)


def test_folders_are_listed_one_level_deep(backend: MemfilesBackend) -> None:
    """With sizes and times; a folder's path ends in a slash."""
    for path in ("/people/ada.md", "/people/old/bob.md", "/plan"):
        backend.write(path, "text")

    assert ["/news", "/notes", "/people/", "/plan", "/playbook"] == paths(backend)
    assert ["/people/ada.md", "/people/old/"] == paths(backend, "/people") == paths(backend, "/people/")
    assert [] == paths(backend, "/nothing")
    entries = {entry["path"]: entry for entry in backend.ls("/").entries or []}
    assert (4, False) == (entries["/plan"]["size"], entries["/plan"]["is_dir"])
    assert entries["/plan"]["modified_at"].endswith("Z")
    assert {"path": "/people/", "is_dir": True} == entries["/people/"]


def test_a_part_of_a_text_is_read_by_lines(backend: MemfilesBackend) -> None:
    """With where it stands and where to go on."""
    backend.write("/plan", "one\ntwo\nthree\n")
    part = backend.read("/plan", offset=1, limit=1)

    assert part.file_data is not None
    assert ("two\n", 2, 2, 2, 3) == (
        part.file_data["content"],
        part.start_line,
        part.end_line,
        part.next_offset,
        part.total_lines,
    )
    assert "there is no file /nothing" == backend.read("/nothing").error
    assert "exceeds file length" in (backend.read("/plan", offset=9).error or "")


def test_an_edit_is_exact(backend: MemfilesBackend, session: Session) -> None:
    """What occurs more than once needs to be told so; the history says what was edited."""
    session.manager.append("u-notes", "a b a\n")
    once, every = backend.edit("/notes", "a", "x"), backend.edit("/notes", "a", "x", replace_all=True)
    single = backend.edit("/notes", "b", "y")

    assert (None, 2, 1) == (once.occurrences, every.occurrences, single.occurrences)
    assert "appears 2 times" in (once.error or "")
    assert "x y x\n" == session.manager.read("u-notes")
    assert "edit" == session.manager.log("u-notes")[0].op
    assert "there is no file /nothing" == backend.edit("/nothing", "a", "b").error


def test_grep_and_glob_see_what_the_session_sees(backend: MemfilesBackend, session: Session) -> None:
    """And a text of a higher level is not there."""
    backend.write("/people/ada.md", "Ada\nhas a secret\n")
    backend.write("/people/bob.txt", "Bob\n")
    grep = backend.grep("secret")
    capped = backend.grep("a", max_count=1)

    assert [("/people/ada.md", 2, "has a secret")] == [
        (match["path"], match["line"], match["text"]) for match in grep.matches or []
    ]
    assert (1, True) == (len(capped.matches or []), capped.truncated)
    assert ["/people/ada.md"] == [match["path"] for match in backend.glob("*.md").matches or []]
    assert ["/people/bob.txt"] == [match["path"] for match in backend.glob("*.txt", "/people").matches or []]
    assert [] == backend.glob("/*.txt").matches
    assert "traversal" in (backend.glob("../*").error or "")
    session.raise_level("CONFIDENTIAL")
    assert ["/deals", "/people/ada.md"] == sorted(match["path"] for match in backend.grep("secret").matches or [])


def test_a_folder_is_deleted_as_one(backend: MemfilesBackend, session: Session) -> None:
    """All of it, or nothing where anything in it may not be deleted; a person can restore it."""
    for path in ("/people", "/people/ada", "/people/old/bob", "/peoples"):
        backend.write(path, "text")
    deleted, again = backend.delete("/people"), backend.delete("/people")

    assert ("/people", None) == (deleted.path, deleted.error)
    assert "there is nothing at /people" == again.error
    assert ["/news", "/notes", "/peoples", "/playbook"] == paths(backend)
    assert session.entries is not None
    for key in ("people/ada", "people/old/bob"):
        session.entries.restore(session, key)
    session.raise_level("CONFIDENTIAL")
    backend.write("/people/new", "text")

    assert "is at level INTERNAL and this session is at CONFIDENTIAL" in (backend.delete("/people").error or "")
    assert "is declared in the workflow and stays" in (backend.delete("/").error or "")
    assert ["/people/ada", "/people/new", "/people/old/"] == paths(backend, "/people")


@pytest.mark.parametrize("path", ["/x/../../y", "~/x", "C:/x", "/", "/" + "k" * 300, "/a\nb"])
def test_no_path_raises(backend: MemfilesBackend, path: str) -> None:
    """What no text can be called is an error of each method."""
    results: list[Any] = [
        backend.read(path),
        backend.write(path, "x"),
        backend.edit(path, "x", "y"),
        backend.delete(path),
    ]

    assert [True] * 4 == [bool(result.error) for result in results]
    assert [True] == [bool(each.error) for each in backend.upload_files([(path, b"x")])]
    assert [True] == [bool(each.error) for each in backend.download_files([path])]


def test_files_go_in_and_out_whole(backend: MemfilesBackend) -> None:
    """Each for itself, with the protocol's own words for what went wrong."""
    up = backend.upload_files([("/in/a", "é\r\n".encode()), ("/in/b", b"\xff"), ("/playbook", b"x"), ("/news", b"x")])
    down = backend.download_files(["/in/a", "/in", "/nothing", "/playbook"])

    assert [None, "permission_denied", "permission_denied"] == [up[0].error, up[2].error, up[3].error]
    assert "can't decode" in (up[1].error or "")
    assert ["é\r\n".encode(), None, None, b"Be kind.\n"] == [each.content for each in down]
    assert [None, "is_directory", "file_not_found", None] == [each.error for each in down]


def test_without_entries_there_are_the_declared_files(open_memory: Opening) -> None:
    """No other can be made, and the error names them."""
    backend = MemfilesBackend(open_memory(FILES).session("support", run="monday"))
    written = backend.write("/plan", "x")

    assert ["/news", "/notes", "/playbook"] == paths(backend)
    assert (
        "there is no memory file 'plan', and none can be created; the files are: news, notes, playbook" == written.error
    )
    assert None is backend.write("/notes", "whole\n").error
    assert "whole\n" == text_of(backend, "/notes")
    assert "permission_denied" == backend.upload_files([("/plan", b"x")])[0].error


def test_a_closed_session_is_an_error(backend: MemfilesBackend, session: Session) -> None:
    """Of every method."""
    session.close()
    results: list[Any] = [backend.ls("/"), backend.read("/notes"), backend.grep("x"), backend.glob("*")]
    results += [backend.write("/plan", "x"), backend.edit("/notes", "x", "y"), backend.delete("/plan")]

    assert {"this session of agent support is closed; ask the memory for a new one"} == {
        result.error for result in results
    }


def test_an_agent_is_given_files_as_its_memory(session: Session) -> None:
    """Its own loading of memory reads them; what is not there, or hidden, it goes without."""
    model = Scripted(messages=iter([AIMessage("done")]), prompts=[])
    sources = ["/playbook", "/deals", "/nothing"]
    agent: Any = create_deep_agent(model, backend=MemfilesBackend(session), memory=sources)
    done = agent.invoke({"messages": [{"role": "user", "content": "go"}]})

    assert "done" == done["messages"][-1].text
    assert ["Be kind." in prompt and "secret" not in prompt for prompt in model.prompts] == [True]


WORKFLOW = "memory: {durability: os, entries: {max_entries: 500}}\nagents:\n  support: {level: INTERNAL}\n"

PATHS = st.sampled_from(["/a", "/a.md", "/b/a.md", "/b/c/d.md", "/b/c", "/B", "/é"])
FOLDERS = st.sampled_from(["/", "/b", "/b/", "/b/c", "/nothing"])
TEXTS = st.sampled_from(["one\ntwo\n", "two two", "x\r\ny\r\n", "deux\n\n\ntwo\n"])  # ours refuses blank ones
WORDS = st.sampled_from(["two", "one", "two\n", "\n", "zero", ""])
STEPS = st.one_of(
    st.tuples(st.just("write"), PATHS, TEXTS),
    st.tuples(st.just("edit"), PATHS, WORDS, st.sampled_from(["2", "two"]), st.booleans()),
    st.tuples(st.just("delete"), PATHS | st.just("/b")),
    st.tuples(st.just("read"), PATHS, st.integers(-1, 4), st.integers(0, 3)),
    st.tuples(st.just("ls"), FOLDERS),
    st.tuples(st.just("grep"), WORDS, st.none() | FOLDERS, st.sampled_from([None, "*.md", "b/**"])),
    st.tuples(st.just("glob"), st.sampled_from(["*.md", "**/*.md", "/*", "b/*", "*", "../x"]), st.none() | FOLDERS),
    st.tuples(st.just("download_files"), st.lists(PATHS, max_size=2)),
)


def told(result: Any) -> Any:
    """What a result says, but for the words of an error, times, the order, and the size of folders."""
    if isinstance(result, list):
        return [(each.path, each.content, bool(each.error)) for each in result]
    said = dict(vars(result)) | {"error": bool(result.error)}
    data = said.pop("file_data", None)
    found = [_known(entry) for name in ("entries", "matches") for entry in said.pop(name, None) or []]
    return said, data and data["content"], sorted(map(str, found))


def _known(entry: dict[str, Any]) -> dict[str, Any]:
    known = ("path", "is_dir", "line", "text") if entry.get("is_dir") else ("path", "is_dir", "line", "text", "size")
    return {name: entry[name] for name in known if name in entry}


@given(steps=st.lists(STEPS, max_size=30))
@settings(max_examples=60, deadline=None)
def test_the_same_calls_have_the_results_of_the_backend_over_a_store(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    """Reading, listing, searching, editing and deleting texts, in any order."""
    with opened(tmp_path_factory.mktemp("alike"), WORKFLOW) as memory:
        ours = MemfilesBackend(memory.session("support"))
        theirs = StoreBackend(store=InMemoryStore(), namespace=lambda _: ("files",))
        for method, *arguments in steps:
            expected, got = (told(getattr(each, method)(*arguments)) for each in (theirs, ours))

            assert expected == got, (method, arguments)
