"""Every page and every action of the inspector, in a real browser, next to what another process finds afterwards."""

from __future__ import annotations

import asyncio
import io
import json
import re
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, Route, expect

import memfiles
from memfiles.inspector.inspected_memory import InspectedMemory
from memfiles.inspector.live import QUIET_SECONDS, Live
from memfiles.inspector.view import ServerState
from memfiles.sync.mirror import ANY, Condition
from memfiles.tools.dialects import DIALECTS
from mirrors.memory import MemoryMirror
from tests.inspector.conftest import visiting
from tests.inspector.inspecting import (
    ADA,
    HOSTILE,
    MIRRORED,
    OPERATOR,
    SCRIPT,
    SHOWN,
    Visit,
    command,
    hosting,
    saved_by,
    seen_by,
)
from tests.support.workflows import write_workflow

pytestmark = pytest.mark.slow


def test_the_overview(visit: Visit) -> None:
    """Files with meters, levels, revisions and who changed them; budgets; what needs attention; and growth."""
    page = visit.go("/")
    notes = page.locator("tr", has_text="customer-notes")
    expect(notes).to_contain_text("INTERNAL")
    expect(notes).to_contain_text("support, run evt-1, call toolu_02")
    expect(notes.locator("svg")).to_have_attribute("aria-label", "8% of its cap is used")
    visit.sees("Nothing: every file, budget and copy is as it should be.", "support", "Mirror")
    expect(page.locator("#state .budgets li").filter(has_text="INTERNAL").locator("svg")).to_have_attribute(
        "aria-label", "33% of the fullest budget is used"
    )
    by_user = visit.look("#users").locator("tbody tr")
    expect(by_user.locator("a")).to_have_text(["ada", "bob"])  # the fullest first
    expect(by_user.first.locator("svg")).to_have_attribute("aria-label", "33% of the fullest budget is used")
    expect(visit.look("#activity").locator("figure")).to_have_count(3)
    page.get_by_role("link", name="24h").click()
    visit.sees("Writes per hour")
    page = visit.go("/?name=play")
    expect(page.locator("#files-title")).to_contain_text("1")
    visit.misses("customer-notes")


def test_what_needs_attention_comes_first(visit: Visit) -> None:
    """A file that is nearly full, as soon as it is."""
    visit.go("/")
    command(visit.workflow, "append", "customer-notes", "x" * 500)

    visit.sees("File customer-notes", "bytes are used: shorten it, or raise its cap")


def test_the_users(visit: Visit) -> None:
    """Who is there and how much of each; one of them with files, export and the way to what agents believe."""
    page = visit.go("/users")
    expect(page.locator("#users tbody tr")).to_have_count(2)
    page.get_by_role("link", name="ada").click()
    visit.sees("4 entries, ", "Entries of support", "File profile", "5 records would go")
    with page.expect_download() as download:
        visit.press("Export")
    with zipfile.ZipFile(download.value.path()) as archive:
        assert ["support.jsonl"] == archive.namelist()
        assert b"Prefers email" in archive.read("support.jsonl")
    page.get_by_role("link", name="File profile").click()
    page.get_by_label("Add a line at the end").fill("- Ada likes tea")
    visit.press("Add")
    assert "# Me\n- Ada likes tea\n" == command(visit.workflow, "read", "profile", "--user", "ada")


def test_what_the_model_sees(visit: Visit) -> None:
    """The very bytes that a session gets, their sizes, and what changed since they were looked at."""
    page = visit.go(f"/prompt?{ADA}&q=plan&dialect=openai")
    with memfiles.open(visit.workflow, watch=False) as memory:
        session = memory.session("support", user="ada", ends_run=False)
        prompt, recalled, tools = session.system_prompt(), session.recall("plan").text, session.tools("openai")
    shown = [part.text_content() for part in page.locator("pre.text").all()]

    assert [prompt, recalled] == shown[:2]
    assert tools == json.loads(shown[2] or "")
    visit.sees(f"{len(prompt.encode()):,} bytes · about {memfiles.estimate_tokens(prompt):,} tokens")

    command(visit.workflow, "entries", "save", "new", "A new thing", "--agent", "support", "--user", "ada")
    expect(page.locator(".diff .added").first).to_contain_text("new")
    visit.sees("when it was last looked at", "| A new thing")


