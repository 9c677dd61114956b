"""What nobody sees any more is erased once it was kept long enough: from every file, here and on other machines."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import memfiles
from memfiles.entries.budgets import Budget
from memfiles.entries.callers import Caller
from memfiles.entries.drafts import DAY_SECONDS, EntryRules, Retention
from memfiles.entries.entries import Entries
from memfiles.entries.forget import Forgetter
from memfiles.entries.lazy import rules_of
from memfiles.entries.purge import Purged
from memfiles.errors import EntryNotFound
from memfiles.index.index import Index
from memfiles.storage import quarantine
from memfiles.storage.audit_reader import drop_months
from memfiles.storage.events import AuditEvent, AuditLog, utc_now
from memfiles.storage.home import home_of
from memfiles.storage.store import Store
from memfiles.storage.transaction import Transactions
from memfiles.workflow.specs import EntriesSpec
from memfiles.workflow.workflow import Workflow
from tests.entries.test_forget import FEW, folded, owned
from tests.support.another_process import in_a_child
from tests.support.records import files_under
from tests.support.saved import Clock, Visitor, entries_in, files_holding
from tests.support.stores import place_of
from tests.support.workflows import opened

WORD, KEY = "zebrafish", "animals/striped"
NEEDLES = (WORD, "striped")
RULES = EntryRules(secrets="off")
AFTER = {"deleted": 90 * DAY_SECONDS, "evicted": 90 * DAY_SECONDS, "expired": 10 * DAY_SECONDS}
HIDING = list(AFTER)


def hide(entries: Entries, visitor: Caller, how: str, *, key: str = KEY) -> None:
    """Save an entry, search for it, and have it hidden in this way, or give it a time after which it is."""
    entries.save(visitor, key, f"a {WORD} swims", category="daily" if how == "expired" else None)
    entries.search(visitor, WORD)
    if how == "deleted":
        entries.delete(visitor, key)
    elif how == "evicted":
        entries.save(visitor, "other", "z" * 90, importance=1.0)


def rules_for(how: str) -> EntryRules:
    return EntryRules(secrets="off", budget=Budget(max_bytes=100)) if how == "evicted" else RULES


@pytest.mark.parametrize("how", HIDING)
def test_nothing_is_left_once_the_time_is_over(tmp_path: Path, how: str) -> None:
    """Neither a word of the content nor of the key, in any file: a second before, everything is still there."""
    clock, visitor = Clock(), Visitor()
    with entries_in(tmp_path, rules=rules_for(how), now=clock, durability="fsync") as entries:
        hide(entries, visitor, how)
        clock.go_on(AFTER[how] - 1)
        entries.sweep()
        before = files_holding(tmp_path, *NEEDLES)
        clock.go_on(1)
        entries.save(visitor, "next", "is saved")

        assert before
        assert [] == files_holding(tmp_path, *NEEDLES)


def test_what_is_deleted_by_a_clock_that_is_behind_is_kept_as_long(tmp_path: Path) -> None:
    """It was not hidden before it was saved, whatever the clock said at that moment."""
    clock, visitor = Clock(), Visitor()
    with entries_in(tmp_path, rules=RULES, now=clock) as entries:
        entries.save(visitor, KEY, f"a {WORD} swims")
        clock.go_on(-200 * DAY_SECONDS)
        entries.delete(visitor, KEY)
        clock.go_on(200 * DAY_SECONDS)
        entries.sweep()

        assert 3 == entries.restore(visitor, KEY).revision


@pytest.mark.parametrize("how", HIDING)
def test_it_can_be_restored_until_then(tmp_path: Path, how: str) -> None:
    """Afterwards the error names the date, whether it was erased by then or not."""
    clock, visitor = Clock("2026-01-01T00:00:00.000Z"), Visitor()
    with entries_in(tmp_path, rules=rules_for(how), now=clock) as entries:
        hide(entries, visitor, how)
        clock.go_on(AFTER[how] - 1)
        entries.restore(visitor, KEY)
        hide(entries, visitor, how)
        clock.go_on(AFTER[how])
        with pytest.raises(EntryNotFound) as unswept:
            entries.restore(visitor, KEY)
        entries.sweep()
        with pytest.raises(EntryNotFound) as swept:
            entries.restore(visitor, KEY)

        assert str(unswept.value) == str(swept.value)
        assert clock()[:10] in str(swept.value)


@pytest.mark.parametrize("how", HIDING)
def test_a_save_over_it_begins_anew(tmp_path: Path, how: str) -> None:
    """It keeps nothing of an entry whose time is over, swept or not: no tags, no history, not its id."""
    clock, visitor = Clock(), Visitor()
    shown = []
    for folder in ("swept", "unswept"):
        with entries_in(tmp_path / folder, rules=rules_for(how), now=clock) as entries:
            hide(entries, visitor, how)
            entries.update(visitor, KEY, tags=["fish"]) if how == "expired" else None
            clock.go_on(AFTER[how])
            entries.sweep() if folder == "swept" else None
            entries.save(visitor, KEY, "a crow")
            found = entries.get(visitor, KEY)
            assert found is not None
            shown.append((found.content, found.tags, found.category, found.revision))
            entries.sweep()

        assert [] == files_holding(tmp_path / folder, WORD)
    assert shown[0] == shown[1]


def test_an_explanation_does_not_tell_whether_it_was_erased(tmp_path: Path) -> None:
    """Who swept, and when, is nobody's business: an entry whose time is over is unknown at once; forgetting too."""
    clock, visitor = Clock(), Visitor()
    with entries_in(tmp_path, rules=RULES, now=clock) as entries:
        hide(entries, visitor, "deleted")
        known = entries.explain(visitor, KEY).reason
        clock.go_on(AFTER["deleted"])
        over = entries.explain(visitor, KEY), entries.forget(visitor, key=KEY, dry_run=True)
        entries.sweep()
        erased = entries.explain(visitor, KEY), entries.forget(visitor, key=KEY, dry_run=True)

        assert "deleted" == known
        assert over == erased
        assert 0 == over[1].count


