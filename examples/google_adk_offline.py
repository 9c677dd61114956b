"""Run an agent of Google's ADK with memory over MCP, offline: a script stands in for the model.

Needs memfiles[mcp] and google-adk[mcp]. Run it: python examples/google_adk_offline.py
"""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams
from google.genai.types import Content, GenerateContentResponseUsageMetadata, Part
from mcp import StdioServerParameters

WORKFLOW = Path(__file__).with_name("workflow.yaml")
SERVER = StdioServerParameters(command="memfiles", args=["mcp", "-w", str(WORKFLOW), "--agent", "support"])
NOTE = {"file": "customer-notes", "content": "- Ada was charged twice; refunded.\n"}


class ScriptedModel(BaseLlm):
    """Stands in for a model: keep a note, answer."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """The next turn of the script."""
        said = llm_request.contents[-1].parts or []
        if said[0].function_response:
            print((said[0].function_response.response or {})["content"][0]["text"])
            part = Part(text="I have refunded the second charge, Ada.")
        else:
            print(sorted(llm_request.tools_dict))
            part = Part.from_function_call(name="append_memory", args=NOTE)
        usage = GenerateContentResponseUsageMetadata(prompt_token_count=1, candidates_token_count=1)
        yield LlmResponse(content=Content(role="model", parts=[part]), usage_metadata=usage)


async def main() -> None:
    """Let the agent answer one customer; what it keeps is in the memory directory next to the workflow."""
    memory = McpToolset(connection_params=StdioConnectionParams(server_params=SERVER, timeout=30))
    agent = LlmAgent(name="support", model=ScriptedModel(model="scripted"), tools=[memory])
    runner = InMemoryRunner(agent=agent)
    try:
        for event in await runner.run_debug("I was charged twice. Ada", quiet=True):
            if event.is_final_response() and event.content and event.content.parts:
                print(event.content.parts[0].text)
    finally:
        await runner.close()


if __name__ == "__main__":
    asyncio.run(main())
