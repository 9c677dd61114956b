"""Clients of the MCP server hear of every change that they may know of, under the URI by which they asked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from anyio import to_thread
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated, ServerEvent, ToolsListChanged

import memfiles
from memfiles.records.keys import is_id_path
from memfiles.storage.events import RecordChanged
from mirrors.memory import MemoryMirror
from tests.server.mcp_clients import (
    ERAS,
    NOTES,
    WORKFLOW,
    Offer,
    changed_by_hand,
    environment,
    in_loop,
    listening,
    offered,
    unsubscribed,
    workflow_in,
)
from tests.support.workflows import write_workflow

pytestmark = pytest.mark.slow

ENTRY = "memory://entries/customers%2FAda%20L"
KEY = "customers/Ada L"


@pytest.fixture
def mirror() -> MemoryMirror:
    return MemoryMirror()


@pytest.fixture
def offer(tmp_path: Path, mirror: MemoryMirror) -> Iterator[Offer]:
    with offered(tmp_path, mirror=mirror) as offer:
        yield offer


def _by_tool(offer: Offer, _: object = None) -> None:
    offer.session.call("append_memory", {"file": "notes", "content": "- tool\n"})


def _folder(offer: Offer) -> Path:
    assert offer.memory.workflow.path is not None
    return offer.memory.workflow.path.parent


BY_HAND = pytest.mark.directory("only files can be changed by hand")


def _by_hand(offer: Offer, _: object = None) -> None:
    changed_by_hand(offer.memory.manager.directory / "notes-1.json", added="- hand\n")


def _by_another_process(offer: Offer, _: object = None) -> None:
    folder = _folder(offer)
    program = [
        sys.executable,
        "-m",
        "memfiles",
        "-w",
        str(folder / "workflow.yaml"),
        "append",
        "notes",
        "- process",
    ]
    subprocess.run(program, env=environment(), check=True, capture_output=True, timeout=60)


def _by_undo(offer: Offer, _: object = None) -> None:
    offer.memory.manager.undo("notes-1")


def _by_redaction(offer: Offer, _: object = None) -> None:
    offer.memory.manager.redact("notes-1", "before")


def _on_another_machine(offer: Offer, mirror: MemoryMirror) -> None:
    folder = _folder(offer) / "other"
    folder.mkdir()
    assert offer.memory.sync.flush(20)
    with memfiles.open(workflow_in(folder), mirror=mirror) as other:
        other.manager.append("notes-1", "- far away\n")
        assert other.sync.flush(20)
    offer.memory.sync.pull()


@pytest.mark.parametrize(
    "change",
    [
        _by_tool,
        pytest.param(_by_hand, marks=BY_HAND),
        _by_another_process,
        _by_undo,
        _by_redaction,
        _on_another_machine,
    ],
)
@pytest.mark.parametrize("era", ERAS)
def test_news_of_a_memory_file(
    offer: Offer, mirror: MemoryMirror, era: str, change: Callable[[Offer, MemoryMirror], None]
) -> None:
    """Whoever changed it, those who subscribed to a file are told; of what is hidden nobody is."""
    offer.memory.manager.append("notes-1", "- before\n")

    async def heard() -> list[ServerEvent]:
        async with listening(offer.server(), era, [NOTES, "memory://files/deals"]) as (_, news):
            offer.memory.manager.append("deals-1", "- hidden\n")
            await to_thread.run_sync(change, offer, mirror)
            return [await news()]

    assert [ResourceUpdated(NOTES)] == in_loop(heard)


@pytest.mark.parametrize(
    "uri",
    [
        "memory://entries/customers%2fAda%20L",
        "memory://entries/customers/Ada L",
        "memory://entries/%63ustomers/Ada%20L",
        "Memory://Entries/customers%2FAda%20L",
        "memory://entries/customers%2FAda%20%4c",
    ],
)
@pytest.mark.parametrize("era", ERAS)
def test_a_uri_may_be_spelled_otherwise(offer: Offer, era: str, uri: str) -> None:
    """The news come under the spelling by which the client asked, as it knows no other."""

    async def heard() -> set[ServerEvent]:
        async with listening(offer.server(), era, [uri, "memory://files/%6eotes"]) as (client, news):
            offer.session.call("memory_save", {"key": KEY, "content": "On Pro."})
            told = {await news(), await news()}
            await client.read_resource(uri)
            _by_tool(offer)
            told |= {await news()}
            offer.memory.entries.forget(offer.session, key=KEY, why="asked to")
            return told | {await news(), await news()}

    assert {ResourceUpdated(uri), ResourceUpdated("memory://files/%6eotes"), ResourcesListChanged()} == in_loop(heard)


@BY_HAND
@pytest.mark.parametrize("era", ERAS)
def test_news_of_an_entry(offer: Offer, era: str) -> None:
    """Saved, changed by hand or forgotten: those who subscribed are told, and that the list may be another."""

    async def heard() -> list[set[ServerEvent]]:
        async with listening(offer.server(), era, [ENTRY]) as (_, news):
            offer.memory.session("sales").call("memory_save", {"key": "customers/Ada L", "content": "x"})
            offer.session.call("memory_save", {"key": "customers/Ada L", "content": "On Pro."})
            told = [{await news(), await news()}]
            (record,) = (offer.memory.manager.directory / "entries" / "support").glob("*.json")
            changed_by_hand(record, added=" By hand.")
            told.append({await news(), await news()})
            offer.memory.entries.forget(offer.session, key="customers/Ada L", why="asked to")
            return [*told, {await news(), await news()}]

    both = {ResourceUpdated(ENTRY), ResourcesListChanged()}
    assert [both, both, both] == in_loop(heard)


def test_an_update_in_place_leaves_the_list_alone(offer: Offer) -> None:
    """Clients that list anew after every change of a list are spared."""
    offer.session.call("memory_save", {"key": "customers/Ada L", "content": "On Pro."})

    async def heard() -> list[ServerEvent]:
        async with listening(offer.server(), "2026-07-28", [ENTRY, NOTES]) as (_, news):
            offer.session.call("memory_update", {"key": "customers/Ada L", "content": "On Free."})
            told = [await news()]
            _by_tool(offer)
            return [*told, await news()]

    assert [ResourceUpdated(ENTRY), ResourceUpdated(NOTES)] == in_loop(heard)


def test_no_news_after_unsubscribing(offer: Offer) -> None:
    """A client of an older protocol hears of a resource until it says that it is enough."""

    async def heard() -> list[ServerEvent]:
        async with listening(offer.server(), "legacy", [NOTES, "memory://files/rules"]) as (client, news):
            await unsubscribed(client, NOTES)
            _by_tool(offer)
            offer.memory.manager.append("rules-1", "- Be brief.\n")
            return [await news()]

    assert [ResourceUpdated("memory://files/rules")] == in_loop(heard)


def test_unsubscribing_by_another_spelling(offer: Offer) -> None:
    """What a client asks not to hear of is the resource, not how it is written."""

    async def heard() -> list[ServerEvent]:
        async with listening(offer.server(), "legacy", [NOTES, "memory://files/rules"]) as (client, news):
            await unsubscribed(client, "memory://files/%6Eotes")
            _by_tool(offer)
            offer.memory.manager.append("rules-1", "- Be brief.\n")
            return [await news()]

    assert [ResourceUpdated("memory://files/rules")] == in_loop(heard)


@pytest.mark.parametrize("uri", ["http://elsewhere/", "memory://files/", "memory://entries/%ff", ""])
def test_what_can_be_no_resource_cannot_be_subscribed_to(offer: Offer, uri: str) -> None:
    """A client that got the URI wrong is told, instead of waiting for news."""

    async def subscribed() -> None:
        async with listening(offer.server(), "legacy", [uri]):
            pass

    with pytest.raises(BaseExceptionGroup) as told:
        in_loop(subscribed)
    assert told.group_contains(MCPError, match="is not a resource of this server")


def test_an_eviction_is_news(tmp_path: Path) -> None:
    """Of what was saved, and of what had to go for it."""
    write_workflow(tmp_path, WORKFLOW.replace("entries: {}", "entries: {max_entries: 1}"))
    uris = ["memory://entries/old", "memory://entries/new"]

    async def heard() -> set[ServerEvent]:
        with offered(tmp_path) as offer:
            offer.session.call("memory_save", {"key": "old", "content": "x"})
            async with listening(offer.server(), "2026-07-28", uris) as (_, news):
                offer.session.call("memory_save", {"key": "new", "content": "x"})
                return {await news() for _ in range(4)}

    assert {*map(ResourceUpdated, uris), ResourcesListChanged()} == in_loop(heard)


@pytest.mark.parametrize("era", ERAS)
def test_an_entry_that_is_deleted_and_restored(offer: Offer, era: str) -> None:
    """It leaves the list and comes back to it."""
    offer.session.call("memory_save", {"key": KEY, "content": "On Pro."})

    async def heard() -> list[set[ServerEvent]]:
        async with listening(offer.server(), era, [ENTRY]) as (_, news):
            offer.session.call("memory_delete", {"key": KEY})
            told = [{await news(), await news()}]
            offer.memory.entries.restore(offer.session, KEY)
            return [*told, {await news(), await news()}]

    assert [{ResourceUpdated(ENTRY), ResourcesListChanged()}] * 2 == in_loop(heard)


@pytest.mark.parametrize("era", ERAS)
def test_a_file_that_another_deploy_hides(offer: Offer, era: str) -> None:
    """Tools and resources are others then; what happens in the file is no news any more."""
    folder = _folder(offer)
    hidden = (folder / "workflow.yaml").read_text().replace("How to work.", "How to work., level: CONFIDENTIAL")

    async def heard() -> list[ServerEvent]:
        async with listening(offer.server(), era, ["memory://files/rules", NOTES], tools=True) as (_, news):
            (folder / "hidden.yaml").write_text(hidden)
            with memfiles.open(folder / "hidden.yaml") as other:
                other.manager.append("rules-1", "- hidden\n")
            told = [await news(), await news()]
            _by_tool(offer)
            return [*told, await news()]

    assert [ResourcesListChanged(), ToolsListChanged(), ResourceUpdated(NOTES)] == in_loop(heard)


def test_who_may_know_of_a_change(offer: Offer) -> None:
    """A session hears of the places that it sees: not of other agents' entries, nor of higher levels."""
    heard: list[RecordChanged] = []
    offer.memory.manager.subscribe(heard.append)
    for agent, level in [("support", "INTERNAL"), ("support", "PUBLIC"), ("support", "RESTRICTED"), ("sales", None)]:
        session = offer.memory.session(agent, level=level)
        offer.memory.entries.save(session, "k", f"{agent} {level}")
        offer.memory.entries.forget(session, key="k", why="to see")

    own = [each for each in heard if each.origin == "local" and not is_id_path(each.path)]
    assert [True, True, True, True, False, False, False, False] == [offer.session.may_know(each) for each in own]
