"""Each dialect is what the vendor's own types accept, and stays the same byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from anthropic.types import ToolParam
from jsonschema import Draft202012Validator
from openai.types.chat import ChatCompletionToolParam
from openai.types.responses import FunctionToolParam
from pydantic import TypeAdapter

from memfiles.dialects import DIALECTS, render
from memfiles.dialects.schemas import all_required, without_keywords
from memfiles.entry_definitions import entry_tools
from memfiles.errors import InvalidArgument
from memfiles.tool_definitions import file_tools
from memfiles.tool_names import TOOL_NAMES

GOLDEN = Path(__file__).parent / "golden"
FILE_TOOLS = file_tools(readable=["customer-notes", "playbook"], writable=["customer-notes"])
TOOLS = [*FILE_TOOLS, *(tool for tool_names in TOOL_NAMES for tool in entry_tools(tool_names))]
VENDOR_TYPES: dict[str, TypeAdapter[Any]] = {
    "anthropic": TypeAdapter(ToolParam),
    "openai": TypeAdapter(FunctionToolParam),
    "openai-chat": TypeAdapter(ChatCompletionToolParam),
}
VARIANTS = [
    (dialect, strict, examples) for dialect in DIALECTS for strict in (None, True, False) for examples in (False, True)
]


def schema_of(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool.get("function", tool)
    found: dict[str, Any] = function.get("parameters") or function["input_schema"]
    return found


@pytest.mark.parametrize(("dialect", "strict", "examples"), VARIANTS)
def test_the_vendors_types_accept_it(dialect: str, strict: bool | None, examples: bool) -> None:
    """The types that the vendor ships take every variant, and know every key that is sent."""
    shapes = render(TOOLS, dialect, strict=strict, examples=examples)
    adapter = VENDOR_TYPES[dialect]

    assert shapes == [json.loads(adapter.dump_json(adapter.validate_python(shape))) for shape in shapes]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_it_is_the_golden_file(dialect: str) -> None:
    """A change to what models are sent shows in a diff; write the file anew when it is meant."""
    shown = json.dumps(render(FILE_TOOLS, dialect), indent=2, ensure_ascii=False) + "\n"

    assert (GOLDEN / f"tools-{dialect}.json").read_text(encoding="utf-8") == shown


def test_anthropic_with_everything_is_the_golden_file() -> None:
    """Strict and with examples, a keyword that strict mode refuses is gone."""
    shown = json.dumps(render(FILE_TOOLS, "anthropic", strict=True, examples=True), indent=2, ensure_ascii=False) + "\n"

    assert (GOLDEN / "tools-anthropic-strict.json").read_text(encoding="utf-8") == shown
    assert "minimum" not in shown


@pytest.mark.parametrize("tool_names", TOOL_NAMES)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_tools_for_entries_are_the_golden_file(dialect: str, tool_names: str) -> None:
    """Under each set of names; for the default one also strict and with examples."""
    shown = json.dumps(render(entry_tools(tool_names), dialect), indent=2, ensure_ascii=False) + "\n"

    assert (GOLDEN / f"entry-tools-{tool_names}-{dialect}.json").read_text(encoding="utf-8") == shown


def test_strict_tools_for_entries_are_the_golden_file() -> None:
    """Anthropic's strict mode takes no bounds on numbers."""
    shown = json.dumps(render(entry_tools(), "anthropic", strict=True, examples=True), indent=2, ensure_ascii=False)

    assert (GOLDEN / "entry-tools-anthropic-strict.json").read_text(encoding="utf-8") == shown + "\n"
    assert [] == [bound for bound in ("minimum", "maximum") if bound in shown]


def test_anthropic_is_plain_unless_asked() -> None:
    """Strict tools share one grammar of bounded size, so strict is a choice, and so are examples."""

    assert [["name", "description", "input_schema"]] * len(TOOLS) == [
        list(shape) for shape in render(TOOLS, "anthropic")
    ]


