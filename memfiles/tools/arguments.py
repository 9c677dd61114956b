"""Tool arguments: the argument models of the file tools, and the parser of arguments sent by a model.

The rule this file guards: nothing reaches memory unchecked, whatever the vendor promised. Obvious aliases are
accepted; a null means "not given".
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, ClassVar, TypeVar

from msgspec import Meta, Struct

from memfiles.errors import InvalidArgument
from memfiles.records import converted, late_pattern, to_json
from memfiles.workflow.declared import Before, Check, fields_of, read
from memfiles.workflow.problems import Breach, one_of

FILE_ALIASES: dict[str, tuple[str, ...]] = {
    "file": ("path", "name", "filename", "file_name", "filepath", "file_path", "memory_file", "uid", "id"),
    "content": ("text", "value", "data", "body"),
    "old_string": ("old_str", "old_text", "old_content", "old_value", "old", "find", "search"),
    "new_string": ("new_str", "new_text", "new_content", "new_value", "new", "replace", "replacement", "replace_with"),
    "offset": ("start_line", "start", "first_line"),
    "limit": ("max_lines", "num_lines", "lines"),
}
_SHOWN = 80
_WORD_END = late_pattern(r"[ -]|(?<=[a-z])(?=[A-Z])")
_EXPECTED = {
    "text": "text",
    "whole": "a whole number",
    "number": "a number",
    "truth": "true or false",
    "list": 'a list of texts such as ["a", "b"]',
}


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"holds half of a surrogate pair at character {error.start}") from None
    return text


def whole_number(value: object) -> object:
    """The integer of a float without fraction: in JSON, 3.0 is 3."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def list_in(value: object) -> object:
    """A list from its JSON text, as models send it; any other value unchanged."""
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


TextArgument = Annotated[str, Check(_encodable)]
LineCount = Annotated[int, Meta(ge=1), Before(whole_number)]


