"""What keeps notes durably, each as its own manual shows it: memfiles, and what people use instead.

Each holds ``notes`` of text and appends lines to them. ``python -m tests.benchmarks.writers NAME FOLDER COUNT`` appends
that often, for strace to count the flushes of a whole process.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import memfiles
from memfiles import Memory, MemoryFile, MemoryManager
from tests.benchmarks.bare import replace_durably

LINE = "- a line that an agent would append to its notes\n"
HISTORY = 100  # changes that a record keeps
CAP = 4 * 1024 * 1024
WORKFLOW = """\
name: notes
memory:
  directory: .memory
  files: [{files}]
  entries: {{max_entries: 1000000, max_bytes: 1099511627776, hydrate_bytes: 16384}}
agents:
  assistant:
    memory: [{references}]
"""
Append = Callable[[int], object]
"""Appends a line to the note of that number; durable on return, as far as the writer is."""


def note_of(size: int) -> str:
    """A note of so many bytes."""
    return (LINE * (size // len(LINE) + 1))[: max(size - 1, 0)] + "\n" * bool(size)


def declared(notes: Sequence[str]) -> list[MemoryFile]:
    """The notes as memory files, ``note-0`` and so on."""
    return [
        MemoryFile(uid=f"note-{n}", name=f"note-{n}", description="notes", max_size_bytes=CAP, content=content)
        for n, content in enumerate(notes)
    ]


def workflow_in(folder: Path, count: int) -> Path:
    """A workflow with that many notes, room for entries, and a block of them as ``memfiles init`` declares it."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"note-{number}" for number in range(count)]
    files = [f"{{uid: {name}, name: {name}, description: notes, max_size_bytes: {CAP}}}" for name in names]
    references = [f"{{id: {name}, mode: rw}}" for name in names]
    path = folder / "workflow.yaml"
    path.write_text(WORKFLOW.format(files=", ".join(files), references=", ".join(references)))
    return path


@contextmanager
def opened(folder: Path, notes: Sequence[str]) -> Iterator[Memory]:
    """A memory with its defaults: watched, with an audit; its notes hold a full history."""
    workflow = workflow_in(folder, len(notes))
    if not (folder / ".memory").exists():
        with managed(folder / ".memory", notes):
            pass
    with memfiles.open(workflow) as memory:
        yield memory


@contextmanager
def managed(directory: Path, notes: Sequence[str]) -> Iterator[MemoryManager]:
    """The manager of memory files alone; its notes hold a full history."""
    fresh = not directory.exists()
    with MemoryManager(directory) as manager:
        manager.restore(declared([note[:-HISTORY] for note in notes]))
        for number, note in enumerate(notes) if fresh else ():
            manager.append_many([(f"note-{number}", byte) for byte in note[-HISTORY:]])
        yield manager


@contextmanager
def _defaults(folder: Path, notes: Sequence[str]) -> Iterator[Append]:
    with opened(folder, notes) as memory:
        yield lambda number: memory.manager.append(f"note-{number}", LINE)


@contextmanager
def _tool_call(folder: Path, notes: Sequence[str]) -> Iterator[Append]:
    with opened(folder, notes) as memory:
        session = memory.session("assistant", run="bench")

        def append(number: int) -> None:
            result = session.call("append_memory", {"file": f"note-{number}", "content": LINE})
            assert not result.is_error, result.text

        yield append


@contextmanager
def _parts(folder: Path, notes: Sequence[str]) -> Iterator[Append]:
    with managed(folder / "memory", notes) as manager:
        yield lambda number: manager.append(f"note-{number}", LINE)


@contextmanager
def _plain_file(folder: Path, notes: Sequence[str]) -> Iterator[Append]:
    texts = dict(enumerate(notes))

    def append(number: int) -> None:
        texts[number] += LINE
        replace_durably(folder / str(number), texts[number].encode())

    folder.mkdir(parents=True, exist_ok=True)
    yield append


