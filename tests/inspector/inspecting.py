"""A desk with some memory, the inspector on it, in a process of its own or in a thread, and a Chromium to see it."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

import memfiles
from memfiles import Actor
from memfiles.cli.failures import listening_on
from memfiles.inspector.server import Inspector
from tests.support.workflows import write_workflow

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
OPTIONS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run", "--disable-dev-shm-usage"),
]
OPERATOR = "grace"
_ADA = "agent=support&user=ada&level=INTERNAL"
_PATH_KEY = "..%2F..%2Fetc%2Fpasswd"
SHOWN = {
    "overview": "/",
    "activity": "/activity?span=24h",
    "file": "/files/customer-notes-7f3a?to=3",
    "conflicts": "/conflicts",
    "entries": f"/entries?{_ADA}&q=which+plan+is+she+on",
    "entry": f"/entries/one?{_ADA}&key=plan&from=1&to=2",
    "hostile-entry": f"/entries/one?{_ADA}&key={_PATH_KEY}",
    "deleted-entry": f"/entries/one?{_ADA}&key=mood",
    "gone": f"/entries/gone?{_ADA}",
    "plan": "/entries/plan?agent=support&level=INTERNAL&share=20",
    "forget": f"/entries/forget?{_ADA}&tag=billing",
    "users": "/users?order=share",
    "forgotten-user": "/users/one?user=eve",
    "user": "/users/one?user=ada",
    "prompt": f"/prompt?{_ADA}&q=plan",
    "changes": f"/prompt/changes?{_ADA}",
    "audit": "/audit",
    "export": "/export",
}
"""Every page, with something to show."""

LATE = "[hx-trigger='intersect once']"
"""The parts of a page that are loaded once somebody looks at them."""

SCRIPT = "<script>document.title = 'taken over'</script><img src=x onerror=\"document.title = 'taken over'\">"
ADA = "agent=support&user=ada&level=INTERNAL"
HOSTILE = "turned \u202e round, hid\u200bden, " + "x" * 5000 + "\n" + "\u0301" * 50
"""A text that hides from whoever reads it, in a line without end."""

WORKFLOW = """\
name: support-desk
memory:
  levels: [PUBLIC, INTERNAL, CONFIDENTIAL]
  files:
    - uid: customer-notes-7f3a
      name: customer-notes
      description: What we know about each customer, one bullet a fact.
      max_size_bytes: 600
      level: INTERNAL
      content: "# Customers\\n"
    - {uid: playbook, name: playbook, description: How to answer refunds., content: "- Be kind.\\n"}
    - {uid: salaries, name: salaries, description: For a few., level: CONFIDENTIAL, content: "a secret number\\n"}
    - {uid: profile, name: profile, description: What the user said., per: user, level: INTERNAL, content: "# Me\\n"}
  entries: {max_entries: 12, max_bytes: 20000}
agents:
  support:
    level: INTERNAL
    memory: [{id: customer-notes-7f3a, mode: rw}, {id: playbook, mode: r}, {id: profile, mode: rw}]
  sales: {level: INTERNAL}
