"""What a command loads and makes before it answers: a hook may run one at every turn of an agent."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from copy import copy
from pathlib import Path
from typing import Any

import pytest

from memfiles.index.queries import PagePlace
from memfiles.index.search.weights import Weights

pytestmark = pytest.mark.slow

WORKFLOW = """
memory:
  files: [{uid: notes-1, name: notes, content: "# Notes\\n"}]
  entries: {}
agents: {desk: {memory: [{id: notes-1, mode: rw}]}}
"""
WATCHED = """
import atexit, dataclasses, json, re, sys
import msgspec._utils
made, compiled, evaluated, parsed = [], [], [], []
sys.addaudithook(lambda event, _: parsed.append(sys._getframe(1).f_code.co_filename) if event == "compile" else None)
evaluate = msgspec._utils._forward_ref
msgspec._utils._forward_ref = lambda annotation: evaluated.append(annotation) or evaluate(annotation)
make, build = dataclasses._process_class, re._compiler.compile
def counted(kind, *how):
    made.append(kind.__module__)
    return make(kind, *how)
def noted(pattern, flags=0):
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__") in ("re", "memfiles.records", "memfiles.cli"):
        frame = frame.f_back
    compiled.append(frame.f_globals.get("__name__"))
    return build(pattern, flags)
dataclasses._process_class, re._compiler.compile = counted, noted
def tell():
    seen = {"loaded": sorted(sys.modules), "made": made, "compiled": compiled, "evaluated": evaluated}
    seen["parsed"] = parsed
    print(json.dumps(seen), file=sys.__stderr__)
atexit.register(tell)
from memfiles.cli import run
run()
"""
NEVER = (
    *("asyncio", "boto3", "filelock", "mcp", "psycopg", "pydantic", "pydantic_core", "watchdog"),
    *("memfiles.sync.engine", "memfiles.sync.merge"),
)
ONLY_TO_OPEN = (
    *("ctypes", "sqlite3", "memfiles.entries", "memfiles.index", "memfiles.memory", "memfiles.secrets"),
    *("memfiles.storage.store", "memfiles.storage.journal", "memfiles.storage.events", "memfiles.sync"),
)


@pytest.fixture
def workflow(tmp_path: Path) -> Path:
    """A workflow whose memory was restored, with an entry."""
    path = tmp_path / "workflow.yaml"
    path.write_text(WORKFLOW)
    command = [sys.executable, "-m", "memfiles", "-w", str(path), "entries", "save", "plan", "Bob is on Free."]
    subprocess.run(command, check=True, capture_output=True)
    return path


def traced(workflow: Path, *args: str) -> dict[str, Any]:
    """What a whole process of the command loaded, and the dataclasses, expressions and annotations it made."""
    command = [sys.executable, "-c", WATCHED, "-w", str(workflow), *args]
    shown = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(shown.stderr.splitlines()[-1]))


def ours(names: list[str]) -> list[str]:
    """Those of memfiles itself."""
    return [name for name in names if name.startswith("memfiles")]


def below(loaded: list[str], *packages: str) -> set[str]:
    """The modules that are, or are in, one of these."""
    return {name for name in loaded for package in packages if name == package or name.startswith(f"{package}.")}


@pytest.mark.parametrize(
    "args",
    [
        ("read", "notes"),
        ("append", "notes", "x"),
        ("entries", "search", "bob"),
        ("card", "desk"),
        ("call", "desk", "read_memory", '{"file": "notes"}'),
    ],
    ids=lambda args: args[0],
)
def test_no_command_loads_what_only_mirrors_and_servers_need(workflow: Path, args: tuple[str, ...]) -> None:
    """Without a mirror nothing of the sync's engine and of merges is loaded, and no lock library."""
    assert set() == below(traced(workflow, *args)["loaded"], *NEVER)


def test_a_change_that_sweeps_does_not_load_what_removes_folders(workflow: Path) -> None:
    """A folder in the place of a note is rare, and a sweep is noted every hour."""
    (workflow.parent / ".memory/.state/swept").unlink()

    assert set() == below(traced(workflow, "append", "notes", "x")["loaded"], "shutil")


@pytest.mark.parametrize("args", [("read", "notes"), ("card", "desk")], ids=lambda args: args[0])
def test_a_command_that_looks_at_files_opens_no_memory(workflow: Path, args: tuple[str, ...]) -> None:
    """It reads the records: no store, journal, audit, entries, index or secrets gate is loaded."""
    seen = traced(workflow, *args)

    assert set() == below(seen["loaded"], *ONLY_TO_OPEN)
    assert (True, []) == (len(ours(seen["loaded"])) <= 45, ours(seen["made"]))


@pytest.mark.parametrize(
    "args",
    [("append", "notes", "x"), ("call", "desk", "read_memory", '{"file": "notes"}')],
    ids=lambda args: args[0],
)
def test_a_command_that_changes_files_opens_no_entries(workflow: Path, args: tuple[str, ...]) -> None:
    """Unless they are due for a sweep, which is noted by whoever does it."""
    seen = below(traced(workflow, *args)["loaded"], "memfiles.entries.entries", "memfiles.index", "sqlite3")
    (workflow.parent / ".memory/.state/swept").unlink()
    due = below(traced(workflow, *args)["loaded"], "memfiles.entries.entries")

    assert (set(), {"memfiles.entries.entries"}) == (seen, due)
    assert (workflow.parent / ".memory/.state/swept").exists()


