"""Run an agent of the OpenAI Agents SDK with memory, offline: its own ScriptedModel stands in for a model.

Needs memfiles[openai-agents]. Run it: python examples/openai_agents_offline.py
"""

import asyncio
from pathlib import Path

from agents import Agent, RunConfig, Runner
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call
from agents.testing.model import ModelStepResult

import memfiles
from memfiles.adapters.openai_agents import instructions, tools

WORKFLOW = Path(__file__).with_name("workflow.yaml")
NOTE = "- Ada was charged twice; refunded.\n"


def first_turn(call: ModelCall) -> ModelStepResult:
    """Print the instructions that a real model would get, then read the playbook."""
    print(call.system_instructions)
    return [function_call("read_memory", {"file": "playbook"}, call_id="call_1")]


def main() -> None:
    """Let the agent answer one customer, then show what it was told and what it remembers."""
    script = ScriptedModel(
        [
            ModelStep.respond(first_turn),
            [
                function_call("append_memory", {"file": "customer-notes", "content": NOTE}, call_id="call_2"),
                function_call("append_memory", {"file": "playbook", "content": NOTE}, call_id="call_3"),
            ],
            [assistant_message("I have refunded the second charge, Ada.")],
        ]
    )
    with memfiles.open(WORKFLOW, watch=False) as memory:
        session = memory.session("support", run="email-1")
        told = instructions(session, "You answer customers.")
        agent = Agent(name="support", instructions=told, tools=[*tools(session)], model=script)
        run = asyncio.run(Runner.run(agent, "I was charged twice. Ada", run_config=RunConfig(tracing_disabled=True)))
        for item in run.to_input_list():
            print(item.get("output", ""), end="\n" if "output" in item else "")
        print(run.final_output)
        print(memory.manager.read("customer-notes-7f3a"), end="")


if __name__ == "__main__":
    main()