"""


def filled(folder: Path) -> Path:
    """A folder with a workflow and what a support desk remembered; returns the workflow."""
    path = write_workflow(folder, WORKFLOW)
    with memfiles.open(path, watch=False) as memory:
        ada = memory.session("support", user="ada", run="evt-1", thread="t-1")
        memory.entries.save(ada, "plan", "Ada is on Pro.", tags=["billing"])
        memory.entries.save(ada, "plan", "Ada is on the Pro plan since March; she pays yearly.", tags=["billing"])
        memory.entries.save(ada, "contact", "Prefers email over phone. Works from Berlin.", tags=["contact"])
        memory.entries.save(ada, "mood", "Was unhappy about the late invoice.")
        memory.entries.delete(ada, "mood")
        memory.entries.save(ada, "typed", SCRIPT)
        memory.entries.save(ada, "../../etc/passwd", HOSTILE)
        memory.entries.save(memory.session("support", user="eve"), "plan", "Eve is on Free.")
        memory.users.forget("eve", why="asked to", actor=OPERATOR)
        memory.entries.save(memory.session("support", user="bob"), "plan", "Bob is on the Free plan.")
        desk = memory.session("support")
        memory.entries.save(desk, "hours", "The desk opens at nine.", kind="fact", pinned=True)
        for number in range(3):  # of which a plan makes one
            memory.entries.save(desk, f"refund-{number}", "Refunds are paid within a week.", kind="note")
        secret = memory.session("support", level="CONFIDENTIAL")
        memory.entries.save(secret, "merger", "The zebra merger is in May.")
        by = Actor("support", "evt-1", "toolu_01")
        memory.manager.append("customer-notes", "- Ada is on Pro\\n- Bob is on Free\\n".replace("\\n", "\n"), by=by)
        memory.manager.edit(
            "customer-notes", "Ada is on Pro", "Ada is on Basic", by=Actor("support", "evt-1", "toolu_02")
        )
    return path


MIRRORED = """
memory:
  mirror: {{url: "file://{}", pull: {}}}
  files: [{{uid: notes, name: notes, content: "a\\n"}}]
agents: {{}}
"""


def conflicted(folder: Path) -> Path:
    """The workflow of a machine on which the change of another one, to the same line, lost; they share a mirror."""
    (mirror := folder / "mirror").mkdir()
    mine, theirs = (write_workflow(folder / name, MIRRORED.format(mirror, "cold-start")) for name in ("one", "two"))
    for workflow in (mine, theirs):
        with memfiles.open(workflow, watch=False):
            pass
    with memfiles.open(theirs, watch=False) as late:
        late.manager.edit("notes", "a", "theirs")
        late.sync.flush(30)
    with memfiles.open(mine, watch=False) as first:
        first.manager.edit("notes", "a", "mine")
        first.sync.pull()
        first.sync.flush(30)
        assert 1 == len(first.sync.conflicts())
    return mine


def command(workflow: Path, *args: str) -> str:
    """What a command prints, run as by somebody else at the same time."""
    line = [sys.executable, "-m", "memfiles", "-w", str(workflow), *args]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout


class Served(Protocol):
    """A running inspector on the memory of a ``workflow``. ``link`` opens it once."""

    workflow: Path
    link: str
    origin: str


class OwnProcess:
    """The inspector as ``memfiles ui`` runs it."""

    def __init__(self, workflow: Path, *options: str) -> None:
        self.workflow = workflow
        line = [sys.executable, "-m", "memfiles", "-w", str(workflow), "--json", "ui", "--port", "0", "--no-browser"]
        self.process = subprocess.Popen(
            [*line, "--actor", OPERATOR, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert self.process.stdout is not None
        told = "".join(iter(self.process.stdout.readline, "}\n")) + "}"
        self.link: str = json.loads(told)["url"]
        self.origin = self.link.partition("/enter")[0]

    def end(self) -> tuple[int, str]:
        """Ask it to end; its exit code, and what it wrote to stderr."""
        self.process.terminate()
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


@contextmanager
def hosting(workflow: Path, *, ceiling: str | None = None, read_only: bool = False) -> Iterator[Served]:
    """An inspector in a thread while the block runs, which starts at once; it must have logged nothing."""
    noted = _Noted()
    logging.getLogger("memfiles").addHandler(noted)
    try:
        with memfiles.open(workflow) as memory:
            listening = listening_on(0)
            given: dict[str, Any] = {"operator": OPERATOR, "ceiling": ceiling, "read_only": read_only}
            inspector = Inspector(memory, listening=listening, **given)
            thread = threading.Thread(target=inspector.serve)
            thread.start()
            try:
                yield _Hosted(workflow, inspector.link, inspector.link.partition("/enter")[0])
            finally:
                inspector.end()
                thread.join()
                listening.close()
    finally:
        logging.getLogger("memfiles").removeHandler(noted)
    assert [] == noted.told


@dataclass
class _Hosted:
    workflow: Path
    link: str
    origin: str


class _Noted(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())


@contextmanager
def serving(workflow: Path, *options: str) -> Iterator[OwnProcess]:
    """An inspector while the block runs; it must end well and have complained of nothing."""
    served = OwnProcess(workflow, *options)
    try:
        yield served
    except BaseException:
        print(served.end()[1])  # pytest shows it
        raise
    assert (0, "") == served.end()


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless Chromium, as Debian has it."""
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("there is no chromium: `make tools` installs it on Debian, as root")
        pytest.skip("there is no chromium: `make tools` installs it on Debian, as root")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