@pytest.mark.slow
def test_a_sweep_erases_a_portion_at_a_time(tmp_path: Path) -> None:
    """At most 200 entries a call; each save takes the next ones, and a purge all that are left."""
    clock, visitor = Clock(), Visitor()
    with entries_in(tmp_path, rules=RULES, now=clock) as entries:
        keys = [f"{WORD}/{number}" for number in range(650)]
        entries.save_many(visitor, [{"key": key, "content": f"{WORD} {key}"} for key in keys])
        entries.delete_many(visitor, keys)
        clock.go_on(AFTER["deleted"])
        left = [entries.purge(dry_run=True).deleted]
        for number in range(2):
            entries.save(visitor, f"k{number}", "next")
            left.append(entries.purge(dry_run=True).deleted)
        told: list[tuple[int, int]] = []
        purged = entries.purge(progress=lambda done, total: told.append((done, total)))

        assert [650, 450, 250] == left
        assert (250, 0, [(200, 250), (250, 250)]) == (purged.deleted, purged.expired, told)
        assert [] == files_holding(tmp_path, WORD)
        assert 0 == entries.purge().deleted


def _records_in(directory: Path) -> dict[str, bytes]:
    return {path: body for path, body in files_under(directory).items() if path.endswith((".json", ".jsonl"))}


def test_a_dry_run_counts_and_changes_nothing(tmp_path: Path) -> None:
    """Expired and deleted entries apart, and the months of the audit."""
    clock, visitor = Clock("2026-01-31T00:00:00.000Z"), Visitor()
    audit = AuditLog(place_of(tmp_path), now=clock)
    audit.record(AuditEvent("save"))
    audit.flush()
    with entries_in(tmp_path, rules=RULES, now=clock) as entries:
        hide(entries, visitor, "expired", key="a")
        hide(entries, visitor, "deleted", key="b")
        clock.go_on(401 * DAY_SECONDS)
        before = _records_in(tmp_path)
        dry = entries.purge(dry_run=True)

        assert {"expired": 1, "deleted": 1, "audit_months": ["2026-01"], "dry_run": True} == dry.to_dict()
        assert before == _records_in(tmp_path)
        assert {**dry.to_dict(), "dry_run": False} == entries.purge().to_dict()
        assert [] == [path for path in files_under(tmp_path) if path.startswith("audit/2026-01")]