@pytest.mark.parametrize("dialect", ["openai", "openai-chat"])
def test_openai_is_strict_unless_told_otherwise(dialect: str) -> None:
    """Strict mode wants every property required; one that may be left out is nullable instead."""
    read = schema_of(render(TOOLS, dialect)[0])
    relaxed = schema_of(render(TOOLS, dialect, strict=False)[0])

    assert ["file", "offset", "limit"] == read["required"]
    assert ["string", ["integer", "null"], ["integer", "null"]] == [
        part["type"] for part in read["properties"].values()
    ]
    assert ["file"] == relaxed["required"]


@pytest.mark.parametrize("dialect", ["openai", "openai-chat"])
def test_an_optional_list_is_a_list_of_texts_or_null(dialect: str) -> None:
    """What its items are stays said in strict mode."""
    tags = schema_of(render(entry_tools(), dialect)[0])["properties"]["tags"]

    assert (["array", "null"], {"type": "string"}) == (tags["type"], tags["items"])


@pytest.mark.parametrize(("dialect", "strict", "examples"), VARIANTS)
def test_the_examples_of_entries_are_valid_calls(dialect: str, strict: bool | None, examples: bool) -> None:
    """In every variant; where all is required, what was left out is null."""
    for tool, shape in zip(
        entry_tools(), render(entry_tools(), dialect, strict=strict, examples=examples), strict=True
    ):
        schema = schema_of(shape)
        for example in tool.examples:
            sent = dict.fromkeys(schema["required"]) | example
            assert [] == [error.message for error in Draft202012Validator(schema).iter_errors(sent)]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_schema_accepts_a_call(dialect: str) -> None:
    """What is sent is a JSON Schema under which a sensible call is valid and a foreign file is not."""
    validator = Draft202012Validator(schema_of(render(TOOLS, dialect)[1]))

    assert validator.is_valid({"file": "customer-notes", "content": "x"})
    assert not validator.is_valid({"file": "playbook", "content": "x"})


@pytest.mark.parametrize("dialect", ["grok", "", "Anthropic", None])
def test_an_unknown_dialect_is_told_the_known_ones(dialect: Any) -> None:
    """A typo costs one look."""
    with pytest.raises(InvalidArgument, match=r"unknown dialect .*; use one of anthropic, openai, openai-chat"):
        render(TOOLS, dialect)


@pytest.mark.parametrize(("dialect", "strict", "examples"), VARIANTS)
def test_changing_what_was_returned_changes_nothing_else(dialect: str, strict: bool | None, examples: bool) -> None:
    """Callers may add to a tool, cache marks for instance, without touching the definition."""
    before = json.dumps(render(TOOLS, dialect, strict=strict, examples=examples))
    for shape in render(TOOLS, dialect, strict=strict, examples=examples):
        for part in schema_of(shape)["properties"].values():
            part["description"] = "spoiled"
            part.get("enum", []).append("spoiled")
            part.get("items", {})["type"] = "spoiled"
        shape.get("input_examples", []).append({"file": "spoiled"})

    assert before == json.dumps(render(TOOLS, dialect, strict=strict, examples=examples))


def test_keywords_are_dropped_at_any_depth_and_properties_never() -> None:
    """A property may be called like the keyword."""
    schema = {"minimum": 1, "properties": {"minimum": {"type": "array", "items": {"minimum": 2, "type": "integer"}}}}
    expected = {"properties": {"minimum": {"type": "array", "items": {"type": "integer"}}}}

    assert expected == without_keywords(schema, {"minimum"})


def test_an_optional_enum_may_be_null_too() -> None:
    """A null that the type allows and the enum forbids would be no choice."""
    schema = {"properties": {"a": {"type": "string", "enum": ["x"]}}, "required": []}
    expected = {"properties": {"a": {"type": ["string", "null"], "enum": ["x", None]}}, "required": ["a"]}

    assert expected == all_required(schema)
