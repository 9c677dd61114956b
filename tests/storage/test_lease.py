"""The lease of a workspace: one process at a time syncs it with a mirror, and none keeps it for ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import memfiles
from memfiles.errors import LockTimeout
from memfiles.storage.events import utc_now
from memfiles.storage.postgres.home import PostgresHome
from memfiles.storage.postgres.lease import LEASE_SECONDS, Lease
from tests.support import ROOT
from tests.support.another_process import another_process
from tests.support.postgres import PostgresServer
from tests.support.records import wait_until
from tests.support.workflows import write_workflow

pytestmark = pytest.mark.slow
TEXT = """
name: desk
memory:
  store: {store}
  mirror: {{url: "file://{mirror}"}}
  files: [{{uid: notes-1, name: notes, content: "# Notes\\n"}}]
"""
PUSHING = """
import sys, time
import memfiles
memory = memfiles.open(sys.argv[1], watch=False)
assert memory.sync.flush()
time.sleep(0.1)  # until the threads have done, but not until the lease is given back because nobody uses it
"""
CARELESS = (
    PUSHING
    + """
print("pushed")
input()
memory.manager.append("notes", "- one\\n")
input()
"""
)
MOMENT = 1.0  # seconds, in which Python begins to end


class Machine:
    """A process of another machine, as far as the database can tell: it has a store of its own."""

    def __init__(self, server: PostgresServer, workspace: str) -> None:
        self.home = PostgresHome(server.url(workspace))
        self.store = self.home.open(now=utc_now)
        self.lease: Lease = self.home._workspace.lease

    def is_refused(self) -> bool:
        """Whether it is not its turn now."""
        try:
            with self.lease.held():
                return False
        except LockTimeout:
            return True


@pytest.fixture
def workspace(server: PostgresServer) -> str:
    return server.workspace()


@pytest.fixture
def two(server: PostgresServer, workspace: str) -> Iterator[tuple[Machine, Machine]]:
    machines = Machine(server, workspace), Machine(server, workspace)
    yield machines
    for machine in machines:
        machine.lease.give_back()
        machine.store.close()


def left(server: PostgresServer, workspace: str) -> float:
    """For how many seconds the lease is somebody's; negative once it is not."""
    with server.admin() as admin:
        until = "SELECT extract(epoch FROM until - clock_timestamp())::float8 FROM memfiles.lease WHERE workspace = %s"
        return float((admin.execute(until, (workspace,)).fetchone() or (-1.0,))[0])


def let_it_end(server: PostgresServer, workspace: str) -> None:
    """Put the end of the lease into the past, as if that much time had gone by."""
    with server.admin() as admin:
        past = "UPDATE memfiles.lease SET until = clock_timestamp() - interval '1 s' WHERE workspace = %s"
        admin.execute(past, (workspace,))


def test_one_machine_has_it_at_a_time(two: tuple[Machine, Machine]) -> None:
    """Another one is refused at once, and has it as soon as the first gives it back."""
    one, other = two
    with one.lease.held():
        one.lease._take()  # it may be had again by who has it
        refused = other.is_refused(), one.is_refused()
    one.lease.give_back()
    with other.lease.held():
        refused_then = one.is_refused()

    assert ((True, False), True) == (refused, refused_then)


def test_it_is_given_back_when_there_is_nothing_to_do(
    server: PostgresServer, workspace: str, two: tuple[Machine, Machine]
) -> None:
    """Without a word of the holder, so that a command gets it while a server runs."""
    one, other = two
    assert not one.is_refused()

    wait_until(lambda: left(server, workspace) < 0, what="the end of the lease")
    assert not other.is_refused()


def test_a_user_of_it_keeps_it_while_another_one_ends(two: tuple[Machine, Machine]) -> None:
    """Threads share the lease: it is not given back below one that uses it."""
    one, other = two
    with one.lease.held():
        with one.lease.held():
            pass
        one.lease.give_back()
        is_kept = one.lease._until > 0

        assert is_kept and other.is_refused()


def test_a_process_that_ends_gives_it_back(
    server: PostgresServer, workspace: str, two: tuple[Machine, Machine]
) -> None:
    """At once, and not only when it would have noticed that there is nothing to do."""
    one, _ = two
    with one.home.held(), one.lease.held():
        during = left(server, workspace)

    assert during > 0 > left(server, workspace)


