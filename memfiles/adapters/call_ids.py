"""The id of a call, where a framework's messages tell which call it is.

The rule this file guards: a call that is made again is known by its id, and no other call is. Some servers of models
count their ids from the beginning at every answer, so that one conversation has many calls ``call_0``.
"""

from __future__ import annotations

from collections.abc import Iterable


def in_conversation(call_id: str | None, *, answered: Iterable[object]) -> str | None:
    """The id under which the memory keeps a call, in a conversation with results of calls of the ids ``answered``.

    It is the id itself, and with a number behind it where a call of that id has its result. So a call that is made
    again, as its result was lost, comes out as it did before. What is no id does not count.
    """
    before = sum(each == call_id for each in answered) if call_id else 0
    return f"{call_id}#{before + 1}" if before else call_id