class Visit:
    """A person at a page of an inspector; what the browser complains of, and where it asks, is noted."""

    def __init__(self, page: Page, served: Served) -> None:
        self.page = page
        self.served = served
        self.complaints: list[str] = []
        self.asked: set[str] = set()
        page.on("console", lambda message: self.complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.asked.add(request.url.partition("://")[2].partition("/")[0]))
        page.goto(served.link)
        page.wait_for_selector("main")  # the link leads on to the page
        self.root = page.url.rstrip("/")

    @property
    def workflow(self) -> Path:
        """The workflow whose memory is shown."""
        return self.served.workflow

    def go(self, path: str) -> Page:
        """Open a page by its path."""
        self.page.goto(self.root + path)
        return self.page

    def sees(self, *texts: str) -> None:
        """Wait until the page shows these texts."""
        for text in texts:
            expect(self.page.locator("main")).to_contain_text(text)

    def misses(self, *texts: str) -> None:
        """The page, which is whole, does not show these texts."""
        shown = self.page.content()
        assert [] == [text for text in texts if text in shown]

    def complains(self, *statuses: int) -> None:
        """The browser noted that these pages came with an error status, as was asked for, and nothing else."""
        expect(self.page.locator("main")).to_be_visible()
        told = [re.findall(r"status of (\d+)", text) for text in self.complaints]
        assert [[str(status)] for status in statuses] == told, self.complaints
        self.complaints.clear()

    def look(self, part: str) -> Locator:
        """Look at a part that is loaded late, and wait until it is there."""
        found = self.page.locator(part)
        found.evaluate("it => it.scrollIntoView()")
        expect(self.page.locator(f"{part}{LATE}")).to_have_count(0)
        return found

    def look_everywhere(self) -> None:
        """Look at every part that is loaded late, and wait until it is there."""
        late = self.page.locator(LATE)
        for _ in range(100):
            if not late.count():
                return
            self.page.evaluate(f'document.querySelector("{LATE}")?.scrollIntoView()')
            self.page.wait_for_timeout(50)
        pytest.fail(f"{self.page.url} was not loaded whole")

    def press(self, name: str, *, within: str = "main") -> None:
        """Press the button of that name, and see the page that follows."""
        self.page.locator(within).get_by_role("button", name=name, exact=True).first.click()

    def said(self, text: str) -> None:
        """What the page says of the last action."""
        expect(self.page.locator(".said").first).to_contain_text(text)


def seen_by(workflow: Path, user: str | None, agent: str = "support") -> dict[str, str]:
    """The entries that a session of the user sees, by key, as whoever opens the directory now reads them."""
    with memfiles.open(workflow, watch=False) as memory:
        session = memory.session(agent, user=user, ends_run=False)
        keys = [each.key for each in memory.entries.list(session).memories]
        return {key: found.content for key in keys if (found := memory.entries.get(session, key)) is not None}


def saved_by(
    workflow: Path, user: str | None, key: str, content: str, *, run: str | None = None, **labels: Any
) -> None:
    """Save an entry as somebody else does at the same time."""
    with memfiles.open(workflow, watch=False) as memory:
        memory.entries.save(memory.session("support", user=user, run=run, ends_run=False), key, content, **labels)
