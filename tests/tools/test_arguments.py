"""What a model sends is understood where the meaning is plain, and refused in words it can act on elsewhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memfiles.errors import InvalidArgument
from memfiles.tools.arguments import AppendMemory, Arguments, EditMemory, ReadMemory, parse_arguments, shortened

EDIT_SENT = {"file": "notes", "old_string": "a", "new_string": "b"}


def refusal(model: type[Arguments], sent: object) -> str:
    with pytest.raises(InvalidArgument) as refused:
        parse_arguments(model, sent, tool="a_tool")
    return str(refused.value)


def test_an_object_is_taken_as_it_is() -> None:
    """Arguments under their own names arrive unchanged, white space and all."""
    sent = {"file": "notes", "content": " - a\n\n"}

    assert AppendMemory(file="notes", content=" - a\n\n") == parse_arguments(AppendMemory, sent, tool="t")


@pytest.mark.parametrize("encode", [str, str.encode])
def test_json_text_is_understood(encode: type) -> None:
    """Frameworks that hand over the JSON text of the arguments need not decode it."""
    sent = encode(json.dumps({"file": "notes", "content": "é\n"}))

    assert AppendMemory(file="notes", content="é\n") == parse_arguments(AppendMemory, sent, tool="t")


@pytest.mark.parametrize(
    "alias", ["path", "name", "filename", "file_path", "filePath", "File-Name", "memoryFile", "id"]
)
def test_other_names_for_the_file_are_understood(alias: str) -> None:
    """A model trained on other tools calls the file something else."""

    assert ReadMemory(file="notes") == parse_arguments(ReadMemory, {alias: "notes"}, tool="t")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *(("old_str", "new_str"), ("old_text", "new_text"), ("old", "new"), ("old_string", "new_string")),
        *(("oldText", "newText"), ("old_content", "new_content"), ("find", "replace"), ("search", "replacement")),
    ],
)
def test_other_names_for_the_texts_of_an_edit_are_understood(old: str, new: str) -> None:
    """The names that other edit tools use mean the same here."""
    sent = {"path": "notes", old: "a", new: "b"}

    assert EditMemory(**EDIT_SENT) == parse_arguments(EditMemory, sent, tool="t")


@pytest.mark.parametrize("alias", ["text", "value", "data", "body", "Content"])
def test_the_text_of_an_append_may_be_called_otherwise(alias: str) -> None:
    """It is the one text that an append has."""

    assert AppendMemory(file="n", content="x") == parse_arguments(AppendMemory, {"file": "n", alias: "x"}, tool="t")


@pytest.mark.parametrize("model", [ReadMemory, AppendMemory, EditMemory])
def test_no_name_means_two_things(model: type[Arguments]) -> None:
    """What is understood is understood in one way: each other name belongs to one argument and is none itself."""
    others = [alias for field in model.__struct_fields__ for alias in model.aliases.get(field, ())]

    assert sorted({*others} - {*model.__struct_fields__}) == sorted(others)


def test_a_null_means_not_given() -> None:
    """Strict modes send null for what was left out."""
    sent = {"file": "notes", "offset": None, "limit": None, "path": None}

    assert ReadMemory(file="notes") == parse_arguments(ReadMemory, sent, tool="t")


def test_a_whole_number_may_be_spelled_with_a_point() -> None:
    """JSON has one kind of number, so 3.0 is 3."""

    assert ReadMemory(file="n", offset=3) == parse_arguments(ReadMemory, {"file": "n", "offset": 3.0}, tool="t")


def test_one_thing_under_two_names_counts_once() -> None:
    """The same value under two names is understood, two different values are not."""
    same, different = {"file": "a", "path": "a"}, {"filePath": "a", "path": "b"}

    assert ReadMemory(file="a") == parse_arguments(ReadMemory, same, tool="t")
    assert "a_tool: 'file' is given twice with different values: pass it once" == refusal(ReadMemory, different)


def test_a_value_that_cannot_be_json_is_refused_as_any_other() -> None:
    """A list in a hundred thousand lists, or an object of the program, is not text."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    assert "'file' must be text, not list" in refusal(ReadMemory, {"file": deep})
    assert "'file' must be text, not object" in refusal(ReadMemory, {"file": object()})


