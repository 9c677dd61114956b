"""An agent that may only read entries changes nothing, on whatever way, and its reads are not noticed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import memfiles
from memfiles.adapters.shapes.items import ItemChange, Items
from memfiles.adapters.shapes.memory_tool import MemoryCommands
from memfiles.adapters.shapes.notebook import Notebook
from memfiles.entries.budgets import Budget
from memfiles.entries.drafts import DAY_SECONDS, Draft, EntryRules
from memfiles.entries.entries import Entries
from memfiles.errors import ReadOnly
from memfiles.tools.session import Session
from tests.cli.command_line import run
from tests.server.mcp_clients import Offer, client_of, in_loop
from tests.support.records import files_under
from tests.support.saved import Clock, Visitor, entries_in, without_ids
from tests.support.workflows import opened

WORKFLOW = """\
memory:
  durability: os
  entries: {}
agents:
  support: {}
  guest: {entries: r}
"""
WRITES: dict[str, Callable[[Entries, Session], Any]] = {
    "save": lambda entries, guest: entries.save(guest, "plan", "x"),
    "save many": lambda entries, guest: entries.save_many(guest, [Draft("plan", "x")]),
    "update": lambda entries, guest: entries.update(guest, "plan", tags=["x"]),
    "edit": lambda entries, guest: entries.edit(guest, "plan", "Pro", "Max"),
    "delete": lambda entries, guest: entries.delete(guest, "plan"),
    "delete many": lambda entries, guest: entries.delete_many(guest, ["plan"]),
    "relocate": lambda entries, guest: entries.relocate(guest, {"plan": "other"}),
    "restore": lambda entries, guest: entries.restore(guest, "old"),
    "forget": lambda entries, guest: entries.forget(guest, key="plan"),
    "apply": lambda entries, guest: entries.apply(guest, entries.plan(guest)),
    "undo": lambda entries, guest: entries.undo(guest, "plan"),
    "undo_plan": lambda entries, guest: entries.undo_plan(guest, "plan-000000000000"),
    "import": lambda entries, guest: entries.import_(guest, "nowhere.jsonl"),
    "store of items": lambda _, guest: Items(guest).change([ItemChange(("a",), "plan", {"x": 1})]),
    "notebook": lambda _, guest: Notebook(guest).put("plan", "x", expected=0),
}


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[memfiles.Memory]:
    """A memory in which all agents see one entry, and a deleted one can be restored."""
    with opened(tmp_path, WORKFLOW) as memory:
        session = memory.session("support")
        for key in ("plan", "old"):
            memory.entries.save(session, key, "Ada is on Pro", category="workspace")
        memory.entries.delete(session, "old")
        yield memory


def records(folder: Path) -> dict[str, bytes]:
    return files_under(folder / ".memory/entries")


@pytest.mark.parametrize("write", WRITES)
def test_every_verb_that_writes_is_refused(memory: memfiles.Memory, tmp_path: Path, write: str) -> None:
    """With the reason, and before anything is looked at: no record changes, and the audit has the refusal."""
    before = records(tmp_path)
    with pytest.raises(ReadOnly, match="agent guest may only read entries"):
        WRITES[write](memory.entries, memory.session("guest"))

    assert before == records(tmp_path)
    assert '"code":"read_only"' in "".join(map(bytes.decode, files_under(tmp_path / ".memory/audit").values()))


def test_reads_are_as_ever(memory: memfiles.Memory) -> None:
    """It sees what all agents share."""
    guest = memory.session("guest")

    assert "Ada is on Pro" == memory.entries.get(guest, "plan").content  # type: ignore[union-attr]
    assert ["plan"] == [match.found.key for match in memory.entries.search(guest, "Pro").matches]
    assert ["plan"] == [found.key for found in memory.entries.list(guest).memories]


def test_a_command_ends_as_denied(memory: memfiles.Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 6, and the reason on stderr."""
    monkeypatch.chdir(tmp_path)
    commands = (["save", "plan", "x"], ["delete", "plan"], ["forget", "--key", "plan", "--yes"])
    ran = [run("entries", *each, "--agent", "guest") for each in commands]

    assert [6, 6, 6] == [each.code for each in ran]
    assert all("may only read entries" in each.err for each in ran)


