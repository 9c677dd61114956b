"""The inspector on a large memory: when each page is painted, what it costs the server, and whether memory grows.

``MEMFILES_BENCH_INSPECTED`` is the numbers of files, entries and users, 1,000,100000,10000 if it is not set.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import memfiles
from tests.benchmarks.language import contents
from tests.benchmarks.page import Figure, at_most, rendered, write
from tests.inspector.conftest import visiting
from tests.inspector.inspecting import OwnProcess, Visit, chromium
from tests.support.workflows import write_workflow

FILES, ENTRIES, USERS = map(int, os.environ.get("MEMFILES_BENCH_INSPECTED", "1000,100000,10000").split(","))
ROUNDS = 5
VISITS = 20  # of every page, while the memory of the process is watched
GOAL_MS = 500
_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20
WORKFLOW = """\
name: large-desk
memory:
  durability: os
  levels: [PUBLIC, INTERNAL, CONFIDENTIAL]
  entries: {{max_entries: 1000000, max_bytes: 1000000000}}
  files:
{files}
agents:
  support: {{level: INTERNAL, memory: [{{id: note-1, mode: rw}}]}}
"""
_ONE = "agent=support&level=INTERNAL&user=user-1%40example.com"
PAGES = {
    "overview": "/",
    "overview, its last page": f"/?page={max(1, FILES // 50)}",
    "a file": "/files/note-1",
    "entries of an agent": "/entries?agent=support",
    "entries of a user": f"/entries?{_ONE}",
    "a search of an agent's entries": "/entries?agent=support&q=which+plan+is+she+on",
    "an entry": "/entries/one?agent=support&key=fact-1",
    "deleted": "/entries/gone?agent=support",
    "users": "/users",
    "users, the fullest budget first": "/users?order=share",
    "a user": "/users/one?user=user-1%40example.com",
    "prompt of an agent": "/prompt?agent=support",
    "prompt and recall of a user": f"/prompt?{_ONE}&q=plan",
    "audit": "/audit",
    "conflicts": "/conflicts",
    "export": "/export",
}
LATER = {
    "growth and writes": "/activity",
    "audit of one user": "/audit?user=user-1%40example.com",
    "audit of one file": "/audit?record=note-1",
    "forget, 1 of 20 entries of an agent counted": "/entries/forget?agent=support&tag=t3",
}
PAINTED = """
() => [performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null,
       performance.getEntriesByType("navigation")[0].encodedBodySize]
"""
INTRO = (
    f"`memfiles ui` on {FILES:,} memory files, {ENTRIES:,} entries and {USERS:,} users, in headless Chromium on the "
    f"same machine: the first contentful paint (median of {ROUNDS}), the size of the page, and what the server "
    f"spent on it of the processor, which other programs lengthen little. A visit begins when the server is idle, as "
    f"parts of the page before it may still be read from the audit."
)


def test_pages(tmp_path: Path) -> None:
    """Every figure, printed, and the page of them."""
    fill(tmp_path)
    report(tmp_path / "workflow.yaml")


def report(workflow: Path) -> None:
    """Measure an inspector on this memory."""
    served = OwnProcess(workflow)
    try:
        with chromium() as browser, visiting(browser, served) as visit:
            found = [each.printed() for each in figures(visit, served.process.pid)]
    finally:
        served.end()
    count = len(PAGES), len(PAGES) + len(LATER)
    parts = {
        "Pages": found[: count[0]],
        "Read for all of the audit, or asked for": found[count[0] : count[1]],
        "Memory": found[count[1] :],
    }
    write("inspector", rendered("The inspector on a large memory", INTRO, parts))


def figures(visit: Visit, pid: int) -> Iterator[Figure]:
    """When each page is painted, and how much memory the process has after many visits."""
    for name, path in PAGES.items():
        painted, shown = _visited(visit, pid, path)
        yield at_most(name, painted, GOAL_MS, shown=shown, unit=" ms")
    for name, path in LATER.items():
        yield Figure(name, _visited(visit, pid, path)[1])
    sizes = []
    for _ in range(4):
        for _, path in [*PAGES.items()] * (VISITS // 4):
            visit.page.request.get(visit.root + path)
        sizes.append(_resident(pid))
    pages = VISITS // 4 * len(PAGES)
    yield Figure(f"resident MiB after each {pages} pages", ", ".join(f"{size:.0f}" for size in sizes))


def _visited(visit: Visit, pid: int, path: str) -> tuple[float, str]:
    """The paint of a page in milliseconds, and that with its costs for a person."""
    paints, costs, size = [], [], 0
    for _ in range(ROUNDS + 1):  # the first one fills caches, as the first page of a day does
        _wait_until_idle(visit, pid)
        begun = _busy(pid)
        visit.go(path)
        while (measured := visit.page.evaluate(PAINTED))[0] is None:
            visit.page.wait_for_timeout(20)
        painted, size = measured
        costs.append(_busy(pid) - begun)
        paints.append(painted)
        visit.page.goto("about:blank")
    painted = median(paints[1:])
    shown = f"{painted:.0f} ms, {size / 1024:.0f} KiB, {median(costs[1:]):.0f} ms of the processor"
    return painted, shown


def _busy(pid: int) -> float:
    """Milliseconds of the processor that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_MS


def _wait_until_idle(visit: Visit, pid: int) -> None:
    """Wait for what the page before still asked for."""
    before = -1.0
    while (now := _busy(pid)) != before:
        before = now
        visit.page.wait_for_timeout(150)


def _resident(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_MIB


def fill(folder: Path) -> None:
    """Save half of the entries for the agent, and the other half for its users."""
    files = "\n".join(
        f"    - {{uid: note-{number}, name: note-{number}, description: Part {number}., content: '# {number}'}}"
        for number in range(FILES)
    )
    texts = contents(random.Random(7), 5_000)
    workflow = write_workflow(folder, WORKFLOW.format(files=files))
    with memfiles.open(workflow, watch=False) as memory:
        desk = memory.session("support")
        for begin in range(0, ENTRIES // 2, 1000):
            numbers = range(begin, min(begin + 1000, ENTRIES // 2))
            drafts = [
                {"key": f"fact-{number}", "content": f"{texts[number % 5000]} ({number})", "tags": [f"t{number % 20}"]}
                for number in numbers
            ]
            memory.entries.save_many(desk, drafts)
        each = max(1, ENTRIES // 2 // USERS)
        for user in range(USERS):
            drafts = [
                {"key": f"note-{number}", "content": texts[(user * each + number) % 5000]} for number in range(each)
            ]
            memory.entries.save_many(memory.session("support", user=f"user-{user}@example.com"), drafts)
