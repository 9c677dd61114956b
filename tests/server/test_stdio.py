"""The MCP server over stdin and stdout, in a process of its own."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client.client import Client
from mcp.shared.subscriptions import ResourceUpdated, ServerEvent
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from memfiles.server.server import MESSAGE_MAX
from memfiles.server.stdio import MalformedLine, UnansweredRequests, parse_message
from tests.server.mcp_clients import (
    ERAS,
    NOTES,
    changed_by_hand,
    command,
    environment,
    in_loop,
    listening,
    over_stdio,
    text_of,
)
from tests.support.records import files_under

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
PING = '{"jsonrpc":"2.0","id":9,"method":"ping"}'
PING_WITH_ID = '{"jsonrpc":"2.0","method":"ping","id":%s}'


def append(name: object, text: str) -> str:
    return request(name, "tools/call", {"name": "append_memory", "arguments": {"file": "notes", "content": text}})


def request(number: object, method: str, params: object) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


class Talk:
    """A server after the handshake, spoken to line by line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command(folder),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            bufsize=0,  # else what came with the line that was read is lost to ``communicate``
            env=environment(),
        )
        self.ask(request(1, "initialize", HELLO), '{"jsonrpc":"2.0","method":"notifications/initialized"}')

    def ask(self, *lines: str) -> dict[str, Any]:
        """The next line that comes back for these lines."""
        assert self.process.stdout is not None
        self.say(*lines)
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def say(self, *lines: str) -> None:
        """Send these lines."""
        assert self.process.stdin is not None
        self.process.stdin.write("".join(line + "\n" for line in lines).encode(errors="surrogateescape"))

    def end(self) -> tuple[int, str, str]:
        """Go away; the server's exit code, and what else was on its stdout and on its stderr."""
        out, err = self.process.communicate(timeout=180)
        return self.process.returncode, out.decode(), err.decode()

    @property
    def lines(self) -> list[str]:
        """What is on the disk; the journal is empty."""
        kept = files_under(self.folder / ".memory")
        assert [] == [path for path in kept if path.startswith(".journal/")]
        content: str = json.loads(kept["notes-1.json"])["content"]
        return content.splitlines()


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talk]:
    """One server for all that shall not end it."""
    talk = Talk(tmp_path_factory.mktemp("stdio"))
    yield talk
    assert (0, "", "") == talk.end()


@pytest.mark.directory("it changes a file by hand")
@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
def test_a_client_of_the_official_sdk(tmp_path: Path, era: str) -> None:
    """It lists, calls and reads, hears of a change by hand, and what it wrote is there after it went."""

    async def used() -> tuple[list[str], str, ServerEvent]:
        async with listening(over_stdio(tmp_path), era, [NOTES]) as (client, news):
            names = [tool.name for tool in (await client.list_tools()).tools]
            await client.call_tool("memory_save", {"key": "k", "content": "c"})
            changed_by_hand(tmp_path / ".memory" / "notes-1.json", added="- hand\n")
            while (event := await news()) != ResourceUpdated(NOTES):
                pass
            return names, text_of(await client.call_tool("read_memory", {"file": "notes"})), event

    names, content, event = in_loop(used)
    assert ("# Notes\n- hand\n", ResourceUpdated(NOTES)) == (content, event)
    assert ["read_memory", "append_memory", "edit_memory", "memory_save"] == names[:4]


@pytest.mark.slow
def test_200_calls_at_once_lose_nothing(tmp_path: Path) -> None:
    """Every call that was answered is on the disk, once."""

    async def called() -> list[bool]:
        errors: list[bool] = []

        async def append(client: Client, number: int) -> None:
            line = {"file": "notes", "content": f"- {number}\n"}
            errors.append((await client.call_tool("append_memory", line)).is_error)

        async with Client(over_stdio(tmp_path)) as client, anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(append, client, number)
        return errors

    errors = in_loop(called)
    content: str = json.loads(files_under(tmp_path / ".memory")["notes-1.json"])["content"]
    assert [False] * 200 == errors
    assert sorted(["# Notes", *(f"- {number}" for number in range(200))]) == sorted(content.splitlines())


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("this is no JSON", -32700),
        ('{"jsonrpc":"2.0","id":2,"method":', -32700),
        ("[1, 2]", -32600),
        ('{"id": 2}', -32600),
        (f"[{PING}]", -32600),
        (PING.replace("9", "null"), -32600),
        ("\n\n" + append(2, "\udcff"), -32700),
        (append(2, "\ud800"), -32700),
        ("x" * 20_000_000, -32700),
        ('{"jsonrpc":"2.0","id":2,"method":"ping","params":' + '{"a":' * 10_000 + "1" + "}" * 10_001, -32700),
        (request(2, "nothing/there", {}), -32601),
        (request(2, "tools/call", {"name": 5}), -32602),
        (request(2, "tools/call", {"name": "read_memory", "arguments": [1]}), -32602),
        (request(2, "resources/read", {"uri": "memory://files/nothing"}), -32602),
        (request(2, "prompts/get", {"name": "nothing"}), -32602),
        (request(2, "resources/list", {"cursor": "\x00"}), -32602),
    ],
)
def test_a_malformed_request_is_answered_and_the_server_lives_on(talk: Talk, line: str, code: int) -> None:
    """An error of the protocol comes back, and the next request is served; stdout holds nothing else."""

    assert (code, {}) == (talk.ask(line)["error"]["code"], talk.ask(PING)["result"])


