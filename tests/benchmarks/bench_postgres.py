"""Memory in PostgreSQL: a durable append next to a bare UPDATE, psycopg and LangGraph; processes; and searches.

The server runs on this machine with its defaults, so each commit waits for the disk. ``MEMFILES_BENCH_ENTRIES`` are the
numbers of entries, of which the last counts here. ``MEMFILES_BENCH_PAGES=1`` writes ``docs/measurements/postgres.md``.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import psycopg

import memfiles
from memfiles.files.manager import MemoryManager
from memfiles.storage.record_store import RecordStore
from memfiles.tools.session import Session
from tests.benchmarks import page
from tests.benchmarks.bare import in_turns, ratios, seconds
from tests.benchmarks.bench_writes import IN_A_BLOCK
from tests.benchmarks.grounds import VOLUME, grounds
from tests.benchmarks.language import contents, questions
from tests.benchmarks.page import Figure, at_least, at_most
from tests.support import ROOT
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.records import declared

ENTRIES = int(os.environ.get("MEMFILES_BENCH_ENTRIES", "1000,10000,100000").split(",")[-1])
ROUNDS = int(os.environ.get("MEMFILES_BENCH_ROUNDS", "20"))
NOTE, LINE = "- Ada prefers tea in the morning, and asked for it twice.\n" * 15, "- tea\n"  # about 2 KiB with 200 lines
BARE, IN_TRANSACTION = "a bare conditional UPDATE", "the same, in BEGIN and COMMIT"
APPEND, MEMORY = "an append, by the manager", "an append, by an open memory with its audit"
GOAL, PROCESSES_GOAL, FIRST_GOAL, WARM_GOAL = 1.5, 2.5, 3.0, 5.0
INTRO = f"""\
The server and its clients run on one machine, over a socket, with the server's defaults: `fsync` and
`synchronous_commit` are on. A record has 2 KiB of content and as many changes as a record keeps; every writer changes
as many bytes. Operations run in turns in one run, {IN_A_BLOCK} times in a row each: caches are warm, and a device with
a limit has no writes saved up. The ratios are the medians of those of the {ROUNDS} rounds.

The changes are measured twice: on the disk of this machine, which may flush in a tenth of a millisecond, and on an
image of ext4 with a journal that the kernel limits to as many writes a second as a volume in a cloud often takes."""
WORKFLOW = """
name: bench
memory:
  {place}
  files: [{{uid: note, name: note, max_size_bytes: 8388608}}]
  entries: {{max_entries: 1000000, max_bytes: 1000000000}}
agents: {{desk: {{users: optional, memory: [{{id: note, mode: rw}}]}}}}
"""
WORKER = """
import sys, time
from memfiles.files.manager import MemoryManager
from tests.support.records import declared
uid = f"note-{sys.argv[2]}"
with MemoryManager(sys.argv[1]) as manager:
    manager.restore([declared(uid, content=sys.argv[5], cap=1 << 23)])
    manager.append(uid, "x")
    print("ready", flush=True)
    sys.stdin.readline()
    begun = time.monotonic()
    for _ in range(int(sys.argv[3])):
        manager.append(uid, sys.argv[4])
    print(time.monotonic() - begun, flush=True)
"""
BARE_WORKER = """
import sys, time, psycopg
statement = "UPDATE bare_worker SET version = version + 1, data = %s WHERE path = %s AND version = %s RETURNING 1"
path, body = sys.argv[2], sys.argv[5].encode()
with psycopg.connect(sys.argv[1], autocommit=True) as connection:
    connection.execute("INSERT INTO bare_worker VALUES (%s, 0, %s) ON CONFLICT DO NOTHING", (path, body))
    (version,) = connection.execute("SELECT version FROM bare_worker WHERE path = %s", (path,)).fetchone()
    print("ready", flush=True)
    sys.stdin.readline()
    begun = time.monotonic()
    for turn in range(int(sys.argv[3])):
        assert connection.execute(statement, (body, path, version + turn)).fetchone()
    print(time.monotonic() - begun, flush=True)
