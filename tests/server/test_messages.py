"""One line of JSON-RPC is a message, or is answered."""

from __future__ import annotations

import pytest
from mcp_types import INVALID_REQUEST, PARSE_ERROR, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from memfiles.server.messages import NoMessage, message_in

PING = '{"jsonrpc":"2.0","method":"ping","id":%s}'


@pytest.mark.parametrize("name", ['"abc"', '""', "0", "-1", str(10**30), f'"{"9" * 5000}"'])
def test_an_id_is_text_or_a_whole_number(name: str) -> None:
    """And is answered as it was sent."""
    message = message_in((PING % name).encode())

    assert isinstance(message, JSONRPCRequest)
    assert name.strip('"') == str(message.id)


def test_a_notification_and_a_response_are_messages() -> None:
    """A carriage return at the end does no harm."""
    news = message_in(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\r')
    answer = message_in(b'{"jsonrpc":"2.0","id":1,"result":{}}')

    assert isinstance(news, JSONRPCNotification)
    assert isinstance(answer, JSONRPCResponse)


@pytest.mark.parametrize("name", ["null", "1.5", "1.0", "true", "[1]", "{}"])
def test_a_request_with_an_id_that_is_none_is_answered(name: str) -> None:
    """It is not taken for a notification, to which nobody answers."""
    with pytest.raises(NoMessage) as refused:
        message_in((PING % name).encode())

    assert (INVALID_REQUEST, None) == (refused.value.answer.error.code, refused.value.answer.id)


@pytest.mark.parametrize(
    ("line", "code", "name"),
    [
        (b"this is no JSON", PARSE_ERROR, None),
        (b'{"jsonrpc":"2.0","id":2,"method":', PARSE_ERROR, None),
        (b'{"jsonrpc":"2.0","id":2,"method":"x","params":{"a":"\xff"}}', PARSE_ERROR, None),
        (b'{"jsonrpc":"2.0","id":2,"method":"x","params":{"a":"\\ud800"}}', PARSE_ERROR, 2),
        (b'{"jsonrpc":"2.0","id":2,"method":"x","params":{"a":NaN}}', PARSE_ERROR, 2),
        (b'{"jsonrpc":"2.0","id":2,"method":"x","params":' + b'{"a":' * 50_000, PARSE_ERROR, None),
        (PING.encode() % (b"9" * 5000), PARSE_ERROR, None),
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
    with pytest.raises(NoMessage) as refused:
        message_in(line)

    assert (code, name) == (refused.value.answer.error.code, refused.value.answer.id)
    assert len(refused.value.answer.error.message) < 200
