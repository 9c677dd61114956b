"""Starting: opening many declared files, importing the package, and the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from pydantic_core import from_json

from memfiles import MemoryFile, MemoryManager
from tests.benchmarks.bare import paired, seconds, show

FILES = 10_000


def read_all(directory: Path) -> int:
    """The bare start: scan, open, read and parse every record."""
    count = 0
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(".json"):
                descriptor = os.open(entry.path, os.O_RDONLY)
                size = os.fstat(descriptor).st_size
                from_json(os.read(descriptor, size))
                os.close(descriptor)
                count += 1
    return count


def test_open_10_000_files(tmp_path: Path) -> None:
    """Opening 10,000 declared files that did not change."""
    files = [
        MemoryFile(uid=f"file-{n}", name=f"file-{n}", description="notes", content="- a line\n" * 200)
        for n in range(FILES)
    ]
    directory = tmp_path / "memory"
    with MemoryManager(directory) as manager:
        manager.restore(files)
    before = {entry.name: entry.stat().st_ino for entry in os.scandir(directory)}

    def open_all() -> None:
        manager = MemoryManager(directory)
        manager.restore(files)
        managers.append(manager)

    managers: list[MemoryManager] = []
    ours, bare, ratio = paired(open_all, lambda: read_all(directory), rounds=7)
    for manager in managers:
        manager.close()
    rewritten = sum(before[entry.name] != entry.stat().st_ino for entry in os.scandir(directory) if entry.is_file())
    show("open 10,000 files", f"{ours * 1e3:.0f} ms, reading them {bare * 1e3:.0f} ms: {ratio:.2f}", "goal 1.0")
    show("of them rewritten", str(rewritten), "goal 0")


def test_import() -> None:
    """Importing memfiles, and using it for the first time, beside importing pydantic."""
    bare = fresh("pass")
    pydantic = fresh("from pydantic import BaseModel")
    show("import memfiles", f"{(fresh('import memfiles') - bare) * 1e3:.0f} ms more than python -c pass", "")
    show(
        "import memfiles, MemoryManager and Workflow",
        f"{(fresh('from memfiles import MemoryManager, Workflow') - bare) * 1e3:.0f} ms",
        "",
    )
    show("from pydantic import BaseModel", f"{(pydantic - bare) * 1e3:.0f} ms", "")


def test_help() -> None:
    """The command line's help beside a bare interpreter."""
    program = [str(Path(sys.executable).with_name("memfiles")), "--help"]
    if not Path(program[0]).exists():
        program = [sys.executable, "-m", "memfiles", "--help"]
    ours, bare, ratio = paired(lambda: run(program), lambda: run([sys.executable, "-c", "pass"]), rounds=15)
    show("memfiles --help", f"{ours * 1e3:.0f} ms, python -c pass {bare * 1e3:.0f} ms: {ratio:.1f} times", "goal 4")


def fresh(code: str) -> float:
    """Seconds of a new interpreter that runs ``code``; the median of some."""
    return median(seconds(lambda: run([sys.executable, "-c", code])) for _ in range(9))


def run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True)
