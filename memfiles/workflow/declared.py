"""Declared values: reads a mapping into a class field by field, and makes the JSON Schema of what is accepted.

The rules this file guards: a value exists only if it is valid, and all its problems are found at once.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from sys import float_info
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

from msgspec import NODEFAULT, Meta, Struct, StructMeta, structs, to_builtins
from msgspec.structs import replace

from memfiles.errors import InvalidArgument
from memfiles.workflow.problems import Breach, Problem, Where, path_text, problem_of

UNSHOWN = "x-unshown"  # in the schema of a field that no representation shows


class Before(Struct, frozen=True):
    """In the annotation of a field: changes a value before its type is looked at."""

    change: Callable[[Any], object]


class Check(Struct, frozen=True, eq=False):
    """In the annotation of a field: returns the value to keep, or raises ``ValueError`` or ``InvalidArgument``.

    ``schema`` is the JSON Schema of a check that also checks the type.
    """

    check: Callable[[Any], object]
    schema: Mapping[str, Any] | None = None


class Shape(Struct, frozen=True):
    """A type as it is annotated: the plain type, what it holds, and what its metadata say."""

    plain: Any
    of: tuple[Any, ...] = ()
    is_optional: bool = False
    before: tuple[Callable[[Any], object], ...] = ()
    checks: tuple[Callable[[Any], object], ...] = ()
    limits: Mapping[str, Any] = {}
    said: Mapping[str, Any] = {}


class Field(Struct, frozen=True):
    """One field of a class: its type, and its default unless it is required."""

    shape: Shape
    default: Any
    is_required: bool


T = TypeVar("T", bound=Struct)
_LIMITS: dict[str, tuple[str, str, Callable[[Any, Any], bool]]] = {
    "ge": ("least", "minimum", lambda value, limit: value >= limit),
    "le": ("most", "maximum", lambda value, limit: value <= limit),
    "min_length": ("short", "minLength", lambda value, limit: len(value) >= limit),
    "max_length": ("long", "maxLength", lambda value, limit: len(value) <= limit),
}
_KINDS: dict[Any, tuple[str, Any, dict[str, Any]]] = {
    str: ("text", str, {"type": "string"}),
    int: ("whole", int, {"type": "integer"}),
    float: ("number", (int, float), {"type": "number"}),
    bool: ("truth", bool, {"type": "boolean"}),
    tuple: ("list", (list, tuple), {"type": "array"}),
    list: ("list", (list, tuple), {"type": "array"}),
    dict: ("mapping", Mapping, {"type": "object"}),
    Any: ("wrong", object, {}),
}


@cache
def fields_of(kind: type[Struct]) -> dict[str, Field]:
    """The fields of a class, by name."""
    return {
        each.name: Field(
            shape_of(each.type),
            each.default if each.default_factory is NODEFAULT else each.default_factory(),
            each.required,
        )
        for each in structs.fields(kind)
    }


def shape_of(hint: Any) -> Shape:
    """The shape that an annotation declares."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        metadata = args[1:]
        whole = [each for each in metadata if isinstance(each, Check) and each.schema is not None]
        shape = Shape(Any, limits={}, said=dict(whole[0].schema or {})) if whole else shape_of(args[0])
        for each in metadata:
            shape = _with(shape, each)
        return shape
    if origin in (Union, types.UnionType):
        (inner,) = (each for each in args if each is not type(None))
        return replace(shape_of(inner), is_optional=True)
    if origin in (tuple, list, dict):
        return Shape(origin, tuple(shape_of(each) for each in args if each is not ...))
    return Shape(Literal, args) if origin is Literal else Shape(hint)


def _with(shape: Shape, metadata: Any) -> Shape:
    """The shape, with what one part of an annotation adds; the outermost ``Before`` is the first."""
    if isinstance(metadata, Before):
        return replace(shape, before=(metadata.change, *shape.before))
    if isinstance(metadata, Check):
        return replace(shape, checks=(*shape.checks, metadata.check))
    if not isinstance(metadata, Meta):
        return shape
    told = {"description": metadata.description, "examples": metadata.examples, **(metadata.extra_json_schema or {})}
    told = {name: value for name, value in told.items() if value is not None}
    limits = {name: limit for name in _LIMITS if (limit := getattr(metadata, name)) is not None}
    return replace(shape, limits={**shape.limits, **limits}, said={**shape.said, **told})