"""
FIRST = """
import json, sys, time
import memfiles
begun = time.perf_counter()
memory = memfiles.open(sys.argv[1], watch=False)
session = memory.session("desk")
memory.entries.search(session, sys.argv[2])
first = time.perf_counter() - begun
warm = []
for question in json.loads(sys.argv[3]):
    begun = time.perf_counter()
    memory.entries.search(session, question)
    warm.append(time.perf_counter() - begun)
print(json.dumps([first, warm]))
memory.close()
"""


def test_postgres(tmp_path: Path) -> None:
    """Every figure, printed, and written to the page."""
    parts: dict[str, list[Figure]] = {}
    with postgres_server(is_durable=True) as server:
        for what, figures in changes(server, tmp_path / "writes"):
            parts[what] = [each.printed() for each in figures]
        parts[f"Searches among {ENTRIES:,} entries"] = [each.printed() for each in searches(server, tmp_path)]
    with (
        tempfile.TemporaryDirectory(prefix="volume-") as folder,
        grounds(Path(folder), megabytes=1536) as (found, lacking),
    ):
        if found[0].disk is not None:
            for each in (Path(folder), found[0].folder.parent, found[0].folder):
                each.chmod(0o755)  # the server runs as another user
            with found[0].limited(VOLUME), postgres_server(is_durable=True, disk=found[0].folder) as server:
                for what, figures in changes(server, tmp_path / "volume"):
                    parts[f"{what}, limited to {VOLUME:,} writes a second"] = [each.printed() for each in figures]
    intro = "\n\n".join(filter(None, [INTRO, lacking]))
    page.write("postgres", page.rendered("PostgreSQL", intro, parts))


def changes(server: PostgresServer, folder: Path) -> Iterator[tuple[str, Iterator[Figure]]]:
    """The figures of changes, by what they tell."""
    yield "Durable appends to one record", writes(server, folder)
    yield "Processes on different records", processes(server)


def writes(server: PostgresServer, folder: Path, *, rounds: int = ROUNDS, each: int = IN_A_BLOCK) -> Iterator[Figure]:
    """A durable append next to a bare update of the same bytes, and to others."""
    with ExitStack() as stack:
        url = server.url(server.workspace())
        manager = stack.enter_context(MemoryManager(url, secrets="off"))
        manager.restore([declared("note", content=NOTE, cap=1 << 23)])
        for _ in range(120):
            manager.append("note", LINE)
        body = record_of(manager.records)
        operations: dict[str, Callable[[int], object]] = {
            BARE: stack.enter_context(bare(server, body, is_explicit=False)),
            IN_TRANSACTION: stack.enter_context(bare(server, body, is_explicit=True)),
            APPEND: lambda _: manager.append("note", LINE),
        }
        memory = stack.enter_context(opened(folder, f"store: {json.dumps(server.url(server.workspace()))}"))
        memory.manager.append("note", NOTE)
        for _ in range(120):
            memory.manager.append("note", LINE)
        operations[MEMORY] = lambda _: memory.manager.append("note", LINE)
        sessions = {
            "no user": memory.session("desk"),
            "a user, whose audit is written at once": memory.session("desk", user="ada"),
        }
        for whose, session in sessions.items():
            operations[f"a save of an entry, of {whose}"] = saves(memory, session)
        operations["psycopg: SELECT FOR UPDATE, then UPDATE"] = stack.enter_context(read_and_write(server, body))
        if find_spec("langgraph.store.postgres"):
            operations["LangGraph's PostgresStore: get, then put"] = stack.enter_context(langgraph(server, body))
        in_turns(operations, rounds=10)
        taken = in_turns(operations, rounds=rounds, each=each)
    for what, found in taken.items():
        low, middle, high = ratios(found, taken[BARE])
        shown = f"{median(found) * 1e3:.2f} ms, {middle:.2f} ({low:.2f} to {high:.2f}) times the bare UPDATE"
        if what != APPEND:
            yield Figure(what, shown)
            continue
        _, explicit, _ = ratios(found, taken[IN_TRANSACTION])
        shown += f", {explicit:.2f} times that in BEGIN and COMMIT"
        yield at_most(what, explicit, GOAL, shown=shown, unit=" times that in BEGIN and COMMIT")


def saves(memory: memfiles.Memory, session: Session) -> Callable[[int], object]:
    """Saves of one entry, each with another text."""
    return lambda turn: memory.entries.save(session, "tea", f"{turn} {LINE}")


def record_of(store: RecordStore) -> bytes:
    """The bytes of the record that is appended to."""
    found = store.find("note.json")
    assert found is not None
    return found[0]


@contextmanager
def bare(server: PostgresServer, body: bytes, *, is_explicit: bool) -> Iterator[Callable[[int], object]]:
    """The least that a conditional change of a row can be."""
    with server.admin() as connection:
        table = f"bare_{is_explicit}".lower()
        connection.execute(f"CREATE TABLE {table} (path text PRIMARY KEY, version bigint, data bytea)")
        connection.execute(f"ALTER TABLE {table} ALTER COLUMN data SET STORAGE EXTERNAL")
        connection.execute(f"INSERT INTO {table} VALUES ('note', 0, %s)", (body,))
        statement = (
            f"UPDATE {table} SET version = version + 1, data = %s WHERE path = 'note' AND version = %s RETURNING 1"
        )
        version = 0

        def update(_: int) -> None:
            nonlocal version
            if is_explicit:
                with connection.transaction():
                    row = connection.execute(statement, (body, version)).fetchone()
            else:
                row = connection.execute(statement, (body, version)).fetchone()
            assert row is not None
            version += 1

        yield update


@contextmanager
def read_and_write(server: PostgresServer, body: bytes) -> Iterator[Callable[[int], object]]:
    """What a program with psycopg does: lock the row, read it, and write it back with more."""
    with psycopg.connect(server.dsn) as connection:
        connection.execute("CREATE TABLE plain (path text PRIMARY KEY, data bytea)")
        connection.execute("INSERT INTO plain VALUES ('note', %s)", (body,))
        connection.commit()

        def append(_: int) -> None:
            with connection.transaction():
                connection.execute("SELECT data FROM plain WHERE path = 'note' FOR UPDATE").fetchone()
                connection.execute("UPDATE plain SET data = %s WHERE path = 'note'", (body,))

        yield append


@contextmanager
def langgraph(server: PostgresServer, body: bytes) -> Iterator[Callable[[int], object]]:
    """LangGraph's store: what it has under a key, with more."""
    from langgraph.store.postgres import PostgresStore

    with PostgresStore.from_conn_string(server.dsn) as store:
        store.setup()
        text = body.decode()
        store.put(("notes",), "note", {"text": text})

        def append(_: int) -> None:
            store.get(("notes",), "note")
            store.put(("notes",), "note", {"text": text})

        yield append