def test_the_prompt_is_not_compared_with_what_was_forgotten(visit: Visit) -> None:
    """The page shows what an edit took out of the prompt, and nothing of a text that a forget did."""
    page = visit.go(f"/prompt?{ADA}")
    visit.sees("pays yearly")
    saved_by(visit.workflow, "ada", "contact", "Prefers the phone.")
    expect(page.locator(".diff")).to_contain_text("Prefers email over phone")

    command(visit.workflow, "entries", "forget", "--key", "plan", "--agent", "support", "--user", "ada", "--yes")
    expect(page.locator(".diff")).to_have_count(0)
    for _ in range(2):
        visit.go(f"/prompt?{ADA}")
        visit.sees("Prefers the phone.")
        visit.misses("pays yearly", "Prefers email over phone")


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_tools_in_any_dialect(visit: Visit, dialect: str) -> None:
    """They are the very tools that a session gets."""
    page = visit.go(f"/prompt?{ADA}&dialect={dialect}")
    with memfiles.open(visit.workflow, watch=False) as memory:
        tools = memory.session("support", user="ada", ends_run=False).tools(dialect)

    assert tools == json.loads(page.locator("pre.text").last.text_content() or "")


def test_what_changed_since_the_last_call(visit: Visit) -> None:
    """What others changed of what the session sees, after its agent's last call; nothing of another user's."""
    visit.go("/prompt?agent=support&level=INTERNAL&user=bob")
    expect(visit.look("#changes")).to_contain_text("save")
    saved_by(visit.workflow, "bob", "plan", "Bob is on Free, he says.")
    page = visit.go("/prompt/changes?agent=support&level=INTERNAL&user=bob")
    visit.sees("Nothing that this session sees was changed since.")
    command(visit.workflow, "edit", "playbook", "--old", "kind", "--new", "kinder", "--actor", "vera")
    saved_by(visit.workflow, "ada", "plan", "Ada is on Basic.")

    expect(page.locator("#changes tbody tr")).to_have_count(1)
    expect(page.locator("#changes tbody tr")).to_contain_text("vera as cli")
    expect(page.locator("#changes tbody tr")).to_contain_text("playbook")


def test_the_audit(visit: Visit) -> None:
    """By every field; a bad one is explained."""
    page = visit.go("/audit?op=edit")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("customer-notes")
    page.get_by_label("Operation").fill("")
    page.get_by_label("User").fill("bob")
    visit.press("Show")
    expect(page.locator("tbody tr")).to_have_count(1)
    page = visit.go("/audit?record=playbook")
    visit.sees("No such event.")
    page = visit.go("/audit?since=yesterdayish")
    expect(page.get_by_role("alert")).to_contain_text("since")
    visit.complains(400)


def test_all_pages_of_the_audit(visit: Visit) -> None:
    """Each event is on one page, although many have the same time."""
    with memfiles.open(visit.workflow, watch=False) as memory:
        desk = memory.session("sales", ends_run=False)
        memory.entries.save_many(desk, [{"key": f"k{number}", "content": f"c{number}"} for number in range(12)])
        for number in range(24):
            memory.entries.save_many(desk, [{"key": f"k{each}", "content": f"{number}"} for each in range(12)])
        events = memory.audit(limit=1000).events
    assert len({event.at for event in events}) < len(events) - 100
    seen, page = list[str](), visit.go("/audit?agent=sales")
    for _ in range(10):
        seen += page.locator("tbody td[data-label=Record] span").evaluate_all("all => all.map(it => it.title)")
        if not (older := page.get_by_role("link", name="Next")).count():
            break
        next_page = str(older.get_attribute("href"))
        older.click()
        page.wait_for_url(re.compile(f"{re.escape(next_page)}$"))

    expected = sorted(event.path or "" for event in events if event.agent == "sales")
    assert expected == sorted(seen)
    expect(page.get_by_label("Until")).to_have_value("")  # so the form begins at the newest again