@pytest.mark.parametrize("is_first", [True, False])
def test_a_line_that_is_too_long_is_answered_under_its_id(talk: Talk, is_first: bool) -> None:
    """Wherever a client writes the id, first or last; what comes next is served."""
    call = {"method": "ping", "params": {"a": "x" * MESSAGE_MAX}}
    line = {"jsonrpc": "2.0", "id": 2, **call} if is_first else {**call, "jsonrpc": "2.0", "id": 2}
    refused = talk.ask(json.dumps(line))

    assert (-32700, 2, {}) == (refused["error"]["code"], refused["id"], talk.ask(PING)["result"])


def test_a_large_call_is_judged_by_the_tool(talk: Talk) -> None:
    """A megabyte on one line is read, and is too much for the file."""
    sent = {"name": "append_memory", "arguments": {"file": "notes", "content": "x" * 2**20}}

    result = talk.ask(request(2, "tools/call", sent))["result"]

    assert (True, "size_exceeded") == (result["isError"], result["_meta"]["memfiles/code"])


@pytest.mark.slow
def test_calls_that_were_begun_are_answered(tmp_path: Path) -> None:
    """A client that closes stdin at once has all its answers, and the server ends without a word."""
    talk = Talk(tmp_path)
    talk.say(*(append(number % 3, f"- {number}\n") for number in range(60)))
    code, out, err = talk.end()

    assert (0, "") == (code, err)
    answers = [json.loads(line) for line in out.splitlines()]
    assert {(number, False): 20 for number in range(3)} == Counter(
        (answer["id"], answer["result"]["isError"]) for answer in answers
    )
    assert {"# Notes", *(f"- {number}" for number in range(60))} == set(talk.lines)


@pytest.mark.slow
def test_a_cancelled_call_is_not_waited_for(tmp_path: Path) -> None:
    """It has no answer; the server ends when all the others have theirs."""
    talk = Talk(tmp_path)
    cancel = json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}})
    talk.say(append(2, "- a\n"), cancel, append(3, "- b\n"), cancel)
    code, out, err = talk.end()

    assert (0, "") == (code, err)
    assert 3 in {json.loads(line)["id"] for line in out.splitlines()} <= {2, 3}
    assert {"# Notes", "- b"} <= set(talk.lines) <= {"# Notes", "- a", "- b"}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_server_after_the_calls(tmp_path: Path, number: signal.Signals) -> None:
    """What was begun is answered and brought to rest; the exit code is 0, and nothing is said."""
    if number == signal.SIGHUP:
        signal.signal(number, signal.SIG_DFL)  # a child inherits that nohup has it ignored
    talk = Talk(tmp_path)
    answer = talk.ask(append(2, "- a\n"), append(3, "- b\n"))
    talk.process.send_signal(number)
    code, out, err = talk.end()

    assert (0, "", {2, 3}) == (code, err, {answer["id"], *(json.loads(line)["id"] for line in out.splitlines())})
    assert {"# Notes", "- a", "- b"} == set(talk.lines)


@pytest.mark.slow
def test_a_terminal_that_is_closed_hangs_up_more_than_once(tmp_path: Path) -> None:
    """The shell and the system both do: the memory is closed all the same."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    talk = Talk(tmp_path)
    talk.ask(append(2, "- a\n"))
    for _ in range(3):
        talk.process.send_signal(signal.SIGHUP)
        time.sleep(0.02)
    code, _, err = talk.end()

    assert (0, "") == (code, err)
    assert {"# Notes", "- a"} == set(talk.lines)


@pytest.mark.skipif(sys.platform != "linux", reason="it reads which signals a process catches")
@pytest.mark.slow
def test_a_terminal_that_is_closed_with_its_client(tmp_path: Path) -> None:
    """A hangup that comes after the end of the client's messages lets the memory be closed."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    talk = Talk(tmp_path)
    talk.ask(append(2, "- a\n"))
    with talk.process as process:
        assert process.stdin is not None
        process.stdin.close()
        status = Path(f"/proc/{process.pid}/status")
        while int(status.read_text().partition("SigCgt:")[2].split()[0], 16) >> (signal.SIGHUP - 1) & 1:
            time.sleep(0.001)
        process.send_signal(signal.SIGHUP)

        assert 0 == process.wait(60)
    assert {"# Notes", "- a"} == set(talk.lines)


