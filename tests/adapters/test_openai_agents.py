"""An agent of the OpenAI Agents SDK has the session's tools and prompt as they are at every turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import Agent, RunConfig, RunContextWrapper, Runner
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call

from memfiles.adapters.openai_agents import instructions, tools
from memfiles.errors import InvalidArgument
from memfiles.tools.session import Session
from tests.adapters.agents_at_work import Answer, Call, Script, append
from tests.adapters.exam import ToolExam

QUIET = RunConfig(tracing_disabled=True, tool_not_found_behavior="return_error_to_model")
FILE_TOOLS = ["read_memory", "append_memory", "edit_memory"]
DONE = [assistant_message("Done.")]
NOTE = append("- a\n", id="c")


def agent_of(session: Session, *steps: Any) -> Agent[None]:
    model = ScriptedModel([*steps, DONE])
    return Agent(name="support", instructions=instructions(session, "Help."), tools=[*tools(session)], model=model)


def run(agent: Agent[None], asked: Any = "Hello.") -> Any:
    return asyncio.run(Runner.run(agent, asked, run_config=QUIET))


def results_of(items: list[Any]) -> list[str]:
    return [str(item["output"]) for item in items if item.get("type") == "function_call_output"]


class TestOpenAIAgents(ToolExam):
    module = "memfiles.adapters.openai_agents"
    vendors = ("agents", "openai")
    extra_error = "the OpenAI Agents SDK needs an extra: pip install 'memfiles[openai-agents]'"
    ways = ("run", "streamed")
    marks_errors = waits_for_calls = repeats_ids = False
    takes_text = True

    async def arun(self, session: Session, script: Script, way: str) -> list[Answer]:
        def asked(call: ModelCall) -> Any:
            calls = script.next_calls((tool.name for tool in call.tools), call.system_instructions or "")
            return [function_call(name, sent, call_id=id) for name, sent, id in calls] or DONE

        agent = agent_of(session, *[ModelStep.respond(asked)] * (len(script) + 1))  # the last is asked for no call
        if way == "streamed":
            running = Runner.run_streamed(agent, "Hello.", run_config=QUIET, max_turns=len(script) + 1)
            async for _ in running.stream_events():
                pass
            return [Answer(text, None) for text in results_of(running.to_input_list())]
        ran = await Runner.run(agent, "Hello.", run_config=QUIET, max_turns=len(script) + 1)
        return [Answer(text, None) for text in results_of(ran.to_input_list())]

    def test_the_model_is_offered_the_tools_as_openai_takes_them(self, session: Session) -> None:
        """Strict, with the descriptions and schemas of the dialect, which the SDK leaves as they are."""
        fields = {"name": "name", "description": "description", "parameters": "params_json_schema"}
        seen: list[Any] = []

        def asked(call: ModelCall) -> Any:
            seen.extend({key: vars(tool)[field] for key, field in fields.items()} for tool in call.tools)
            return DONE

        run(agent_of(session, ModelStep.respond(asked)))

        assert session.tools("openai") == [{"type": "function", **shape, "strict": True} for shape in seen]

    def test_tools_name_the_files_of_the_level(self, session: Session) -> None:
        """At the turn after it was raised: what can be read is named, and what cannot be used is not offered."""
        seen: list[dict[str, Any]] = []

        def asked(call: ModelCall) -> Any:
            shapes = {tool.name: vars(tool)["params_json_schema"]["properties"] for tool in call.tools}
            seen.append({name: shapes[name]["file"]["enum"] for name in FILE_TOOLS if name in shapes})
            session.raise_level(["CONFIDENTIAL", "RESTRICTED", "RESTRICTED"][len(seen) - 1])
            return [function_call("memory_list", {}, call_id=f"call_{len(seen)}")]

        run(agent_of(session, *[ModelStep.respond(asked)] * 3))
        readable = ["deals", "notes", "playbook"]

        assert [
            {"read_memory": ["notes", "playbook"], "append_memory": ["notes"], "edit_memory": ["notes"]},
            {"read_memory": readable, "append_memory": ["deals"], "edit_memory": ["deals"]},
            {"read_memory": readable},
        ] == seen

    def test_the_prompt_goes_behind_the_instructions(self, session: Session) -> None:
        """Which may be none; and it has the lines of the files at that level."""
        script = Script()
        self.run(session, script)

        assert script.prompts[0].startswith("Help.\n\n## Memory files available\n")
        assert "- notes (RW, 0B of 1000B): Customers.\n- playbook (R, 9B): Refunds." in script.prompts[0]
        bare: Any = instructions(session)(RunContextWrapper(None), Agent(name="x"))
        assert session.system_prompt() == asyncio.run(bare)

    def test_a_program_may_have_a_session_of_its_own_class(self, session: Session) -> None:
        """Whose prompt is the one that the agent gets."""

        class Own(Session):
            def system_prompt(self, **options: Any) -> str:
                return "Own."

        session.__class__ = Own
        bare: Any = instructions(session)(RunContextWrapper(None), Agent(name="x"))

        assert "Own." == asyncio.run(bare)

    def test_a_tool_that_is_withdrawn_can_be_called_in_vain(self, session: Session) -> None:
        """With the setting that the README names, the SDK answers the call and the run goes on."""

        def raised() -> list[Call]:
            session.raise_level("RESTRICTED")
            return [Call("memory_list", {})]

        listed, refused = self.run(session, Script(raised, [append("- late\n")]))

        assert ['{"memories":[],"next":null}', True] == [listed.text, "append_memory" in refused.text]
        assert "" == session.manager.read("u-notes")

    def test_without_turns_tools_follow_the_level_at_once(self, session: Session) -> None:
        """As in a realtime session, whose one context lasts."""
        context, agent = RunContextWrapper(None), agent_of(session)
        names = [[tool.name for tool in asyncio.run(agent.get_all_tools(context))]]
        session.raise_level("RESTRICTED")
        names.append([tool.name for tool in asyncio.run(agent.get_all_tools(context))])

        assert [True, True] == [FILE_TOOLS == names[0][:3], names[0][:1] + names[0][3:] == names[1]]

    def test_runs_that_share_an_agent_do_not_disturb_each_other(self, session: Session) -> None:
        """What one run was offered it can call, also when another asked meanwhile."""
        call = function_call(NOTE.name, NOTE.arguments, call_id="c")

        def asked(asking: ModelCall) -> Any:
            return DONE if any(item.get("type") == "function_call_output" for item in asking.input) else [call]

        agent = agent_of(session, *[ModelStep.respond(asked)] * 20)

        async def both() -> list[Any]:
            return await asyncio.gather(*(Runner.run(agent, f"Hello {n}.", run_config=QUIET) for n in range(5)))

        assert ["Done."] * 5 == [run.final_output for run in asyncio.run(both())]
        assert "- a\n" == session.manager.read("u-notes")

    def test_a_run_that_begins_with_the_messages_of_another_makes_another_call(self, session: Session) -> None:
        """One that is begun again makes none; ids of calls of other tools do not count."""

        def messages(asked: list[Any]) -> list[Any]:
            agent = agent_of(session, [function_call(NOTE.name, NOTE.arguments, call_id="c")])
            items: list[Any] = run(agent, asked).to_input_list()
            return items

        first: list[Any] = [{"role": "user", "content": "Go."}, function_call("elsewhere", {}, call_id="c")]
        for asked in (first, first, [*messages(first), *first], [*messages(first), *first]):
            messages(asked)

        assert ["c#2", "c"] == [change.by.call for change in session.manager.log("u-notes")[:-1]]

    def test_a_closed_memory_is_as_a_closed_session(self, memory: Any, session: Session) -> None:
        """And a closed session has no tools to make an agent with."""
        agent = agent_of(session, [function_call("memory_list", {}, call_id="call_1")])
        memory.close()
        ran = run(agent)

        assert [True] == ["closed" in text for text in results_of(ran.to_input_list())]
        with pytest.raises(InvalidArgument, match="session of agent support is closed"):
            tools(session)
