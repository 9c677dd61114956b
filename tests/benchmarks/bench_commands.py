"""Commands as whole processes, each in turns with ``python -c pass``: a hook may run one at every turn of an agent.

``MEMFILES_BENCH_ROUNDS`` is the number of pairs. ``MEMFILES_BENCH_PAGES=1`` writes ``docs/measurements/commands.md``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median

from tests.benchmarks import page
from tests.benchmarks.bare import ratios, seconds
from tests.benchmarks.page import Figure, at_most

ROUNDS = min(60, int(os.environ.get("MEMFILES_BENCH_ROUNDS", "40")))
GOAL = 8.0
BARE = [sys.executable, "-c", "pass"]
WORKFLOW = """
name: desk
memory:
  files: [{uid: notes-1, name: notes, description: What we know., content: "# Notes\\n"}]
  entries: {}
agents: {desk: {memory: [{id: notes-1, mode: rw}]}}
"""
COMMANDS: Mapping[str, Sequence[str]] = {
    "read": ("read", "notes"),
    "append": ("append", "notes", "- x\n"),
    "entries search": ("entries", "search", "which plan is Bob on?"),
    "card": ("card", "desk"),
    "call, of a tool that reads": ("call", "desk", "read_memory", '{"file": "notes"}'),
    "call, of a tool that appends": ("call", "desk", "append_memory", '{"file": "notes", "content": "- x\\n"}'),
    "call, of a search": ("call", "desk", "memory_search", '{"query": "plan"}'),
    "entries save": ("entries", "save", "plan", "Bob is on Pro."),
}
INTRO = """\
Each command runs as a process of its own, in turns with `python -c pass`. A figure is the median of the ratios within a
pair, with the middle half of them in brackets; {rounds} pairs. The modules are compiled, as pip does when it installs a
wheel. The workflow declares a memory file and entries, and has no mirror. CPU is the processor's time of all the runs
together, which a busy machine changes less."""


def test_commands(tmp_path: Path) -> None:
    """Every command, printed, and written to the page."""
    found = [figure.printed() for figure in figures(tmp_path, rounds=ROUNDS)]
    page.write("commands", page.rendered("Commands", INTRO.format(rounds=ROUNDS), {"Whole processes": found}))


def figures(folder: Path, *, rounds: int) -> Iterator[Figure]:
    """The figure of each command."""
    (folder / "workflow.yaml").write_text(WORKFLOW)
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = compiled | {"PYTHONPYCACHEPREFIX": str(folder / "compiled")}

    def run(command: Sequence[str]) -> tuple[float, float]:
        before = getrusage(RUSAGE_CHILDREN)
        took = seconds(lambda: subprocess.run(command, check=True, capture_output=True, cwd=folder, env=environment))
        after = getrusage(RUSAGE_CHILDREN)
        return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    script = Path(sys.executable).with_name("memfiles")
    program = [str(script)] if script.exists() else [sys.executable, "-m", "memfiles"]
    for name, arguments in COMMANDS.items():
        command = [*program, *arguments]
        run(command)  # compiles
        pairs = [(run(command), run(BARE)) for _ in range(rounds)]
        ours, bare = ([pair[at][0] for pair in pairs] for at in (0, 1))
        busy = sum(pair[0][1] for pair in pairs) / sum(pair[1][1] for pair in pairs)
        low, middle, high = ratios(ours, bare)
        shown = f"{middle:.1f} times [{low:.1f} to {high:.1f}], CPU {busy:.1f} times: {median(ours) * 1e3:.0f} ms"
        yield at_most(f"memfiles {name}", middle, GOAL, shown=f"{shown}, bare {median(bare) * 1e3:.0f}", unit=" times")
