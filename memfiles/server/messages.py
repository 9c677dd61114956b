"""One line of JSON-RPC: the message it is, or the answer that says why it is none.

The rule this file guards: whoever sends something with an id hears of it, as a client waits for its answer for ever.
"""

from __future__ import annotations

import json

from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from pydantic_core import from_json

from memfiles.server.line_streams import LINE_MAX

_NO_JSON = f"not JSON in UTF-8, or more than {LINE_MAX} bytes on one line"
_NO_MESSAGE = (
    "not a JSON-RPC message: it needs jsonrpc, method, an id of text or a whole number, and params as an object"
)


class NoMessage(Exception):
    """A line that is no message; ``answer`` says so, under the id if it can be told."""

    def __init__(self, code: int, why: str, *, sent: object = None) -> None:
        super().__init__(why)
        found = sent.get("id") if isinstance(sent, dict) else None
        known = found if type(found) in (int, str) else None
        self.answer = JSONRPCError(jsonrpc="2.0", id=known, error=ErrorData(code=code, message=why))


def message_in(line: bytes) -> JSONRPCMessage:
    """The message that a line is, else ``NoMessage``."""
    try:
        sent = from_json(line, allow_inf_nan=False)
    except ValueError:
        raise NoMessage(PARSE_ERROR, _NO_JSON, sent=_loosely(line)) from None
    try:
        message = jsonrpc_message_adapter.validate_python(sent, by_name=False)
    except ValidationError:
        raise NoMessage(INVALID_REQUEST, _NO_MESSAGE, sent=sent) from None
    if isinstance(message, JSONRPCNotification) and "id" in sent:  # a request whose id is none
        raise NoMessage(INVALID_REQUEST, _NO_MESSAGE, sent=sent)
    return message


def _loosely(line: bytes) -> object:
    """What a line may have meant that holds half of a surrogate pair, or a number that is none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
