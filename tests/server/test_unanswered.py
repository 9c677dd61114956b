"""What a client was not answered yet is known."""

from __future__ import annotations

import anyio
import pytest
from mcp_types import JSONRPCMessage, jsonrpc_message_adapter

from memfiles.server.unanswered import Unanswered
from tests.server.mcp_clients import in_loop


def message(**said: object) -> JSONRPCMessage:
    return jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **said})


PING = {"method": "ping", "id": 1}
ANSWER = {"id": 1, "result": {}}
CANCEL = {"method": "notifications/cancelled", "params": {"requestId": 1}}


@pytest.mark.parametrize(
    ("taken", "given", "is_open"),
    [
        ([PING], [], True),
        ([PING], [ANSWER], False),
        ([PING], [ANSWER | {"id": "1"}], False),
        ([PING], [{"id": 1, "error": {"code": 1, "message": "no"}}], False),
        ([PING], [{"id": None, "error": {"code": 1, "message": "whose is this"}}], True),
        ([PING], [ANSWER | {"id": 2}], True),
        ([PING, PING], [ANSWER], True),
        ([PING, PING], [ANSWER, ANSWER], False),
        ([PING, CANCEL], [], False),
        ([PING, {"method": "notifications/cancelled", "params": {"requestId": [1]}}], [], True),
        ([{"method": "subscriptions/listen", "id": 1}], [], True),
        ([{"method": "notifications/initialized"}, ANSWER], [], False),
        ([], [ANSWER, ANSWER, {"method": "notifications/message"}], False),
    ],
)
def test_what_waits_for_an_answer(taken: list[object], given: list[object], is_open: bool) -> None:
    """Requests do, streams of news as well, but for those that were cancelled."""

    async def waited() -> bool:
        due = Unanswered()
        for each in taken:
            due.taken(message(**dict(each)))  # type: ignore[call-overload]
        for each in given:
            due.given(message(**dict(each)))  # type: ignore[call-overload]
        with anyio.move_on_after(0) as scope:
            await due.nothing()
        return scope.cancelled_caught

    assert is_open is in_loop(waited)


def test_the_last_answer_ends_the_wait() -> None:
    """Whoever waits goes on at once."""

    async def waited() -> bool:
        due = Unanswered()
        due.taken(message(**PING))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(due.nothing)
            await anyio.lowlevel.checkpoint()
            due.given(message(**ANSWER))
        return True

    assert in_loop(waited)