@pytest.mark.slow
def test_a_person_at_a_terminal_is_told_what_it_waits_for(tmp_path: Path) -> None:
    """On stderr: stdout has nothing but the protocol."""
    parent, terminal = os.openpty()
    os.write(parent, b"\x04")  # Ctrl-D
    ran = subprocess.run(command(tmp_path), stdin=terminal, capture_output=True, env=environment(), timeout=180)
    os.close(parent)
    os.close(terminal)

    assert (0, b"") == (ran.returncode, ran.stdout)
    assert b"waiting for an MCP client, which starts this command itself; Ctrl-C ends it\n" == ran.stderr


@pytest.mark.directory("it changes a file by hand")
@pytest.mark.slow
def test_a_warning_is_on_stderr_once(tmp_path: Path) -> None:
    """In the format of the log; a command prints it without that."""
    talk = Talk(tmp_path)
    changed_by_hand(tmp_path / ".memory" / "notes-1.json", added="password: Tr0ub4dor&3x!")
    answer = talk.ask(append(2, "- a\n"))
    _, out, err = talk.end()

    assert answer.get("id") == 2 or answer["method"].startswith("notifications/")
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in out.splitlines())
    told = "WARNING memfiles: notes: a change by hand appears to contain a credential: password at byte"
    assert [told] == [line.rpartition(" ")[0] for line in err.splitlines()]


@pytest.mark.slow
def test_a_client_that_closes_stdout_ends_the_server(tmp_path: Path) -> None:
    """Quietly; what it asked for before was done."""
    talk = Talk(tmp_path)
    with talk.process as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        talk.say(append(2, "- a\n"))

        assert (0, b"") == (process.wait(timeout=30), process.stderr.read())
    assert ["# Notes", "- a"] == talk.lines


@pytest.mark.slow
def test_the_same_id_again_is_another_call(tmp_path: Path) -> None:
    """Ids are of one connection: a client that connects anew begins again with 1, and may append the same once more."""
    for _ in range(2):
        talk = Talk(tmp_path)
        talk.ask(append(2, "- a\n"))
        talk.ask(append(2, "- a\n"))
        talk.ask(append("2", "- a\n"))
        assert (0, "", "") == talk.end()

    assert ["# Notes", *["- a"] * 6] == talk.lines


@pytest.mark.slow
@pytest.mark.parametrize("redirected", ["<&-", ">&- </dev/null", "2>&- </dev/null"])
def test_a_stream_that_is_closed(tmp_path: Path, redirected: str) -> None:
    """It is as if there were nothing at its other end: the server ends, and harms no file."""
    program = f"{shlex.join(command(tmp_path))} {redirected}"
    ran = subprocess.run(["sh", "-c", program], env=environment(), capture_output=True, text=True, timeout=60)

    assert (0, "", "") == (ran.returncode, ran.stdout, ran.stderr)


@pytest.mark.parametrize("name", ['"abc"', '""', "0", "-1", str(10**30), f'"{"9" * 5000}"'])
def test_an_id_is_text_or_a_whole_number(name: str) -> None:
    """And is answered as it was sent."""
    message = parse_message((PING_WITH_ID % name).encode())

    assert isinstance(message, JSONRPCRequest)
    assert name.strip('"') == str(message.id)


