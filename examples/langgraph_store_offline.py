"""Keep the store of a LangGraph graph in the entries of a session.

Needs memfiles[langgraph]. Run it: python examples/langgraph_store_offline.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime

import memfiles
from memfiles.adapters.langgraph_store import MemfilesStore

WORKFLOW = """
memory:
  directory: .memory
  entries: {max_entries: 1000}
agents:
  support: {level: INTERNAL}
"""


class Email(TypedDict):  # what the graph works on
    customer: str
    text: str


def remember(state: Email, runtime: Runtime[None]) -> None:
    """A node that keeps an email; it knows LangGraph's store and nothing of memfiles."""
    assert runtime.store is not None
    number = len(runtime.store.search(("emails", state["customer"])))
    runtime.store.put(("emails", state["customer"]), f"{number:03}", {"text": state["text"], "open": True})


def main() -> None:
    """Run the graph, close the memory, open it again, and search it."""
    graph = StateGraph(Email)
    graph.add_node("remember", remember)
    graph.add_edge(START, "remember")
    graph.add_edge("remember", END)
    with TemporaryDirectory() as folder:
        workflow = Path(folder) / "workflow.yaml"
        workflow.write_text(WORKFLOW)
        with memfiles.open(workflow, watch=False) as memory:
            compiled = graph.compile(store=MemfilesStore(memory.session("support", run="email-1")))
            compiled.invoke({"customer": "ada", "text": "I was charged twice."})
            compiled.invoke({"customer": "bob", "text": "Which plan am I on?"})
        with memfiles.open(workflow, watch=False) as memory:
            store = MemfilesStore(memory.session("support", run="email-2"))
            print(store.list_namespaces(prefix=("emails",)))
            best = store.search(("emails",), query="charged", filter={"open": True}, limit=1)[0]
            print(best.namespace, best.key, best.value)


if __name__ == "__main__":
    main()
