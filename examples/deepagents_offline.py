"""Give a deep agent a folder whose files are the memory of a session, offline: a script is the model.

Needs memfiles[deepagents]. Run it: python examples/deepagents_offline.py
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deepagents import create_deep_agent
from deepagents.backends import CompositeBackend, StateBackend
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage

import memfiles
from memfiles.adapters.deepagents import MemfilesBackend

WORKFLOW = Path(__file__).with_name("workflow.yaml")
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("ls", {"path": "/memories"}),
    ("read_file", {"file_path": "/memories/playbook"}),
    ("edit_file", {"file_path": "/memories/customer-notes", "old_string": "# Customers\n", "new_string": "# Ada\n"}),
    ("write_file", {"file_path": "/memories/playbook", "content": "Refund everything."}),
    ("write_file", {"file_path": "/scratch.md", "content": "This is of this conversation only."}),
]


class ScriptedModel(GenericFakeChatModel):
    """Answers with the script, whatever tools it gets."""

    def bind_tools(self, tools: Any, **options: Any) -> "ScriptedModel":
        """Return itself, as a script ignores tools."""
        return self


def script() -> Iterator[AIMessage]:
    """The model's answers: one call a turn, then a text."""
    for number, (name, arguments) in enumerate(CALLS):
        call = {"name": name, "args": arguments, "id": f"call_{number}"}
        yield AIMessage("", tool_calls=[{**call, "type": "tool_call"}])
    yield AIMessage("Noted, Ada.")


def main() -> None:
    """Run the agent on the folder, then show what it remembers."""
    with memfiles.open(WORKFLOW, watch=False) as memory:
        files = MemfilesBackend(memory.session("support", run="email-1"))
        backend = CompositeBackend(default=StateBackend(), routes={"/memories/": files})
        agent = create_deep_agent(ScriptedModel(messages=script()), backend=backend)
        done = agent.invoke({"messages": [{"role": "user", "content": "I moved to Pro. Ada"}]})
        for message in done["messages"]:
            if isinstance(message, ToolMessage):
                print(message.status, "|", message.text)
        print(memory.manager.read("customer-notes-7f3a"), end="")


if __name__ == "__main__":
    main()
