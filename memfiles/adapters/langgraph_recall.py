"""Middleware that recalls for each turn of a LangChain agent, also of deepagents and of agents with a store.

The rule this module enforces: what is recalled is in the request to the model and nowhere else. It is not part of the
agent's state, so no checkpoint keeps what the memory forgets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from memfiles.adapters.agent_calls import needs, or_fallback, with_recall
from memfiles.records.entry import RECALL_BYTES
from memfiles.tools.worker_calls import run_in_worker, session_of

with needs("agents of LangGraph need an extra: pip install 'memfiles[langgraph]'"):
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from langchain.agents.middleware import ModelRequest, ModelResponse

    from memfiles.tools.session import Session
    from memfiles.tools.worker_calls import SessionSource


class RecallMiddleware(AgentMiddleware[Any, Any, Any]):
    """Gives the model what a session's memory holds about the last question, in a message of the user before it.

    ``create_agent(model, middleware=[RecallMiddleware(session)])``, and the same for ``create_deep_agent``.
    ``session`` may be a function from the ``Runtime`` of the model call to its session.
    """

    def __init__(self, session: SessionSource[Any], *, budget_bytes: int = RECALL_BYTES) -> None:
        super().__init__()
        self._session = session
        self._budget_bytes = budget_bytes

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Call the model with what was recalled."""
        return handler(self._with_recall(request))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """As ``wrap_model_call``."""
        return await handler(await run_in_worker(lambda: self._with_recall(request)))

    def _with_recall(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        session = or_fallback(lambda: session_of(self._session, request.runtime), fallback=None)
        if session is None:
            return request
        return request.override(messages=recalled_for(request.messages, session, budget_bytes=self._budget_bytes))


def recalled_for(messages: Sequence[AnyMessage], session: Session, *, budget_bytes: int | None) -> list[AnyMessage]:
    """The messages with what was recalled, as they are without a budget."""
    if budget_bytes is None:
        return [*messages]
    return with_recall(
        messages,
        session,
        budget_bytes=budget_bytes,
        question_in=lambda message: message.text if isinstance(message, HumanMessage) else None,
        message_of=HumanMessage,
    )


def with_prompt(message: SystemMessage | None, prompt: str) -> SystemMessage | None:
    """The system message with the prompt of a session at its end."""
    if not prompt or message is None:
        return SystemMessage(prompt) if prompt else message
    text = message.content
    content = f"{text}\n\n{prompt}" if isinstance(text, str) else [*text, {"type": "text", "text": prompt}]
    return message.model_copy(update={"content": content})
