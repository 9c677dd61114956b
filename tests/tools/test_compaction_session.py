"""The turn before a compaction, with a real session and its entries."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from memfiles.memory import Memory
from memfiles.tools.compaction import MAX_SAVES, flush_before_compaction, remember

WORKFLOW = """\
memory: {durability: os, entries: {max_entries: 100}}
agents: {support: {level: INTERNAL}}
"""
MESSAGES = [{"role": "user", "content": "Ada moved to Pro"}]
SAVES = {"default": "memory_save", "store-recall": "memory_store", "crud": "memory_create", "compact": "memory_write"}
PLAN = {"key": "ada/plan", "content": "Ada is on Pro."}


class AnsweringModel:
    """A named fake: answers with what it is given, and keeps the names of the tools it was shown."""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self._answer = answer
        self.offered: list[str] = []

    def __call__(self, messages: list[dict[str, str]], tools: list[dict[str, Any]]) -> Any:
        """The answer."""
        self.offered = [tool["name"] for tool in tools]
        return self._answer()


def saving(*arguments: object, tool: str = "memory_save") -> AnsweringModel:
    """A model that makes these saves."""
    return AnsweringModel(lambda: [{"name": tool, "arguments": each, "id": "1"} for each in arguments])


@pytest.mark.parametrize("names", SAVES)
def test_what_the_model_saves_is_found(memory: Memory, names: str) -> None:
    """Under each set of names only the tool that saves is offered, and what it saves is an entry at once."""
    session = memory.session("support", run="r", tool_names=names)
    model = saving(PLAN, tool=SAVES[names])
    report = flush_before_compaction(session, MESSAGES, model)

    assert ([SAVES[names]], ("ada/plan",)) == (model.offered, report.saved)
    assert ["ada/plan"] == [match.found.key for match in memory.entries.search(session, "which plan has Ada").matches]


def test_the_same_flush_in_a_new_session_changes_nothing(memory: Memory) -> None:
    """The calls are known by the history, whatever became of the session that made them first."""
    reports = [
        flush_before_compaction(memory.session("support", run="r"), MESSAGES, saving(PLAN)).saved for _ in range(2)
    ]
    found = memory.entries.get(memory.session("support"), "ada/plan")

    assert [("ada/plan",), ("ada/plan",)] == reports
    assert found is not None and found.revision == 1


def test_calls_that_are_none_do_not_keep_the_others_from_being_made(memory: Memory) -> None:
    """Names and arguments of any kind are reported, and a good call after them is carried out."""
    cycle: dict[str, Any] = {}
    cycle["key"] = cycle
    odd = [None, 5, {"name": 5}, {"name": ["memory_save"]}, {"name": "memory_delete", "arguments": {"key": "x"}}]
    wrong = [{"name": "memory_save", "arguments": each} for each in ("[", cycle, {1: 2, "key": object()}, b"\xff")]
    model = AnsweringModel(lambda: [*odd, *wrong, {"name": "memory_save", "arguments": PLAN}])
    report = flush_before_compaction(memory.session("support"), MESSAGES, model)

    assert (("ada/plan",), len(odd) + len(wrong), None) == (report.saved, len(report.skipped), report.error)


def test_calls_without_end_are_not_collected(memory: Memory) -> None:
    """A model that streams its calls and never stops costs neither memory nor time."""
    calls = ({"name": "memory_save", "arguments": {"key": f"k{n}", "content": "c"}} for n in itertools.count())
    report = flush_before_compaction(memory.session("support"), MESSAGES, AnsweringModel(lambda: calls))

    assert (MAX_SAVES, None) == (len(report.saved), report.error)


def test_a_model_that_ends_its_thread_is_not_waited_for(memory: Memory) -> None:
    """What leaves by ``SystemExit`` is told like any other failure, at once."""

    def leave() -> None:
        raise SystemExit(3)

    report = flush_before_compaction(memory.session("support"), MESSAGES, AnsweringModel(leave), timeout=60)

    assert "the model failed with SystemExit" == report.error


def test_a_closed_session_fails_nobody(memory: Memory) -> None:
    """The report says that nothing was done."""
    session = memory.session("support")
    session.close()

    assert flush_before_compaction(session, MESSAGES, saving(PLAN)).error is not None


def test_a_conversation_is_remembered_at_any_time(memory: Memory) -> None:
    """Once, whether it is shortened afterwards or not; new messages are remembered as well."""
    session = memory.session("support", run="r")
    plan, tone = saving(PLAN), saving({"key": "ada/tone", "content": "Ada likes short answers."})
    first, again = remember(session, MESSAGES, plan), flush_before_compaction(session, MESSAGES, tone)
    later = remember(session, [{"role": "user", "content": "Please be brief"}], tone)

    assert [("ada/plan",), (), ("ada/tone",)] == [report.saved for report in (first, again, later)]
    assert ([], True) == (tone.offered[1:], again.replayed)
    assert {"ada/plan", "ada/tone"} == {found.key for found in memory.entries.list(session).memories}


def test_remembering_fails_nobody(memory: Memory) -> None:
    """Not with a model that raises, nor in a closed session, nor with messages that are none."""

    def failing(messages: object, tools: object) -> None:
        raise ConnectionError

    session = memory.session("support")
    reports = [remember(session, MESSAGES, failing), remember(session, "text", saving(PLAN))]
    session.close()
    reports.append(remember(session, MESSAGES, saving(PLAN)))

    assert [
        "the model failed with ConnectionError",
        "messages must be a list of messages, not str",
        "saving failed with InvalidArgument; the details were logged",
    ] == [report.error for report in reports]
