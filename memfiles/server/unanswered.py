"""Which requests of a client were not answered yet.

The rule this file guards: a request that was taken is answered before the server ends, though the client said already
that it sends no more.
"""

from __future__ import annotations

from collections import Counter

from anyio import Event
from mcp.shared.dispatcher import coerce_request_id
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, RequestId

_CANCELLED = "notifications/cancelled"


class Unanswered:
    """The requests of one client that wait for their answers; two may have one id."""

    def __init__(self) -> None:
        self._waiting: Counter[RequestId] = Counter()
        self._settled = Event()

    def taken(self, message: JSONRPCMessage) -> None:
        """A message came in. What is cancelled is not answered."""
        if isinstance(message, JSONRPCRequest):
            self._waiting[coerce_request_id(message.id)] += 1
        if isinstance(message, JSONRPCNotification) and message.method == _CANCELLED:
            self._settle((message.params or {}).get("requestId"))

    def given(self, message: JSONRPCMessage) -> None:
        """A message went out."""
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._settle(message.id)

    async def nothing(self) -> None:
        """Wait until everything is answered."""
        while self._waiting:
            self._settled = Event()
            await self._settled.wait()

    def _settle(self, sent: object) -> None:
        if isinstance(sent, int | str):
            self._waiting -= Counter([coerce_request_id(sent)])  # which drops what comes to nothing
        self._settled.set()
