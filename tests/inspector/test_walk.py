"""Once from beginning to end, as a new operator would: find, correct, see, forget, prove, export."""

from __future__ import annotations

import zipfile

import pytest
from playwright.sync_api import expect

from tests.inspector.inspecting import OPERATOR, Visit, seen_by
from tests.support.saved import files_holding

pytestmark = pytest.mark.slow


def test_a_new_operator_s_first_day(visit: Visit) -> None:
    """Correct what the agent believes about Ada, see her next prompt, forget Bob, prove it, and export the rest."""
    page = visit.page
    nav = page.get_by_role("navigation", name="Pages")

    nav.get_by_role("link", name="Users").click()
    page.get_by_role("link", name="ada", exact=True).click()
    page.get_by_role("link", name="what its model sees").click()
    visit.sees("Ada is on the Pro plan")

    nav.get_by_role("link", name="Users").click()
    page.get_by_role("link", name="ada", exact=True).click()
    page.get_by_role("link", name="Entries of support").click()
    page.get_by_label("Search").fill("which plan is she on?")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="plan", exact=True).click()
    page.get_by_label("Text", exact=True).fill("Ada is on the Team plan since November.")
    visit.press("Save")
    visit.said("plan is revision 3 now")

    page.get_by_role("link", name="See the whole prompt").click()
    visit.sees("Changed since")
    expect(page.locator(".diff .removed").filter(has_text="Pro plan")).to_have_count(1)
    expect(page.locator(".diff .added").filter(has_text="Team plan")).to_have_count(1)

    nav.get_by_role("link", name="Users").click()
    page.get_by_role("link", name="bob", exact=True).click()
    page.get_by_label("Why").fill("asked to, ticket 42")
    page.get_by_label("Type bob to confirm").fill("bob")
    visit.press("Forget this user")
    visit.said("Forgotten for good: 1 record")
    expect(page.locator("#proof")).to_contain_text(f"by {OPERATOR}: asked to, ticket 42")
    visit.sees("Nothing is kept for this user.", "forget-user")
    nav.get_by_role("link", name="Audit").click()
    page.get_by_label("Operation").fill("forget-user")
    page.get_by_label("User").fill("bob")
    visit.press("Show")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text(OPERATOR)
    nav.get_by_role("link", name="Users").click()
    expect(page.get_by_role("link", name="bob", exact=True)).to_have_count(0)
    visit.sees("asked to, ticket 42")

    page.get_by_role("link", name="ada", exact=True).click()
    with page.expect_download() as download:
        visit.press("Export")
    with zipfile.ZipFile(download.value.path()) as archive:
        assert b"Team plan" in archive.read("support.jsonl")
    assert "Ada is on the Team plan since November." == seen_by(visit.served.workflow, "ada")["plan"]
    assert "plan" not in seen_by(visit.served.workflow, "bob")
    memory = visit.served.workflow.parent / ".memory"
    assert [] == files_holding(memory, "Bob is on the Free plan")