def test_a_notification_and_a_response_are_messages() -> None:
    """A carriage return at the end does no harm."""
    news = parse_message(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\r')
    answer = parse_message(b'{"jsonrpc":"2.0","id":1,"result":{}}')

    assert isinstance(news, JSONRPCNotification)
    assert isinstance(answer, JSONRPCResponse)


@pytest.mark.parametrize("name", ["null", "1.5", "1.0", "true", "[1]", "{}"])
def test_a_request_with_an_id_that_is_none_is_answered(name: str) -> None:
    """It is not taken for a notification, to which nobody answers."""
    refused = parse_message((PING_WITH_ID % name).encode())

    assert isinstance(refused, MalformedLine)
    assert (INVALID_REQUEST, None) == (refused.response.error.code, refused.response.id)


@pytest.mark.parametrize(
    ("line", "code", "name"),
    [
        (b"this is no JSON", PARSE_ERROR, None),
        (b'{"jsonrpc":"2.0","id":2,"method":', PARSE_ERROR, 2),
        (b'{"jsonrpc":"2.0","id":2,"method":"x","params":{"a":"\xff"}}', PARSE_ERROR, 2),
        (b'{"jsonrpc":"2.0","id":2,"method":"x","params":{"a":"\\ud800"}}', PARSE_ERROR, 2),
        (b'{"jsonrpc":"2.0","id":2,"method":"x","params":{"a":NaN}}', PARSE_ERROR, 2),
        (b'{"jsonrpc":"2.0","id":2,"method":"x","params":' + b'{"a":' * 50_000, PARSE_ERROR, 2),
        (b'{"method":"x","params":' + b'{"id":' * 50_000 + b"1" + b"}" * 50_000 + b',"id":"b"}', PARSE_ERROR, "b"),
        (b'{"method":"x","params":' + b'{"id":' * 50_000 + b"1" + b"}" * 50_001, PARSE_ERROR, None),
        (b'{"jsonrpc":"2.0","params":{"id":3},"id":2', PARSE_ERROR, None),
        (b'{"id": 007, "method": "x", oops}', PARSE_ERROR, None),
        (b'{"id": -0, "method": "x", oops}', PARSE_ERROR, 0),
        (PING_WITH_ID.encode() % (b"9" * 5000), PARSE_ERROR, None),
        (b'[{"jsonrpc":"2.0","id":2,"method":"ping"}]', INVALID_REQUEST, None),
        (b"[]", INVALID_REQUEST, None),
        (b"7", INVALID_REQUEST, None),
        (b'{"id": 2}', INVALID_REQUEST, 2),
        (b'{"jsonrpc":"2.0","id":"b","method":5}', INVALID_REQUEST, "b"),
        (b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":[1]}', INVALID_REQUEST, 2),
        (b'{"jsonrpc":"1.0","id":2,"method":"ping"}', INVALID_REQUEST, 2),
    ],
)
def test_what_is_no_message_is_answered(line: bytes, code: int, name: object) -> None:
    """Under its id where that can be told, since somebody waits for it."""
    refused = parse_message(line)

    assert isinstance(refused, MalformedLine)
    assert (code, name) == (refused.response.error.code, refused.response.id)
    assert len(refused.response.error.message) < 200


def message(**said: object) -> JSONRPCMessage:
    return jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **said})


PING_REQUEST = {"method": "ping", "id": 1}
ANSWER = {"id": 1, "result": {}}
CANCEL = {"method": "notifications/cancelled", "params": {"requestId": 1}}


@pytest.mark.parametrize(
    ("taken", "given", "is_open"),
    [
        ([PING_REQUEST], [], True),
        ([PING_REQUEST], [ANSWER], False),
        ([PING_REQUEST], [ANSWER | {"id": "1"}], False),
        ([PING_REQUEST], [{"id": 1, "error": {"code": 1, "message": "no"}}], False),
        ([PING_REQUEST], [{"id": None, "error": {"code": 1, "message": "whose is this"}}], True),
        ([PING_REQUEST], [ANSWER | {"id": 2}], True),
        ([PING_REQUEST, PING_REQUEST], [ANSWER], True),
        ([PING_REQUEST, PING_REQUEST], [ANSWER, ANSWER], False),
        ([PING_REQUEST, CANCEL], [], False),
        ([PING_REQUEST, {"method": "notifications/cancelled", "params": {"requestId": [1]}}], [], True),
        ([{"method": "subscriptions/listen", "id": 1}], [], True),
        ([{"method": "notifications/initialized"}, ANSWER], [], False),
        ([], [ANSWER, ANSWER, {"method": "notifications/message"}], False),
    ],
)
def test_what_waits_for_an_answer(taken: list[object], given: list[object], is_open: bool) -> None:
    """Requests do, streams of news as well, but for those that were cancelled."""

    async def waited() -> bool:
        due = UnansweredRequests()
        for each in taken:
            due.received(message(**dict(each)))  # type: ignore[call-overload]
        for each in given:
            due.sent(message(**dict(each)))  # type: ignore[call-overload]
        with anyio.move_on_after(0) as scope:
            await due.drained()
        return scope.cancelled_caught

    assert is_open is in_loop(waited)


def test_the_last_answer_ends_the_wait() -> None:
    """Whoever waits goes on at once."""

    async def waited() -> bool:
        due = UnansweredRequests()
        due.received(message(**PING_REQUEST))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(due.drained)
            await anyio.lowlevel.checkpoint()
            due.sent(message(**ANSWER))
        return True

    assert in_loop(waited)
