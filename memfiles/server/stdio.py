"""MCP over stdin and stdout, for a client that starts the server itself.

The rules this module enforces: a line that is not a message gets an error response and ends nothing, as a client waits
forever for the response to its id; a request that was received is answered before the server ends; and the server ends
quietly when its client closes stdin or stdout, or on a signal.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from anyio.to_thread import run_sync
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import SessionMessage
from pydantic import ValidationError
from pydantic_core import from_json

from memfiles.server.line_streams import LINE_MAX, LineReader, LineWriter, Waker, standard_streams
from memfiles.server.server import MemoryServer

DRAIN_SECONDS = 35.0
"""How long to wait for responses once input has ended: a call may wait 30 seconds for a record."""

_CANCELLED = "notifications/cancelled"
_NOT_JSON = f"not JSON in UTF-8, or more than {LINE_MAX} bytes on one line"
_NOT_A_MESSAGE = (
    "not a JSON-RPC message: it needs jsonrpc, method, an id that is text or a whole number, and params as an object"
)
_Responses = MemoryObjectSendStream[SessionMessage]


def serve(server: MemoryServer) -> None:
    """Serve one client until it closes stdin or stdout, or until SIGTERM or SIGINT; a second signal kills at once."""
    stop_reading, stop_writing = Waker(), Waker()
    with standard_streams() as (stdin, stdout), _stopped_by_signals(stop_reading):
        conversation = Conversation(LineReader(stdin, stop_reading), LineWriter(stdout, stop_writing))
        anyio.run(conversation.run, server)
    stop_reading.close()
    stop_writing.close()


@contextmanager
def _stopped_by_signals(stop_reading: Waker) -> Iterator[None]:
    def stop(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop_reading.ring()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
                self._reader.stop()
                self._writer.stop()
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
                self._writer.stop()

    async def _write(self, responses: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async with responses:
            async for response in responses:
                line = response.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
                if not await run_sync(partial(self._writer.write, line)):
                    self._reader.stop()
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
        sent = from_json(line, allow_inf_nan=False)
    except ValueError:
        found = None
        with suppress(ValueError, RecursionError):  # its only fault may be half a surrogate pair or a NaN
            found = json.loads(line)
        return MalformedLine(types.PARSE_ERROR, _NOT_JSON, sent=found)
    try:
        message = types.jsonrpc_message_adapter.validate_python(sent, by_name=False)
    except ValidationError:
        return MalformedLine(types.INVALID_REQUEST, _NOT_A_MESSAGE, sent=sent)
    if isinstance(message, types.JSONRPCNotification) and "id" in sent:  # a request with an invalid id
        return MalformedLine(types.INVALID_REQUEST, _NOT_A_MESSAGE, sent=sent)
    return message
