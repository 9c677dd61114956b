"""Several machines with one database instead of a mirror: four processes, cut connections, kills of the server."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import memfiles
from tests.model.shared import FILES, KEYS, PROCESSES, WORKFLOW, Done, Ending, explained, script, violations
from tests.support import ROOT
from tests.support.postgres import PostgresServer
from tests.support.proxy import Cut, CuttingProxy
from tests.support.records import declared

pytestmark = pytest.mark.slow
SCRIPTS = int(os.environ.get("MEMFILES_SHARED_SCRIPTS", "8"))
TROUBLED = int(os.environ.get("MEMFILES_TROUBLED_SCRIPTS", "2"))
LINES = int(os.environ.get("MEMFILES_SHARED_LINES", "480"))
CUTS: tuple[Cut, ...] = ("", "before", "", "during", "", "after", "")
APPEND = """
import sys
from memfiles.files.manager import MemoryManager
from tests.support.records import declared
with MemoryManager(sys.argv[1]) as manager:
    manager.restore([declared("shared", cap=1 << 22)])
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(int(sys.argv[3])):
        manager.append("shared", f"{sys.argv[2]} {number}\\n")
"""
Running = Callable[..., list[list[Done]]]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """``running(url, seed)`` has four processes carry out a script at the same time; what each did."""
    with ExitStack() as stack:
        workers = [_worker(stack, tmp_path_factory.mktemp("worker")) for _ in range(PROCESSES)]

        def running(
            url: str, seed: int, *, erases: bool = True, meanwhile: Callable[[], None] = lambda: None
        ) -> list[list[Done]]:
            for worker, calls in zip(workers, script(seed, erases=erases), strict=True):
                _say(worker, json.dumps([url, calls]))
            for worker in workers:
                assert "ready\n" == _heard(worker)
            for worker in workers:
                _say(worker, "go")
            meanwhile()
            return [[Done(*done) for done in json.loads(_heard(worker))] for worker in workers]

        yield running


def _worker(stack: ExitStack, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.model.shared", str(folder)]
    worker = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stack.callback(worker.communicate)
    return worker


def _say(worker: subprocess.Popen[str], line: str) -> None:
    assert worker.stdin is not None
    worker.stdin.write(f"{line}\n")
    worker.stdin.flush()


def _heard(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    return worker.stdout.readline()


def ending(server: PostgresServer, url: str, workspace: str, folder: Path) -> Ending:
    """What is there once all are done."""
    path = folder / "workflow.yaml"
    path.write_text(WORKFLOW.format(url=json.dumps(url)))
    with memfiles.open(path, watch=False) as memory:
        session = memory.session("desk")
        files = {file: memory.manager.read(file) for file in FILES}
        found = {key: memory.entries.get(session, key) for key in KEYS}
    with server.admin() as admin:
        rows = admin.execute("SELECT data FROM memfiles.records WHERE workspace = %s", (workspace,)).fetchall()
        kept = admin.execute("SELECT data FROM memfiles.quarantine WHERE workspace = %s", (workspace,)).fetchall()
    text = "\n".join(bytes(data).decode() for (data,) in (*rows, *kept))
    return Ending(files, {key: each.content if each is not None else None for key, each in found.items()}, text)


def test_four_processes_on_one_database(server: PostgresServer, running: Running, tmp_path: Path) -> None:
    """Every script keeps every promise; every third one while a transaction is open, which holds the feed back."""
    for seed in range(SCRIPTS):
        url, is_held = server.url(workspace := server.workspace()), seed % 3 == 2
        with server.admin() as admin:
            admin.execute("BEGIN; SELECT pg_current_xact_id()" if is_held else "SELECT")
            done = running(url, seed, erases=not is_held)
        told = [each.outcome for process in done for each in process]

        found = violations(done, end := ending(server, url, workspace, tmp_path))
        assert [] == found, explained(seed, found, done, end)
        assert "unknown" not in told, seed


def test_with_connections_that_are_cut(server: PostgresServer, running: Running, tmp_path: Path) -> None:
    """Before, while and after a commit is made: it is made once, and nothing acknowledged is lost."""
    proxy = CuttingProxy(f"{server.folder}/.s.PGSQL.5432")
    for seed in range(TROUBLED):
        workspace = server.workspace()
        with proxy.cutting(CUTS):
            done = running(server.url(workspace, host="127.0.0.1", port=proxy.port), 10_000 + seed)

        found = violations(done, end := ending(server, server.url(workspace), workspace, tmp_path))
        assert [] == found, explained(10_000 + seed, found, done, end)
    assert {"before", "during", "after"} <= {*proxy.made}
    proxy.close()


def test_with_a_server_that_is_killed(server: PostgresServer, running: Running, tmp_path: Path) -> None:
    """And started again, while the calls of the script are made."""
    for seed in range(20_000, 20_000 + TROUBLED):
        url, chance = server.url(workspace := server.workspace()), random.Random(f"kills {seed}")

        def kill(chance: random.Random = chance) -> None:
            for _ in range(chance.choice((1, 1, 2))):
                time.sleep(chance.uniform(0.0, 0.15))
                server.kill()
                server.start()

        done = running(url, seed, meanwhile=kill)
        end = ending(server, url, workspace, tmp_path)

        found = violations(done, end)
        assert [] == found, explained(seed, found, done, end)


def test_eight_processes_append_to_one_file(server: PostgresServer) -> None:
    """Every line is there, once."""
    url, each = server.url(server.workspace()), LINES // 8
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", APPEND, url, f"w{number}", str(each)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for number in range(8)
    ]  # fmt: skip
    for worker in workers:
        assert "ready\n" == _heard(worker)
    for worker in workers:
        _say(worker, "go")
    for worker in workers:
        worker.communicate()
    with memfiles.MemoryManager(url) as manager:
        manager.restore([declared("shared", cap=1 << 22)])
        found = manager.read("shared").splitlines()

    assert [0] * 8 == [worker.returncode for worker in workers]
    assert sorted(f"w{number} {line}" for number in range(8) for line in range(each)) == sorted(found)


def test_the_oracle_finds_what_is_wrong(server: PostgresServer, running: Running, tmp_path: Path) -> None:
    """A line that is lost or doubled, a text that came back, a search that missed a save: each is a violation."""
    url = server.url(workspace := server.workspace())
    done = running(url, 4)
    end = ending(server, url, workspace, tmp_path)
    assert [] == violations(done, end)
    lines = {file: content.splitlines() for file, content in end.files.items()}
    file = max(lines, key=lambda name: len(lines[name]))
    line = next(it for it in lines[file] if it.startswith("ws"))
    lost = Ending(end.files | {file: end.files[file].replace(f"{line}\n", "")}, end.entries, end.kept)
    doubled = Ending(end.files | {file: end.files[file] + f"{line}\n"}, end.entries, end.kept)
    removed = [it.shown for process in done for it in process if it.call["verb"] == "redact" and it.outcome == "ok"]
    back = Ending(end.files, end.entries, end.kept + "".join(removed))
    strange = Ending(end.files, {**end.entries, "tea": "nobody's"}, end.kept)

    assert all(violations(done, each) for each in (lost, doubled, strange))
    assert bool(removed) == bool(violations(done, back))
