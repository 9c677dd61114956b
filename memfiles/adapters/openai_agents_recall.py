"""Recall for each turn of an agent of the OpenAI Agents SDK: ``RunConfig(call_model_input_filter=...)``.

The rule this module enforces: what is recalled is in the request to the model and nowhere else. It is not part of the
run's items, so no stored conversation keeps what the memory forgets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memfiles.adapters.agent_calls import needs, session_if_known, user_text, with_recall
from memfiles.records.entry import RECALL_BYTES
from memfiles.tools.worker_calls import run_in_worker

with needs("the OpenAI Agents SDK needs an extra: pip install 'memfiles[openai-agents]'"):
    from agents import RunContextWrapper
    from agents.run_config import CallModelData, ModelInputData

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agents import TResponseInputItem

    from memfiles.tools.session import Session
    from memfiles.tools.worker_calls import SessionSource


def recall_filter(
    session: SessionSource[RunContextWrapper[Any]], *, budget_bytes: int = RECALL_BYTES
) -> Callable[[CallModelData[Any]], Awaitable[ModelInputData]]:
    """A function for ``RunConfig(call_model_input_filter=...)`` that adds what a session's memory holds.

    It is about the last question, in a message of the user before it, at every call of the model. Where OpenAI keeps
    the conversation (``conversation_id``, ``previous_response_id``), it keeps that message, too. ``session`` may be a
    function from the run's context to its session.
    """

    def asked(data: ModelInputData, found: Session) -> list[TResponseInputItem]:
        return with_recall(
            data.input,
            found,
            budget_bytes=budget_bytes,
            question_in=user_text,
            message_of=lambda block: {"role": "user", "content": block},
        )

    async def filtered(call: CallModelData[Any]) -> ModelInputData:
        found = await session_if_known(session, RunContextWrapper(call.context))
        if found is None:
            return call.model_data
        items = await run_in_worker(lambda: asked(call.model_data, found))
        return ModelInputData(input=items, instructions=call.model_data.instructions)

    return filtered