def test_the_audit_goes_by_whole_months(tmp_path: Path) -> None:
    """A month stays until all of it was kept long enough; what is no month of the audit stays."""
    clock = Clock("2026-01-31T23:00:00.000Z")
    audit = AuditLog(tmp_path, now=clock)
    audit.record(AuditEvent("save"))
    audit.flush()
    (tmp_path / "audit/notes.txt").write_text("mine")
    clock.at = "2026-02-01T00:00:00.000Z"
    audit.record(AuditEvent("save"))
    audit.close()
    dropped = []
    for moment in ("2026-02-28T23:59:59.000Z", "2026-03-02T23:59:59.000Z", "2026-03-03T00:00:00.000Z"):
        dropped.append(drop_months(tmp_path, now=moment, after_seconds=30 * DAY_SECONDS))

    assert [(), (), ("2026-01",)] == dropped
    assert ["2026-02.jsonl", "notes.txt"] == sorted(path.name for path in (tmp_path / "audit").iterdir())


@pytest.mark.directory("a month is a file, which is put there by hand")
@pytest.mark.parametrize("by", ["close", "open", "sweep"])
@pytest.mark.parametrize("declared", ["entries: {}", "files: [{uid: notes, name: notes, description: notes}]"])
def test_whoever_comes_next_drops_the_months_of_the_audit(tmp_path: Path, declared: str, by: str) -> None:
    """By the retention that the workflow declares, or 400 days; with entries or without."""
    workflow = f"memory:\n  durability: os\n  {declared}\nagents: {{support: {{}}}}\n"
    months = [tmp_path / ".memory/audit" / f"{name}.jsonl" for name in ("2020-01", utc_now()[:7])]
    memory = opened(tmp_path, workflow)
    if by == "open":
        memory.close()
    months[0].parent.mkdir(exist_ok=True)
    for month in months:
        month.touch()
    match by:
        case "open":
            memory = opened(tmp_path, workflow)
        case "sweep":
            memory.entries.sweep()  # as the first save of each hour does
        case _:
            memory.close()

    assert [False, True] == [month.exists() for month in months]
    memory.close()


def test_a_time_longer_than_all_years_is_for_ever(tmp_path: Path) -> None:
    """A person may write one to keep everything."""
    clock, visitor = Clock(), Visitor()
    workflow = Workflow.parse("memory: {retention: {expired: 999999999d, deleted: 999999999d, audit: 999999999d}}")
    rules = rules_of(workflow, EntriesSpec())
    with entries_in(tmp_path, rules=rules, now=clock) as entries:
        hide(entries, visitor, "deleted")
        hide(entries, visitor, "expired", key="b")
        clock.go_on(300_000 * DAY_SECONDS)

        assert Purged() == entries.purge()
        assert KEY == entries.restore(visitor, KEY).key


def test_the_defaults_of_a_workflow_are_those_of_the_library() -> None:
    """A week for what expired, 90 days for what was deleted, 400 days for the audit."""
    rules = rules_of(Workflow.parse("memory: {}"), EntriesSpec())

    assert Retention() == rules.retention == Retention(7 * DAY_SECONDS, 90 * DAY_SECONDS, 400 * DAY_SECONDS)