@contextmanager
def _sqlite(folder: Path, notes: Sequence[str]) -> Iterator[Append]:
    folder.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(folder / "notes.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS note (id INTEGER PRIMARY KEY, content TEXT)")
    connection.executemany("INSERT OR IGNORE INTO note VALUES (?, ?)", enumerate(notes))
    yield lambda number: connection.execute("UPDATE note SET content = content || ? WHERE id = ?", (LINE, number))
    connection.close()


@contextmanager
def _diskcache(folder: Path, notes: Sequence[str], **settings: int) -> Iterator[Append]:
    with import_module("diskcache").Cache(str(folder), **settings) as cache:
        for number, note in enumerate(notes):
            cache.add(number, note)

        def append(number: int) -> None:
            with cache.transact():
                cache[number] = cache[number] + LINE

        yield append


@contextmanager
def _anthropic(folder: Path, notes: Sequence[str]) -> Iterator[Append]:
    from anthropic.tools import BetaLocalFilesystemMemoryTool
    from anthropic.types.beta import (
        BetaMemoryTool20250818CreateCommand,
        BetaMemoryTool20250818InsertCommand,
    )

    tool = BetaLocalFilesystemMemoryTool(str(folder))
    ends = {}
    for number, note in enumerate(notes):
        path = f"/memories/{number}.md"
        ends[number] = note.count("\n")
        if not (folder / "memories" / f"{number}.md").exists():
            tool.create(BetaMemoryTool20250818CreateCommand(command="create", path=path, file_text=note))

    def append(number: int) -> None:
        path = f"/memories/{number}.md"
        tool.insert(
            BetaMemoryTool20250818InsertCommand(command="insert", path=path, insert_line=ends[number], insert_text=LINE)
        )
        ends[number] += 1

    yield append


@contextmanager
def _langgraph(folder: Path, notes: Sequence[str]) -> Iterator[Append]:
    folder.mkdir(parents=True, exist_ok=True)
    with import_module("langgraph.store.sqlite").SqliteStore.from_conn_string(str(folder / "store.sqlite")) as store:
        store.setup()
        for number, note in enumerate(notes):
            if store.get(("notes",), str(number)) is None:
                store.put(("notes",), str(number), {"text": note})

        def append(number: int) -> None:
            found = store.get(("notes",), str(number))
            store.put(("notes",), str(number), {"text": found.value["text"] + LINE})

        yield append


@dataclass(frozen=True)
class Writer:
    """What keeps notes, how durable its maker has it, and the module that it needs."""

    opened: Callable[[Path, Sequence[str]], AbstractContextManager[Append]]
    durable: str
    needs: str = "memfiles"

    @property
    def is_installed(self) -> bool:
        """Whether it can be used here."""
        package, *_ = self.needs.split(".")
        return find_spec(package) is not None and find_spec(self.needs) is not None


FLUSHED = "yes"
DEFAULTS, PARTS, TOOL = "memfiles.open with its defaults", "memfiles, the manager alone", "memfiles, a tool call"
NOTE_REPLACED = "the note alone, replaced durably (F)"
WRITERS: dict[str, Writer] = {
    DEFAULTS: Writer(_defaults, FLUSHED),
    TOOL: Writer(_tool_call, FLUSHED),
    PARTS: Writer(_parts, FLUSHED),
    NOTE_REPLACED: Writer(_plain_file, FLUSHED),
    "SQLite (WAL, synchronous=FULL)": Writer(_sqlite, FLUSHED),
    "LangGraph's SqliteStore": Writer(
        _langgraph, "yes: SQLite's own defaults, a rollback journal and synchronous=FULL", "langgraph.store.sqlite"
    ),
    "diskcache": Writer(_diskcache, "no: synchronous=NORMAL, so a power cut loses the last changes", "diskcache"),
    "diskcache with synchronous=FULL": Writer(partial(_diskcache, sqlite_synchronous=2), FLUSHED, "diskcache"),
    "Anthropic's local memory tool": Writer(
        _anthropic, "its text yes, its rename no: the directory is not flushed", "anthropic"
    ),
}


def main(name: str, folder: str, count: str) -> None:
    """Open, append and close."""
    with ExitStack() as stack:
        append = stack.enter_context(WRITERS[name].opened(Path(folder), [note_of(1024)]))
        for _ in range(int(count)):
            append(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
