"""The MCP server over HTTP, in a process of its own."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.subscriptions import ResourceUpdated, ServerEvent

import memfiles
from memfiles.cli.failures import listening_on
from memfiles.errors import InvalidArgument
from memfiles.server.http import REQUEST_SECONDS, WAITING_MAX, check_token, new_token
from tests.cli.command_line import run
from tests.server.mcp_clients import ERAS, NOTES, changed_by_hand, command, environment, in_loop, listening, text_of
from tests.support.records import files_of, files_under, held

TOKEN = "a-token-for-the-tests"
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ALLOWED = {
    "Authorization": f"Bearer {TOKEN}",
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}


class Serving:
    """A running server: where it is, and what it said on stderr until then."""

    def __init__(self, folder: Path, *args: str, token: str | None = TOKEN) -> None:
        self.folder = folder
        env = environment() | ({"MEMFILES_MCP_TOKEN": token} if token else {})
        self.process = subprocess.Popen(
            command(folder, "--http", "--port", "0", *args),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # else what came with the line that was read is lost to ``communicate``
            env=env,
        )
        self.url = self.hear().rsplit(" ", 1)[-1]

    def hear(self) -> str:
        """The next line on stderr."""
        assert self.process.stderr is not None
        return self.process.stderr.readline().decode().rstrip("\n")

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Ask it to end; its exit code and all that it wrote to stdout. ``said`` is what it wrote to stderr."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=180)
        self.said = err.decode()
        return self.process.returncode, out.decode()

    def ask(self, headers: dict[str, str], *, method: str = "POST", body: Any = PING) -> int:
        """The status of the answer to one request."""
        place = urlsplit(self.url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=180)
        try:
            sent = body if isinstance(body, str) else json.dumps(body)
            connection.request(method, place.path, body=sent, headers=headers)
            return connection.getresponse().status
        finally:
            connection.close()


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One server for the tests that leave it as it is."""
    server = Serving(tmp_path_factory.mktemp("http"))
    yield server
    assert (0, "") == server.end()


@asynccontextmanager
async def over_http(serving: Serving) -> AsyncIterator[Any]:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=180) as browser,
        streamable_http_client(serving.url, http_client=browser) as streams,
    ):
        yield streams


@pytest.mark.directory("it changes a file by hand")
@pytest.mark.parametrize("era", ERAS)
def test_a_client_of_the_official_sdk(serving: Serving, era: str) -> None:
    """With the token it lists, calls and reads, and hears of a change by hand."""

    async def used() -> tuple[int, str, ServerEvent]:
        async with listening(over_http(serving), era, [NOTES]) as (client, news):
            count = len((await client.list_tools()).tools)
            changed_by_hand(serving.folder / ".memory" / "notes-1.json", added=f"- {era}\n")
            event = await news()
            return count, text_of(await client.call_tool("read_memory", {"file": "notes"})), event

    count, content, event = in_loop(used)
    assert (9, ResourceUpdated(NOTES)) == (count, event)
    assert content.endswith(f"- {era}\n")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer another-token-for-the-tests"}, 401),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Authorization": TOKEN}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": f"Bearer{TOKEN}"}, 401),
        ({"Authorization": f"Bearer {TOKEN} {TOKEN}"}, 401),
        ({"Authorization": "Bearer caf\xe9"}, 401),
        ({"Host": "attacker.example"}, 421),
        ({"Host": "127.0.0.1:1"}, 421),
        ({"Origin": "http://attacker.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Content-Type": "text/plain"}, 400),
    ],
)
def test_who_is_turned_away(serving: Serving, headers: dict[str, str], status: int) -> None:
    """Without the token, under another name, or out of a page in a browser nobody is served."""

    assert status == serving.ask(ALLOWED | headers)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR "])
def test_the_scheme_is_written_in_any_case(serving: Serving, scheme: str) -> None:
    """With one space or more behind it (RFC 9110, section 11.1)."""

    assert 400 == serving.ask(ALLOWED | {"Authorization": f"{scheme} {TOKEN}"}, body="no JSON")


@pytest.mark.parametrize("method", ["GET", "DELETE", "OPTIONS"])
def test_no_method_does_without_the_token(serving: Serving, method: str) -> None:
    """The stream of an older client, the end of a session and a browser's question need it as well."""

    assert 401 == serving.ask({}, method=method)


@pytest.mark.directory("it changes a file by hand")
@pytest.mark.parametrize("body", ["no JSON", "[1, 2]", '{"id": 1}', {"jsonrpc": "2.0", "id": 1, "method": "x"}])
def test_a_malformed_request_is_answered_and_the_server_lives_on(serving: Serving, body: Any) -> None:
    """Each is told that it is wrong, and the next client is served."""

    assert 400 == serving.ask(ALLOWED | {"MCP-Protocol-Version": "2026-07-28"}, body=body)
    assert 400 == serving.ask(ALLOWED, body=body)
    test_a_client_of_the_official_sdk(serving, "2026-07-28")