@pytest.mark.parametrize(("name", "suffix"), [("Zip", ".zip"), ("JSON Lines", ".jsonl"), ("One Markdown", ".md")])
def test_exports(visit: Visit, name: str, suffix: str) -> None:
    """What the session sees, as a file; the audit says who took it."""
    page = visit.go(f"/export?{ADA}")
    page.get_by_label(name).check()
    with page.expect_download() as download:
        visit.press("Export")
    data = Path(download.value.path()).read_bytes()
    if suffix == ".zip":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            data = b"".join(archive.read(each) for each in archive.namelist())
    assert download.value.suggested_filename.endswith(suffix)
    assert all(text in data for text in (b"Works from Berlin", b"opens at nine"))
    assert not any(text in data for text in (b"Bob is on", b"zebra"))
    found = json.loads(command(visit.workflow, "--json", "audit", "--op", "export"))["events"]
    assert [OPERATOR] == [event["actor"] for event in found]


def test_a_script_in_content_is_text(visit: Visit) -> None:
    """On every page that shows it, as what it is."""
    for path in (
        f"/entries?{ADA}",
        f"/entries?{ADA}&q=document.title",
        f"/entries/one?{ADA}&key=typed",
        f"/entries?agent=support&q={SCRIPT.replace('#', '')}",
        f"/users/one?user={SCRIPT}",
        f"/audit?op={SCRIPT}",
    ):
        page = visit.go(path)
        assert "taken over" != page.title()
        assert 0 == page.locator("main img, main script").count()
    visit.go(f"/entries/one?{ADA}&key=typed")
    visit.sees(SCRIPT)


def test_text_that_hides_is_shown(visit: Visit) -> None:
    """Marks of direction and characters without a width are written out; names that are paths are only names."""
    page = visit.go(f"/entries?{ADA}")
    page.get_by_role("link", name="../../etc/passwd").click()
    visit.sees("turned \\u202e round, hid\\u200bden")
    expect(page.locator("h1")).to_have_text("../../etc/passwd")
    assert HOSTILE == page.get_by_label("Text", exact=True).input_value()
    visit.press("Pin")
    visit.said("../../etc/passwd is pinned now")


def test_users_whose_names_hide_something(visit: Visit) -> None:
    """They are kept apart byte for byte, are shown as what they are, and can be forgotten by what is shown."""
    for user in ("ada ", "ada\u200b", "../../x", "a&b=c#d?", " "):
        saved_by(visit.workflow, user, "plan", f"This is {user!a}.")
        page = visit.go(f"/users/one?{urlencode({'user': user})}")
        page.get_by_role("link", name="Entries of support").click()
        visit.sees(f"This is {user!a}.")
        visit.misses("Pro plan")
        page = visit.go(f"/users/one?{urlencode({'user': user})}")
        page.get_by_role("link", name="File profile").click()
        page.get_by_label("Add a line at the end").fill(f"- {user!a}")
        visit.press("Add")
        visit.sees(f"- {user!a}")
    page = visit.go(f"/users/one?{urlencode({'user': 'ada' + chr(0x200B)})}")
    page.get_by_label("Type $'ada\\u200b' to confirm").fill("$'ada\\u200b'")
    visit.press("Forget this user")
    visit.said("Forgotten for good: 2 records")
    page = visit.go(f"/users/one?{urlencode({'user': ' '})}")
    page.locator("input[name=typed]").fill(" ")
    visit.press("Forget this user")
    visit.said("Forgotten for good: 2 records")
    assert "plan" in seen_by(visit.workflow, "ada")
    assert [False, False] == ["plan" in seen_by(visit.workflow, user) for user in ("ada\u200b", " ")]


def test_a_change_elsewhere_shows_at_once(visit: Visit) -> None:
    """Made by the command line in another process, while a person types; what was typed stays."""
    page = visit.go("/files/playbook")
    expect(page.locator("html[data-listening]")).to_have_count(1)
    page.get_by_label("Add a line at the end").fill("half a li")
    command(visit.workflow, "append", "playbook", "- Be quick.\n")
    expect(page.locator("#content pre")).to_contain_text("- Be quick.")
    expect(page.locator("#history li").first).to_contain_text("revision 2")
    expect(page.get_by_label("Add a line at the end")).to_have_value("half a li")
    expect(page.get_by_role("status").filter(has_text="Updated at")).to_be_visible()

    page = visit.go(f"/entries?{ADA}")
    expect(page.locator("html[data-listening]")).to_have_count(1)
    command(visit.workflow, "entries", "save", "new", "Just said", "--agent", "support", "--user", "ada")
    expect(page.locator(".entries li").first).to_contain_text("Just said")


