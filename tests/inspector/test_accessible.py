"""Everybody can use it: by keyboard, on a narrow screen, light or dark, with a screen reader; axe finds nothing."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, expect

from tests.inspector.conftest import visiting
from tests.inspector.inspecting import SHOWN, Visit, command, conflicted, hosting

pytestmark = pytest.mark.slow
_FOUND_AXE = find_spec("axe_playwright_python")
assert _FOUND_AXE is not None
AXE = Path(_FOUND_AXE.origin or "").with_name("axe.min.js").read_text("utf-8")
FOUND = """
rules => axe.run(document, {runOnly: rules})
    .then(found => found.violations.map(it => `${it.id}: ${it.nodes.map(node => node.html).slice(0, 3).join(" | ")}`))
"""
ALL_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
OF_COLORS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
WIDE, NARROW = 1440, 360
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
LOOKS: tuple[tuple[int, Literal["light", "dark"], object], ...] = (
    (WIDE, "light", ALL_RULES),
    (NARROW, "light", ALL_RULES),
    (NARROW, "dark", OF_COLORS),  # the themes differ in their colors alone, and here letters are smallest
)
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture
def looking(browser: Browser, workflow: Path) -> Iterator[Visit]:
    """A visit in which the test may add a script of its own, as the policy of the pages is not looked at."""
    with hosting(workflow) as served, visiting(browser, served, bypass_csp=True, reduced_motion="reduce") as visit:
        yield visit


def test_axe_finds_nothing(looking: Visit) -> None:
    """On any page, at both widths, and in dark colors; and no page is wider than the screen."""
    found = [problem for path in SHOWN.values() for problem in _problems(looking, path)]

    assert [] == found


def test_axe_finds_nothing_on_a_conflict(browser: Browser, tmp_path: Path) -> None:
    """Next to the record, and what needs attention."""
    options: dict[str, Any] = {"bypass_csp": True, "reduced_motion": "reduce"}
    with hosting(conflicted(tmp_path)) as served, visiting(browser, served, **options) as visit:
        found = [*_problems(visit, "/")]
        visit.page.get_by_role("link", name="Settle it").click()
        visit.page.get_by_role("link", name="notes").click()
        visit.sees("The copy that lost")
        found += _problems(visit, visit.page.url.removeprefix(visit.root))

    assert [] == found


def _problems(visit: Visit, path: str) -> Iterator[str]:
    page = visit.go(path)
    visit.look_everywhere()
    page.evaluate(AXE)
    for width, theme, rules in LOOKS:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme)
        yield from [f"{path} at {width}: wider than the screen"] * page.evaluate(f"{WIDER} > 0")
        yield from (f"{path} at {width}, {theme}: {it}" for it in page.evaluate(FOUND, rules))


def test_every_page_is_quiet(visit: Visit) -> None:
    """Under its own policy: it is whole, complains of nothing and asks this machine alone, in light and dark."""
    for path in SHOWN.values():
        page = visit.go(path)
        for theme in THEMES:
            page.emulate_media(color_scheme=theme)
            visit.look_everywhere()
            expect(page.get_by_role("alert")).to_have_count(0)
            expect(page.get_by_role("heading", level=1)).to_have_count(1)


def test_nothing_moves_for_who_asked_for_that(browser: Browser, workflow: Path) -> None:
    """Buttons and links change their colour at once; for others it takes a moment."""
    with hosting(workflow) as served, visiting(browser, served) as visit:
        link = visit.page.locator(".top nav a").first
        visit.page.emulate_media(reduced_motion="no-preference")
        expect(link).to_have_css("transition-duration", "0.12s")
        visit.page.emulate_media(reduced_motion="reduce")
        expect(link).to_have_css("transition-duration", "0s")


def test_a_walk_with_the_keyboard_alone(visit: Visit) -> None:
    """From the first key to a corrected file: to the content, along what can be used, and back, always seen."""
    page, keys = visit.page, visit.page.keyboard
    keys.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    keys.press("Enter")
    expect(page.locator("main")).to_be_focused()
    _tab_to(visit, "playbook")
    assert "solid" == page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    keys.press("Enter")
    page.wait_for_url("**/files/playbook")
    _tab_to(visit, "Add a line at the end")
    keys.type("- Be there.")
    keys.press("Enter")
    visit.said("playbook is revision 2 now")
    assert "- Be kind.\n- Be there.\n" == command(visit.served.workflow, "read", "playbook")
    _tab_to(visit, "Redact a text for good")
    keys.press("Space")
    keys.press("Tab")
    expect(page.get_by_label("The text")).to_be_focused()
    _tab_to(visit, "Entries", backwards=True)
    keys.press("Enter")
    page.wait_for_url("**/entries")


def _tab_to(visit: Visit, name: str, *, backwards: bool = False) -> None:
    """Press Tab until what has the focus has this name or label."""
    named = "document.activeElement.labels?.[0]?.innerText || document.activeElement.innerText || ''"
    for _ in range(60):
        visit.page.keyboard.press("Shift+Tab" if backwards else "Tab")
        if visit.page.evaluate(named).strip() == name:
            return
    pytest.fail(f"{name} cannot be reached with the keyboard")