def test_a_body_without_end_is_refused(serving: Serving) -> None:
    """More than a line over stdio may have is not taken in."""

    assert 413 == serving.ask(ALLOWED | {"Content-Length": str(2**30)}, body="")


def test_a_body_that_does_not_say_its_length_is_bounded(serving: Serving) -> None:
    """It is counted while it comes."""
    place = urlsplit(serving.url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=180)
    with suppress(BrokenPipeError, ConnectionResetError):  # the server may hang up before it has all
        connection.request("POST", place.path, body=iter([b" " * 2**20] * 65), headers=ALLOWED, encode_chunked=True)
    status = connection.getresponse().status
    connection.close()

    assert 413 == status


@pytest.mark.parametrize("era", ERAS)
def test_a_call_as_large_as_a_memory_file_may_be_is_answered(serving: Serving, era: str) -> None:
    """As over stdio: what is too large for the file is told to the model, in numbers."""

    async def called() -> str:
        async with Client(over_http(serving), mode=era) as client:
            return text_of(await client.call_tool("append_memory", {"file": "notes", "content": "x" * 8 * 2**20}))

    assert "and this needs 8388608" in in_loop(called)


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
def test_200_calls_at_once_lose_nothing(tmp_path: Path, era: str) -> None:
    """Of two clients that number their calls alike; each call that was answered is on the disk, once."""
    serving = Serving(tmp_path)

    async def append(client: Client, line: str) -> None:
        answer = await client.call_tool("append_memory", {"file": "notes", "content": line})
        assert not answer.is_error

    async def called() -> None:
        async with (
            Client(over_http(serving), mode=era) as one,
            Client(over_http(serving), mode=era) as other,
            anyio.create_task_group() as tasks,
        ):
            for number in range(100):
                for client in (one, other):
                    tasks.start_soon(append, client, f"- {number}\n")

    in_loop(called)
    assert (0, "") == serving.end()
    content = json.loads(files_under(tmp_path / ".memory")["notes-1.json"])["content"]
    assert sorted(
        ["# Notes", *(f"- {number}" for number in range(100)), *(f"- {number}" for number in range(100))]
    ) == sorted(content.splitlines())


@pytest.mark.slow
def test_a_new_token_is_said_once(tmp_path: Path) -> None:
    """Who starts the server is told where it is and what clients must send, on stderr."""
    server = Serving(tmp_path, token=None)
    told = server.hear()
    header = {"Authorization": told.removeprefix("clients must send the header: Authorization: ")}

    assert server.url.startswith("http://127.0.0.1:")
    assert (401, 400) == (server.ask(ALLOWED), server.ask(ALLOWED | header, body="no JSON"))
    assert (0, "") == server.end()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_was_promised_is_kept_at_the_end(tmp_path: Path, number: signal.Signals) -> None:
    """Asked to end, or hung up on, the server brings the disk to rest: no journal is left for the next start."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a child inherits that nohup has it ignored
    server = Serving(tmp_path)
    call = {"name": "append_memory", "arguments": {"file": "notes", "content": "- a\n"}}
    assert 400 == server.ask(ALLOWED, body={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})

    assert (0, "") == server.end(number)
    assert [] == [path for path in files_under(tmp_path / ".memory") if path.startswith(".journal/")]


@pytest.mark.slow
def test_a_terminal_that_is_closed_hangs_up_more_than_once(tmp_path: Path) -> None:
    """The shell and the system both do; the second does not cut off the close of the memory."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as above
    server = Serving(tmp_path)
    server.process.send_signal(signal.SIGHUP)
    assert "MCP server ended" == server.hear()

    assert (0, "") == server.end(signal.SIGHUP)
    assert "" == server.said


@pytest.mark.directory("it holds the lock of a file")
@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
def test_a_call_that_was_begun_is_answered_before_the_end(tmp_path: Path, era: str) -> None:
    """Also one that waits for a record; whoever gets no answer makes the change a second time."""
    serving = Serving(tmp_path)

    async def called() -> list[object]:
        said: list[object] = []

        async def call() -> None:
            async with Client(over_http(serving), mode=era) as client:
                await client.list_tools()
                ready.set()
                result = await client.call_tool("append_memory", {"file": "notes", "content": "- a\n"})
                said.append(result.is_error)

        ready = anyio.Event()
        with ThreadPoolExecutor() as threads, memfiles.open(tmp_path / "workflow.yaml") as memory:
            async with anyio.create_task_group() as tasks:
                with held(files_of(memory.manager), "notes-1.json"):
                    tasks.start_soon(call)
                    await ready.wait()
                    await anyio.sleep(3)  # until the call waits for the record, on a busy machine as well
                    ended = threads.submit(serving.end)
                    await anyio.sleep(1)
            return [*said, *await anyio.to_thread.run_sync(ended.result), memory.manager.read("notes-1")]

    assert [False, 0, "", "# Notes\n- a\n"] == in_loop(called)
    assert serving.said == "MCP server ended\n"


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
def test_a_stream_of_news_holds_nobody_up(tmp_path: Path, era: str) -> None:
    """Asked to end while a client listens, the server ends at once, and says no more than that."""
    serving = Serving(tmp_path)

    async def listened() -> tuple[int, str]:
        async with listening(over_http(serving), era, [NOTES]):
            return await anyio.to_thread.run_sync(serving.end)

    assert (0, "") == in_loop(listened)
    assert serving.said == "MCP server ended\n"


