"""The tool runner of Anthropic's SDK has the session's tools, and tells its model what each call came to."""

from __future__ import annotations

from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.lib.tools import ToolError

import memfiles
from memfiles.adapters.anthropic_tools import async_tools, tools
from memfiles.errors import InvalidArgument
from memfiles.tools.session import Session
from tests.adapters.agents_at_work import Answer, Call, Script, ScriptedClaude, append
from tests.adapters.exam import ToolExam

ASKED: dict[str, Any] = {"model": "claude", "max_tokens": 99, "messages": [{"role": "user", "content": "Hello."}]}


def runner(claude: ScriptedClaude, offered: list[Any]) -> Any:
    """The vendor's own loop with these tools."""
    client = anthropic.Anthropic(
        api_key="none", http_client=httpx2.Client(transport=httpx2.MockTransport(claude.answer))
    )
    return client.beta.messages.tool_runner(tools=offered, **ASKED)


def async_runner(claude: ScriptedClaude, offered: list[Any]) -> Any:
    """As ``runner``, with the asynchronous client."""
    transport = httpx2.MockTransport(claude.answer_later)
    client = anthropic.AsyncAnthropic(api_key="none", http_client=httpx2.AsyncClient(transport=transport))
    return client.beta.messages.tool_runner(tools=offered, **ASKED)


class TestAnthropicTools(ToolExam):
    module = "memfiles.adapters.anthropic_tools"
    vendors = ("anthropic",)
    extra_error = "Anthropic's tool runner needs an extra: pip install 'memfiles[anthropic]'"
    ways = ("async", "sync")
    has_call_ids = has_prompt = follows_level = False
    keeps_order = False

    async def arun(self, session: Session, script: Script, way: str) -> list[Answer]:
        claude = ScriptedClaude(script)
        if way == "sync":
            runner(claude, tools(session)).until_done()
        else:
            await async_runner(claude, async_tools(session)).until_done()
        return [Answer(block["content"], block.get("is_error", False)) for block in claude.results]

    @pytest.mark.parametrize("given", [{}, {"strict": True, "examples": True}])
    def test_the_api_is_sent_the_dialect_s_tools(self, session: Session, given: dict[str, Any]) -> None:
        """As they are, whatever was asked of the dialect."""
        claude = ScriptedClaude(Script())
        runner(claude, tools(session, **given)).until_done()

        assert session.tools("anthropic", **given) == claude.requests[0]["tools"]
        assert session.tools("anthropic") == [tool.to_dict() for tool in async_tools(session)]

    def test_a_result_is_of_its_call(self, session: Session) -> None:
        """An error is marked as one and ends nothing."""
        claude = ScriptedClaude(Script([append("x", id="one"), Call("memory_get", {}, "two")]))
        runner(claude, tools(session)).until_done()

        assert [("one", False), ("two", True)] == [
            (block["tool_use_id"], block.get("is_error", False)) for block in claude.results
        ]

    def test_a_run_can_be_given_the_tools_of_a_level_that_rose(self, memory: memfiles.Memory) -> None:
        """In the way the SDK has for it; what could not be used before is offered and works."""
        session = memory.session("support", level="PUBLIC")
        claude = ScriptedClaude(Script([Call("memory_list", {})], [append("- another\n", file="deals")]))
        running = runner(claude, tools(session))
        for turn, _ in enumerate(running):
            if turn == 0:
                session.raise_level("CONFIDENTIAL")
                running.add_tools(*tools(session))
        added = [block["tool"]["definition"] for block in claude.requests[1]["messages"][-1]["content"]]

        assert "append_memory" not in [tool["name"] for tool in claude.requests[0]["tools"]]
        assert session.tools("anthropic") == added
        assert "- secret deal\n- another\n" == memory.manager.read("u-deals")

    def test_a_closed_session_has_no_tools_and_refuses_calls(self, session: Session) -> None:
        """In words, for those that were made before."""
        offered = tools(session)
        session.close()

        with pytest.raises(InvalidArgument, match="session of agent support is closed"):
            tools(session)
        with pytest.raises(ToolError, match="session is closed"):
            offered[0].call({"file": "notes"})
