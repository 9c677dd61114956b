"""Each dialect is what the vendor's own types accept, and stays the same byte for byte."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from botocore.session import Session as Botocore
from botocore.validate import ParamValidator
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter, ValidationError

from memfiles.errors import InvalidArgument
from memfiles.tools.definitions import file_tools
from memfiles.tools.dialects import DIALECTS, all_required, render, structured, without_keywords
from memfiles.tools.entry_definitions import entry_tools
from memfiles.tools.profiles import offered
from memfiles.tools.results import ToolResult, refused
from memfiles.workflow.fields import TOOL_NAMES, ToolNames

GOLDEN = Path(__file__).parent / "golden"
FILE_TOOLS = file_tools(readable=["customer-notes", "playbook"], writable=["customer-notes"])
FILES: dict[str, Any] = {"readable": ["customer-notes", "playbook"], "writable": ["customer-notes"]}
ALLOWED = [offered(names, **FILES, forgets=True) for names in TOOL_NAMES]
TOOLS = [*FILE_TOOLS, *(it for tools in ALLOWED for it in tools if it not in FILE_TOOLS)]
KNOWN_EVERYWHERE = {"type", "description", "properties", "required", "additionalProperties", "enum", "items"}
BOUNDS = {"minimum", "maximum"}
KNOWN = {  # the keywords that each vendor documents for a tool's arguments, as far as we use them
    ("anthropic", False): KNOWN_EVERYWHERE | BOUNDS,
    ("anthropic", True): KNOWN_EVERYWHERE,
    ("bedrock", False): KNOWN_EVERYWHERE | BOUNDS,
    ("bedrock", True): KNOWN_EVERYWHERE,
    ("gemini", False): KNOWN_EVERYWHERE | BOUNDS,
    ("gemini", True): KNOWN_EVERYWHERE | BOUNDS,
    ("mcp", False): KNOWN_EVERYWHERE | BOUNDS,
    ("mcp", True): KNOWN_EVERYWHERE | BOUNDS,
    ("openai", False): KNOWN_EVERYWHERE | BOUNDS,
    ("openai", True): KNOWN_EVERYWHERE | BOUNDS,
    ("openai-chat", False): KNOWN_EVERYWHERE | BOUNDS,
    ("openai-chat", True): KNOWN_EVERYWHERE | BOUNDS,
}
VARIANTS = [
    (dialect, strict, examples) for dialect in DIALECTS for strict in (None, True, False) for examples in (False, True)
]


@cache
def tool_of_converse() -> Any:
    """What Bedrock's own service model says of a tool; nothing is called."""
    operation = Botocore().get_service_model("bedrock-runtime").operation_model("Converse")
    return operation.input_shape.members["toolConfig"].members["tools"].member


