"""Over stdin and stdout, for a client that starts the server itself.

The rules this file guards: a line that is no message is answered with an error and ends nothing; and the server ends
quietly, after the calls that were begun, when its client closes stdin or stdout and when it is told to by a signal.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from anyio.to_thread import run_sync
from mcp.shared.message import SessionMessage

from memfiles.server.line_streams import Incoming, Outgoing, Waker, standard_streams
from memfiles.server.messages import NoMessage, message_in
from memfiles.server.server import MemoryServer
from memfiles.server.unanswered import Unanswered

PATIENCE_SECONDS = 35.0
"""For the answers to calls that were begun, once no more comes: a call may wait 30 seconds for a record."""

_Sending = MemoryObjectSendStream[SessionMessage]


def serve(server: MemoryServer) -> None:
    """Serve one client until it closes stdin or stdout, or until SIGTERM or SIGINT; a second one kills at once."""
    enough, given_up = Waker(), Waker()
    with standard_streams() as (stdin, stdout), _ended_by_signals(enough):
        talk = Talk(Incoming(stdin, enough), Outgoing(stdout, given_up), enough=enough, given_up=given_up)
        anyio.run(talk.hold, server)
    enough.close()
    given_up.close()


@contextmanager
def _ended_by_signals(enough: Waker) -> Iterator[None]:
    def end(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        enough.ring()

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Talk:
    """The conversation with one client, from its first line to the last answer."""

    def __init__(self, incoming: Incoming, outgoing: Outgoing, *, enough: Waker, given_up: Waker) -> None:
        """``enough`` ends what comes in, ``given_up`` what goes out."""
        self._incoming = incoming
        self._outgoing = outgoing
        self._enough = enough
        self._given_up = given_up
        self._due = Unanswered()

    async def hold(self, server: MemoryServer) -> None:
        """Have the server answer until no more comes in and what was begun is answered."""
        passing_on, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        answering, answers = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._take_in, passing_on, answering.clone(), server.changes.end)
            tasks.start_soon(self._give_out, answers)
            try:
                await server.run(messages, answering, server.create_initialization_options())
            except BaseException:  # a defect: what waits in a thread cannot be cancelled, and must not hold it up
                self._enough.ring()
                self._given_up.ring()
                raise

    async def _take_in(
        self, passing_on: MemoryObjectSendStream[Any], refusing: _Sending, end_news: Callable[[], None]
    ) -> None:
        async with passing_on, refusing:
            while (line := await run_sync(self._incoming.next)) is not None:
                if not line.strip():
                    continue
                try:
                    message = message_in(line)
                except NoMessage as error:
                    await refusing.send(SessionMessage(error.answer))
                    continue
                self._due.taken(message)
                await passing_on.send(SessionMessage(message))
            end_news()
            with anyio.move_on_after(PATIENCE_SECONDS) as patience:
                await self._due.nothing()
            if patience.cancelled_caught:
                self._given_up.ring()

    async def _give_out(self, answers: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async with answers:
            async for answer in answers:
                line = answer.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
                if not await run_sync(partial(self._outgoing.put, line)):
                    self._enough.ring()
                self._due.given(answer.message)