def test_it_is_renewed_while_it_is_used(server: PostgresServer, workspace: str, two: tuple[Machine, Machine]) -> None:
    """Long before it runs out."""
    one, other = two
    with one.lease.held():
        with server.admin() as admin:
            soon = "UPDATE memfiles.lease SET until = clock_timestamp() + interval '3 s' WHERE workspace = %s"
            admin.execute(soon, (workspace,))
        one.lease._until = time.monotonic() + 3  # as it knows after a part of the time

        wait_until(lambda: left(server, workspace) > LEASE_SECONDS / 2, what="a later end of the lease")
        assert other.is_refused()


def test_that_of_a_dead_process_runs_out(server: PostgresServer, workspace: str, two: tuple[Machine, Machine]) -> None:
    """It did not give it back: another one has to wait for the end, and for no longer."""
    one, other = two
    one.lease._take()  # and dies
    before, seconds = other.is_refused(), left(server, workspace)
    let_it_end(server, workspace)

    assert (True, True, False) == (before, 0 < seconds <= LEASE_SECONDS, other.is_refused())


def test_a_forked_child_has_none(two: tuple[Machine, Machine]) -> None:
    """It is refused while its parent has the lease."""
    one, _ = two
    with one.lease.held():
        child = os.fork()
        if child == 0:
            try:
                is_refused = one.is_refused()
            finally:
                os._exit(0 if is_refused else 1)
        _, status = os.waitpid(child, 0)

    assert 0 == os.waitstatus_to_exitcode(status)


def test_nothing_is_pushed_while_another_machine_syncs(
    server: PostgresServer, workspace: str, two: tuple[Machine, Machine], tmp_path: Path
) -> None:
    """Not by a change, nor by who waits for the mirror; and no change is lost when the other one has done."""
    (tmp_path / "mirror").mkdir()
    text = TEXT.format(store=json.dumps(server.url(workspace)), mirror=tmp_path / "mirror")
    copy = tmp_path / "mirror" / "notes-1.json"
    with memfiles.open(write_workflow(tmp_path / "desk", text), watch=False) as memory:
        assert memory.sync.flush() and copy.exists()
        wait_until(lambda: left(server, workspace) < 0, what="the end of the lease")
        with two[0].lease.held():
            memory.manager.append("notes", "- one\n")
            flushed, pushed = memory.sync.flush(timeout=1.0), "- one" in copy.read_text()
        two[0].lease.give_back()

        assert (False, False) == (flushed, pushed)
        assert memory.sync.flush() and "- one" in copy.read_text()


def test_a_program_that_closes_nothing_ends(server: PostgresServer, workspace: str, tmp_path: Path) -> None:
    """Also while a thread of it waits for the lease: Python, which ends such threads first, waited for it for ever."""
    (tmp_path / "mirror").mkdir()
    text = TEXT.format(store=json.dumps(server.url(workspace)), mirror=tmp_path / "mirror")
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'memfiles.lease'::regclass"
    with another_process(CARELESS, write_workflow(tmp_path / "desk", text)) as program, server.admin() as admin:
        assert "pushed" == program.hear()
        wait_until(lambda: left(server, workspace) < 0, what="the end of the lease")
        with admin.transaction():
            admin.execute("LOCK TABLE memfiles.lease")
            program.tell()
            wait_until(lambda: admin.execute(waiting).fetchone() != (0,), what="a thread that waits for the lease")
            program.tell()
            time.sleep(MOMENT)

        assert 0 == program.process.wait(30)


def test_a_program_that_closes_nothing_gives_it_back(server: PostgresServer, workspace: str, tmp_path: Path) -> None:
    """At its end: the next program would have to wait until it runs out."""
    (tmp_path / "mirror").mkdir()
    text = TEXT.format(store=json.dumps(server.url(workspace)), mirror=tmp_path / "mirror")
    program = [sys.executable, "-c", PUSHING, str(write_workflow(tmp_path / "desk", text))]
    subprocess.run(program, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60)

    assert left(server, workspace) < 0
