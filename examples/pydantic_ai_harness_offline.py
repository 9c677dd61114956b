"""Keep the notebook of pydantic-ai's harness in memfiles, offline: a FunctionModel stands in for the model.

Needs memfiles[pydantic-ai-harness]. Run it: python examples/pydantic_ai_harness_offline.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_harness.memory import Memory

import memfiles
from memfiles.adapters.pydantic_ai_harness import SessionStore

WORKFLOW = """\
memory:
  entries: {max_entries: 1000}
agents:
  support: {level: INTERNAL}
"""


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Stand in for a model: write to the notebook, or answer from it."""
    asked = str(messages[0].parts)
    if "<memory>" in asked:
        return ModelResponse(parts=[TextPart("Ada is on Pro." if "- Ada is on Pro." in asked else "I do not know.")])
    if len(messages) == 1:
        return ModelResponse(parts=[ToolCallPart("write_memory", {"content": "- Ada is on Pro."})])
    return ModelResponse(parts=[TextPart("I will remember it.")])


def answer(folder: Path, question: str) -> str:
    """Run the agent once, on a memory that is open for this run only."""
    with memfiles.open(folder / "workflow.yaml", watch=False) as memory:
        store = SessionStore(memory.session("support"))
        agent = Agent(FunctionModel(scripted), capabilities=[Memory(store=store)])
        return agent.run_sync(question).output


def main() -> None:
    """Tell the agent something, ask for it in another run, then show where it is kept."""
    with TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "workflow.yaml").write_text(WORKFLOW)
        print(answer(folder, "Remember that Ada moved to the Pro plan."))
        print(answer(folder, "Which plan is Ada on?"))
        with memfiles.open(folder / "workflow.yaml", watch=False) as memory:
            for entry in memory.entries.list(memory.session("support")).memories:
                print(f"{entry.key}, revision {entry.revision}, {entry.level}: {entry.content.strip()}")


if __name__ == "__main__":
    main()
