"""MCP over stdin and stdout, for a client that starts the server itself.

The rules this module enforces: a line that is not a message gets an error response and ends nothing, as a client waits
forever for the response to its id. A request that was received is answered before the server ends. The server ends
quietly when its client closes stdin or stdout, or on a signal; neither a silent client nor one that does not read keeps
it from ending. Only what is written here reaches the client: all other code that prints reaches stderr meanwhile.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from anyio.to_thread import run_sync
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import SessionMessage
from msgspec.json import decode as from_json
from pydantic import ValidationError

from memfiles.errors import InvalidArgument
from memfiles.server.server import DRAIN_SECONDS, MESSAGE_MAX, MemoryServer

_CHUNK = 65536
_PIPE_CHUNK = 4096  # what a writable pipe accepts without blocking (PIPE_BUF)
_CANCELLED = "notifications/cancelled"
_NOT_JSON = f"not JSON in UTF-8, or more than {MESSAGE_MAX} bytes on one line"
_NOT_A_MESSAGE = (
    "not a JSON-RPC message: it needs jsonrpc, method, an id that is text or a whole number, and params as an object"
)
_ID = rb'"id"\s*:\s*(-?(?:0|[1-9]\d{0,17})|"[^"\\\0-\x1f]{0,200}")\s*'
_ID_FIRST = re.compile(rb'\s*\{\s*(?:"(?:jsonrpc|method)"\s*:\s*"[^"\\]*"\s*,\s*){0,2}' + _ID + rb"[,}]")
_ID_LAST = re.compile(_ID + rb"\}\s*\Z")
_END = 512  # bytes of a line that may hold the id
_Responses = MemoryObjectSendStream[SessionMessage]


def serve(server: MemoryServer) -> None:
    """Serve one client until it closes stdin or stdout, or until SIGTERM, SIGINT or SIGHUP.

    A second SIGTERM or SIGINT kills at once. SIGHUP does not: a terminal that is closed sends several.
    """
    stop_reading, stop_writing = Waker(), Waker()
    with standard_streams() as (stdin, stdout), _stopped_by_signals(stop_reading):
        conversation = Conversation(LineReader(stdin, stop_reading), LineWriter(stdout, stop_writing))
        anyio.run(conversation.run, server)
    stop_reading.close()
    stop_writing.close()


@contextmanager
def _stopped_by_signals(stop_reading: Waker) -> Iterator[None]:
    def stop(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_IGN if number == signal.SIGHUP else signal.SIG_DFL)
        stop_reading.ring()

    hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)  # ignored under nohup
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT, *hangup)}
    try:
        yield
    finally:
        for number, handler in before.items():  # a terminal is closed with its client, and hangs up several times
            signal.signal(number, signal.SIG_IGN if number == signal.SIGHUP else handler)


class Conversation:
    """The exchange with one client, from its first line to the last response."""

    def __init__(self, reader: LineReader, writer: LineWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._unanswered = UnansweredRequests()

    async def run(self, server: MemoryServer) -> None:
        """Serve until input has ended and every request is answered."""
        passing_on, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        answering, responses = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, passing_on, answering.clone(), server.notifier.end)
            tasks.start_soon(self._write, responses)
            try:
                await server.run(messages, answering, server.create_initialization_options())
            except BaseException:  # a defect: threads that wait cannot be cancelled, and must not hold it up
                self._reader.waker.ring()
                self._writer.waker.ring()
                raise

    async def _read(
        self, passing_on: MemoryObjectSendStream[Any], refusing: _Responses, end_streams: Callable[[], None]
    ) -> None:
        async with passing_on, refusing:
            while (line := await run_sync(self._reader.next)) is not None:
                if not line.strip():
                    continue
                message = parse_message(line)
                if isinstance(message, MalformedLine):
                    await refusing.send(SessionMessage(message.response))
                    continue
                self._unanswered.received(message)
                await passing_on.send(SessionMessage(message))
            end_streams()
            with anyio.move_on_after(DRAIN_SECONDS) as drain:
                await self._unanswered.drained()
            if drain.cancelled_caught:
                self._writer.waker.ring()

    async def _write(self, responses: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async with responses:
            async for response in responses:
                line = response.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
                if not await run_sync(partial(self._writer.write, line)):
                    self._reader.waker.ring()
                self._unanswered.sent(response.message)


class UnansweredRequests:
    """Requests of one client that wait for a response; two may have the same id."""

    def __init__(self) -> None:
        self._waiting: Counter[types.RequestId] = Counter()
        self._settled = anyio.Event()

    def received(self, message: types.JSONRPCMessage) -> None:
        """Count an incoming request; a cancelled one gets no response, so it counts no more."""
        if isinstance(message, types.JSONRPCRequest):
            self._waiting[coerce_request_id(message.id)] += 1
        if isinstance(message, types.JSONRPCNotification) and message.method == _CANCELLED:
            self._settle((message.params or {}).get("requestId"))

    def sent(self, message: types.JSONRPCMessage) -> None:
        """Settle the request that an outgoing response answers."""
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            self._settle(message.id)

    async def drained(self) -> None:
        """Wait until every request is answered."""
        while self._waiting:
            self._settled = anyio.Event()
            await self._settled.wait()

    def _settle(self, id: object) -> None:
        if isinstance(id, int | str):
            self._waiting -= Counter([coerce_request_id(id)])  # which drops a count of zero
        self._settled.set()


class MalformedLine:
    """A line that is not a message, with the error response that says so, under the line's id if it has one."""

    def __init__(self, code: int, why: str, *, sent: object) -> None:
        found = sent.get("id") if isinstance(sent, dict) else None
        id = found if type(found) in (int, str) else None
        self.response = types.JSONRPCError(jsonrpc="2.0", id=id, error=types.ErrorData(code=code, message=why))