@pytest.mark.parametrize("token", ["", "short", "with a space in between", "caf\xe9" * 8])
def test_a_token_that_is_none(token: str) -> None:
    """What can be guessed or cannot be sent is refused."""
    with pytest.raises(InvalidArgument, match="16 characters"):
        check_token(token)


def test_new_tokens_differ() -> None:
    """Each is long, sound and another."""
    tokens = {check_token(new_token()) for _ in range(10)}

    assert (10, 43) == (len(tokens), min(map(len, tokens)))


def test_a_port_that_is_taken() -> None:
    """Who starts the server is told what to do."""
    with listening_on(0) as taken:
        taken.listen()
        with pytest.raises(InvalidArgument, match="--port"):
            listening_on(taken.getsockname()[1])


HEAD = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n"


def opened(serving: Serving, sent: str) -> socket.socket:
    """A connection on which something was sent."""
    place = urlsplit(serving.url)
    connection = socket.create_connection((place.hostname, place.port), timeout=60)
    connection.sendall(sent.encode())
    return connection


ENDLESS = [
    "",
    "POST /mcp HT",
    f"{HEAD}X-Slow: 1",
    f"{HEAD}Authorization: Bearer {TOKEN}\r\nContent-Length: 100\r\n\r\nhalf",
    f"{HEAD}Authorization: Bearer {TOKEN}\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\nha",
]


def test_a_request_that_does_not_arrive_is_ended(serving: Serving) -> None:
    """Also where a few bytes come again and again: the time counts from the first."""
    with ThreadPoolExecutor(len(ENDLESS)) as pool:  # at the same time, as each takes ten seconds
        took = [*pool.map(partial(_seconds_until_ended, serving), ENDLESS)]

    assert [] == [each for each in took if not REQUEST_SECONDS - 1 < each < 2 * REQUEST_SECONDS], took


def _seconds_until_ended(serving: Serving, sent: str) -> float:
    """How long a connection lasts on which a byte comes each half second."""
    begun = time.monotonic()
    with opened(serving, sent) as connection:
        connection.settimeout(0.5)
        while time.monotonic() - begun < 5 * REQUEST_SECONDS:
            with suppress(TimeoutError):
                try:
                    if not connection.recv(4096):
                        break
                except ConnectionResetError:
                    break
            with suppress(OSError):
                connection.sendall(b"x")
    return time.monotonic() - begun


@pytest.mark.parametrize("length", ["Content-Length: 1000000", "Transfer-Encoding: chunked"])
def test_a_body_without_a_token_is_not_waited_for(serving: Serving, length: str) -> None:
    """The answer comes at once, and then the end."""
    begun, answer = time.monotonic(), b""
    with opened(serving, f"{HEAD}{length}\r\n\r\n") as connection, suppress(ConnectionResetError):
        while part := connection.recv(4096):
            answer += part

    assert answer.startswith(b"HTTP/1.1 401 ")
    assert time.monotonic() - begun < REQUEST_SECONDS / 2


def test_many_half_open_connections_keep_nobody_out(serving: Serving) -> None:
    """The oldest are ended, at once, and a client with the token is answered meanwhile."""
    usual = serving.ask(ALLOWED)
    with ExitStack() as held:
        connections = [held.enter_context(opened(serving, HEAD)) for _ in range(WAITING_MAX + 100)]
        status = serving.ask(ALLOWED)
        first = connections[0]
        first.settimeout(REQUEST_SECONDS / 2)
        with suppress(ConnectionResetError):
            assert b"" == first.recv(1)
        connections[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            connections[-1].recv(1)

    assert usual == status != 401


def test_a_burst_of_clients_is_answered(serving: Serving) -> None:
    """Of 400 connections that are open before any of them asks, none is ended."""
    with ExitStack() as held:
        connections = [held.enter_context(opened(serving, "")) for _ in range(400)]
        assert serving.ask(ALLOWED) != 401  # accepted after all of them
        for connection in connections:
            connection.sendall(f"{HEAD}Content-Length: 0\r\n\r\n".encode())
        assert {b"HTTP/1.1 401"} == {connection.recv(12) for connection in connections}


def test_the_help_names_what_nobody_can_see() -> None:
    """An argument is visible to every user of the machine."""
    told = " ".join(run("mcp", "--help").out.split())

    assert "set MEMFILES_MCP_TOKEN instead" in told
