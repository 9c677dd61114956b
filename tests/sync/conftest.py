"""The stores that the tests of the synchronisation share, and memories that are closed when a test ends."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import memfiles
from memfiles import Memory
from memfiles.sync.mirror import Mirror
from mirrors.memory import MemoryMirror
from mirrors.urls import open_mirror
from tests.mirrors.faulty_endpoint import FaultyEndpoint
from tests.mirrors.servers import BUCKET, aws_environment, moto_url  # noqa: F401 (fixtures of every test here)
from tests.sync.entry_machine import EntryMachine
from tests.sync.signed_mirrors import NEW
from tests.sync.sync_machines import write_shared_workflow

Opener = Callable[..., Memory]
Machines = Callable[..., EntryMachine]


@pytest.fixture
def endpoint(moto_url: str) -> Iterator[FaultyEndpoint]:  # noqa: F811
    """An endpoint in front of moto that misbehaves as this test tells it."""
    with FaultyEndpoint(moto_url) as faulty:
        yield faulty


@pytest.fixture
def mirror() -> MemoryMirror:
    """The mirror that all memories of a test share."""
    return MemoryMirror()


@pytest.fixture
def open_machine(tmp_path: Path, mirror: MemoryMirror) -> Iterator[Opener]:
    """``open_machine(name, ...)`` opens the memory of a machine; ``through`` is the way to the mirror."""
    with ExitStack() as ending:

        def opening(
            name: str = "one",
            *,
            through: Mirror | None = None,
            uids: tuple[str, ...] = ("notes",),
            watch: bool = False,
            **declared: str,
        ) -> Memory:
            path = write_shared_workflow(tmp_path / name, "file:///not/used", uids=uids, **declared)
            memory = memfiles.open(path, watch=watch, mirror=through if through is not None else mirror)
            ending.callback(memory.close)
            return memory

        yield opening


@pytest.fixture(params=["memory", "directory"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Mirror:
    """The mirror that all machines of a test share."""
    if request.param == "memory":
        return MemoryMirror()
    if request.param == "directory":
        (tmp_path / "mirror").mkdir()
        return open_mirror((tmp_path / "mirror").as_uri())
    endpoint = request.getfixturevalue("moto_url")
    return open_mirror(f"s3://{BUCKET}/entries-{uuid.uuid4().hex[:8]}?endpoint={endpoint}&region=us-east-1")


in_a_bucket_too = pytest.mark.parametrize(
    "shared", ["memory", "directory", pytest.param("s3", marks=pytest.mark.slow)], indirect=True
)


def content_in(mirror: Mirror, uid: str = "notes") -> str:
    """The content of a mirror's copy."""
    stored = mirror.get(f"{uid}.json")
    assert stored is not None
    return str(json.loads(stored.body)["content"])


def on_disk(memory: Memory, uid: str = "notes") -> bytes:
    """A record as it lies on the disk."""
    return (memory.manager.directory / f"{uid}.json").read_bytes()


def in_mirror(mirror: Mirror, uid: str = "notes") -> bytes | None:
    """A mirror's copy, None if there is none."""
    stored = mirror.get(f"{uid}.json")
    return stored.body if stored is not None else None


def wait_for(is_so: Callable[[], bool], *, seconds: float = 60.0) -> bool:
    """Whether something becomes so in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if is_so():
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def desk_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of signed mirrors is in the environment."""
    monkeypatch.setenv("DESK_KEY", NEW)


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    """A directory that is a mirror."""
    (tmp_path / "bucket").mkdir()
    return tmp_path / "bucket"


@pytest.fixture
def machine(tmp_path: Path, shared: Mirror) -> Iterator[Machines]:
    """``machine(name, ...)`` opens the memory of a machine; ``through`` is the way to the mirror."""
    with ExitStack() as ending:

        def open_machine(name: str, *, through: Mirror | None = None, **settings: Any) -> EntryMachine:
            return ending.enter_context(EntryMachine(tmp_path / name, through or shared, **settings))

        yield open_machine