def test_a_change_before_the_page_listens_shows_at_once(visit: Visit) -> None:
    """Made after the server has read the page, and before the browser asks for the news."""
    page, changed = visit.page, list[str]()

    def change(route: Route) -> None:
        if not changed:
            changed.append(command(visit.workflow, "append", "playbook", "- Be quick.\n"))
            time.sleep(0.5)  # by now the inspector has noticed
        route.continue_()

    page.route("**/live*", change)
    visit.go("/files/playbook")
    expect(page.locator("#content pre")).to_contain_text("- Be quick.")


@pytest.mark.directory("only files can be changed by hand")
def test_a_change_by_hand_shows_at_once(visit: Visit) -> None:
    """Made in an editor, in the file of the record."""
    page = visit.go("/files/playbook")
    expect(page.locator("html[data-listening]")).to_have_count(1)
    path = visit.workflow.parent / ".memory" / "playbook.json"
    path.write_text(path.read_text().replace("Be kind", "Be patient"))
    expect(page.locator("#content pre")).to_contain_text("Be patient")
    expect(page.locator("#history li").first).to_contain_text("external")


def test_a_change_on_another_machine_shows_once_the_mirror_has_it(browser: Browser, tmp_path: Path) -> None:
    """Fetched while the page is open; and what the mirror lacks is told."""
    (mirror := tmp_path / "mirror").mkdir()
    text = MIRRORED.format(mirror, "1s")
    here, there = (write_workflow(tmp_path / name, text) for name in ("here", "there"))
    with hosting(here) as served, visiting(browser, served) as visit:
        expect(visit.page.locator("#state")).to_contain_text("clean")
        page = visit.go("/files/notes")
        expect(page.locator("html[data-listening]")).to_have_count(1)
        command(there, "append", "notes", "from there\n")
        expect(page.locator("#content pre")).to_contain_text("from there")


