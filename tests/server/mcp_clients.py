"""A small memory that is offered over MCP, and clients of it."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import anyio
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated, ServerEvent, ToolsListChanged
from mcp_types import (
    CallToolResult,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    TextContent,
    ToolListChangedNotification,
)

import memfiles
from memfiles.server.server import MemoryServer, build
from memfiles.sync.mirror import Mirror
from tests.support import ROOT
from tests.support.workflows import write_workflow

ERAS = ["2026-07-28", "legacy"]
NOTES = "memory://files/notes"
PATIENCE_SECONDS = 60
WORKFLOW = """\
name: desk
memory:
  durability: os
  files:
    - {uid: notes-1, name: notes, description: What is known., level: INTERNAL, content: "# Notes\\n"}
    - {uid: deals-1, name: deals, description: Deals., level: CONFIDENTIAL, content: "- secret\\n"}
    - {uid: rules-1, name: rules, description: How to work., content: "- Be kind.\\n"}
  entries: {}
agents:
  support:
    level: INTERNAL
    memory: [{id: notes-1, mode: rw}, {id: rules-1, mode: r}, {id: deals-1, mode: rw}]
  sales: {level: INTERNAL, memory: [{id: notes-1, mode: r}]}
"""
T = TypeVar("T")


@dataclass(frozen=True)
class Offer:
    """An open memory, and the session that a server of it serves."""

    memory: memfiles.Memory
    session: memfiles.Session
    read_only: bool = False

    def server(self) -> MemoryServer:
        """A server of the session."""
        return build(self.session, read_only=self.read_only)


def in_loop(program: Callable[[], Awaitable[T]]) -> T:
    """Run a test's asynchronous part; one that hangs fails."""

    async def bounded() -> T:
        with anyio.fail_after(3 * PATIENCE_SECONDS):
            return await program()

    return anyio.run(bounded)


@contextmanager
def offered(folder: Path, *, read_only: bool = False, mirror: Mirror | None = None) -> Iterator[Offer]:
    """The memory of the agent support, open in this process."""
    with memfiles.open(workflow_in(folder), mirror=mirror) as memory:
        yield Offer(memory, memory.session("support"), read_only=read_only)


@asynccontextmanager
async def client_of(offer: Offer, era: str = "2026-07-28", **given: Any) -> AsyncIterator[Client]:
    """A client in this process that speaks the protocol of that era."""
    async with Client(offer.server(), mode=era, **given) as client:
        yield client


@asynccontextmanager
async def listening(
    server: Any, era: str, uris: list[str], *, tools: bool = False
) -> AsyncIterator[tuple[Client, Callable[[], Awaitable[ServerEvent]]]]:
    """A client that subscribed to these resources in the way of its era, and what it hears, one at a time."""
    hearing, heard = anyio.create_memory_object_stream[ServerEvent](100)

    async def hear(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            await hearing.send(ResourceUpdated(str(message.params.uri)))
        if isinstance(message, ResourceListChangedNotification):
            await hearing.send(ResourcesListChanged())
        if isinstance(message, ToolListChangedNotification):
            await hearing.send(ToolsListChanged())

    async with hearing, heard, Client(server, mode=era, message_handler=hear) as client:
        if era == "legacy":
            with warnings.catch_warnings(action="ignore", category=MCPDeprecationWarning):
                for uri in uris:
                    await client.subscribe_resource(uri)
            yield client, heard.receive
        else:
            async with client.listen(
                resources_list_changed=True, resource_subscriptions=uris, tools_list_changed=tools
            ) as stream:
                yield client, stream.__anext__


async def unsubscribed(client: Client, uri: str) -> None:
    """Have a client of an older protocol hear no more of this resource."""
    with warnings.catch_warnings(action="ignore", category=MCPDeprecationWarning):
        await client.unsubscribe_resource(uri)


def workflow_in(folder: Path) -> Path:
    """The folder's workflow; this module's, unless the test has written another."""
    path = folder / "workflow.yaml"
    return path if path.exists() else write_workflow(folder, WORKFLOW)


def command(folder: Path, *args: str) -> list[str]:
    """What starts a server of this memory."""
    return [sys.executable, "-m", "memfiles", "mcp", "-w", str(workflow_in(folder)), "--agent", "support", *args]


def environment() -> dict[str, str]:
    """In which it imports the program that is tested."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def over_stdio(folder: Path, *args: str) -> StdioServerParameters:
    """A server that the client starts."""
    program, *rest = command(folder, *args)
    return StdioServerParameters(command=program, args=rest, env=environment())


def text_of(result: CallToolResult) -> str:
    """The text of a result, which has nothing else."""
    assert [TextContent] == [type(block) for block in result.content]
    return "".join(block.text for block in result.content if isinstance(block, TextContent))


def changed_by_hand(record: Path, *, added: str) -> None:
    """Add to the content of a record as an editor would."""
    found = json.loads(record.read_text())
    record.write_text(json.dumps(found | {"content": found["content"] + added}))
