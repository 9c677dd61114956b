"""What every test may ask for: a tool or a right that this machine may lack."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import HealthCheck, settings

import memfiles
from tests.support.stores import STORE, place_of
from tests.support.workflows import opened

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer

SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])

settings.register_profile(
    "house", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # others use the machine
settings.load_profile("house")

signal.signal(signal.SIGINT, signal.default_int_handler)  # after a `&` it is ignored, also by children

SERVERS = {"moto_url", "serving", "talk"}  # the fixtures that start one
DRIVING_FRAMEWORKS = (  # to import agent frameworks takes seconds
    "adapters/shapes/test_memory_tool.py",
    "adapters/test_*.py",
    "surfaces/test_surfaces.py",
    "tools/dialects/test_schemas.py",
)
_TESTS = Path(__file__).parent


def unavailable(reason: str) -> NoReturn:
    """End the test: skipped with ``reason`` on a person's machine, failed where CI=true, which must have everything."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def _require_tool(name: str) -> str:
    return shutil.which(name, path=SEARCH_PATH) or unavailable(f"{name} is not installed")


def _require_root() -> None:
    if os.geteuid() != 0:
        unavailable("needs root")


@cache
def _drives_frameworks(path: Path) -> bool:
    return path.is_relative_to(_TESTS) and any(
        fnmatchcase(str(path.relative_to(_TESTS)), it) for it in DRIVING_FRAMEWORKS
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what drives agent frameworks if slow tests are left out: each worker would."""
    is_left_out = "not slow" in config.getoption("markexpr") and _drives_frameworks(collection_path)
    return True if is_left_out else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep what is collected out of the garbage collector, which takes a tenth of the run to walk through it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow each test that kills, cuts the power, starts a server, drives a framework or installs packages.

    Those of the directory itself have nothing to say about another store.
    """
    for item in items:
        if STORE in os.environ and (of_directory := item.get_closest_marker("directory")):
            item.add_marker(pytest.mark.skip(f"of a directory alone: {of_directory.args[0]}"))
        is_marked = any(item.get_closest_marker(name) for name in ("frameworks", "kill", "node", "power", "servers"))
        is_slow = is_marked or _drives_frameworks(item.path)
        if is_slow or not SERVERS.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def _server_of_all() -> None:
    """Start the server of the store that tests are to run on, before a program that a test starts looks for it."""
    if STORE in os.environ:
        place_of(Path("all"))


@pytest.fixture(scope="session")
def require_tool() -> Callable[[str], str]:
    """``require_tool("strace")`` returns the tool's path, or ends the test."""
    return _require_tool


@pytest.fixture(scope="session")
def require_root() -> Callable[[], None]:
    """``require_root()`` ends the test unless it is run by root."""
    return _require_root


@pytest.fixture
def installed() -> None:
    """Ends the test where memfiles is not installed with its entry points, by which mirrors are found."""
    if not entry_points(group="memfiles.mirrors", name="s3"):
        unavailable("memfiles is not installed with its entry points: pip install -e .")


@pytest.fixture
def open_memory(tmp_path: Path) -> Iterator[Callable[[str], memfiles.Memory]]:
    """``open_memory(workflow)`` opens the memory of a workflow in a folder of its own, until the end of the test."""
    memories: list[memfiles.Memory] = []

    def opening(workflow: str) -> memfiles.Memory:
        memories.append(opened(tmp_path / f"{len(memories)}", workflow))
        return memories[-1]

    yield opening
    for memory in memories:
        memory.close()


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the event loops that a framework makes for its synchronous calls and leaves open."""
    made: list[asyncio.AbstractEventLoop] = []
    new = asyncio.new_event_loop

    def noted() -> asyncio.AbstractEventLoop:
        made.append(new())
        return made[-1]

    asyncio.set_event_loop(None)
    monkeypatch.setattr(asyncio, "new_event_loop", noted)
    yield
    asyncio.set_event_loop(None)
    for loop in made:
        loop.close()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A PostgreSQL server for the tests of a module."""
    from tests.support.postgres import postgres_server  # late: it needs psycopg, and this module

    with postgres_server() as started:
        yield started


@pytest.fixture(params=["directory", pytest.param("postgresql", marks=pytest.mark.slow)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A directory, or the URL of a workspace, empty."""
    if request.param == "directory":
        return str(tmp_path / "memory")
    server: PostgresServer = request.getfixturevalue("server")
    return server.url(server.workspace())
