"""LangGraph's own tests of its store pass with ours in the place of theirs.

They are in the source distribution of the installed release, which pip fetches once into pytest's cache. So is their
store over SQLite, whose answers to filters are compared with ours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from memfiles.adapters.shapes.items import matches_filter
from tests.adapters.shapes.test_items import DOTTED
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


COMPARED = """
import json, sys
from langgraph.store.sqlite import SqliteStore

values, filters = json.load(sys.stdin)
with SqliteStore.from_conn_string(":memory:") as store:
    store.setup()
    for name, value in values.items():
        store.put(("a",), name, value)
    answers = [sorted(item.key for item in store.search(("a",), filter=each, limit=99)) for each in filters]
print(json.dumps(answers))
"""
# Left out is where we do better: names that theirs refuses, and a text or a list that it takes for a number.
VALUES: dict[str, Any] = {name: DOTTED[name] for name in "125689"} | {"d": {"a": {"b": "2024-05-01"}}}
FILTERS: list[dict[str, Any]] = [
    *({"a.b": wanted} for wanted in (1, 2, None, "2024-05-01", {"$eq": 1}, {"$ne": 1}, {"$ne": None}, {"$eq": None})),
    *({"a.b": wanted} for wanted in ({"$gt": 2, "$lt": 3}, {"$gte": 1, "$lt": 2}, {"$eq": "1"})),
    *({"a.b.c": 1}, {"a.0": 1}, {"a.b": 1, "a.c": None}, {"n.b": None}, {"a.b.c": {"$gte": 1}, "a.b.d": None}),
]


@pytest.fixture(scope="session")
def fetched(request: pytest.FixtureRequest) -> Path:
    """A folder with the source distribution, and with the plugins of pytest that its tests use."""
    release = f"langgraph-checkpoint=={version('langgraph-checkpoint')}"
    folder = Path(request.config.cache.mkdir("langgraph")) / release
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    source = ["download", "--no-deps", "--no-binary", ":all:", "--dest", str(folder), release]
    install = ["install", "--no-deps", "--target"]
    plugins = [*install, str(folder / "plugins"), "pytest-asyncio", "pytest-mock"]
    sqlite = [*install, str(folder / "sqlite"), "langgraph-checkpoint-sqlite", "aiosqlite", "sqlite-vec"]
    if not (folder / "sqlite").exists():
        for arguments in (source, plugins, sqlite):
            ran = subprocess.run([*pip, *arguments], capture_output=True, text=True, timeout=300)
            if ran.returncode:
                unavailable(f"pip could not fetch LangGraph's tests: {ran.stderr[-500:]}")
        with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
            archive.extractall(folder, filter="data")
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


def test_dotted_names_find_what_they_find_in_sqlite(fetched: Path) -> None:
    """Their store is asked the same questions."""
    ran = subprocess.run(
        [sys.executable, "-c", COMPARED],
        input=json.dumps([VALUES, FILTERS]),
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(fetched / "sqlite")},
    )
    ours = [sorted(name for name, value in VALUES.items() if matches_filter(value, each)) for each in FILTERS]

    assert ours == json.loads(ran.stdout), ran.stderr[-1000:]