def test_the_memory_tool_says_why(memory: memfiles.Memory) -> None:
    """A model that uses Anthropic's memory tool reads it as the result of its command."""
    with pytest.raises(ReadOnly, match="may only read entries"):
        MemoryCommands(memory.session("guest")).create("/memories/plan.md", "x")


def test_a_client_of_the_server_is_offered_no_tool_that_writes(memory: memfiles.Memory) -> None:
    """And a call of one is an error with the reason."""

    async def asked() -> tuple[list[str], Any]:
        async with client_of(Offer(memory, memory.session("guest"))) as client:
            tools = await client.list_tools()
            return [tool.name for tool in tools.tools], await client.call_tool(
                "memory_save", {"key": "k", "content": "x"}
            )

    names, result = in_loop(asked)

    assert ["memory_get", "memory_search", "memory_list"] == names
    assert result.is_error
    assert "may only read entries" in result.content[0].text


FEW = EntryRules(secrets="off", budget=Budget(max_entries=4), readers=frozenset({"guest"}))


@pytest.mark.parametrize(
    "reader", [Visitor("guest"), Visitor("guest", "CONFIDENTIAL"), Visitor("support", "CONFIDENTIAL")]
)
def test_a_read_is_not_noticed(tmp_path: Path, reader: Visitor) -> None:
    """Whatever a reader of another agent or level reads, the same entries are evicted from what others share."""

    def evicted(folder: str, *, reads: bool) -> list[tuple[str, ...]]:
        with entries_in(tmp_path / folder, rules=FEW, now=Clock()) as entries:
            writer = Visitor("support")
            for number in range(4):
                entries.save(writer, f"k{number}", f"value {number}", category="workspace")
            for key in ("k0", "k1") if reads else ():
                entries.get(reader, key)
                entries.search(reader, key)
            return [entries.save(writer, f"n{each}", "new", category="workspace").evicted for each in range(3)]

    assert evicted("read", reads=True) == evicted("unread", reads=False)


@pytest.mark.parametrize("hidden", [Visitor("support", "CONFIDENTIAL"), Visitor("sales"), Visitor("support", run="r")])
def test_what_is_erased_of_others_is_not_noticed(tmp_path: Path, hidden: Visitor) -> None:
    """A session that cannot see some entries cannot tell that they expired, were deleted, and were erased since."""

    def seen(folder: str, *, others: bool) -> str:
        clock, told, of_run = Clock(), list[Any](), "conversation" if hidden.provenance.run else None
        with entries_in(tmp_path / folder, rules=FEW, now=clock) as entries:
            visitor = Visitor("support")
            for key in ("plan", "other"):
                entries.save(visitor, key, f"Ada is on {key}")
            entries.delete(visitor, "other")
            for number in range(9) if others else ():
                category = of_run or ("daily" if number % 2 else None)
                entries.save(hidden, f"plan {number}", "Ada is on Max", category=category)
                entries.delete(hidden, f"plan {number}") if number % 3 else None
            for days in (1, 20, 80):
                clock.go_on(days * DAY_SECONDS)
                entries.save(hidden, "now", "the hidden one erases", category=of_run) if others else None
                told += [entries.get(visitor, "plan"), entries.list(visitor), entries.search(visitor, "Ada")]
                told += [entries.explain(visitor, key) for key in ("plan", "other", "plan 1", "plan 2")]
                told += [entries.hydrate(visitor).text, entries.plan(visitor).steps]
                told += [_refusal(partial(entries.restore, visitor, key)) for key in ("plan 1", "plan 2")]
                told += [entries.forget(visitor, key=key, dry_run=True) for key in ("other", "plan 2")]
            told.append(_refusal(lambda: entries.restore(visitor, "other")))
            told.append(entries.save(visitor, "other", "anew"))
            return json.dumps(without_ids([each.to_dict() if hasattr(each, "to_dict") else str(each) for each in told]))

    assert seen("alone", others=False) == seen("with others", others=True)


def _refusal(call: Callable[[], object]) -> str:
    try:
        return str(call())
    except memfiles.MemfilesError as error:
        return f"{error.code}: {error}"
