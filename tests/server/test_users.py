"""One MCP server for many users: a trusted gateway names the user of each request in a header."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated
from mcp_types import TextContent, TextResourceContents

import memfiles
from memfiles.errors import InvalidArgument
from memfiles.server.http import check_header, header_user
from memfiles.server.server import build
from tests.server.mcp_clients import ERAS, environment, in_loop, listening, text_of, workflow_in
from tests.server.test_http import ALLOWED, PING, TOKEN, Serving

ADA, BOB = "ada", "Bób, & Sons 日"
PLAN, HERS = "memory://entries/plan", "memory://entries/hers"
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server behind a gateway; each test has users of its own."""
    server = Serving(tmp_path_factory.mktemp("users"), "--user-header", "X-Memory-User")
    yield server
    assert (0, "") == server.end()


@asynccontextmanager
async def as_user(serving: Serving, user: str) -> AsyncIterator[Any]:
    """The streams of a client whose gateway names this user."""
    headers = {"Authorization": f"Bearer {TOKEN}", "X-Memory-User": quote(user, safe="")}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=180) as browser,
        streamable_http_client(serving.url, http_client=browser) as streams,
    ):
        yield streams


async def save(client: Client, key: str, content: str) -> str:
    return text_of(await client.call_tool("memory_save", {"key": key, "content": content}))


async def seen(client: Client) -> str:
    """All that a client gets to see."""
    calls = [
        ("memory_search", {"query": "Pro Free plan secret"}),
        ("memory_list", {}),
        ("memory_get", {"key": "plan"}),
        ("memory_get", {"key": "other"}),
        ("memory_delete", {"key": "other"}),
        ("memory_update", {"key": "other", "content": "x"}),
        ("read_memory", {"file": "notes"}),
        ("read_memory", {"file": "plan"}),
    ]
    shown = [text_of(await client.call_tool(name, arguments)) for name, arguments in calls]
    prompt = (await client.get_prompt("memory")).messages[0].content
    assert isinstance(prompt, TextContent)
    resources = (await client.list_resources()).resources
    texts = [(await client.read_resource(each.uri)).contents[0] for each in resources]
    with pytest.raises(MCPError) as refused:
        await client.read_resource("memory://entries/other")
    tools = [tool.model_dump_json() for tool in (await client.list_tools()).tools]
    return "\n".join([
        *shown, prompt.text, str(resources), str(refused.value), *tools,
        *[each.text for each in texts if isinstance(each, TextResourceContents)],
    ])  # fmt: skip


@pytest.mark.parametrize("era", ERAS)
def test_two_users_of_one_server(serving: Serving, era: str) -> None:
    """In turns, over connections that stay open, neither sees anything of what the other one said."""

    async def both() -> list[str]:
        async with (
            Client(as_user(serving, ADA), mode=era) as ada,
            Client(as_user(serving, BOB), mode=era) as bob,
        ):
            saved = [
                await save(ada, "plan", "Ada is on Pro: zebra"),
                await save(bob, "plan", "Bob is on Free: walrus"),
            ]
            for client, animal in ((ada, "zebra"), (bob, "walrus")):
                await save(client, f"{animal}/pet", f"the {animal}")
            return [*saved, await seen(ada), await seen(bob)]

    first, second, adas, bobs = in_loop(both)
    assert ['"saved":true' in text for text in (first, second)] == [True, True]
    assert [True, False] == ["zebra" in adas, "walrus" in adas]
    assert [False, True] == ["zebra" in bobs, "walrus" in bobs]


@pytest.mark.parametrize("era", ERAS)
def test_a_user_hears_of_her_own_changes_alone(serving: Serving, era: str) -> None:
    """Of resources with one URI; the other one's save does not even say that there was a change."""
    ada_name, bob_name = f"{ADA}-{era}", f"{BOB}-{era}"

    async def heard() -> list[Any]:
        async with (
            listening(as_user(serving, ada_name), era, [PLAN, HERS]) as (ada, to_ada),
            listening(as_user(serving, bob_name), era, [PLAN, HERS]) as (bob, to_bob),
        ):
            await save(ada, "hers", "Ada is on Pro")
            news = [await to_ada(), await to_ada()]  # so it was worked on before Bob's change
            await save(bob, "plan", "Bob is on Free")
            return [*news, await to_bob(), await to_bob()]

    changed = ResourcesListChanged()
    assert [ResourceUpdated(HERS), changed, ResourceUpdated(PLAN), changed] == in_loop(heard)