def test_a_search_loads_what_it_uses(workflow: Path) -> None:
    """The parts of entries, and the commands that change them, are loaded by the verbs that need them."""
    seen = traced(workflow, "entries", "search", "bob")["loaded"]
    parts = ("transfer", "hydration", "writer", "consolidation.consolidator")

    assert set() == below(seen, *(f"memfiles.entries.{part}" for part in parts))
    assert set() == below(seen, "memfiles.cli.commands.entries", "memfiles.cli.commands.write")
    assert set() == below(seen, "random", "shutil", "tempfile")


LEAN = """
import re, sys
from memfiles.cli import lean_imports
with lean_imports():
    word = re.compile("(?P<first>[a-z])+", re.IGNORECASE)
    import inspect
print(word.pattern, word.match("Ab")["first"], re.compile("x") is re.compile("x"), "ast" in sys.modules)
print(inspect.cleandoc("  a"), inspect.isfunction(print), "ast" in sys.modules)
"""


def test_what_is_imported_leanly_works_as_ever() -> None:
    """An expression is compiled and a module loaded when they are first used; later ones are compiled at once."""
    shown = subprocess.run([sys.executable, "-c", LEAN], check=True, capture_output=True, text=True).stdout

    assert ["(?P<first>[a-z])+ b True False", "a False True"] == shown.splitlines()


def test_no_expression_is_compiled_in_vain(workflow: Path) -> None:
    """Those of the secrets rules, of the audit and of keys are compiled by what uses them, if it is used."""
    compiled = ours(traced(workflow, "read", "notes")["compiled"])

    assert [] == [name for name in compiled if name.startswith(("memfiles.secrets", "memfiles.storage"))]
    assert len(compiled) <= 16  # those of the records' fields among them


@pytest.mark.parametrize(
    "args",
    [
        ("read", "notes"),
        ("entries", "search", "bob"),
        ("entries", "save", "plan", "Bob is on Pro."),
        ("call", "desk", "memory_search", '{"query": "bob"}'),
    ],
    ids=lambda args: args[-2],
)
def test_no_annotation_is_evaluated_from_its_text(workflow: Path, args: tuple[str, ...]) -> None:
    """Structs that are read from JSON or YAML have their annotations as values: texts took 3 ms a command."""
    assert [] == traced(workflow, *args)["evaluated"]


@pytest.mark.parametrize(
    "args",
    [
        ("read", "notes"),
        ("append", "notes", "x"),
        ("entries", "search", "bob"),
        ("entries", "save", "plan", "Bob is on Pro."),
    ],
    ids=lambda args: args[-2],
)
def test_a_command_loads_neither_a_log_nor_openssl_nor_the_compiler(workflow: Path, args: tuple[str, ...]) -> None:
    """It has nothing to log and little to hash, and no class of its own, or of click, is made from texts: 14 ms."""
    seen = traced(workflow, *args)

    assert set() == below(seen["loaded"], "logging", "_hashlib")
    assert [] == [name for name in seen["parsed"] if name.endswith("/typing.py")]


def test_a_search_called_as_a_tool_compiles_no_expression_in_vain(workflow: Path) -> None:
    """Its parts are imported as those of ``entries search``, and nobody erases soon after somebody else has done it."""
    seen = traced(workflow, "call", "desk", "memory_search", '{"query": "bob"}')

    assert set() == below(seen["loaded"], "memfiles.entries.purge", "memfiles.entries.forget")
    parts = ("memfiles.index", "memfiles.tools")
    assert len([name for name in ours(seen["compiled"]) if name.startswith(parts)]) <= 2  # of dozens


def test_a_named_tuple_is_as_that_of_typing() -> None:
    """Its fields, defaults, copies and pickles."""
    made = PagePlace("plan", "2026", 7)

    assert [("plan", "2026", 7), "2026", 3] == [made, made.updated_at, len(made)]
    assert PagePlace._make(made) == made == PagePlace(updated_at="2026", ordinal=7, key="plan") == copy(made)
    assert (made, PagePlace) == (pickle.loads(pickle.dumps(made)), type(copy(made)))
    assert {"key": "plan", "updated_at": "2026", "ordinal": 8} == made._replace(ordinal=8)._asdict()
    assert "PagePlace(key='plan', updated_at='2026', ordinal=7)" == repr(made)
    assert [3.0, Weights().link] == [Weights(answer=3.0).answer, Weights(answer=3.0).link]


@pytest.mark.parametrize("given", [("plan", "2026"), ("plan", "2026", 7, 8)], ids=len)
def test_a_named_tuple_has_all_its_fields(given: tuple[Any, ...]) -> None:
    """Too few values, and too many, are refused, as is one that is given twice."""
    with pytest.raises(TypeError):
        PagePlace(*given)
    with pytest.raises(TypeError):
        PagePlace("plan", "2026", 7, **{"key": "plan"})