@pytest.mark.parametrize("sent", [{}, None, "", "  ", "{}"])
def test_everything_that_is_missing_is_named_at_once(sent: object) -> None:
    """One answer is enough for the model to repair the call."""
    expected = "a_tool: 'file' is missing; 'content' is missing. Call it as a_tool(file, content)"

    assert expected == refusal(AppendMemory, sent)


@pytest.mark.parametrize("sent", [{"file": "n", "old_string": "a"}, {**EDIT_SENT, "new_string": None}])
def test_an_edit_without_new_text_is_told_how_to_delete(sent: object) -> None:
    """Leaving ``new_string`` out is never taken as a wish to delete."""

    assert "a_tool: 'new_string' is missing: pass the new text, or \"\" to delete the old text" in refusal(
        EditMemory, sent
    )


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({"file": 3}, "a_tool: 'file' must be text, not int"),
        ({"file": ["notes"]}, "a_tool: 'file' must be text, not list"),
        ({"file": "n", "offset": "3"}, "a_tool: 'offset' must be a whole number, not str"),
        ({"file": "n", "offset": True}, "a_tool: 'offset' must be a whole number, not bool"),
        ({"file": "n", "offset": 1.5}, "a_tool: 'offset' must be a whole number, not float"),
        ({"file": "n", "offset": float("nan")}, "a_tool: 'offset' must be a whole number, not float"),
        ({"file": "n", "offset": 0}, "a_tool: 'offset' must be 1 or more"),
        ({"file": "n", "limit": -1}, "a_tool: 'limit' must be 1 or more"),
        ({"file": "n", "level": "PUBLIC"}, "a_tool: 'level' is not an argument"),
        ({"file": "n\ud800"}, "a_tool: 'file' holds half of a surrogate pair at character 1"),
        ({"file": "n", "fileNames": "m"}, "a_tool: 'fileNames' is not an argument"),
        ({3: "n"}, "a_tool: argument names must be text, not int"),
        ({"\ud800": "n"}, "a_tool: '\\ud800' is not an argument"),
        ([], "the arguments must be one JSON object, not list"),
        (7, "the arguments must be one JSON object, not int"),
        ("[]", "the arguments must be one JSON object, not list"),
        ("{file: n}", "the arguments are not JSON: Expecting property name"),
        (b"\xff\xfe\xff", "the arguments are not readable JSON"),
        ("[" * 200_000, "the arguments are not readable JSON: pass one flat object"),
        ('{"file": "a", "file": "b"}', "an argument is given twice: pass each argument once"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(sent: object, expected: str) -> None:
    """Each way of being wrong has its own words."""

    assert expected == refusal(ReadMemory, sent)[: len(expected)]


def test_the_refused_value_is_never_repeated() -> None:
    """A megabyte, or a secret, in the wrong place does not come back in the message."""
    message = refusal(ReadMemory, {"file": "n", "offset": "hunter2" * 150_000, "x" * 1_000_000: 1})

    assert "hunter2" not in message
    assert 400 > len(message)


@pytest.mark.parametrize(
    ("value", "expected"), [("notes", "'notes'"), ("a\n\u202eb", "'a\\n\\u202eb'"), (3, "'int'"), (None, "'NoneType'")]
)
def test_what_was_sent_is_shown_harmlessly(value: object, expected: str) -> None:
    """A name that is repeated in a message cannot break the line it stands in."""

    assert expected == shortened(value)


def test_a_long_text_is_shown_by_its_start_and_length() -> None:
    """Eighty characters are enough to recognise it."""

    assert f"'{'x' * 80}'... (1000000 characters)" == shortened("x" * 1_000_000)
