"""An entry expires after its lifetime, is then as if it were not there, and is renewed by a change or a read."""

from __future__ import annotations

from pathlib import Path

from memfiles.entries.drafts import Category, Draft, EntryRules
from memfiles.entries.entries import Entries
from tests.entries.test_entries import keys_of
from tests.support.saved import Clock, Visitor, entries_in


def test_a_daily_entry_expires_after_its_last_change(entries: Entries, clock: Clock) -> None:
    """72 hours after it, swept or not; reading, hydrating and saving it again do not renew it."""
    entries.save(Visitor(), "today", "rain", category="daily")
    clock.go_on(71 * 3600)
    entries.save(Visitor(), "today", "rain")
    entries.update(Visitor(), "today", tags=["weather"])
    entries.hydrate(Visitor())
    entries.get(Visitor(), "today")
    clock.go_on(3600)

    assert entries.get(Visitor(), "today") is None
    assert [] == keys_of(entries, Visitor(), "rain")
    assert () == entries.list(Visitor()).memories
    assert "" == entries.hydrate(Visitor()).text
    assert "expired" == entries.explain(Visitor(), "today").reason


def test_another_content_renews(entries: Entries, clock: Clock) -> None:
    """The lifetime runs from the last change of the content."""
    entries.save(Visitor(), "today", "rain", category="daily")
    clock.go_on(71 * 3600)
    entries.save(Visitor(), "today", "sun")
    clock.go_on(71 * 3600)

    assert entries.get(Visitor(), "today") is not None


def test_an_expired_key_can_be_saved_anew(entries: Entries, clock: Clock) -> None:
    """For a session there is nothing there any more, so the same text is new."""
    entries.save(Visitor(), "today", "rain", category="daily")
    clock.go_on(73 * 3600)
    entries.save(Visitor(), "today", "rain", category="daily", expected_revision=0)

    assert entries.get(Visitor(), "today") is not None


def test_categories_can_have_lifetimes_of_their_own(tmp_path: Path, clock: Clock) -> None:
    """As the workflow declares them."""

    with entries_in(tmp_path, rules=EntryRules(categories={"draft": Category("draft", ttl=60)}), now=clock) as entries:
        entries.save(Visitor(), "k", "x", category="draft")
        clock.go_on(60)

        assert entries.get(Visitor(), "k") is None


def test_expired_entries_shift_nothing(tmp_path: Path, clock: Clock) -> None:
    """Scores, order and neighbours are those of a store that never held them."""
    visitor = Visitor(run="r", thread="t")
    with entries_in(tmp_path / "with", now=clock) as held, entries_in(tmp_path / "without", now=clock) as bare:
        for entries in (held, bare):
            entries.save(visitor, "asked", "Who pays for the museum?")
            if entries is held:
                entries.save_many(visitor, [Draft(f"gone/{n}", "the museum " * 3, ttl=60) for n in range(40)])
            entries.save(visitor, "told", "Robin does.")
            entries.save(visitor, "sky", "The sky over the museum is blue.")
        clock.go_on(61)
        found = [
            [(match.found.key, match.score, match.snippet) for match in entries.search(visitor, "museum sky").matches]
            for entries in (held, bare)
        ]

    assert found[1] == found[0]


def test_a_renewed_entry_is_found_again(entries: Entries, clock: Clock) -> None:
    """Also with the very content it had, after a search has passed over it."""
    entries.save(Visitor(), "plan", "a museum visit", ttl=60)
    clock.go_on(61)
    passed_over = keys_of(entries, Visitor(), "museum")
    entries.save(Visitor(), "plan", "a museum visit", ttl=60)

    assert ([], ["plan"]) == (passed_over, keys_of(entries, Visitor(), "museum"))


def test_a_lifetime_of_its_own_outlives_a_change_of_content(entries: Entries, clock: Clock) -> None:
    """It runs anew from the change, and an entry that was to be gone in a minute is not kept for ever."""
    entries.save(Visitor(), "code", "the door is 12", ttl=60)
    clock.go_on(30)
    entries.save(Visitor(), "code", "the door is 13")
    clock.go_on(59)
    before = entries.get(Visitor(), "code")
    clock.go_on(1)

    assert before is not None
    assert entries.get(Visitor(), "code") is None
