"""The public face: every name in ``__all__`` is there, sorted, and costs nothing until it is used."""

from __future__ import annotations

import compileall
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import memfiles
from memfiles import errors
from tests.support import ROOT

PUBLIC: list[str] = import_module("memfiles").__all__  # derived, so type checkers do not see it
HEAVY = ("boto3", "botocore", "click", "mcp", "pydantic", "starlette", "yaml")


def loaded_by(statement: str) -> list[str]:
    """The heavy libraries that a fresh interpreter has loaded after ``statement``."""
    code = f"{statement}\nimport sys\nprint(*sorted(set(sys.modules) & {set(HEAVY)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=180)
    return done.stdout.split()


def test_the_names_are_sorted_and_listed_once() -> None:
    """A reader finds a name where the alphabet says."""

    assert sorted(set(PUBLIC)) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_every_name_can_be_used(name: str) -> None:
    """What is listed is there, and ``dir`` shows it."""

    assert getattr(memfiles, name) is not None
    assert name in dir(memfiles)


def test_the_names_the_design_promises_are_there() -> None:
    """The public names of the contract."""
    promised = {"MemoryManager", "Workflow", "index_card", "open", "tools", "validate_refs"}

    assert promised <= set(PUBLIC)


def test_every_error_is_public() -> None:
    """Whoever catches an error need not know which module it stands in."""
    declared = {
        name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)
    }

    assert declared <= set(PUBLIC)


def test_another_name_is_an_attribute_error() -> None:
    """As in any module; a type checker finds it, too, or the comment here would be an error of its own."""
    with pytest.raises(AttributeError, match="module 'memfiles' has no attribute 'nothing'"):
        _ = memfiles.nothing  # type: ignore[attr-defined]


def test_importing_loads_nothing_heavy() -> None:
    """Libraries are loaded by the first use of what needs them."""

    assert loaded_by("import memfiles; dir(memfiles); memfiles.MemfilesError") == []


def test_the_mirrors_can_be_imported_alone() -> None:
    """A mirror knows the contract and the errors, and no store library."""

    assert loaded_by("import mirrors; mirrors.MemoryMirror()") == []


def test_opening_loads_no_surface_and_no_mirror_library() -> None:
    """The command line's and the mirrors' libraries stay out of a program that does not use them."""

    assert set(loaded_by("from memfiles import open")) <= {"yaml"}


def test_the_function_tools_works_whatever_was_imported_before(tmp_path: Path) -> None:
    """The package of the same name takes its place in ``memfiles`` once something in it was imported."""
    code = """
import sys, memfiles
with memfiles.MemoryManager(sys.argv[1]) as manager:
    manager.restore([memfiles.MemoryFile(uid="n", name="n")])
    refs = [memfiles.MemoryRef(id="n", mode="r")]
    print(len(memfiles.tools(refs, manager, "mcp")))
    import memfiles.tools.session
    print(len(memfiles.tools(refs, manager, "mcp")))
"""
    opened_first = "import sys, memfiles, memfiles.memory" + code.removeprefix("\nimport sys, memfiles")
    said = [
        subprocess.run([sys.executable, "-c", each, str(tmp_path)], capture_output=True, text=True, timeout=180).stdout
        for each in (code, opened_first)
    ]

    assert ["1\n1\n"] * 2 == said


def test_the_version_is_the_distributions() -> None:
    """One place states it; a source tree that is not installed says so."""

    assert memfiles.__version__[0].isdigit()


def test_type_checkers_are_told_the_names_that_are_there() -> None:
    """They read the imports, and a program reads the list below them."""
    source = (ROOT / "memfiles" / "__init__.py").read_text()
    imported = {name: home for home, name in re.findall(r"^    from (\S+) import (\w+) as \2$", source, re.MULTILINE)}

    assert imported == vars(memfiles)["_HOMES"]


def packed(form: str, folder: Path) -> Path:
    """The packages as they may be delivered, to be put on the path: compiled without their source, or in an archive."""
    for package in ("memfiles", "mirrors"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    if form == "archive":
        return Path(shutil.make_archive(str(folder.with_suffix("")), "zip", folder))
    assert compileall.compile_dir(folder, quiet=1, legacy=True)
    for source in folder.rglob("*.py"):
        source.unlink()
    return folder


@pytest.mark.parametrize("form", ["compiled", "archive"])
def test_a_package_without_its_files_works(form: str, tmp_path: Path) -> None:
    """A program may be delivered without the source of its libraries, or import them from a zip archive."""
    told = {**os.environ, "PYTHONPATH": str(packed(form, tmp_path / "delivered.d"))}
    code = """
import memfiles, socket
from memfiles.inspector.server import Inspector
with memfiles.open("workflow.yaml") as memory, socket.create_server(("127.0.0.1", 0)) as listening:
    Inspector(memory, listening=listening, operator="ada")
    print(memory.session("assistant").agent)
"""

    ran = [
        subprocess.run([sys.executable, *args], cwd=tmp_path, env=told, capture_output=True, text=True, timeout=180)
        for args in (["-m", "memfiles", "init"], ["-c", code], ["-m", "memfiles", "status"])
    ]

    assert [0, 0, 0] == [each.returncode for each in ran], "".join(each.stderr for each in ran)
    assert "assistant\n" == ran[1].stdout
