"""LangGraph's own tests of its store pass with ours in the place of theirs.

They are in the source distribution of the installed release, which pip fetches once into pytest's cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.conftest import unavailable
from tests.support import ROOT

pytestmark = pytest.mark.frameworks

# These are about the vectors of an index that a program passes to their store: ours has none to pass.
ABOUT_VECTORS = [
    "test_vector_store_initialization",
    "test_vector_search_with_filters",
    "test_async_vector_search_with_filters",
    "test_embed_with_path",
]
SWAPPED = """
import atexit, pathlib, tempfile
import memfiles
from langgraph.store import memory
from memfiles.adapters.langgraph_store import MemfilesStore

WORKFLOW = "memory:\\n  durability: os\\n  entries: {max_entries: 500}\\nagents:\\n  support: {level: INTERNAL}\\n"

class Swapped(MemfilesStore):
    def __init__(self, *, index=None):
        folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(folder.name, "workflow.yaml")
        path.write_text(WORKFLOW)
        opened = memfiles.open(path, watch=False)
        super().__init__(opened.session("support"))
        atexit.register(folder.cleanup)
        atexit.register(opened.close)

memory.InMemoryStore = Swapped
"""


@pytest.fixture(scope="session")
def fetched(request: pytest.FixtureRequest) -> Path:
    """A folder with the source distribution, and with the plugins of pytest that its tests use."""
    release = f"langgraph-checkpoint=={version('langgraph-checkpoint')}"
    folder = Path(request.config.cache.mkdir("langgraph")) / release
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    source = ["download", "--no-deps", "--no-binary", ":all:", "--dest", str(folder), release]
    plugins = ["install", "--no-deps", "--target", str(folder / "plugins"), "pytest-asyncio", "pytest-mock"]
    if not (folder / "fetched").exists():
        for arguments in (source, plugins):
            ran = subprocess.run([*pip, *arguments], capture_output=True, text=True, timeout=300)
            if ran.returncode:
                unavailable(f"pip could not fetch LangGraph's tests: {ran.stderr[-500:]}")
        with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
            archive.extractall(folder, filter="data")
        (folder / "fetched").touch()
    return folder


def test_the_tests_of_their_store_pass_unchanged(fetched: Path, tmp_path: Path) -> None:
    """All of the file but the few that are about vectors."""
    (tmp_path / "swapped.py").write_text(SWAPPED)
    tests = next(fetched.glob("langgraph_checkpoint-*/tests/test_store.py"))
    places = [str(fetched / "plugins"), str(tmp_path), str(ROOT)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*places, os.environ.get("PYTHONPATH", "")])}
    left_out = " and ".join(f"not {name}" for name in ABOUT_VECTORS)
    chosen = ["-q", "-p", "swapped", "-o", "asyncio_mode=auto", "-o", "addopts=", "-k", left_out, str(tests)]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", os.devnull, f"--rootdir={tmp_path}", *chosen],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )

    assert 0 == ran.returncode, ran.stdout[-3000:] + ran.stderr[-1000:]
    assert " passed, 4 deselected" in ran.stdout