class Arguments(Struct, frozen=True, kw_only=True):
    """The arguments of one tool.

    ``aliases`` are other accepted names of each argument, in any spelling (``oldText``, ``old-text``). ``refusals``
    are names that are refused, with the reason.
    """

    by_type: ClassVar[bool] = True  # a value of the right type needs no other check, except for "" and NaN
    aliases: ClassVar[Mapping[str, tuple[str, ...]]] = FILE_ALIASES
    refusals: ClassVar[Mapping[str, str]] = {}

    def given(self) -> dict[str, Any]:
        """The arguments that were given, by name."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}


class ReadMemory(Arguments, frozen=True, kw_only=True):
    """The arguments of ``read_memory``."""

    file: Annotated[TextArgument, Meta(description="The memory file to read.")]
    offset: Annotated[LineCount | None, Meta(description="The first line, from 1.")] = None
    limit: Annotated[LineCount | None, Meta(description="How many lines.")] = None


class AppendMemory(Arguments, frozen=True, kw_only=True):
    """The arguments of ``append_memory``."""

    file: Annotated[TextArgument, Meta(description="The memory file to add to.")]
    content: Annotated[TextArgument, Meta(description="The text to add, exactly as it should appear.")]


class EditMemory(Arguments, frozen=True, kw_only=True):
    """The arguments of ``edit_memory``."""

    file: Annotated[TextArgument, Meta(description="The memory file to change.")]
    old_string: Annotated[
        TextArgument, Meta(description="The text to replace, with enough context to occur only once.")
    ]
    new_string: Annotated[TextArgument, Meta(description='The replacement; "" deletes the old text.')]


ArgumentsT = TypeVar("ArgumentsT", bound=Arguments)


def parse_arguments(model: type[ArgumentsT], sent: object, *, tool: str) -> ArgumentsT:
    """Parse the arguments of ``tool`` sent by a model: an object or its JSON text.

    ``InvalidArgument`` lists every problem at once and says how to call the tool.
    """
    given = _named(_object(sent), model=model, tool=tool)
    if (
        model.by_type
        and given.keys() <= {*model.__struct_fields__}
        and all(it == it and it != "" for it in given.values())
    ):
        with suppress(TypeError, ValueError, RecursionError):  # else each field is read, to find every problem
            to_json(given)  # half a surrogate pair, no JSON, or nested too deeply
            return converted(given, model)
    found, breaches = read(model, given)
    if breaches:
        wrong = "; ".join(dict.fromkeys(_explain(breach, refusals=model.refusals) for breach in breaches))
        shown = [name if field.is_required else f"{name}?" for name, field in fields_of(model).items()]
        raise InvalidArgument(f"{tool}: {wrong}. Call it as {tool}({', '.join(shown)})")
    return found


def shortened(value: object) -> str:
    """The value as sent, quoted, with unprintable characters escaped, and cut for display."""
    text = value if isinstance(value, str) else type(value).__name__
    return ascii(text) if len(text) <= _SHOWN else f"{ascii(text[:_SHOWN])}... ({len(text)} characters)"


def _object(sent: object) -> Mapping[object, object]:
    if isinstance(sent, (str, bytes, bytearray)):
        sent = _decoded(sent) if sent.strip() else {}
    if sent is None:
        return {}
    if not isinstance(sent, Mapping):
        raise InvalidArgument(f"the arguments must be one JSON object, not {type(sent).__name__}")
    return sent


def _decoded(sent: str | bytes | bytearray) -> object:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise InvalidArgument("an argument is given twice: pass each argument once")
        return found

    try:
        return json.loads(sent, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise InvalidArgument(f"the arguments are not JSON: {error.msg} at character {error.pos}") from None
    except (ValueError, RecursionError):
        raise InvalidArgument("the arguments are not readable JSON: pass one flat object") from None


def _named(sent: Mapping[object, object], *, model: type[Arguments], tool: str) -> dict[str, object]:
    """The arguments under their proper names, without the nulls that strict modes send for "not given"."""
    fields = model.__struct_fields__
    meant = {alias: field for field in fields for alias in model.aliases.get(field, ()) if alias not in fields}
    meant |= {name: name for name in model.refusals}
    given: dict[str, object] = {}
    for key, value in sent.items():
        if not isinstance(key, str):
            raise InvalidArgument(f"{tool}: argument names must be text, not {type(key).__name__}")
        spellings = (key,) if key in fields else (key, _WORD_END.sub("_", key).lower())
        name = next((meant.get(each, each) for each in spellings if each in fields or each in meant), key)
        if value is None:
            continue
        if name in given and given[name] != value:
            raise InvalidArgument(f"{tool}: {name!r} is given twice with different values: pass it once")
        try:
            given[_encodable(name)] = value
        except ValueError:
            raise InvalidArgument(f"{tool}: {shortened(name)} is not an argument") from None
    return given


def _explain(breach: Breach, *, refusals: Mapping[str, str]) -> str:
    """One problem in words that a model can act on; never the value that it sent."""
    name, sent, limit = str(breach.where[0]), type(breach.value).__name__, breach.limit
    match breach.kind:
        case "missing" if name == "new_string":
            return "'new_string' is missing: pass the new text, or \"\" to delete the old text"
        case "missing":
            return f"{name!r} is missing"
        case "unknown":
            why = f": {refusals[name]}" if name in refusals else ""
            return f"{shortened(name)} is not an argument{why}"
        case "least":
            return f"{name!r} must be {limit:g} or more"
        case "most":
            return f"{name!r} must be {limit:g} or less"
        case "short":
            return f"{name!r} must not be empty"
        case "choice":
            return f"{name!r} must be {one_of(limit)}"
        case "text" if len(breach.where) > 1:
            return f"{name!r} must contain only texts, not {sent}"
        case "number" if sent in ("float", "int"):
            return f"{name!r} must be a " + ("finite number" if sent == "float" else "number that a float can hold")
        case kind if kind in _EXPECTED:
            return f"{name!r} must be {_EXPECTED[kind]}, not {sent}"
        case _:
            return f"{name!r} {limit}"
