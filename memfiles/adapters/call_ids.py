"""The id of a call, where a framework's messages tell which call it is.

The rule this file guards: a call that is made again is known by its id, and no other call is. Some servers of models
count their ids from the beginning at every answer, so that one conversation has many calls ``call_0``.
"""

from __future__ import annotations

from collections.abc import Iterable


def in_conversation(call_id: str | None, results: Iterable[object]) -> str | None:
    """The id under which the memory keeps a call, in a conversation that holds these results of earlier calls.

    It is the id itself, and with a number behind it where the conversation has a result of a call of that id: what has
    its ``tool_call_id`` is one. So a call that is made again, as its result was lost, comes out as it did before.
    """
    before = sum(getattr(each, "tool_call_id", None) == call_id for each in results) if call_id else 0
    return f"{call_id}#{before + 1}" if before else call_id