class SlowMirror(MemoryMirror):
    """A named fake: takes nothing before it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.may_take = threading.Event()

    def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
        """As soon as it may."""
        assert self.may_take.wait(60)
        return super().put(key, body, when=when)


def test_a_mirror_that_caught_up_soon_is_news(tmp_path: Path) -> None:
    """A page that was made while a change waited would say so until the next one."""
    mirror = SlowMirror()
    mirror.may_take.set()
    path = write_workflow(tmp_path, MIRRORED.format(tmp_path, "cold-start"))

    async def heard() -> tuple[list[object], int]:
        with memfiles.open(path, watch=False, mirror=mirror) as memory:
            assert memory.sync.flush(60)
            live = Live(memory, InspectedMemory(memory, operator=OPERATOR).levels, ServerState())
            live.start()
            news = aiter(live.response(since="0").body_iterator)
            told: list[object] = [await anext(news), await anext(news)]  # the first look at a mirror is news as well
            mirror.may_take.clear()
            memory.manager.append("notes", "b\n")
            told.append(await anext(news))
            pending = memory.sync.status().pending
            mirror.may_take.set()
            assert await asyncio.to_thread(memory.sync.flush, 60)
            told.append(await anext(news))
            live.end()
            return told, pending

    with ThreadPoolExecutor() as pool:  # the thread of a test may have the loop of the browser
        told = pool.submit(asyncio.run, heard()).result()

    assert ([b"retry: 1000\n\n", *[b"data: changed\n\n"] * 3], 1) == told


def test_a_page_says_that_the_inspector_is_gone(browser: Browser, workflow: Path) -> None:
    """As what it shows may be out of date."""
    with ExitStack() as running:
        served = running.enter_context(hosting(workflow))
        with visiting(browser, served) as visit:
            expect(visit.page.locator("html[data-listening]")).to_have_count(1)
            running.close()
            expect(visit.page.locator("#news")).to_contain_text("does not answer")
            visit.complaints.clear()  # the browser notes each refused connection


def test_a_link_is_opened_from_another_site(browser: Browser, workflow: Path) -> None:
    """Such as a terminal in a browser."""
    with hosting(workflow) as served:
        page = browser.new_page()
        link = f"<a href='{served.link}'>open</a>"
        page.route("http://terminal.test/", lambda route: route.fulfill(body=link, content_type="text/html"))
        page.goto("http://terminal.test/")
        page.get_by_role("link").click()
        expect(page.locator("h1")).to_have_text("Overview")
        page.context.close()


def test_it_works_without_javascript(browser: Browser, workflow: Path) -> None:
    """Every page is whole, and forms work; the growth is a link away."""
    with hosting(workflow) as served, visiting(browser, served, java_script_enabled=False) as visit:
        visit.page.get_by_role("link", name="Show growth and writes over time").click()
        expect(visit.page.locator("figure")).to_have_count(3)
        page = visit.go("/files/playbook")
        page.get_by_label("Add a line at the end").fill("- Be brief.")
        visit.press("Add")
        visit.said("playbook is revision 2 now")


def test_read_only_pages_have_no_forms(browser: Browser, workflow: Path) -> None:
    """But for those that ask for something."""
    with hosting(workflow, read_only=True) as served, visiting(browser, served) as visit:
        for path in SHOWN.values():
            page = visit.go(path)
            expect(page.locator("form[method=post]")).to_have_count(0)
        visit.page.locator("footer").get_by_text("read only").wait_for()


def test_nothing_above_the_ceiling_is_shown(browser: Browser, workflow: Path) -> None:
    """Neither files nor entries nor users nor events; what goes across all levels is refused."""
    with memfiles.open(workflow, watch=False) as memory:
        memory.entries.save(memory.session("support", user="vera", level="CONFIDENTIAL"), "deal", "zebra")
    with hosting(workflow, ceiling="INTERNAL") as served, visiting(browser, served) as visit:
        visit.sees("customer-notes")
        visit.misses("salaries", "CONFIDENTIAL")
        for path in ("/users", "/audit", "/entries?agent=support", "/prompt", "/activity", "/entries/gone", "/export"):
            visit.go(path)
            visit.misses("vera", "CONFIDENTIAL", "zebra", "salaries")
        assert 404 == _status(visit.page, f"{visit.root}/files/salaries")
        assert 403 == _status(visit.page, f"{visit.root}/entries?agent=support&level=CONFIDENTIAL")
        assert 403 == _status(visit.page, f"{visit.root}/prompt?agent=support&level=CONFIDENTIAL")
        visit.go("/users/one?user=ada")
        visit.sees("goes across all levels")
        expect(visit.page.get_by_role("button", name="Forget this user")).to_have_count(0)
        visit.misses("would go")
        visit.complains(404, 403, 403)


def test_nothing_above_the_ceiling_is_news(workflow: Path) -> None:
    """Nor a change of a file of one user, whose record itself has no level."""

    async def heard(ceiling: str) -> bool:
        with memfiles.open(workflow, watch=False) as memory:
            live = Live(memory, InspectedMemory(memory, operator=OPERATOR, ceiling=ceiling).levels, ServerState())
            live.start()
            news = aiter(live.response(since="0").body_iterator)
            await anext(news)
            next_one = asyncio.ensure_future(anext(news))
            await asyncio.to_thread(memory.manager.append, "profile", "- Pro\n", user="ada")
            await asyncio.wait([next_one], timeout=5 * QUIET_SECONDS if ceiling == "PUBLIC" else 60)
            is_heard = next_one.done()
            live.end()
            next_one.cancel()
            return is_heard

    with ThreadPoolExecutor() as pool:  # the thread of a test may have the loop of the browser
        found = {it: pool.submit(asyncio.run, heard(it)).result() for it in ("PUBLIC", "INTERNAL")}

    assert {"PUBLIC": False, "INTERNAL": True} == found


def _status(page: Page, url: str) -> int:
    answer = page.goto(url)
    assert answer is not None
    return answer.status