def read(
    kind: type[T], given: Mapping[Any, object], where: Where = (), *, older: bool = False
) -> tuple[T, list[Breach]]:
    """The value of a class in a mapping, and its breaches; use the value only if there are none.

    ``older``: the mapping was made from the older shape of a workflow.
    """
    known: dict[str, Any] = {}
    breaches: list[Breach] = []
    fields = fields_of(kind)
    for name, field in fields.items():
        if name in given:
            known[name], wrong = read_value(field.shape, given[name], (*where, name), older=older)
            breaches += wrong
            if wrong:
                del known[name]
        elif field.is_required:
            breaches.append(Breach((*where, name), "missing"))
        else:
            known[name] = dict(field.default) if isinstance(field.default, dict) else field.default
    names = tuple(fields)
    breaches += [Breach((*where, name), "unknown", limit=names, at_key=True) for name in given if name not in fields]
    if issubclass(kind, Declared):
        breaches += [
            Breach((*where, name), "wrong", known[name], what) for name, what in kind._wrong(known, older=older)
        ]
        known = kind._completed(known)
    return (StructMeta.__call__(kind, **known) if not breaches else cast(T, None)), breaches


def read_value(shape: Shape, value: Any, where: Where = (), *, older: bool = False) -> tuple[Any, list[Breach]]:
    """The value converted to its type, and its breaches."""
    breaches: list[Breach] = []
    try:
        for change in shape.before:
            value = change(value)
        if value is None and shape.is_optional:
            return None, []
        value, breaches = _typed(shape, value, where, older=older)
        for check in shape.checks if not breaches else ():
            value = check(value)
    except (ValueError, InvalidArgument) as error:
        breaches = [Breach(where, "wrong", value, str(error))]
    return value, breaches


def _typed(shape: Shape, value: Any, where: Where, *, older: bool) -> tuple[Any, list[Breach]]:
    plain = shape.plain
    if plain is Literal:
        is_one = any(type(value) is type(each) and value == each for each in shape.of)
        return value, [] if is_one else [Breach(where, "choice", value, shape.of)]
    if isinstance(plain, type) and issubclass(plain, Struct):
        if isinstance(value, plain):
            return value, []
        if not isinstance(value, Mapping):
            return value, [Breach(where, "mapping", value)]
        return read(plain, value, where, older=older)
    kind, allowed, _ = _KINDS[plain]
    if not isinstance(value, allowed) or (isinstance(value, bool) and plain in (int, float)):
        return value, [Breach(where, kind, value)]
    if plain is float and not -float_info.max <= value <= float_info.max:  # NaN fails both comparisons
        return value, [Breach(where, "number", value)]
    value = float(value) if plain is float else value
    breaches: list[Breach] = []
    if plain in (tuple, list):
        parts = [read_value(shape.of[0], each, (*where, at), older=older) for at, each in enumerate(value)]
        value, breaches = plain(found for found, _ in parts), [breach for _, wrong in parts for breach in wrong]
    elif plain is dict:
        value, breaches = _items(shape, value, where, older=older)
    broken = [name for name, limit in shape.limits.items() if not breaches and not _LIMITS[name][2](value, limit)]
    return value, [*breaches, *(Breach(where, _LIMITS[name][0], value, shape.limits[name]) for name in broken)]


def _items(
    shape: Shape, given: Mapping[Any, object], where: Where, *, older: bool
) -> tuple[dict[Any, Any], list[Breach]]:
    found: dict[Any, Any] = {}
    breaches: list[Breach] = []
    of_key, of_value = shape.of
    for key, value in given.items():
        _, bad_key = read_value(of_key, key, (*where, key))
        found[key], bad = read_value(of_value, value, (*where, key), older=older)
        breaches += [*(breach._replace(at_key=True) for breach in bad_key), *bad]
    return found, breaches


def invalid_argument(problems: list[Problem], *, model: type) -> InvalidArgument:
    """The error for a ``model`` that was built in Python, so without a line number."""
    lines = (f"{model.__name__}: {path_text(problem.where)}: {problem.sentence()}" for problem in problems)
    return InvalidArgument("\n".join(lines))