@contextmanager
def opened(folder: Path, place: str) -> Iterator[memfiles.Memory]:
    """An open memory with its defaults."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "workflow.yaml"
    path.write_text(WORKFLOW.format(place=place))
    with memfiles.open(path) as memory:
        yield memory


def processes(server: PostgresServer, *, each: int = 200) -> Iterator[Figure]:
    """Appends a second of one process, and of eight on different records."""
    with server.admin() as connection:
        connection.execute("CREATE TABLE bare_worker (path text PRIMARY KEY, version bigint, data bytea)")
        connection.execute("ALTER TABLE bare_worker ALTER COLUMN data SET STORAGE EXTERNAL")
    rounds = [
        {(what, count): rate_of(server, what, count, each=each) for what in (BARE, APPEND) for count in (1, 8)}
        for _ in range(3)
    ]
    for what in (BARE, APPEND):
        rates = {count: median(rate[what, count] for rate in rounds) for count in (1, 8)}
        yield Figure(f"one process, {what}", f"{rates[1]:.0f}/s")
        times = median(rate[what, 8] / rate[what, 1] for rate in rounds)
        shown = f"{rates[8]:.0f}/s, {times:.2f} times one, on {os.cpu_count()} cores"
        name = f"eight processes, {what}"
        if what == APPEND:
            yield at_least(name, times, PROCESSES_GOAL, shown=shown, unit=" times one")
        else:
            yield Figure(name, shown)


def rate_of(server: PostgresServer, what: str, count: int, *, each: int) -> float:
    """How often a second so many processes do it together."""
    ours = WORKER, server.url(server.workspace()), NOTE
    program, place, text = (BARE_WORKER, server.dsn, NOTE * 20) if what == BARE else ours  # with its changes
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", program, place, str(number), str(each), LINE, text],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for number in range(count)
    ]  # fmt: skip
    for worker in workers:
        assert worker.stdout is not None and "ready\n" == worker.stdout.readline()
    begun = time.monotonic()
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers:
        assert worker.stdout is not None and float(worker.stdout.readline())
    taken = time.monotonic() - begun
    for worker in workers:
        worker.communicate()
    return count * each / taken


def searches(server: PostgresServer, folder: Path, *, entries: int = ENTRIES, rounds: int = 40) -> Iterator[Figure]:
    """The first search of a fresh worker, and a warm one next to files."""
    url = json.dumps(server.url(server.workspace()))
    places = {
        "files": "directory: .memory",
        "a store": f"store: {url}",
        "a store with a cache": f"store: {url}\n  cache: .cache",
    }
    dice = random.Random(7)
    texts = contents(dice, entries)
    for name in ("files", "a store"):
        with opened(folder / name.replace(" ", "-"), places[name]) as memory:
            session = memory.session("desk")
            filled = seconds(lambda: fill(memory, session, texts))
            yield Figure(f"saving all of them in {name}", f"{filled / entries * 1e6:.0f} us each")
    asked = [" ".join(words) for words in questions(dice, texts, rounds + 1)]
    (folder / "a-store-with-a-cache").mkdir()
    found = {}
    for name, place in places.items():
        path = folder / name.replace(" ", "-") / "workflow.yaml"
        path.write_text(WORKFLOW.format(place=place))
        if name != "files":  # builds the index, and leaves an image of it in the store, or fills the cache
            before = first_of(path, asked)[0]
            if name == "a store":
                yield Figure("the first worker of all, which builds the index", f"{before:.2f} s")
        found[name] = first_of(path, asked)
    for name, (first, _) in found.items():
        what = f"opening and the first search of a fresh worker, {name}"
        shown = f"{first:.2f} s"
        is_goal = name != "files"
        yield at_most(what, first, FIRST_GOAL, shown=shown, unit=" s") if is_goal else Figure(what, shown)
    base = median(found["files"][1]) * 1e3
    yield Figure("a warm search, files", f"{base:.2f} ms")
    warm = median(found["a store"][1]) * 1e3
    yield at_most("a warm search, a store", warm - base, WARM_GOAL, shown=f"{warm:.2f} ms", unit=" ms later")


def fill(memory: memfiles.Memory, session: object, texts: Sequence[str]) -> None:
    """Save these entries, some thousand at a time."""
    for start in range(0, len(texts), 5000):
        some = enumerate(texts[start : start + 5000], start)
        drafts = [{"key": f"k{number}", "content": text} for number, text in some]
        memory.entries.save_many(session, drafts)  # type: ignore[arg-type]


def first_of(path: Path, asked: Sequence[str]) -> tuple[float, list[float]]:
    """The seconds of the first search of a process, and of those after it."""
    command = [sys.executable, "-c", FIRST, str(path), asked[0], json.dumps(list(asked[1:]))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    first, warm = json.loads(done.stdout.splitlines()[-1])
    return first, warm
