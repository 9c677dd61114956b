"""The store for pydantic-ai's harness passes the exam of such stores, and keeps what memfiles promises."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolFailed
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_harness.memory import (
    Memory,
    MemoryConflictError,
    MemoryOperation,
    MemoryOperationConflictError,
)

import memfiles
from memfiles.adapters.pydantic_ai_harness import SessionStore
from memfiles.tools.session import Session
from tests.adapters.exam import TextExam
from tests.conftest import unavailable
from tests.support.workflows import opened

try:
    from pydantic_ai_memory_core.contract import *  # noqa: F403
except ImportError:

    def test_the_exam_is_there() -> None:
        """It is a package of its own."""
        unavailable("pydantic-ai-memory-core is not installed")


pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("loops")]  # the first runs the exam's coroutines

WORKFLOW = """\
memory:
  durability: os
  entries: {max_entries: 500}
agents:
  support: {level: INTERNAL}
"""
PATH = "main/MEMORY.md"
OPERATION = MemoryOperation(id="o" * 64, fingerprint="f" * 64)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class TestHarness(TextExam):
    module = "memfiles.adapters.pydantic_ai_harness"
    vendors = ("pydantic_ai_harness", "pydantic_ai")
    extra_error = (
        "a store for the memory of pydantic-ai's harness needs an extra: pip install 'memfiles[pydantic-ai-harness]'"
    )

    def key_of(self, name: str) -> str:
        return f"main/{name}"

    def read(self, session: Session, name: str) -> str | None:
        return text_of(SessionStore(session), self.key_of(name))

    def write(self, session: Session, name: str, text: str) -> str | None:
        store = SessionStore(session)
        try:
            found = asyncio.run(store.read(self.key_of(name), max_chars=9))
            version = found.version if found is not None else None
            asyncio.run(store.write(self.key_of(name), text, expected_version=version))
        except ToolFailed as error:
            return str(error)
        return None

    async def awrite(self, session: Session, name: str, text: str) -> object:
        operation = MemoryOperation(id=name, fingerprint=text)
        store = SessionStore(session)
        return await store.write(self.key_of(name), text, expected_version=None, operation=operation)

    def test_a_cancelled_write_ends_before_its_caller_goes_on(self, memory: memfiles.Memory, session: Session) -> None:
        """And its operation is known."""
        super().test_a_cancelled_write_ends_before_its_caller_goes_on(memory, session)
        operation = MemoryOperation(id="plan", fingerprint="Ada is on Pro.")

        assert asyncio.run(SessionStore(session).get_operation(operation)) is not None


class Script:
    """Stands in for a model: makes these calls one by one, and keeps the prompts that it was shown."""

    def __init__(self, calls: list[tuple[str, dict[str, Any]]]) -> None:
        self._calls = calls
        self.shown: list[str] = []

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.shown.append(str(messages))
        step = len(self.shown) - 1
        if step >= len(self._calls):
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart(*self._calls[step], tool_call_id=f"call_{step}")])

    def run(self, store: SessionStore) -> tuple[str, list[tuple[str, str]]]:
        """What a run of an agent with the store ends with, and how its calls went."""
        ran = Agent(FunctionModel(self.answer), capabilities=[Memory(store=store)]).run_sync("Go.")
        parts = [part for message in ran.all_messages() if isinstance(message, ModelRequest) for part in message.parts]
        return ran.output, [(part.outcome, str(part.content)) for part in parts if isinstance(part, ToolReturnPart)]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[memfiles.Memory]:
    with opened(tmp_path / "one", WORKFLOW) as memory:
        yield memory


@pytest.fixture
def session(memory: memfiles.Memory) -> Session:
    return memory.session("support", run="monday")


@pytest.fixture
def store(session: Session) -> SessionStore:
    """What the exam asks for: a new store with nothing in it."""
    return SessionStore(session)


def text_of(store: SessionStore, path: str = PATH) -> str | None:
    found = asyncio.run(store.read(path, max_chars=100_000))
    return found.content if found is not None else None


async def appended(store: SessionStore, line: str) -> None:
    """As the harness does: read, add, write, and again if somebody else was faster."""
    while True:
        found = await store.read(PATH, max_chars=100_000)
        before, version = (found.content, found.version) if found is not None else ("", None)
        try:
            await store.write(PATH, before + line, expected_version=version)
        except MemoryConflictError:
            continue
        return


def test_stores_of_several_processes_lose_nothing(tmp_path: Path) -> None:
    """Here two memories on one directory; a version is compared where the change is made."""

    async def program(stores: list[SessionStore]) -> None:
        await asyncio.gather(
            *(appended(store, f"{number}{n}\n") for number, store in enumerate(stores) for n in "abcde")
        )

    with opened(tmp_path / "one", WORKFLOW) as first, opened(tmp_path / "one", WORKFLOW) as second:
        stores = [SessionStore(memory.session("support")) for memory in (first, second)]
        asyncio.run(program(stores))
        text = text_of(stores[0])

    assert sorted(f"{number}{n}" for number in "01" for n in "abcde") == sorted((text or "").split())


def test_an_operation_is_known_to_the_next_process(tmp_path: Path) -> None:
    """A run that is carried on elsewhere changes nothing twice, and other arguments under the id are refused."""

    async def write(store: SessionStore, version: str | None, operation: MemoryOperation = OPERATION) -> Any:
        return await store.write(PATH, "- Ada\n", expected_version=version, operation=operation)

    with opened(tmp_path / "one", WORKFLOW) as memory:
        first = asyncio.run(write(SessionStore(memory.session("support", run="monday")), None))
    with opened(tmp_path / "one", WORKFLOW) as memory:
        store = SessionStore(memory.session("support", run="monday"))
        again = [asyncio.run(store.get_operation(OPERATION)), asyncio.run(write(store, None))]
        other = MemoryOperation(id=OPERATION.id, fingerprint="other")
        for call in (lambda: store.get_operation(other), lambda: write(store, first.version, other)):
            with pytest.raises(MemoryOperationConflictError):
                asyncio.run(call())

    assert [("1", False, True)] * 2 == [(done.version, done.existed, done.replayed) for done in again if done]


@pytest.mark.slow
def test_a_killed_write_is_not_made_twice(tmp_path: Path) -> None:
    """The process dies right after the change, before it could tell anybody; the next one knows what it did."""
    program = (
        "import asyncio, os, sys, memfiles\n"
        "from memfiles.adapters.pydantic_ai_harness import SessionStore\n"
        "from pydantic_ai_harness.memory import MemoryOperation\n"
        "memory = memfiles.open(sys.argv[1], watch=False)\n"
        "memory.manager.subscribe(lambda change: os.kill(os.getpid(), 9))\n"
        "store = SessionStore(memory.session('support', run='monday'))\n"
        f"operation = MemoryOperation(id={OPERATION.id!r}, fingerprint={OPERATION.fingerprint!r})\n"
        f"asyncio.run(store.write({PATH!r}, 'x', expected_version=None, operation=operation))\n"
    )
    opened(tmp_path / "one", WORKFLOW).close()
    workflow = tmp_path / "one" / "workflow.yaml"
    killed = subprocess.run([sys.executable, "-c", program, str(workflow)], capture_output=True, timeout=60)
    with opened(tmp_path / "one", WORKFLOW) as memory:
        store = SessionStore(memory.session("support", run="tuesday"))
        known = asyncio.run(store.get_operation(OPERATION))
        again = asyncio.run(store.write(PATH, "x", expected_version=None, operation=OPERATION))
        text = text_of(store)

    assert (-9, b"") == (killed.returncode, killed.stderr)
    assert (known, True, "x") == (again, again.replayed, text)


def test_one_operation_at_once_is_made_once(store: SessionStore) -> None:
    """One of the callers makes it; the other is told of it, or that it came too late."""

    async def write() -> str:
        try:
            done = await store.write(PATH, "x", expected_version=None, operation=OPERATION)
        except MemoryConflictError:
            return "late"
        return "replayed" if done.replayed else "made"

    async def program() -> list[str]:
        return await asyncio.gather(*(write() for _ in range(8)))

    outcomes = asyncio.run(program())

    assert 1 == outcomes.count("made")
    assert {"made", "replayed", "late"} >= set(outcomes)
    assert ("x", "replayed") == (text_of(store), asyncio.run(write()))


async def test_operations_of_two_users_are_two(memory: memfiles.Memory) -> None:
    """One store serves both, by a function; ids of their own runs may be equal."""
    user = ContextVar[str]("user")
    store = SessionStore(lambda: memory.session("support", user=user.get()))
    found = []
    for name in ("ada", "bob"):
        user.set(name)
        known = await store.get_operation(OPERATION)
        done = await store.write(PATH, f"of {name}", expected_version=None, operation=OPERATION)
        read = await store.read(PATH, max_chars=99)
        found.append((known, done.replayed, read and read.content))

    assert [(None, False, "of ada"), (None, False, "of bob")] == found


def test_what_the_memory_refuses_is_told_to_the_model(session: Session, store: SessionStore) -> None:
    """As a failed result; the run goes on, with the words of the memory."""
    script = Script([("write_memory", {"content": "AKIAIOSFODNN7EXAMPL3"}), ("write_memory", {"content": "- Ada"})])
    output, results = script.run(store)

    assert ("done", ["failed", "success"]) == (output, [outcome for outcome, _ in results])
    assert "aws" in results[0][1].lower()
    assert "- Ada" == (text_of(store) or "").strip()


def test_a_run_uses_all_of_the_harness_s_tools(store: SessionStore) -> None:
    """The model writes, finds, reads, corrects and deletes, and the next run is shown the notebook."""
    script = Script(
        [
            ("write_memory", {"content": "- Ada is on Free"}),
            ("write_memory", {"content": "Lives in Oslo.", "file": "ada.md"}),
            ("write_memory", {"content": "Pro", "old_text": "Free"}),
            ("search_memory", {"query": "OSLO"}),
            ("read_memory", {"file": "ada.md"}),
            ("delete_memory", {"file": "ada.md"}),
            ("read_memory", {"file": "ada.md"}),
        ]
    )
    _, results = script.run(store)
    following = Script([])
    following.run(store)

    assert "Lives in Oslo." in results[3][1]
    assert "Lives in Oslo." == results[4][1].strip()
    assert "There is no memory file named 'ada.md'" in results[6][1]
    assert [["main/MEMORY.md"]] * 2 == [asyncio.run(store.list_paths("main/", limit=most)) for most in (9, 2**70)]
    assert "- Ada is on Pro" in following.shown[0]


@pytest.mark.parametrize(("most", "expected"), [(2, (2, True)), (1, (1, True)), (0, (0, False)), (2**70, (3, False))])
def test_a_search_reads_no_more_files_than_it_may(store: SessionStore, most: int, expected: tuple[int, bool]) -> None:
    """In the order of their names; the result says that others were left out, and nested ones are not counted."""
    for name in ("a.md", "b.md", "c.md", "below/d.md"):
        asyncio.run(store.write(f"main/{name}", "Oslo", expected_version=None))
    limits = {"limit": 9, "max_files": most, "max_chars": 500, "max_file_chars": 500}
    found = asyncio.run(store.search("main/", "oslo", **limits))

    assert expected == (found.scanned, found.truncated)
    assert ["main/a.md", "main/b.md", "main/c.md"][:most] == [match.path for match in found.matches]


def test_a_file_of_another_level_is_told_apart(memory: memfiles.Memory, session: Session, store: SessionStore) -> None:
    """One below is read and not changed; one above is not there, and nothing shows that it is."""
    asyncio.run(store.write(PATH, "internal", expected_version=None))
    session.raise_level("CONFIDENTIAL")
    for change in (store.write(PATH, "x", expected_version="1"), store.delete(PATH, expected_version="1")):
        with pytest.raises(ToolFailed, match="is at level INTERNAL and this session is at CONFIDENTIAL"):
            asyncio.run(change)
    asyncio.run(store.write("main/deal.md", "secret", expected_version=None))
    below = SessionStore(memory.session("support"))

    assert ["internal", None] == [text_of(store), text_of(below, "main/deal.md")]
    assert [PATH] == asyncio.run(below.list_paths(limit=9))
    assert "1" == asyncio.run(below.write("main/deal.md", "mine", expected_version=None)).version
