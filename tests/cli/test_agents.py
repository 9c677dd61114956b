"""``memfiles card``, ``tools``, ``call`` and ``schema``."""

from __future__ import annotations

import json

import pytest

from tests.cli.command_line import run

pytestmark = pytest.mark.usefixtures("project")

CARD = """\
## Memory files available
Read with read_memory(file). Change RW files with append_memory or edit_memory.
- notes (RW, 8B of 16384B): What is known.
- rules (R, 11B): How to work.
"""


def test_the_card() -> None:
    """The card is printed as the agent gets it."""
    assert CARD == run("card", "desk").out


def test_the_card_at_another_level() -> None:
    """At a level of its own choice the card shows what a session there sees."""
    assert ["- rules (R, 11B): How to work."] == run("card", "desk", "--level", "PUBLIC").out.splitlines()[2:]


def test_an_agent_without_files() -> None:
    """An agent that may read nothing gets no card, which is said on stderr."""
    card = run("card", "idle")

    assert (0, "") == (card.code, card.out)
    assert "no card" in card.err


@pytest.mark.parametrize("args", [["card", "nobody"], ["tools", "nobody"], ["call", "nobody", "read_memory", "{}"]])
def test_an_unknown_agent(args: list[str]) -> None:
    """An agent that is not declared ends with code 3 and the names of those that are."""
    shown = run(*args)

    assert 3 == shown.code
    assert "desk, idle" in shown.err


def test_an_unknown_level() -> None:
    """A level that is not declared is a usage error."""
    assert 2 == run("card", "desk", "--level", "SECRET").code


@pytest.mark.parametrize(
    ("dialect", "place"),
    [
        ("anthropic", "input_schema"),
        ("mcp", "inputSchema"),
        ("gemini", "parameters_json_schema"),
        ("openai", "parameters"),
    ],
)
def test_the_tools(dialect: str, place: str) -> None:
    """The tools are a JSON array in the shape of the dialect, with the files the agent may write."""
    tools = {tool["name"]: tool for tool in run("tools", "desk", "--dialect", dialect).data}

    assert {"read_memory", "append_memory", "edit_memory"} == set(tools)
    assert ["notes"] == tools["append_memory"][place]["properties"]["file"]["enum"]


def test_a_call() -> None:
    """A call prints the text of its result."""
    assert "- Be kind.\n" == run("call", "desk", "read_memory", '{"file": "rules"}').out


def test_a_call_as_json() -> None:
    """With --json the whole result is printed."""
    result = run("--json", "call", "desk", "read_memory", '{"file": "rules"}').data

    assert ("- Be kind.\n", False, None) == (result["text"], result["is_error"], result["code"])


def test_a_call_with_arguments_from_stdin() -> None:
    """With - the arguments come from stdin."""
    run("call", "desk", "append_memory", "-", stdin=json.dumps({"file": "notes", "content": "- one\n"}))

    assert "# Notes\n- one\n" == run("read", "notes").out


def test_a_call_made_twice() -> None:
    """A call with the same id is carried out once."""
    call = ["call", "desk", "append_memory", '{"file": "notes", "content": "- one\\n"}', "--call-id", "c1"]

    run(*call)
    run(*call)

    assert "# Notes\n- one\n" == run("read", "notes").out


def test_a_call_that_fails() -> None:
    """A result that is an error goes to stderr, with the exit code of its kind."""
    refused = run("call", "desk", "append_memory", '{"file": "rules", "content": "x"}')

    assert (6, "") == (refused.code, refused.out)
    assert "read-only" in refused.err


def test_an_unknown_tool() -> None:
    """A tool that does not exist is a usage error that names those that do."""
    refused = run("call", "desk", "delete_memory", "{}")

    assert 2 == refused.code
    assert "read_memory" in refused.err


@pytest.mark.parametrize("arguments", ["{", "[]", "null", '"x"', ""])
def test_arguments_that_are_no_object(arguments: str) -> None:
    """Arguments that are not a JSON object are a usage error."""
    assert 2 == run("call", "desk", "read_memory", arguments).code


@pytest.mark.parametrize("what", ["workflow", "record", "tools"])
def test_the_schemas(what: str) -> None:
    """Each schema is printed as JSON and names its draft."""
    assert "https://json-schema.org/draft/2020-12/schema" == run("schema", what).data["$schema"]