def from_mapping(kind: type[T], given: object) -> T:
    """The checked value of a class in a mapping; ``InvalidArgument`` lists every problem."""
    value, breaches = read_value(shape_of(kind), given)
    problems = [problem_of(breach) for breach in breaches] or (value._problems() if isinstance(value, Declared) else [])
    if problems:
        raise invalid_argument(problems, model=kind)
    return cast(T, value)


class _Checking(StructMeta):
    """Makes a value from keyword arguments only if they are valid."""

    if not TYPE_CHECKING:  # or editors that use Pyright would know nothing of the fields

        def __call__(cls, **given: Any) -> Any:
            return from_mapping(cast("type[Struct]", cls), given)


class Declared(Struct, frozen=True, kw_only=True, metaclass=_Checking):
    """Base of all declarations: invalid values in Python code raise one ``InvalidArgument`` with every problem."""

    @classmethod
    def _wrong(cls, known: Mapping[str, Any], *, older: bool) -> Iterator[tuple[str, str]]:
        """The fields that are wrong only because of others, and why; ``known`` holds the valid ones."""
        return iter(())

    @classmethod
    def _completed(cls, known: dict[str, Any]) -> dict[str, Any]:
        """The values of the fields, with the defaults that depend on other fields."""
        return known

    def _problems(self) -> list[Problem]:
        """The problems of a whole value that was made in Python."""
        return []

    def __repr__(self) -> str:
        fields = {name: field.shape.said for name, field in fields_of(type(self)).items()}
        shown = (f"{name}={getattr(self, name)!r}" for name, said in fields.items() if UNSHOWN not in said)
        return f"{type(self).__name__}({', '.join(shown)})"


def json_schema(kind: type[Struct]) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of what ``read`` takes, with the classes in it under ``$defs``."""
    parts: dict[str, Any] = {}
    whole = _struct_schema(kind, parts)
    return {"$defs": {name: parts[name] for name in sorted(parts)}, **whole}


def _struct_schema(kind: type[Struct], parts: dict[str, Any]) -> dict[str, Any]:
    fields = fields_of(kind)
    properties = {name: _field_schema(field, parts) for name, field in fields.items()}
    required = [name for name, field in fields.items() if field.is_required]
    return {
        "additionalProperties": False,
        "description": inspect.cleandoc(kind.__doc__ or ""),
        "properties": properties,
        **({"required": required} if required else {}),
        "type": "object",
    }


def _field_schema(field: Field, parts: dict[str, Any]) -> dict[str, Any]:
    default = {} if field.is_required else {"default": to_builtins(field.default)}
    return dict(sorted({**default, **_schema(field.shape, parts)}.items()))


def _schema(shape: Shape, parts: dict[str, Any]) -> dict[str, Any]:
    said = {name: value for name, value in shape.said.items() if name != UNSHOWN}
    about: dict[str, Any] = {name: said.pop(name) for name in ("description", "examples", "default") if name in said}
    core = {**_plain_schema(shape, parts), **said}
    core |= {_LIMITS[name][1]: limit for name, limit in shape.limits.items() if _LIMITS[name][1] not in said}
    core = dict(sorted(core.items()))
    choices = core["anyOf"] if [*core] == ["anyOf"] else [core]
    return {"anyOf": [*choices, {"type": "null"}], **about} if shape.is_optional else {**core, **about}


def _plain_schema(shape: Shape, parts: dict[str, Any]) -> dict[str, Any]:
    plain = shape.plain
    if plain is Literal:
        return {"type": "string", **({"enum": list(shape.of)} if len(shape.of) > 1 else {"const": shape.of[0]})}
    if plain in (tuple, list):
        return {"type": "array", "items": _schema(shape.of[0], parts)}
    if plain is dict:
        return {"type": "object", **_items_schema(*(_schema(each, parts) for each in shape.of))}
    if plain in _KINDS:
        return _KINDS[plain][2]
    if plain.__name__ not in parts:
        parts[plain.__name__] = _struct_schema(plain, parts)
    return {"$ref": f"#/$defs/{plain.__name__}"}


def _items_schema(key: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    if "pattern" in key:
        return {"patternProperties": {key["pattern"]: value}}
    names = {"propertyNames": {"enum": key["enum"]}} if "enum" in key else {}
    return {"additionalProperties": value, **names}
