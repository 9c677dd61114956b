"""The types of the public names, as Pyright sees them: it is what VS Code completes and checks with.

It needs node and npm, which fetches it once into pytest's cache. mypy checks the whole repository besides.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import unavailable
from tests.support import ROOT

pytestmark = pytest.mark.node

PROGRAM = """
from memfiles import MemoryFile, MemoryRef
reveal_type(MemoryFile(uid="notes-1", name="notes").name)
MemoryFile(uid="notes-1", nmae="notes")
MemoryRef(id="notes-1", mode="w")
"""


@pytest.fixture
def pyright(request: pytest.FixtureRequest, require_tool: Callable[[str], str]) -> str:
    """The program, installed by npm."""
    require_tool("node")
    npm, folder = require_tool("npm"), Path(request.config.cache.mkdir("pyright"))
    program = folder / "node_modules" / ".bin" / "pyright"
    if not program.exists():
        wanted = [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), "pyright@1"]
        ran = subprocess.run(wanted, capture_output=True, text=True, timeout=300)
        if ran.returncode:
            unavailable(f"npm could not install Pyright: {ran.stderr[-500:]}")
    return str(program)


def test_the_fields_of_a_declaration_are_known(pyright: str, tmp_path: Path) -> None:
    """A misspelt field and a wrong value are errors, and a field has its type."""
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT)]}))
    wanted = [pyright, "--pythonpath", sys.executable, "--outputjson", "program.py"]

    ran = subprocess.run(wanted, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    said = [(each["range"]["start"]["line"], each.get("rule")) for each in json.loads(ran.stdout)["generalDiagnostics"]]
    revealed = json.loads(ran.stdout)["generalDiagnostics"][0]["message"]

    assert 'Type of "MemoryFile(uid="notes-1", name="notes").name" is "str"' == revealed
    assert [(2, None), (3, "reportCallIssue"), (3, "reportCallIssue"), (4, "reportArgumentType")] == said
