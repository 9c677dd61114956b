"""The pages of files and of conflicts, in a real browser: edited, undone, redacted and settled."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import memfiles
from tests.inspector.conftest import visiting
from tests.inspector.inspecting import OPERATOR, Visit, command, conflicted, hosting
from tests.support.records import files_under

pytestmark = pytest.mark.slow


def test_a_file_is_edited_and_undone(visit: Visit) -> None:
    """The change is a revision of the operator's; the page shows what it changed, and takes it back."""
    page = visit.go("/files/customer-notes-7f3a")
    page.get_by_label("The whole content").fill("# Customers\n- Ada is on Team\n")
    visit.press("Save")
    visit.said("customer-notes is revision 4 now")
    assert "# Customers\n- Ada is on Team\n" == command(visit.workflow, "read", "customer-notes")
    expect(page.locator(".timeline li").first).to_contain_text(f"{OPERATOR} as ui")

    page.get_by_role("link", name="What changed in revision 4").click()
    expect(page.locator("#difference .added")).to_contain_text("+- Ada is on Team")
    expect(page.locator("#difference .removed").first).to_contain_text("Ada is on Basic")
    page.get_by_label("From revision").fill("1")
    visit.press("Show the difference")
    expect(page.locator("#diff-title")).to_have_text("Revision 1 to 4")

    visit.press("Undo the last change")
    visit.said("revision 5")
    page.get_by_role("button", name="Go back to it (revision 2)").click()
    assert "# Customers\n- Ada is on Pro\n- Bob is on Free\n" == command(visit.workflow, "read", "customer-notes")
    page.get_by_label("Add a line at the end").fill("- Eve is new")
    visit.press("Add")
    assert command(visit.workflow, "read", "customer-notes").endswith("- Bob is on Free\n- Eve is new\n")


def test_an_edit_over_somebody_else_s_is_refused_and_not_lost(visit: Visit) -> None:
    """The page keeps what was typed, says who was faster, and offers the present text."""
    page = visit.go("/files/playbook")
    page.get_by_label("The whole content").fill("mine")
    command(visit.workflow, "append", "playbook", "theirs")
    visit.press("Save")
    expect(page.get_by_role("alert")).to_contain_text("revision")
    expect(page.get_by_label("The whole content")).to_have_value("mine")
    visit.sees("theirs")
    page.get_by_role("link", name="Load what is there now").click()
    expect(page.get_by_label("The whole content")).to_have_value("- Be kind.\ntheirs")
    visit.complains(409)


def test_a_text_is_redacted_for_good(visit: Visit) -> None:
    """Once the name was typed: from the content and the history."""
    page = visit.go("/files/customer-notes-7f3a")
    page.get_by_text("Redact a text for good").click()
    page.get_by_label("The text").fill("Ada is on ")
    page.get_by_label("Type customer-notes to confirm").fill("playbook")
    visit.press("Redact")
    expect(page.get_by_role("alert")).to_contain_text("type customer-notes to confirm")
    page.get_by_label("Type customer-notes to confirm").fill("customer-notes")
    visit.press("Redact")
    visit.said("Removed from the content and the history")
    assert b"Ada is on" not in files_under(visit.workflow.parent / ".memory")["customer-notes-7f3a.json"]
    visit.complains(400)


def test_a_conflict_is_settled_side_by_side(browser: Browser, tmp_path: Path) -> None:
    """Two machines changed the same line: the page shows both, and takes what a person makes of them."""
    with hosting(conflicted(tmp_path)) as served, visiting(browser, served) as visit:
        visit.sees("1 change could not be merged", "1 conflict")
        visit.page.get_by_role("link", name="Settle it").click()
        visit.page.get_by_role("link", name="notes").click()
        visit.sees("The record now", "The copy that lost", "mine", "theirs")
        visit.page.get_by_label("Or make one text of both").fill("mine and theirs\n")
        visit.press("Save this text")
        visit.said("The conflict of notes is settled")
        visit.sees("There is none.")
        assert "mine and theirs\n" == command(served.workflow, "read", "notes")


def test_the_text_of_a_conflict_keeps_its_line_ends(browser: Browser, tmp_path: Path) -> None:
    """A browser sends them back as line feeds, also where the text is saved as it is."""
    workflow = conflicted(tmp_path)
    with memfiles.open(workflow, watch=False) as memory:
        memory.manager.replace("notes", "mine\r\nand\rmore\n")
    with hosting(workflow) as served, visiting(browser, served) as visit:
        visit.go("/conflicts").get_by_role("link", name="notes").click()
        visit.press("Save this text")
        visit.said("The conflict of notes is settled")
    with memfiles.open(workflow, watch=False) as memory:
        assert "mine\r\nand\rmore\n" == memory.manager.read("notes")
