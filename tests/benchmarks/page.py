"""A page of docs/measurements: what was measured in one run, with the goals, the machine, the date and the commit.

A benchmark prints its figures; with ``MEMFILES_BENCH_PAGES=1``, as ``make bench`` has it, it writes its page as well.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.bare import show
from tests.support import ROOT

FOLDER = ROOT / "docs" / "measurements"


class Figure(NamedTuple):
    """What was measured, the figure, its goal if it has one, and whether it misses it."""

    what: str
    shown: str
    goal: str = ""
    is_missed: bool = False

    def printed(self) -> Figure:
        """The same, printed."""
        show(self.what, self.shown, self.verdict)
        return self

    @property
    def verdict(self) -> str:
        """The goal and, if so, that it is missed."""
        return f"{self.goal}: missed" if self.is_missed else self.goal


def at_most(what: str, value: float, goal: float, *, shown: str, unit: str = "") -> Figure:
    """A figure that must not be above its goal."""
    return Figure(what, shown, f"at most {goal:g}{unit}", value > goal)


def at_least(what: str, value: float, goal: float, *, shown: str, unit: str = "") -> Figure:
    """A figure that must not be below its goal."""
    return Figure(what, shown, f"at least {goal:g}{unit}", value < goal)


def write(name: str, page: str, *, charts: Mapping[str, str] | None = None) -> None:
    """Write ``docs/measurements/NAME.md`` and the charts next to it, if ``MEMFILES_BENCH_PAGES`` asks for it."""
    if os.environ.get("MEMFILES_BENCH_PAGES") == "1":
        for file, text in {f"{name}.md": page, **(charts or {})}.items():
            (FOLDER / file).write_text(text, "utf-8")


def rendered(
    title: str,
    intro: str,
    parts: Mapping[str, Sequence[Figure]],
    *,
    tables: Mapping[str, str] | None = None,
    charts: Sequence[str] = (),
) -> str:
    """The page: what it is and where it was measured, a table for each part, other tables, then the charts."""
    missed = sum(figure.is_missed for figures in parts.values() for figure in figures)
    goals = sum(bool(figure.goal) for figures in parts.values() for figure in figures)
    sections = [f"# {title}", where(), intro, f"Goals missed in this run: {missed} of {goals}."]
    sections += [f"## {part}\n\n{_table(figures)}" for part, figures in parts.items()]
    sections += [f"## {part}\n\n{table}" for part, table in (tables or {}).items()]
    sections += [f"![{Path(chart).stem.replace('-', ' ')}]({chart})" for chart in charts]
    return "\n\n".join(sections) + "\n"


def where() -> str:
    """When and on what this is measured."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    busy = " Other programs ran at the same time, so the times are longer than they need be." * (load > cores)
    return (
        f"Measured by `make bench` on {datetime.now(UTC):%Y-%m-%d}, commit {_commit()}, Python "
        f"{platform.python_version()}, {platform.system()} {platform.release()}, {cores} cores, load "
        f"{load:.1f} at the end.{busy}"
    )


def _commit() -> str:
    """The commit, and whether code differs from it; pages do while they are written."""

    def git(*arguments: str) -> str:
        ran = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return ran.stdout.strip()

    changed = git("status", "--porcelain", "--", "memfiles", "mirrors", "tests/benchmarks")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + " with changes" * bool(changed)


def _table(figures: Iterable[Figure]) -> str:
    rows = [f"| {figure.what} | {figure.shown} | {figure.verdict} |" for figure in figures]
    return "\n".join(["| what | measured | goal |", "|---|---|---|", *rows])
