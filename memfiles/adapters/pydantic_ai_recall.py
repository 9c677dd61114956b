"""Recall for each request of a pydantic-ai agent: ``Agent(capabilities=[MemoryRecall(session)])``.

The rule this module enforces: what is recalled is in the request to the model and nowhere else. It is not part of the
messages of the run, so no stored conversation keeps what the memory forgets.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memfiles.adapters.agent_calls import needs, session_if_known, with_recall
from memfiles.records.entry import RECALL_BYTES
from memfiles.tools.worker_calls import run_in_worker

with needs("memory for pydantic-ai needs an extra: pip install 'memfiles[pydantic-ai]'"):
    from pydantic_ai import ModelMessage, ModelRequest
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import TextContent, UserPromptPart
    from pydantic_ai.tools import AgentDepsT

if TYPE_CHECKING:
    from pydantic_ai import RunContext
    from pydantic_ai.models import ModelRequestContext

    from memfiles.tools.worker_calls import SessionSource


class MemoryRecall(AbstractCapability[AgentDepsT]):
    """Gives the model what a session's memory holds about the last question, in a message of the user before it.

    ``session`` may be a function from the run's context, as for ``MemoryToolset``. It goes with any toolset, also with
    the memory of pydantic-ai's harness.
    """

    def __init__(self, session: SessionSource[RunContext[AgentDepsT]], *, budget_bytes: int = RECALL_BYTES) -> None:
        self._session = session
        self._budget_bytes = budget_bytes

    async def before_model_request(
        self, ctx: RunContext[AgentDepsT], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Add what was recalled to this request."""
        session = await session_if_known(self._session, ctx)
        if session is None:
            return request_context
        messages = await run_in_worker(
            lambda: with_recall(
                request_context.messages,
                session,
                budget_bytes=self._budget_bytes,
                question_in=_question_in,
                message_of=lambda block: ModelRequest([UserPromptPart(block)]),
            )
        )
        return replace(request_context, messages=messages)


def _question_in(message: ModelMessage) -> str | None:
    """The text that the user wrote, None if the message is not the user's."""
    parts = message.parts if isinstance(message, ModelRequest) else []
    asked = [part for part in parts if isinstance(part, UserPromptPart)]
    texts = [item for part in asked for item in ([part.content] if isinstance(part.content, str) else part.content)]
    said = (item.content if isinstance(item, TextContent) else item for item in texts)
    return "\n".join(item for item in said if isinstance(item, str)) if asked else None
