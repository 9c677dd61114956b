"""A model that a framework holds to our schemas is never made to invent what it would leave out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from pydantic_ai.profiles.openai import OpenAIJsonSchemaTransformer

import memfiles
from memfiles.adapters.langgraph import tools
from memfiles.adapters.pydantic_ai import MemoryToolset
from memfiles.tools.session import Session

WORKFLOW = """\
memory:
  durability: os
  entries: {}
  files: [{uid: u-notes, name: notes, description: Customers., level: INTERNAL, content: "# Notes\\n"}]
agents: {support: {level: INTERNAL, memory: [{id: u-notes, mode: rw}]}}
"""
Schemas = dict[str, dict[str, Any]]


def of_langchain(session: Session) -> Schemas:
    """As ``create_agent(..., response_format=...)`` sends them to OpenAI's models."""
    shapes = [convert_to_openai_tool(tool, strict=True)["function"] for tool in tools(session)]
    return {shape["name"]: shape["parameters"] for shape in shapes}


def of_pydantic_ai(session: Session) -> Schemas:
    """As tools that ``prepare_tools`` made strict are sent to OpenAI's models."""
    model = TestModel(call_tools=[])
    asyncio.run(Agent(model, toolsets=[MemoryToolset[None](session)]).run("go"))
    assert model.last_model_request_parameters is not None
    offered = [replace(tool, strict=True) for tool in model.last_model_request_parameters.function_tools]
    return {
        tool.name: OpenAIJsonSchemaTransformer(tool.parameters_json_schema, strict=tool.strict).walk()
        for tool in offered
    }


FRAMEWORKS = pytest.mark.parametrize("strict_schemas", [of_langchain, of_pydantic_ai])


@FRAMEWORKS
@pytest.mark.usefixtures("loops")
def test_null_stands_for_what_is_not_given_where_every_argument_is_required(
    open_memory: Callable[[str], memfiles.Memory], strict_schemas: Callable[[Session], Schemas]
) -> None:
    """In the schemas that a framework makes strict, what may be left out may be null, and nothing else may."""
    session = open_memory(WORKFLOW).session("support")
    shown = strict_schemas(session)

    for tool in session.definitions():
        properties = shown[tool.name]["properties"]
        assert list(tool.parameters["properties"]) == list(shown[tool.name]["required"])
        nullable = {name for name, schema in properties.items() if Draft202012Validator(schema).is_valid(None)}
        assert properties.keys() - set(tool.parameters["required"]) == nullable


@FRAMEWORKS
@pytest.mark.usefixtures("loops")
def test_a_call_with_nulls_fits_the_strict_schema_and_filters_nothing(
    open_memory: Callable[[str], memfiles.Memory], strict_schemas: Callable[[Session], Schemas]
) -> None:
    """A search by words alone finds what a model saved, whatever its kind and category."""
    session = open_memory(WORKFLOW).session("support")
    session.call("memory_save", {"key": "ada", "content": "Ada is on Pro.", "kind": "fact", "category": "plans"})
    schema = strict_schemas(session)["memory_search"]
    sent = {name: "Ada" if name == "query" else None for name in schema["required"]}

    Draft202012Validator(schema).validate(sent)
    found = session.call("memory_search", sent).data
    assert found is not None
    assert ["ada"] == [result["key"] for result in found["results"]]
