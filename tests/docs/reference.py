"""The parts of the documentation that are made from the code: signatures, errors, workflow fields, help texts.

A page asks for one with ``<!-- generated: api Session -->``; see ``tests.docs.pages``.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from importlib import import_module
from typing import Any

from click.testing import CliRunner
from msgspec import Struct
from typing_extensions import TypeIs

import memfiles
import memfiles.errors
import mirrors
from memfiles.cli.program import COMMANDS, program
from memfiles.entries.consolidation.application import Applied
from memfiles.entries.consolidation.plan import Plan, PlannedEntry, Step, Summariser, SummaryNote
from memfiles.entries.drafts import Deleted, Draft, Saved
from memfiles.entries.entries import Entries
from memfiles.entries.hydration.recall import Recall
from memfiles.entries.hydration.window import Explanation, Hydration
from memfiles.entries.log import EntryChange, EntryLog, Gone, GoneEntry, Tombstone, Tombstones
from memfiles.entries.purge import Purged
from memfiles.entries.results import Forgotten, Found, Match, Page, Results
from memfiles.entries.transfer.document import Skipped
from memfiles.entries.transfer.exchange import Exported, Imported
from memfiles.entries.users import UserExport, Users, UserSummary, UserTombstone
from memfiles.errors import MemfilesError
from memfiles.index.search.embedder import Embedder, WordNeighbours
from memfiles.records.entry import Provenance
from memfiles.records.levels import Levels
from memfiles.storage.audit_reader import AuditTrail
from memfiles.storage.events import AuditEvent
from memfiles.sync.conflicts import Conflict, ConflictResolved, Conflicts
from memfiles.sync.engine import Sync
from memfiles.sync.mirror import ANY, BulkMirror, CandidMirror, Condition, Stored
from memfiles.sync.status import SyncReport, SyncStatus
from memfiles.tools.oversight import Activity, Attention, EntryStats, Stats
from memfiles.tools.session import tools
from memfiles.tools.visibility import VisibleFile
from memfiles.workflow.declared import Declared, fields_of
from memfiles.workflow.specs import AuditSpec, CategorySpec, EntriesSpec, KindSpec, MirrorSpec, RetentionSpec
from memfiles.workflow.workflow import AgentSpec, MemorySpec

PUBLIC: list[str] = import_module("memfiles").__all__
REACHED = [
    Entries,
    Users,
    UserSummary,
    UserTombstone,
    UserExport,
    VisibleFile,
    Levels,
    Sync,
    SyncStatus,
    SyncReport,
    Conflicts,
    Conflict,
    ConflictResolved,
    Draft,
    Embedder,
    WordNeighbours,
    Summariser,
    Stored,
    Condition,
    BulkMirror,
    CandidMirror,
]
RESULTS = [
    Saved,
    Found,
    Provenance,
    Match,
    Results,
    Page,
    Deleted,
    Forgotten,
    Purged,
    Hydration,
    Recall,
    Explanation,
    Plan,
    Step,
    PlannedEntry,
    SummaryNote,
    Applied,
    Exported,
    Imported,
    Skipped,
    EntryLog,
    EntryChange,
    Gone,
    GoneEntry,
    Tombstones,
    Tombstone,
    AuditTrail,
    AuditEvent,
    Stats,
    EntryStats,
    Attention,
    Activity,
]
MODELS: list[type] = [MemorySpec, MirrorSpec, EntriesSpec, CategorySpec, KindSpec, AuditSpec, RetentionSpec, AgentSpec]
_REACHED = {each.__name__: each for each in [*REACHED, *RESULTS, *MODELS]}
ADAPTERS = {
    "anthropic_memory": ["MemoryTool", "AsyncMemoryTool"],
    "anthropic_tools": ["tools", "async_tools", "with_recall", "async_with_recall"],
    "deepagents": ["MemfilesBackend"],
    "langgraph": ["tools", "MemfilesMiddleware", "RecallMiddleware"],
    "langgraph_store": ["MemfilesStore"],
    "openai_agents": ["tools", "instructions", "recall_filter"],
    "pydantic_ai": ["MemoryToolset", "memory_instructions", "MemoryRecall"],
    "pydantic_ai_harness": ["SessionStore", "session_stores"],
}
"""What a module of ``memfiles.adapters`` offers. They load when they are asked for: the frameworks take seconds."""

INTERNAL = {
    "Session": {
        "owner_of",
        "definitions_for",
        "actor",
        "refused",
        "check_open",
        "may_know",
        "definitions",
        "snapshots",
    },
    "MemoryManager": {"watched", "records", "replica", "recover", "take_hydrated", "view"},
    "Entries": {"counts", "end_run", "purge", "sweep", "close"},
    "Sync": {"start", "entries_opened"},
    "Provenance": {"told_to_others"},
    "Step": {"state", "named"},
    "Users": {"repository", "release", "strike", "epoch_of", "begin", "follow"},
}
"""Methods that other rooms of memfiles call, and users do not."""

BUILT_BY_MEMFILES = {"Memory", "Session", "Entries", "Sync", "Conflicts", "Users"}
_HELP_ENV = {"NO_COLOR": None, "FORCE_COLOR": None, "COLUMNS": "80"}


def made(what: str) -> str:
    """The text that a page asks for, up to its last newline."""
    kind, _, name = what.partition(" ")
    return _MAKERS[kind](name)


def names() -> list[str]:
    """Every name of the Python API that a page may ask for: public names, what they return, mirrors, adapters."""
    errors = {name for name, kind in vars(memfiles.errors).items() if inspect.isclass(kind)}
    public = [name for name in PUBLIC if name != "__version__" and name not in errors]
    return [*public, *_REACHED, *chosen("mirrors.* adapters.*")]


def chosen(words: str) -> list[str]:
    """The names that a page asks for: as they are, or with ``.*`` all of the mirrors or of the adapters."""
    all_of = {
        "mirrors.*": [f"mirrors.{name}" for name in mirrors.__all__],
        "adapters.*": [f"{module}.{name}" for module, offered in ADAPTERS.items() for name in offered],
    }
    return [name for word in words.split() for name in all_of.get(word, [word])]


def named(name: str) -> Any:
    """What the reference shows under this name."""
    module, _, last = name.rpartition(".")
    if module == "mirrors":
        return getattr(mirrors, last)
    if module:
        return getattr(import_module(f"memfiles.adapters.{module}"), last)
    if name == "tools":  # the package of that name may stand in the function's place
        return tools
    return _REACHED[name] if name in _REACHED else getattr(memfiles, name)


def _api(names: str) -> str:
    """For each name a heading, the signature and the docstring; for a class of our own also its public methods."""
    shown = []
    for name in chosen(names):
        thing = named(name)
        if inspect.isclass(thing):
            parts = _class(thing, methods="." not in name)
        else:
            parts = iter([_code(f"{name.rpartition('.')[2]}{_signature(thing)}"), _prose(thing)])
        shown.append("\n".join([f"### {name}\n", *parts]))
    return "\n".join(shown)


def _class(kind: type, *, methods: bool) -> Iterator[str]:
    if issubclass(kind, Declared):
        yield _prose(kind)
        yield _fields(kind)
    else:
        if not (kind.__name__ in BUILT_BY_MEMFILES or getattr(kind, "_is_protocol", False)):
            yield _code(f"{kind.__name__}{_signature(kind)}")
        yield _prose(kind) + _constructor_prose(kind)
    for name, member in vars(kind).items() if methods else ():
        if name.startswith("_") or name in INTERNAL.get(kind.__name__, set()):
            continue
        if isinstance(member, property) and member.fget is not None:
            yield _code(f"{name}: {_annotation(_annotations(member.fget)['return'])}")
            yield _prose(member)
        elif inspect.isfunction(member) or isinstance(member, classmethod):
            function = getattr(kind, name)
            yield _code(f"{name}{_signature(function, bound=inspect.isfunction(member))}")
            yield _prose(function)


def _constructor_prose(kind: type) -> str:
    documented = (
        "__init__" in vars(kind)
        and not (is_dataclass(kind) or issubclass(kind, Struct))
        and kind.__name__ not in BUILT_BY_MEMFILES
    )
    return "\n" + _prose(kind.__init__) if documented and kind.__init__.__doc__ else ""  # type: ignore[misc]


def _code(signature: str) -> str:
    if len(signature) > 100 and "(" in signature:
        head, _, rest = signature.partition("(")
        arguments, _, result = rest.rpartition(")")
        lines = [f"    {argument}," for argument in _split(arguments)]
        signature = "\n".join([f"{head}(", *lines, f"){result}"])
    return f"```py\n{signature}\n```\n"


def _split(arguments: str) -> list[str]:
    """The arguments one by one: commas inside brackets separate none."""
    parts, depth = [""], 0
    for char in arguments:
        depth += (char in "[(") - (char in "])")
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def _signature(function: Callable[..., Any], *, bound: bool = False) -> str:
    signature = inspect.signature(function) if not _is_struct(function) else _of_struct(function)
    if not _is_struct(function) and inspect.isroutine(inspect.unwrap(function)):
        signature = _as_written(signature, function)
    parameters = list(signature.parameters.values())[1 if bound else 0 :]
    shown, starred = [], False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            shown.append("*")
        starred = starred or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        shown.append(_parameter(parameter))
    result = signature.return_annotation
    returned = "" if result is inspect.Signature.empty or inspect.isclass(function) else f" -> {_annotation(result)}"
    return f"({', '.join(shown)}){returned}"


def _is_struct(kind: object) -> TypeIs[type[Struct]]:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _of_struct(kind: type[Struct]) -> inspect.Signature:
    """Its signature as it is written: ``inspect`` would need every type that only a type checker knows."""
    hints: dict[str, Any] = {}
    for each in reversed(kind.__mro__):
        hints |= _annotations(each) if each.__module__.startswith("memfiles") else {}
    names, defaults = kind.__struct_fields__, kind.__struct_defaults__
    given = [*[inspect.Parameter.empty] * (len(names) - len(defaults)), *defaults]
    how = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parts = [
        inspect.Parameter(name, how, default=default, annotation=hints[name])
        for name, default in zip(names, given, strict=True)
    ]
    return inspect.Signature(parts)


def _as_written(signature: inspect.Signature, function: Callable[..., Any]) -> inspect.Signature:
    """With the annotations as the code has them; a module that does without texts has their values."""
    written = _annotations(inspect.unwrap(function))
    given = [each.replace(annotation=written.get(each.name, each.empty)) for each in signature.parameters.values()]
    return signature.replace(parameters=given, return_annotation=written.get("return", signature.empty))


def _annotations(thing: Any) -> dict[str, str]:
    """The texts of the annotations in the code of a class or function."""
    node = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]
    if isinstance(node, ast.ClassDef):
        fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
        return {ast.unparse(each.target): ast.unparse(each.annotation) for each in fields}
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    given = [each for each in ast.walk(node.args) if isinstance(each, ast.arg) and each.annotation is not None]
    found = {each.arg: ast.unparse(each.annotation) for each in given if each.annotation is not None}
    return found | ({"return": ast.unparse(node.returns)} if node.returns is not None else {})


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")  # type: ignore[call-overload]
    typed = "" if parameter.annotation is parameter.empty else f": {_annotation(parameter.annotation)}"
    return f"{stars}{parameter.name}{typed}{_default(parameter.default, typed=bool(typed))}"


def _default(value: Any, *, typed: bool) -> str:
    if value is inspect.Parameter.empty:
        return ""
    if value == ANY:
        return " = ANY"
    text = "..." if callable(value) or " object at " in repr(value) or "<factory>" in repr(value) else repr(value)
    return f" = {text}" if typed else f"={text}"


def _annotation(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__forward_arg__", None)
    text = text or (annotation.__name__ if inspect.isclass(annotation) else str(annotation))
    text = text.strip("'\"")
    while found := re.search(r"Annotated\[", text):
        inside = _split(text[found.end() : _closing(text, found.end())])
        text = text[: found.start()] + inside[0] + text[_closing(text, found.end()) + 1 :]
    return text


def _closing(text: str, start: int) -> int:
    depth = 1
    for position in range(start, len(text)):
        depth += (text[position] == "[") - (text[position] == "]")
        if not depth:
            return position
    return len(text)


def _prose(documented: Any) -> str:
    text = inspect.getdoc(documented) or ""
    return re.sub(r"``(.+?)``", r"`\1`", text).strip() + "\n"


def _errors(_: str) -> str:
    rows = ["| error | code | transient | exit code | meaning |", "|---|---|---|---|---|"]
    for name in PUBLIC:
        kind = getattr(memfiles, name)
        if inspect.isclass(kind) and issubclass(kind, MemfilesError):
            meaning = " ".join(_prose(kind).split("\n\n")[0].split()).replace("|", "\\|")
            transient = "yes" if kind.transient else "no"
            rows.append(f"| `{name}` | `{kind.code}` | {transient} | {kind.exit_code} | {meaning} |")
    return "\n".join(rows) + "\n"


def _workflow(name: str) -> str:
    return _fields(named(name))


def _fields(model: type[Declared]) -> str:
    rows = ["| key | default | meaning |", "|---|---|---|"]
    for name, field in fields_of(model).items():
        if "description" not in field.shape.said:
            continue
        default = "required" if field.is_required else f"`{_as_yaml(field.shape.said.get('default', field.default))}`"
        rows.append(f"| `{name}` | {default} | {field.shape.said['description']} |")
    return "\n".join(rows) + "\n"


def _as_yaml(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Declared):
        shown = {name: field.shape.said.get("default", field.default) for name, field in fields_of(type(value)).items()}
        return f"{{{', '.join(f'{name}: {each}' for name, each in shown.items())}}}"
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    return str(value) if value != "" else '""'


def _commands(family: str) -> str:
    """The help of every command of a family, without the options that all commands take."""
    shown = []
    for command in COMMANDS[family]:
        for words in _with_subcommands(command):
            shown.append(f"### {' '.join(words)}\n\n```text\n{_help(words)}```\n")
    return "\n".join(shown)


def _with_subcommands(command: str) -> list[list[str]]:
    found = program.get_command(None, command)  # type: ignore[arg-type]
    inner = getattr(found, "commands", None)
    names = inner if inner is not None else found.list_commands(None) if hasattr(found, "list_commands") else ()  # type: ignore[union-attr]
    return [[command], *([command, name] for name in names)]


def _help(words: list[str]) -> str:
    said = CliRunner(env=_HELP_ENV).invoke(program, [*words, "--help"]).output
    shared = re.compile(r"^  -w, --workflow FILE.*?^  -h, --help[^\n]*\n", re.MULTILINE | re.DOTALL)
    return re.sub(r"Options:\n\n", "", shared.sub("", said))


def _shared_options(_: str) -> str:
    said = CliRunner(env=_HELP_ENV).invoke(program, ["ls", "--help"]).output
    found = re.search(r"^  -w, --workflow FILE.*?^  -h, --help[^\n]*\n", said, re.MULTILINE | re.DOTALL)
    assert found is not None
    return f"```text\n{found[0]}```\n"


_MAKERS: dict[str, Callable[[str], str]] = {
    "api": _api,
    "errors": _errors,
    "workflow": _workflow,
    "commands": _commands,
    "shared-options": _shared_options,
}