def parse_message(line: bytes) -> types.JSONRPCMessage | MalformedLine:
    """Parse one line of JSON-RPC."""
    try:
        sent = from_json(line)
    except (ValueError, RecursionError):
        found = None
        with suppress(ValueError, RecursionError):  # its only fault may be half a surrogate pair or a NaN
            found = json.loads(line)
        if found is None and (id := _ID_FIRST.match(line) or _ID_LAST.search(line, max(0, len(line) - _END))):
            found = {"id": json.loads(id[1].decode("utf-8", "replace"))}
        return MalformedLine(types.PARSE_ERROR, _NOT_JSON, sent=found)
    try:
        message = types.jsonrpc_message_adapter.validate_python(sent, by_name=False)
    except ValidationError:
        return MalformedLine(types.INVALID_REQUEST, _NOT_A_MESSAGE, sent=sent)
    if isinstance(message, types.JSONRPCNotification) and "id" in sent:  # a request with an invalid id
        return MalformedLine(types.INVALID_REQUEST, _NOT_A_MESSAGE, sent=sent)
    return message


class Waker:
    """Ends every wait that uses it, now and later, from any thread and from a signal handler."""

    def __init__(self) -> None:
        self.descriptor, self._end = os.pipe()
        self._is_rung = False

    def ring(self) -> None:
        """Wake all that wait. One byte is enough, as nobody reads it from the pipe."""
        if not self._is_rung:
            self._is_rung = True
            os.write(self._end, b".")

    def close(self) -> None:
        """Close the descriptors; nobody may wait any more."""
        os.close(self.descriptor)
        os.close(self._end)

    def wait_for(self, descriptor: int, event: int) -> bool:
        """Wait until ``descriptor`` is ready for ``event``; False if this waker was rung first."""
        waiting = select.poll()
        waiting.register(self.descriptor, select.POLLIN)
        waiting.register(descriptor, event)
        return self.descriptor not in dict(waiting.poll())


@dataclass
class LineReader:
    """Reads the lines of a descriptor, in a thread, until it ends or the waker rings."""

    descriptor: int
    waker: Waker
    _rest: bytes = b""

    def next(self) -> bytes | None:
        """Read the next line without its end, None at the end.

        Of a line of more than ``MESSAGE_MAX`` bytes come that many, then a null byte, so that it is not JSON, and its
        last few bytes.
        """
        line, end = bytearray(), b""
        while True:
            chunk, newline, self._rest = self._rest.partition(b"\n")
            room = MESSAGE_MAX - len(line)
            line += chunk[:room]
            end = (end + chunk[room:])[-_END:]
            if not newline:
                self._rest = self._read()
            if newline or not self._rest:
                whole = bytes(line) + (b"\0" + end if end else b"")
                return whole if newline else whole or None

    def _read(self) -> bytes:
        while self.waker.wait_for(self.descriptor, select.POLLIN):
            try:
                return os.read(self.descriptor, _CHUNK)
            except BlockingIOError:
                continue
            except OSError:  # the terminal was hung up
                return b""
        return b""


@dataclass
class LineWriter:
    """Writes lines to a descriptor, in a thread, until nobody reads them or the waker rings."""

    descriptor: int
    waker: Waker

    def write(self, line: bytes) -> bool:
        """Write one whole line; False if that was not possible."""
        left = memoryview(line + b"\n")
        while left and self.waker.wait_for(self.descriptor, select.POLLOUT):
            try:
                left = left[os.write(self.descriptor, left[:_PIPE_CHUNK]) :]
            except BlockingIOError:
                continue
            except OSError:
                return False
        return not left


@contextmanager
def standard_streams() -> Iterator[tuple[int, int]]:
    """Reserve stdin and stdout for the block: all other code reads nothing there, and prints to stderr."""
    if sys.stdin is None or sys.stdout is None:
        raise InvalidArgument("stdin and stdout are needed to talk to a client, but one of them is closed")
    sys.stdout.flush()
    reserved = os.dup(0), os.dup(1)
    _replace(0, os.open(os.devnull, os.O_RDONLY))
    _replace(1, os.dup(2) if sys.stderr is not None else os.open(os.devnull, os.O_WRONLY))
    try:
        yield reserved
    finally:
        sys.stdout.flush()
        for standard, descriptor in enumerate(reserved):
            _replace(standard, descriptor)


def _replace(standard: int, descriptor: int) -> None:
    os.dup2(descriptor, standard)
    os.close(descriptor)
