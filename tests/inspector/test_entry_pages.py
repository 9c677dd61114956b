"""The pages of entries, in a real browser: found, corrected, restored, forgotten and consolidated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import memfiles
from tests.inspector.conftest import visiting
from tests.inspector.inspecting import ADA, OPERATOR, Visit, command, hosting, saved_by, seen_by
from tests.support.saved import files_holding

pytestmark = pytest.mark.slow


def test_entries_are_found_with_the_reason(visit: Visit) -> None:
    """The words are marked; a neighbour says that it is one; filters leave out the others; another user sees hers."""
    page = visit.go(f"/entries?{ADA}&q=plan+pays")
    first = page.locator(".entries li").first
    expect(first.locator("mark")).to_have_text(["plan", "plan", "pays"])
    expect(first).to_contain_text("found by words")
    expect(page.locator(".entries")).to_contain_text("neighbour of a match")
    page.get_by_label("User").fill("bob")
    visit.press("Show")
    visit.sees("Bob is on the Free")
    visit.misses("Ada is on")

    for asked, shown, hidden in (
        ("tag=billing", "plan", "contact"),
        ("kind=fact", "hours", "contact"),
        ("since=2001-01-01", "contact", "merger"),
        ("category=general", "contact", "merger"),
        ("q=zebra&level=CONFIDENTIAL", "merger", "hours"),
    ):
        page = visit.go(f"/entries?agent=support&user=ada&{asked}")
        expect(page.locator(".entries")).to_contain_text(shown)
        expect(page.locator(".entries").or_(page.locator("main")).first).not_to_contain_text(f"{hidden} is")
        assert hidden not in [link.inner_text() for link in page.locator(".entries h2 a").all()]


def test_an_entry_is_corrected_pinned_deleted_and_restored(visit: Visit) -> None:
    """Each in the session that may do it, with the operator's name in its life."""
    page = visit.go(f"/entries/one?{ADA}&key=plan")
    visit.sees("It is shown, because it is recent enough", "the user", "evt-1")
    page.get_by_label("Text", exact=True).fill("Ada is on the Basic plan.")
    page.get_by_label("Tags, with commas").fill("billing, checked")
    visit.press("Save")
    visit.said("plan is revision 3 now")
    assert "Ada is on the Basic plan." == seen_by(visit.workflow, "ada")["plan"]
    expect(page.locator(".timeline li").first).to_contain_text(OPERATOR)
    page.get_by_role("link", name="What changed in revision 3").click()
    expect(page.locator("#difference .added")).to_contain_text("Basic")

    visit.press("Pin")
    visit.said("plan is pinned now")
    visit.sees("shown, because it is pinned")
    visit.press("Unpin")
    visit.press("Undo the last change")
    visit.said("earlier text")
    visit.press("Delete")
    visit.said("plan is deleted")
    visit.sees("not shown: it was deleted")
    assert "plan" not in seen_by(visit.workflow, "ada")
    visit.press("Restore")
    visit.said("plan is back")
    assert "Ada is on the Pro plan since March; she pays yearly." == seen_by(visit.workflow, "ada")["plan"]
    page.get_by_role("button", name="Go back to it (revision 3)").click()
    assert "Ada is on the Basic plan." == seen_by(visit.workflow, "ada")["plan"]


@pytest.mark.parametrize("content", ["one\r\ntwo\r\n", "one\rtwo", "\n\nlate", "a null\0byte"])
def test_a_change_of_tags_leaves_the_text_and_the_other_tags(visit: Visit, content: str) -> None:
    """A browser sends a text back with other line ends, and a tag may contain a comma or begin with a blank."""
    tags = ["Berlin, DE", " odd", 'so "called"']
    saved_by(visit.workflow, "ada", "address", content, tags=tags)
    page = visit.go(f"/entries/one?{ADA}&key=address")
    field = page.get_by_label("Tags, with commas")
    field.fill(f"{field.input_value()}, checked")
    visit.press("Save")
    visit.said("address is revision 2 now")

    assert content == seen_by(visit.workflow, "ada")["address"]
    get = ("entries", "get", "address", "--agent", "support", "--user", "ada")
    assert [*tags, "checked"] == json.loads(command(visit.workflow, "--json", *get))["tags"]


def test_an_edit_keeps_the_line_ends_of_a_text(visit: Visit) -> None:
    """A text whose lines all end as on Windows has such ends after an edit in a browser, which sends line feeds."""
    saved_by(visit.workflow, "ada", "address", "one\r\ntwo")
    page = visit.go(f"/entries/one?{ADA}&key=address")
    page.get_by_label("Text", exact=True).fill("one\ntwo\nthree")
    visit.press("Save")
    visit.said("address is revision 2 now")
    assert "one\r\ntwo\r\nthree" == seen_by(visit.workflow, "ada")["address"]

    with memfiles.open(visit.workflow) as memory:
        memory.manager.replace("playbook", "- Be kind.\r\n- Be quick.\r\n")
    page = visit.go("/files/playbook")
    page.get_by_label("The whole content").fill("- Be kind.\n- Be calm.\n")
    visit.press("Save")
    visit.said("playbook is revision 3 now")
    with memfiles.open(visit.workflow) as memory:
        assert "- Be kind.\r\n- Be calm.\r\n" == memory.manager.read("playbook")


