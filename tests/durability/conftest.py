"""Where the disasters happen, and the programs that bring them about."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import memfiles
from tests.conftest import unavailable
from tests.durability.stops import LONGEST_SECONDS
from tests.durability.tracer import can_trace
from tests.support.programs import run
from tests.support.workflows import write_workflow

_MEMORY_DISK = Path("/dev/shm")
_MUCH_ROOM_BYTES = 4 << 30

Program = Callable[..., list[dict[str, Any]]]
Programs = Callable[[Sequence[tuple[Any, ...]]], list[list[dict[str, Any]]]]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder in memory where there is one: a kill does not care, and a hundred flushes take no time."""
    parent = _MEMORY_DISK if os.access(_MEMORY_DISK, os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="memfiles-", dir=parent))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def images(scratch: Path, tmp_path: Path) -> Path:
    """A folder for images, in memory where that has room: on their disk is what reached them, wherever they lie."""
    return scratch if shutil.disk_usage(scratch).free > _MUCH_ROOM_BYTES else tmp_path


@pytest.fixture(scope="session")
def require_tracing() -> None:
    """Ends the test where a process may not trace its child."""
    if not can_trace():
        unavailable("this machine does not let a process trace its child")


@pytest.fixture
def require_disks(require_root: Callable[[], None], require_tool: Callable[[str], str]) -> None:
    """Ends the test where no file system can be made and mounted."""
    require_root()
    for tool in ("mount", "umount", "mkfs.ext4", "mkfs.xfs"):
        require_tool(tool)


@pytest.fixture
def program() -> Program:
    """``program("tests.durability.kill_sweep", ...)`` runs a module of this package; the JSON lines it prints."""
    return _program


@pytest.fixture
def programs() -> Programs:
    """``programs([("tests.durability.power_sweep", ...), ...])`` runs several at once; what each of them prints."""

    def run(commands: Sequence[tuple[Any, ...]]) -> list[list[dict[str, Any]]]:
        with ThreadPoolExecutor(len(commands)) as pool:
            return list(pool.map(lambda command: _program(*command), commands))

    return run


def _program(module: str, *arguments: object) -> list[dict[str, Any]]:
    done = run(module, *arguments, seconds=LONGEST_SECONDS)
    assert 0 == done.code, done.complaints[-4000:]
    return [json.loads(line) for line in done.output.splitlines()]


_DESK = """
    name: desk
    memory:
      entries: {}
      files: [{uid: notes, name: notes, description: What is known., content: "# Start\\n"}]
    agents:
      support: {memory: [{id: notes, mode: rw}]}
"""


@pytest.fixture
def desk(scratch: Path, require_root: Callable[[], None]) -> Path:
    """The workflow of a memory with a file and two entries, which was closed, in a folder that anybody may enter."""
    require_root()  # to be someone else for a moment
    scratch.chmod(0o755)
    path = write_workflow(scratch / "desk", _DESK)
    with memfiles.open(path, watch=False) as memory:
        session = memory.session("support")
        session.call("append_memory", {"file": "notes", "content": "- remembered\n"})
        session.call("memory_save", {"key": "tea", "content": "Ada drinks green tea."})
        session.call("memory_save", {"key": "tea/milk", "content": "Bob takes milk in his tea."})
    return path