def test_kept_copies_go_as_well(tmp_path: Path) -> None:
    """Whatever quarantine and conflicts hold of an erased entry; those of others stay."""
    clock, visitor = Clock(), Visitor()
    with entries_in(tmp_path, rules=RULES, now=clock) as entries:
        entries.save(visitor, "stays", "a crow")
        hide(entries, visitor, "deleted")
        for path, body in _records_in(tmp_path / "entries").items():
            home_of(place_of(tmp_path)).kept.keep(
                f"entries/{path}", body, reason="test", at=clock(), folder="quarantine"
            )
        clock.go_on(AFTER["deleted"])
        entries.sweep()

        assert [] == files_holding(tmp_path, *NEEDLES)
        assert files_holding(tmp_path / "quarantine", "a crow")


def test_a_key_that_an_entry_moved_to_is_gone_from_its_location(tmp_path: Path) -> None:
    """The record that leads from its id to its place held its key."""
    clock, visitor = Clock(), Visitor()
    with entries_in(tmp_path, rules=RULES, now=clock) as entries:
        entries.save(visitor, "first", f"a {WORD}")
        entries.relocate(visitor, {"first": KEY})
        entries.delete(visitor, KEY)
        clock.go_on(AFTER["deleted"])
        before = files_holding(tmp_path / "entries/@ids", *NEEDLES)
        entries.sweep()

        assert before
        assert [] == files_holding(tmp_path, *NEEDLES)


def test_what_was_superseded_stays_with_the_history(tmp_path: Path) -> None:
    """Only entries that nobody sees age: earlier values of a live one go with the bound of its history."""
    clock, visitor = Clock(), Visitor()
    with entries_in(tmp_path, rules=RULES, now=clock) as entries:
        entries.save(visitor, KEY, f"a {WORD}")
        entries.save(visitor, KEY, "a crow")
        clock.go_on(1000 * DAY_SECONDS)
        entries.sweep()

        assert files_holding(tmp_path, WORD)


def test_too_many_deleted_entries_leave_no_text_either(tmp_path: Path) -> None:
    """Count or age, whichever comes first: the oldest that are over the count are erased as completely."""
    clock, visitor = Clock("2026-01-01T00:00:00.000Z"), Visitor()
    few = EntryRules(secrets="off", budget=Budget(max_entries=5))
    with entries_in(tmp_path, rules=few, now=clock) as entries:
        hide(entries, visitor, "deleted")
        for number in range(70):
            clock.go_on(1)
            entries.save(visitor, f"other {number}", "a crow")
            entries.delete(visitor, f"other {number}")
        entries.sweep()

        with pytest.raises(EntryNotFound, match="2026-01-01"):
            entries.restore(visitor, KEY)
        assert [] == files_holding(tmp_path, *NEEDLES)


def test_the_undo_of_a_plan_names_the_date(tmp_path: Path) -> None:
    """Once entries that it hid are erased, or must be, it cannot be undone as a whole."""
    clock, visitor = Clock("2026-01-01T00:00:00.000Z"), Visitor()
    with entries_in(tmp_path, rules=FEW, now=clock) as entries:
        plan = folded(entries, visitor)
        clock.go_on(AFTER["deleted"])
        messages = []
        for _ in range(2):
            with pytest.raises(EntryNotFound, match="cannot be taken back as a whole: .* 2026-04-01") as refused:
                entries.undo_plan(visitor, plan)
            messages.append(str(refused.value))
            entries.sweep()

        assert messages[0] == messages[1]


def test_an_entry_of_a_run_leaves_no_file(tmp_path: Path) -> None:
    """It is on no other machine, so that nothing has to remember it."""
    clock, visitor = Clock(), Visitor(run="monday")
    with entries_in(tmp_path, rules=RULES, now=clock) as entries:
        entries.save(visitor, KEY, f"a {WORD}", category="conversation")
        clock.go_on(8 * DAY_SECONDS)
        entries.sweep()

        assert {} == _records_in(tmp_path / "entries")
        assert [] == files_holding(tmp_path, *NEEDLES)


KEPT = pytest.param(quarantine.Quarantine, "remove_if", marks=pytest.mark.directory("others keep copies elsewhere"))
COMMIT = pytest.param(Transactions, "commit", marks=pytest.mark.directory("only its changes are made by this"))