@pytest.mark.parametrize("button", ["Undo the last change", "Go back to it (revision 1)"])
def test_an_undo_on_a_page_that_is_out_of_date_is_refused(browser: Browser, workflow: Path, button: str) -> None:
    """It would take back a change that the operator has not seen."""
    with hosting(workflow) as served, visiting(browser, served, java_script_enabled=False) as visit:
        page = visit.go(f"/entries/one?{ADA}&key=plan")
        saved_by(workflow, "ada", "plan", "Ada left.")
        page.get_by_role("button", name=button, exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("'plan' is at revision 3, not 2")
        assert "Ada left." == seen_by(workflow, "ada")["plan"]
        visit.complains(409)
        page.get_by_role("button", name=button, exact=True).click()  # the page shows what is there now
        visit.said("earlier text")


def test_an_entry_of_all_users_is_changed_from_the_view_of_one(visit: Visit) -> None:
    """What a user's session may not change, the operator changes for the agent."""
    page = visit.go(f"/entries/one?{ADA}&key=hours")
    visit.sees("the agent")
    page.get_by_label("Text", exact=True).fill("The desk opens at ten.")
    visit.press("Save")
    visit.said("hours is revision 2 now")
    assert "The desk opens at ten." == seen_by(visit.workflow, "bob")["hours"]
    visit.sees("user ada")  # the page stays hers


def test_the_difference_between_any_two_revisions_of_an_entry(visit: Visit) -> None:
    """Chosen by their numbers; one that is not there is explained."""
    saved_by(visit.workflow, "ada", "plan", "Ada is on the Team plan.", run="evt-9")
    page = visit.go(f"/entries/one?{ADA}&key=plan")
    expect(page.locator(".timeline li").first).to_contain_text("run evt-9")
    page.get_by_label("From revision").fill("1")
    visit.press("Show the difference")
    expect(page.locator("#diff-title")).to_have_text("Revision 1 to 3")
    expect(page.locator("#difference .removed")).to_have_text("-Ada is on Pro.\n")
    expect(page.locator("#difference .added")).to_have_text("+Ada is on the Team plan.\n")
    page.get_by_label("From revision").fill("9")
    visit.press("Show the difference")
    expect(page.locator("#difference")).to_contain_text("has no revision 9")


def test_deleted_entries_come_in_pages(visit: Visit) -> None:
    """Fifty at a time, each once."""
    with memfiles.open(visit.workflow, watch=False) as memory:
        desk = memory.session("sales", ends_run=False)
        for number in range(60):
            memory.entries.save(desk, f"k{number}", f"c{number}")
            memory.entries.delete(desk, f"k{number}")
    page = visit.go("/entries/gone?agent=sales")
    first = page.locator("td[data-label=Entry]").all_inner_texts()
    page.get_by_role("link", name="Next").click()
    expect(page.get_by_role("link", name="Previous")).to_have_count(1)
    second = page.locator("td[data-label=Entry]").all_inner_texts()
    assert (50, 10, 60) == (len(first), len(second), len({*first, *second}))


def test_deleted_entries_are_listed_and_restored(visit: Visit) -> None:
    """From the list, in one step."""
    page = visit.go(f"/entries/gone?{ADA}")
    visit.sees("mood")
    page.get_by_role("button", name="Restore mood").click()
    visit.said("mood is back")
    assert "mood" in seen_by(visit.workflow, "ada")


def test_entries_are_forgotten_after_a_count_and_a_typed_word(visit: Visit) -> None:
    """What grew meanwhile is counted again; the tombstone stays without content."""
    page = visit.go(f"/entries/forget?{ADA}&tag=billing")
    visit.sees("1 entry of agent support, user ada", "plan")
    visit.press("Forget for good")  # the field is required: nothing is sent
    page.get_by_label("Type forget 1 to confirm").fill("yes")
    visit.press("Forget for good")
    expect(page.get_by_role("alert")).to_contain_text("type forget 1 to confirm")
    saved_by(visit.workflow, "ada", "bill", "x", tags=["billing"])
    page.get_by_label("Type forget 1 to confirm").fill("forget 1")
    page.get_by_label("Why").fill("asked to")
    visit.press("Forget for good")
    expect(page.get_by_role("alert")).to_contain_text("the selection has 2 entries by now")
    page.get_by_label("Type forget 2 to confirm").fill("forget 2")
    visit.press("Forget for good")
    visit.said("Forgotten for good: 2")
    visit.sees("asked to", OPERATOR)
    assert {"contact", "typed", "hours"} <= set(seen_by(visit.workflow, "ada"))
    assert [] == files_holding(visit.workflow.parent / ".memory", "pays yearly")
    visit.complains(400, 400)


def test_the_entry_of_the_page_is_forgotten_and_no_other(visit: Visit) -> None:
    """A key that begins or ends with a blank is another key than the one without."""
    for key in ("note", " note", "note "):
        saved_by(visit.workflow, "ada", key, f"The text of {key!r}.", tags=["odd "])
    page = visit.go(f"/entries/one?{ADA}&key=+note")
    page.get_by_role("link", name="Forget for good").click()
    page.get_by_label("Type forget 1 to confirm").fill("forget 1")
    visit.press("Forget for good")
    visit.said("Forgotten for good: 1")

    assert {"note", "note "} == {key for key in seen_by(visit.workflow, "ada") if "note" in key}
    visit.go(f"/entries?{ADA}&tag=odd+")
    visit.sees("The text of 'note'.", "The text of 'note '.")


def test_a_plan_is_shown_applied_and_undone(visit: Visit) -> None:
    """Duplicates are merged; the undo brings all back."""
    page = visit.go("/entries/plan?agent=support&level=INTERNAL")
    page.get_by_label("Down to percent of the budget").fill("20")
    visit.press("Make a plan")
    visit.sees("merge", "refund-0")
    visit.press("Apply this plan")
    visit.said("Applied:")
    assert 1 == len([key for key in seen_by(visit.workflow, None) if key.startswith("refund")])
    page.locator("main").get_by_role("button", name="Undo").click()
    visit.said("Undone")
    assert 3 == len([key for key in seen_by(visit.workflow, None) if key.startswith("refund")])
