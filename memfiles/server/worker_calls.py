"""From the event loop to the memory and back: one worker thread a call, and errors as the protocol knows them.

The rule this file guards: a call that has begun is carried out to its end, also when the client cancels it, so that
no change is left half-made and none goes on behind a memory that is being closed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from memfiles.errors import MemfilesError

THREADS = 32
"""Calls at once. They have threads of their own: the transport needs some to read and write."""

_log = logging.getLogger("memfiles")
T = TypeVar("T")


class Crossing:
    """Runs calls of the memory, which block, beside the event loop."""

    def __init__(self) -> None:
        self._threads = CapacityLimiter(THREADS)

    async def run(self, call: Callable[[], T]) -> T:
        """What ``call`` returns; what it raises becomes an error of the protocol, without anything that is stored."""
        try:
            return await to_thread.run_sync(call, limiter=self._threads)
        except MCPError:
            raise
        except MemfilesError as error:
            code = INTERNAL_ERROR if error.transient else INVALID_PARAMS
            raise MCPError(code, str(error), {"code": error.code}) from error
        except Exception:
            _log.exception("a request of an MCP client failed")
            raise MCPError(
                INTERNAL_ERROR, "something went wrong inside the memory, and the details were logged"
            ) from None