@pytest.mark.parametrize(
    ("owner", "method"),
    [(Index, "forget"), KEPT, (Store, "scrub"), (Forgetter, "complete"), COMMIT],
)
@pytest.mark.slow
def test_a_kill_in_the_middle_is_made_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, method: str
) -> None:
    """Whichever step it was killed before, the next sweep has the content gone."""
    clock, visitor = Clock(), Visitor()
    with entries_in(tmp_path, rules=RULES, now=clock, durability="fsync") as entries:
        hide(entries, visitor, "deleted")
    clock.go_on(AFTER["deleted"])

    def sweep_until() -> None:
        with entries_in(tmp_path, rules=RULES, now=clock, durability="fsync") as entries:
            entries.search(visitor, "swims")
            monkeypatch.setattr(owned(entries, owner), method, lambda *_, **__: os._exit(9))
            entries.sweep()

    in_a_child(sweep_until)
    with entries_in(tmp_path, rules=RULES, now=clock, durability="fsync") as entries:
        entries.sweep()

        assert [] == files_holding(tmp_path, *NEEDLES)


@pytest.mark.slow
def test_nobody_hears_of_it(tmp_path: Path) -> None:
    """No session is told that something was erased: nobody saw it any more."""
    with opened(tmp_path, WORKFLOW) as memory:
        session = memory.session("support")
        memory.entries.save(session, KEY, WORD)
        memory.entries.delete(session, KEY)
        heard: list[bool] = []
        memory.manager.subscribe(lambda change: heard.append(session.may_know(change)))
        let_it_be_over(seconds=1.1)
        memory.purge()

        assert [False] == heard
        assert '"op":"purge"' in "".join(map(bytes.decode, files_under(tmp_path / ".memory/audit").values()))


WORKFLOW = """\
    memory:
      durability: os
      retention: {expired: 1s, deleted: 1s}
      entries: {categories: {daily: {ttl: 1s}}}
    agents: {support: {}}
    """


def let_it_be_over(*, seconds: float = 2.1) -> None:
    """Wait for the shortest lifetime and the shortest retention there are, a second each."""
    time.sleep(seconds)


@pytest.mark.slow
def test_whoever_comes_next_erases_it(tmp_path: Path) -> None:
    """The next open, close, save or consolidation, without anybody asking for it, and a purge."""
    ways = [(by, how) for by in ("close", "open", "save", "consolidation", "purge") for how in ("deleted", "expired")]
    memories = [_with_a_hidden_entry(tmp_path / f"{by} {how}", by, how) for by, how in ways]
    let_it_be_over()
    before = [files_holding(tmp_path / f"{by} {how}/.memory", *NEEDLES) for by, how in ways]
    for (by, how), memory in zip(ways, memories, strict=True):
        with _next(by, memory, tmp_path / f"{by} {how}"):
            left = files_holding(tmp_path / f"{by} {how}/.memory", *NEEDLES)

            assert [] == left, (by, how)
    assert [] == [way for way, held in zip(ways, before, strict=True) if not held]


def _with_a_hidden_entry(folder: Path, by: str, how: str) -> memfiles.Memory:
    memory = opened(folder, WORKFLOW.replace("deleted: 1s", "deleted: 1h") if by == "open" else WORKFLOW)
    hide(memory.entries, memory.session("support"), how)
    if by == "open":
        memory.close()
    return memory


@contextmanager
def _next(by: str, memory: memfiles.Memory, folder: Path) -> Iterator[None]:
    """Do to a memory what comes next, and close it after what the caller does."""
    match by:
        case "open":
            memory = opened(folder, WORKFLOW)
        case "save":
            memory.entries.save(memory.session("support"), "next", "is saved")
        case "consolidation":
            session = memory.session("support")
            memory.entries.apply(session, memory.entries.plan(session))
        case "purge":
            memory.purge()
        case _:
            memory.close()
    yield
    memory.close()