def asked(serving: Serving, *users: str, body: Any = PING, **more: str) -> tuple[int, str, str]:
    """The status, the text and the id of the connection in the answer to a request with these headers."""
    place = urlsplit(serving.url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=180)
    try:
        connection.putrequest("POST", place.path)
        sent = json.dumps(body).encode()
        for name, value in (ALLOWED | {"Content-Length": str(len(sent))} | more).items():
            connection.putheader(name, value)
        for user in users:
            connection.putheader("x-memory-user", user)
        connection.endheaders(sent)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers.get("mcp-session-id", "")
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("users", "why"),
    [
        ([], "must name the user once; it was sent 0 times"),
        (["ada", "bob"], "must name the user once; it was sent 2 times"),
        (["ada", "ada"], "must name the user once; it was sent 2 times"),
        ([""], "percent-encoded UTF-8"),
        (["  "], "percent-encoded UTF-8"),
        (["ada, bob"], "without spaces"),
        (["ada,bob"], "percent-encoded UTF-8"),
        (["ada%2"], "percent-encoded UTF-8"),
        (["ada%zz"], "percent-encoded UTF-8"),
        (["%FF"], "is not percent-encoded UTF-8"),
        (["%ED%A0%80"], "is not percent-encoded UTF-8"),
        (["caf\xe9"], "percent-encoded UTF-8"),
        (["ada%0A"], "control character"),
        (["ada%00"], "control character"),
        (["x" * 129], "1 to 128 characters"),
    ],
)
@pytest.mark.parametrize("version", [{}, {"MCP-Protocol-Version": "2026-07-28"}], ids=["legacy", "2026-07-28"])
def test_a_request_that_does_not_name_one_user_is_refused(
    serving: Serving, users: list[str], why: str, version: dict[str, str]
) -> None:
    """With the reason, for who set up the gateway; nobody else's memory is used in its place."""
    status, told, _ = asked(serving, *users, body=HELLO, **version)

    assert (400, True) == (status, why in told), told


def test_the_user_is_named_only_with_the_token(serving: Serving) -> None:
    """Who has none learns nothing of what is wrong with the header."""
    status, told, _ = asked(serving, Authorization="Bearer another-token-for-the-tests")

    assert (401, False) == (status, "user" in told)


def test_a_lasting_connection_stays_with_its_user(serving: Serving) -> None:
    """The id of an older client's connection is no way to the one who opened it, nor to what she hears."""
    _, _, id = asked(serving, "ada", body=HELLO)
    ping = {"Mcp-Session-Id": id}

    assert [200, 404, 404, 400] == [asked(serving, *users, **ping)[0] for users in (["ada"], ["bob"], ["Ada"], [])]


@pytest.mark.parametrize(
    ("sent", "user"), [(b"ada", "ada"), (b"%61da", "ada"), (b"a%2Cb%20c", "a,b c"), (b"a+b@c.d", "a+b@c.d"),
                       (b"%C3%A9", "é"), (b"e%CC%81", "e\u0301"), (b" ada\t", "ada"), (b"%2525", "%25")],
)  # fmt: skip
def test_a_name_is_taken_as_it_was_encoded(sent: bytes, user: str) -> None:
    """Once decoded, and never folded."""

    assert user == header_user([(b"host", b"x"), (b"x-user", sent)], header="x-user")


@pytest.mark.parametrize("name", ["", "x y", "x:y", "é", "Authorization", "mcp-session-id", "x" * 65])
def test_a_header_that_cannot_name_a_user(name: str) -> None:
    """Who starts the server is told."""
    with pytest.raises(InvalidArgument, match="cannot be the header that names the user"):
        check_header(name)


MANY = """
import gc, sys, weakref
from pathlib import Path
import memfiles
from mcp.client.client import Client
from memfiles.server.server import build
from tests.server.mcp_clients import in_loop, workflow_in

made = weakref.WeakSet()

async def asked_by_many(memory):
    def session(_):
        count[0] += 1
        made.add(found := memory.session("support", user=f"user-{count[0]}"))
        return found

    async with Client(build(session)) as client:
        for _ in range(50):
            await client.call_tool("memory_list", {})
        gc.collect()
        print(count[0] >= 50, len(made))

count = [0]
with memfiles.open(workflow_in(Path(sys.argv[1])), watch=False) as memory:
    in_loop(lambda: asked_by_many(memory))
"""


@pytest.mark.slow
def test_a_user_who_is_not_active_costs_no_memory(tmp_path: Path) -> None:
    """A session lasts as long as its request, or as its client listens; only the last one may still be in hand."""
    ran = subprocess.run(
        [sys.executable, "-c", MANY, str(tmp_path)], capture_output=True, text=True, timeout=120, env=environment()
    )

    assert (0, True) == (ran.returncode, ran.stdout in ("True 0\n", "True 1\n")), ran.stdout + ran.stderr


def test_a_function_that_fails_serves_nobody(tmp_path: Path) -> None:
    """A call is an error result, and any other request an error: neither has the memory of the last user."""
    users = ["ada"]

    async def used(memory: memfiles.Memory) -> list[str]:
        def session(_: Any) -> memfiles.Session:
            return memory.session("support", user=users[0])

        async with Client(build(session)) as client:
            await save(client, "plan", "Ada is on Pro")
            users.clear()
            called = await client.call_tool("memory_get", {"key": "plan"})
            with pytest.raises(MCPError) as refused:
                await client.read_resource(PLAN)
            return [str(called.is_error), text_of(called), str(refused.value)]

    with memfiles.open(workflow_in(tmp_path)) as memory:
        told = in_loop(lambda: used(memory))

    why = (
        "no memory is available in this call: the program's function that names its session failed with IndexError. "
        "Nothing was read or changed: go on without memory"
    )
    assert ["True", why, why] == told