def function_of(tool: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = tool.get("function") or tool.get("toolSpec") or tool
    return found


def schema_of(tool: dict[str, Any]) -> dict[str, Any]:
    function = function_of(tool)
    places = ("parameters", "parameters_json_schema", "input_schema", "inputSchema")
    found: dict[str, Any] = next(function[place] for place in places if place in function)
    unwrapped: dict[str, Any] = found.get("json", found)
    return unwrapped


@cache
def vendor_type(dialect: str) -> TypeAdapter[Any]:
    """The vendor's own type of a tool; to import its library takes seconds."""
    match dialect:
        case "anthropic":
            from anthropic.types import ToolParam

            return TypeAdapter(ToolParam)
        case "gemini":
            from google.genai import types as gemini_types

            return TypeAdapter(gemini_types.FunctionDeclaration)
        case "mcp":
            from mcp import types as mcp_types

            return TypeAdapter(mcp_types.Tool)
        case "openai":
            from openai.types.responses import FunctionToolParam

            return TypeAdapter(FunctionToolParam)
        case _:
            from openai.types.chat import ChatCompletionToolParam

            return TypeAdapter(ChatCompletionToolParam)


def known_to_the_vendor(dialect: str, shape: dict[str, Any]) -> Any:
    """The tool as it comes out of the vendor's own types, or why they refuse it."""
    if dialect == "bedrock":
        return ParamValidator().validate(shape, tool_of_converse()).generate_report() or shape
    adapter = vendor_type(dialect)
    return json.loads(adapter.dump_json(adapter.validate_python(shape), by_alias=dialect == "mcp", exclude_unset=True))


def schemas_in(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A schema and all those in it."""
    yield schema
    for inner in [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]:
        yield from schemas_in(inner)


@pytest.mark.slow
@pytest.mark.parametrize(("dialect", "strict", "examples"), VARIANTS)
def test_the_vendors_types_accept_it(dialect: str, strict: bool | None, examples: bool) -> None:
    """The types that the vendor ships take every variant, and know every key that is sent."""
    shapes = render(TOOLS, dialect, strict=strict, examples=examples)

    assert shapes == [known_to_the_vendor(dialect, shape) for shape in shapes]


@pytest.mark.slow
def test_the_vendors_types_refuse_what_is_wrong() -> None:
    """Which makes it worth something that they accept the rest."""
    spoiled = {dialect: render(TOOLS, dialect)[0] for dialect in DIALECTS}
    for shape in spoiled.values():
        function_of(shape)["name"] = 7
    accepted = []
    for dialect, shape in spoiled.items():
        try:
            accepted += [dialect] if known_to_the_vendor(dialect, shape) == shape else []
        except ValidationError:
            continue

    assert [] == accepted


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_keyword_is_one_that_the_vendor_refuses(dialect: str, strict: bool) -> None:
    """Nor is there a name that it cannot take; every enum says its type, and every object is closed."""
    for shape in render(TOOLS, dialect, strict=strict):
        schemas = list(schemas_in(schema_of(shape)))

        is_strict = strict and function_of(shape).get("strict", False)
        assert set() == {keyword for schema in schemas for keyword in schema} - KNOWN[dialect, is_strict]
        assert [] == [schema for schema in schemas if "type" not in schema]
        assert [] == [schema for schema in schemas if schema["type"] == "object" and schema["additionalProperties"]]
        assert re.fullmatch("[A-Za-z_][A-Za-z0-9_-]{0,63}", function_of(shape)["name"])


@pytest.mark.parametrize("dialect", ["anthropic", "bedrock", "gemini", "mcp"])
def test_only_openai_needs_nullable_properties(dialect: str) -> None:
    """A list of types breaks Gemini, and the others take a property that may be left out."""
    types = [
        schema["type"]
        for strict in (False, True)
        for shape in render(TOOLS, dialect, strict=strict)
        for schema in schemas_in(schema_of(shape))
    ]

    assert [] == [type_ for type_ in types if not isinstance(type_, str)]


@pytest.mark.parametrize("dialect", ["openai", "openai-chat"])
def test_strict_openai_requires_every_property(dialect: str) -> None:
    """Of every tool, and nothing else is refused: no union at the root, no default, no pattern."""
    schemas = [schema_of(shape) for shape in render(TOOLS, dialect)]

    assert [list(schema["properties"]) for schema in schemas] == [schema["required"] for schema in schemas]


@pytest.mark.slow
def test_a_whole_request_to_gemini_takes_them() -> None:
    """As they are, as the function declarations of one tool."""
    from google.genai import types as gemini_types  # late, as above

    shapes: Any = render(TOOLS, "gemini")
    config = gemini_types.GenerateContentConfig(tools=[gemini_types.Tool(function_declarations=shapes)])

    assert [tool.name for tool in TOOLS] == [
        shape["name"] for shape in config.model_dump()["tools"][0]["function_declarations"]
    ]


@pytest.mark.parametrize("strict", [None, True])
def test_bedrock_is_strict_only_when_asked(strict: bool | None) -> None:
    """Models that do not know the flag refuse the request."""
    shapes = render(FILE_TOOLS, "bedrock", strict=strict)

    assert [strict] * len(FILE_TOOLS) == [shape["toolSpec"].get("strict") for shape in shapes]


def test_mcp_says_what_a_tool_may_do() -> None:
    """Each hint, as a client takes the worst of one that is left out; memory is no open world."""
    names = ("readOnlyHint", "destructiveHint", "idempotentHint")
    hints = {shape["name"]: shape["annotations"] for shape in render(TOOLS, "mcp")}
    shown = {tool: tuple(hints[tool][name] for name in names) for tool in ("read_memory", "append_memory")}

    assert {"read_memory": (True, False, True), "append_memory": (False, False, False)} == shown
    assert {"edit_memory", "memory_save", "memory_store", "memory_create", "memory_update"} | {
        *("memory_delete", "memory_forget", "memory_write", "memory_edit"),
    } == {tool for tool, hint in hints.items() if hint["destructiveHint"]}
    assert {False} == {hint["openWorldHint"] for hint in hints.values()}


def test_mcp_s_output_schemas_are_schemas_of_objects() -> None:
    """The protocol takes no other root. Compact tools have none, as they are short and their results differ."""
    for shape in render([tool for tool in TOOLS if tool.output], "mcp"):
        Draft202012Validator.check_schema(shape["outputSchema"])

        assert "object" == shape["outputSchema"]["type"]


def test_a_structured_result_says_all_that_the_text_says() -> None:
    """Some clients show a model nothing else; where the text is the data, it is there once."""
    read, save = FILE_TOOLS[0], entry_tools()[0]

    assert {"text": "- Ada\n", "name": "notes"} == structured(read, ToolResult("- Ada\n", data={"name": "notes"}))
    assert {"saved": True} == structured(save, ToolResult('{"saved":true}', data={"saved": True}))
    assert None is structured(save, refused("no", code="invalid_argument"))


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
def test_the_tools_for_entries_are_the_golden_file(dialect: str, tool_names: ToolNames) -> None:
    """Under each set of names, for an agent that may forget. Compact tools are for files too."""
    tools = offered(tool_names, **FILES, forgets=True)
    shapes = render([tool for tool in tools if tool not in FILE_TOOLS], dialect)
    shown = json.dumps(shapes, indent=2, ensure_ascii=False) + "\n"

    assert (GOLDEN / f"entry-tools-{tool_names}-{dialect}.json").read_text(encoding="utf-8") == shown


def test_strict_tools_for_entries_are_the_golden_file() -> None:
    """Anthropic's strict mode takes no bounds on numbers, and only so many parameters that may be left out."""
    shapes = render(entry_tools(), "anthropic", strict=True, examples=True)
    shown = json.dumps(shapes, indent=2, ensure_ascii=False)
    bounded = [shape["name"] for shape in shapes if '"maximum"' in json.dumps(shape)]

    assert (GOLDEN / "entry-tools-anthropic-strict.json").read_text(encoding="utf-8") == shown + "\n"
    assert ["memory_update"] == [shape["name"] for shape in shapes if "strict" not in shape] == bounded


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
    with pytest.raises(
        InvalidArgument, match=r"unknown dialect .*; use one of anthropic, bedrock, gemini, mcp, openai"
    ):
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
