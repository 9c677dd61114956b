"""Workflow models: which memory exists, who may use it, and where it is kept.

The rule this file guards: a ``Workflow`` object is always valid. All problems of a declaration are found before
anything on disk or in memory changes, and are reported together.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import quote, unquote

from msgspec import Meta, to_builtins
from msgspec.structs import replace

from memfiles.errors import InvalidArgument
from memfiles.records.entry import MAX_ENTRY_BYTES
from memfiles.records.levels import DEFAULT_LEVELS, Levels
from memfiles.workflow import yaml_source
from memfiles.workflow.declared import UNSHOWN, Check, Declared, read
from memfiles.workflow.fields import (
    DEFAULT_MAX_SIZE_BYTES,
    MAX_SIZE_BYTES,
    AgentName,
    DeclaredText,
    Directory,
    Levelling,
    LevelName,
    Name,
    StoreUrl,
    Uid,
    can_be_directory,
)
from memfiles.workflow.older_workflow import SETTINGS_KEY, is_older, read_older
from memfiles.workflow.problems import ParsedWorkflow, Problem, cross_problems, nearest_to, problem_of
from memfiles.workflow.specs import Allowed, AuditSpec, EntriesSpec, MirrorSpec, RetentionSpec
from memfiles.workflow.yaml_source import YamlDocument

_OUR_KEYS = ("name", "memory", "agents")
_DIRECTORY = ".memory"
_NO_DIRECTORY = "the records are in the store, so there is no directory of them; remove this"
LeveledT = TypeVar("LeveledT", "MemoryFile", "AgentSpec")
URLCheck = Callable[[str], object]


def _as_path(value: Any) -> Path | None:
    if value is not None and not isinstance(value, (str, Path)):
        raise ValueError("this must be a path")
    return None if value is None else Path(value)


class MemoryFile(Declared, frozen=True, kw_only=True):
    """A memory file: text that an agent may read, append to and edit.

    Descriptions and content may hold any text; the index card shows a description on one line. Raises
    ``InvalidArgument`` for bad names, unknown fields or content over the cap.
    """

    uid: Annotated[
        Uid,
        Meta(
            description="The stable identity of the file and the name of its record on disk. Never change it.",
            examples=["customer-notes-7f3a"],
        ),
    ]
    name: Annotated[
        Name,
        Meta(
            description="The name that the model uses for the file; unique in the workflow.",
            examples=["customer-notes"],
        ),
    ]
    description: Annotated[
        DeclaredText, Meta(description="The purpose of the file in one sentence; the model sees it.")
    ] = ""
    max_size_bytes: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_SIZE_BYTES)],
        Meta(description="The cap on the content, in UTF-8 bytes.", extra_json_schema={"minimum": 1}),
    ] = DEFAULT_MAX_SIZE_BYTES
    level: Annotated[
        LevelName | None, Meta(description="The classification, one of memory.levels; by default the lowest.")
    ] = None
    content: Annotated[
        DeclaredText,
        Meta(
            description="The content of the file when it is first created; later changes are kept on disk.",
            extra_json_schema={UNSHOWN: True},
        ),
    ] = ""
    secrets_allow: Allowed = ()
    per: Annotated[
        Literal["user"] | None,
        Meta(
            description="user: each user has a record of the file, which no other user sees, made from the declared "
            "content at the first change. Only sessions that have a user see such a file."
        ),
    ] = None
    from_users: Annotated[
        bool, Meta(description="Whether sessions that have a user may change the file, which other users see.")
    ] = False

    @classmethod
    def _wrong(cls, known: Mapping[str, Any], *, older: bool) -> Iterator[tuple[str, str]]:
        """The fields that are wrong only because of others; in the older shape a cap may be 0, or below the content."""
        cap, content, per = known.get("max_size_bytes"), known.get("content", ""), known.get("per")
        if cap == 0 and not older:
            yield "max_size_bytes", "this must be at least 1"
        size, most = len(content.encode()), MAX_SIZE_BYTES if older else cap or None
        if most is not None and size > most:
            over = f"shorten it by {size - most} bytes or raise the cap"
            yield "content", f"the content is {size} bytes and the cap is {most}; {over}"
        if per is not None and (cap or 0) > MAX_ENTRY_BYTES:
            yield "per", f"a file per user holds at most {MAX_ENTRY_BYTES} bytes; lower max_size_bytes"
        if known.get("from_users") and per is not None:
            why = "other users do not see a file per user, and its own user may change it; remove this"
            yield "from_users", why


class MemoryRef(Declared, frozen=True, kw_only=True):
    """An agent's reference to a memory file."""

    id: Annotated[Uid, Meta(description="The uid of a declared memory file.")]
    mode: Annotated[Literal["r", "rw"], Meta(description="r: the agent may read the file. rw: it may also change it.")]


class AgentSpec(Declared, frozen=True, kw_only=True):
    """The memory that one agent may use."""

    level: Annotated[
        LevelName | None,
        Meta(description="The level at which its sessions start, one of memory.levels; by default the lowest."),
    ] = None
    memory: Annotated[tuple[MemoryRef, ...], Meta(description="The memory files it may use.")] = ()
    entries: Annotated[
        Literal["r", "rw"],
        Meta(description="r: the agent may only read entries. rw: it may also save, change and delete them."),
    ] = "rw"
    forget: Annotated[
        bool, Meta(description="Whether the agent has the tool memory_forget, which forgets an entry for good.")
    ] = False
    users: Annotated[
        Literal["optional", "required"],
        Meta(description="Whether each of its sessions must name the user that it works for."),
    ] = "optional"

    @classmethod
    def _wrong(cls, known: Mapping[str, Any], *, older: bool) -> Iterator[tuple[str, str]]:
        if known.get("forget") and known.get("entries") == "r":
            yield "forget", "an agent that may only read entries cannot forget them; remove this, or `entries: r`"


class MemorySpec(Declared, frozen=True, kw_only=True):
    """The memory of a workflow."""

    directory: Annotated[
        Directory, Meta(description="The directory of the records, relative to this file. It holds nothing else.")
    ] = _DIRECTORY
    mirror: Annotated[MirrorSpec | None, Meta(description="A second home for the records.")] = None
    durability: Annotated[
        Literal["fsync", "os"],
        Meta(
            description="fsync: an acknowledged change survives a power cut. os: it survives only a crash of the "
            "program."
        ),
    ] = "fsync"
    levels: Annotated[Levelling, Meta(description="The classification levels, lowest first.")] = DEFAULT_LEVELS
    secrets: Annotated[
        Literal["block", "redact", "warn", "off"],
        Meta(description="What happens to text that looks like a credential."),
    ] = "block"
    secrets_scanner: Annotated[
        str | None,
        Meta(min_length=1, description="A scanner in addition to the built-in rules, by the name of its entry point."),
    ] = None
    retention: Annotated[
        RetentionSpec, Meta(description="How long expired and deleted content is kept, and the audit.")
    ] = RetentionSpec()
    files: Annotated[tuple[MemoryFile, ...], Meta(description="The memory files.")] = ()
    entries: Annotated[
        EntriesSpec | None,
        Meta(
            description="Entries that agents save under keys while they run; {} enables them with the default budgets."
        ),
    ] = None
    audit: Annotated[AuditSpec, Meta(description="Whether the audit holds more than changes and refusals.")] = (
        AuditSpec()
    )
    store: Annotated[
        StoreUrl | None,
        Meta(
            description="The database of the records in place of a directory, for workers on many machines. The "
            "records are in the workspace of the workflow's name, or in that of ?workspace=.",
            examples=["postgresql://db.example.org/agents?schema=memfiles"],
            extra_json_schema={UNSHOWN: True},
        ),
    ] = None
    cache: Annotated[
        Directory | None,
        Meta(
            description="A directory of this machine where the search index of a store is kept between starts, "
            "relative to this file. Deleting it loses nothing."
        ),
    ] = None

    @classmethod
    def _wrong(cls, known: Mapping[str, Any], *, older: bool) -> Iterator[tuple[str, str]]:
        if known.get("store") is not None and known.get("directory", _DIRECTORY) != _DIRECTORY:
            yield "directory", _NO_DIRECTORY
        if known.get("cache") is not None and known.get("store", "") is None:
            yield "cache", "only a store needs this, as a directory keeps the index with the records; remove it"

    @classmethod
    def _completed(cls, known: dict[str, Any]) -> dict[str, Any]:
        """The values of the fields, with the lowest level for files that have none."""
        levels, files = known.get("levels"), known.get("files", ())
        return known | {"files": tuple(_leveled(file, levels) for file in files)}


class Workflow(Declared, frozen=True, kw_only=True):
    """A whole declaration, checked: its memory, its agents, and the other keys of the document.

    Files and agents without a level get the lowest. ``extra`` holds the top-level keys that belong to the workflow
    engine, unchanged. ``path`` is the file that it was loaded from, if any.
    """

    name: Annotated[Annotated[DeclaredText, Meta(max_length=256)], Meta(description="The name of the workflow.")] = (
        "workflow"
    )
    memory: Annotated[MemorySpec, Meta(description="The memory: its files, where they are kept, and how.")]
    agents: Annotated[
        dict[AgentName, AgentSpec], Meta(description="The agents and the memory that each may use, by name.")
    ] = {}
    extra: Annotated[dict[str, Any], Meta(extra_json_schema={UNSHOWN: True})] = {}
    path: Annotated[Path | None, Check(_as_path, schema={})] = None

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, check_mirror: URLCheck | None = None, check_store: URLCheck | None = None
    ) -> "Workflow":
        """The workflow in a YAML or JSON file; touches nothing else.

        Raises ``WorkflowError`` with one line per problem, ``file:line:column: path: what``. ``check_mirror`` and
        ``check_store`` raise ``InvalidArgument`` for an invalid URL.
        """
        return _workflow_in(
            yaml_source.load(path), Path(os.path.abspath(path)), check_mirror or str, check_store or str
        )

    @classmethod
    def parse(cls, text: str | bytes, *, source: str = "<workflow>") -> "Workflow":
        """The workflow in ``text``; errors name ``source`` instead of a file and otherwise are those of ``load``."""
        return _workflow_in(yaml_source.parse(text, name=source), None)

    @property
    def directory(self) -> Path:
        """The absolute path of the records, relative to the workflow's folder, or to the current one if it has none.

        ``InvalidArgument`` if the records are in a store.
        """
        if self.memory.store is not None:
            raise InvalidArgument("the records of this workflow are in a store, not in a directory")
        return self._absolute(self.memory.directory)

    @property
    def place(self) -> Path | str:
        """Where the records are: their directory, or the URL of their store with the workspace."""
        store = self.memory.store
        return self.directory if store is None else store_url(store, workspace=self.name)

    @property
    def cache(self) -> Path | None:
        """The absolute path of the directory for the index of a store."""
        return self._absolute(self.memory.cache) if self.memory.cache is not None else None

    def _absolute(self, path: str) -> Path:
        folder = self.path.parent if self.path else Path.cwd()
        return Path(os.path.abspath(folder / path))

    def refs_of(self, agent: str, *, user: str | None) -> tuple[MemoryRef, ...]:
        """The references for a session of a declared agent. With a user, files that others see are read-only for it.

        Files ``per: user`` are among them, also for a session without a user, which does not see these.
        ``InvalidArgument`` if the agent works only for users, and there is none.
        """
        spec = self.agents[agent]
        if user is None:
            if spec.users == "required":
                raise InvalidArgument(f"agent {agent} works for one user at a time: name the user of the session")
            return spec.memory
        writable = {file.uid for file in self.memory.files if file.from_users or file.per is not None}
        return tuple(ref if ref.id in writable else replace(ref, mode="r") for ref in spec.memory)

    @property
    def shared_files(self) -> tuple[MemoryFile, ...]:
        """The memory files of which there is one for all users."""
        return tuple(file for file in self.memory.files if file.per is None)

    @property
    def levels(self) -> Levels:
        """The classification levels, with the rules for reading and writing across them."""
        return Levels(self.memory.levels)

    @classmethod
    def _completed(cls, known: dict[str, Any]) -> dict[str, Any]:
        """The values of the fields, with the lowest level for agents that have none."""
        levels, agents = known["memory"].levels if "memory" in known else None, known.get("agents", {})
        return known | {"agents": {name: _leveled(agent, levels) for name, agent in agents.items()}}

    def _problems(self) -> list[Problem]:
        """The contradictions between the parts of a workflow; a document is checked as plain data."""
        return _document_problems(to_builtins({"memory": self.memory, "agents": self.agents}), path=self.path)


def _leveled(item: LeveledT, levels: tuple[str, ...] | None) -> LeveledT:
    return replace(item, level=levels[0]) if levels and item.level is None else item


def _workflow_in(source: YamlDocument, path: Path | None, mirror: URLCheck = str, store: URLCheck = str) -> Workflow:
    """The workflow in a document of either shape, or one error with every problem."""
    if not isinstance(source.value, dict):
        raise source.error([Problem((), "a workflow is a mapping; declare `memory: {files: [...]}`")])
    reading = read_older(source.value) if (older := is_older(source.value)) else _read(source)
    stem = path.stem.encode(errors="replace").decode() if path else "workflow"
    document = {"name": stem, **reading.document, "path": path}
    workflow, breaches = read(Workflow, document, older=older)
    problems = [problem_of(breach) for breach in breaches]
    where: tuple[str, ...] = ("memory", "store")
    try:
        if not problems and isinstance(place := workflow.place, str):
            store(place)
        if not problems and (declared := workflow.memory.mirror) is not None:
            where = ("memory", "mirror", "url")
            mirror(declared.url)
            if isinstance(place, Path):
                _check_apart(declared.url, str(place))
    except InvalidArgument as error:
        problems = [Problem(where, str(error))]
    problems += [*_document_problems(document, path=path), *_store_problems(reading.document)]
    if problems or reading.problems:
        raise source.error([*reading.problems, *(reading.as_written(problem) for problem in problems)])
    return workflow


def _check_apart(url: str, place: str) -> None:
    """Refuse a mirror in the memory directory, where one file would be a record and its copy. ``InvalidArgument``."""
    scheme, _, rest = url.partition("://")
    if scheme.lower() == "file" and "%00" not in rest:
        folder = os.path.realpath("/" + unquote(rest.partition("/")[2].partition("?")[0]))
        if f"{folder}/".startswith(f"{os.path.realpath(place)}/"):
            raise InvalidArgument("this is in the memory directory, so it would be lost with it; name another folder")


def _read(source: YamlDocument) -> ParsedWorkflow:
    """The document in the current shape; other keys belong to the workflow engine."""
    ours = {key: source.value[key] for key in _OUR_KEYS if key in source.value}
    extra = {key: value for key, value in source.value.items() if key not in _OUR_KEYS}
    problems = [Problem(where, "YAML does not read this key as text; put it in quotes", at_key=True)
                for where in source.not_text if where[0] in ("memory", "agents") and len(where) > 1]  # fmt: skip
    if "memory" not in ours:
        what = "no memory is declared; add `memory: {files: [...]}`"
        likely = [key for key in extra if nearest_to(key, ["memory"])][:1]
        what += ", or did you mean this key?" if likely else ""
        problems.append(Problem(tuple(likely), what, at_key=bool(likely)))
    return ParsedWorkflow({"memory": {}, **ours, "extra": extra}, problems)


def store_url(url: str, *, workspace: str) -> str:
    """The URL of a store, with this workspace if it names none."""
    _, _, options = url.partition("?")
    if any(option.startswith("workspace=") for option in options.split("&")):
        return url
    return f"{url}{'&' if options else '' if url.endswith('?') else '?'}workspace={quote(workspace, safe='')}"


def directory_problem(directory: str, *, folder: Path) -> str | None:
    """The reason why ``directory``, relative to the workflow's ``folder``, cannot hold the memory; None if it can.

    It may lie outside ``folder``, but must be a directory of its own, as anything else in it is quarantined.
    """
    if Path(os.path.abspath(folder)).is_relative_to(os.path.abspath(folder / directory)):
        return "this directory holds the workflow itself; give the memory its own directory, such as .memory"
    return None


def _store_problems(document: Mapping[str, Any]) -> Iterator[Problem]:
    """The problems of a document with a store: a directory, or no name for the workspace."""
    memory = document.get("memory")
    store = memory.get("store") if isinstance(memory, Mapping) else None
    if not isinstance(store, str):
        return
    if isinstance(memory, Mapping) and memory.get("directory") == _DIRECTORY:
        yield Problem(("memory", "directory"), _NO_DIRECTORY)
    if "name" not in document and store_url(store, workspace="") != store:
        why = "the store needs the name of a workspace: give the workflow a name, or add ?workspace=NAME"
        yield Problem(("memory", "store"), why)


def misplaced_keys(path: str | os.PathLike[str]) -> list[str]:
    """Warnings about keys at the top level that have the name of a key of ``memory``, one line each."""
    source = yaml_source.load(path)
    if not isinstance(source.value, dict) or is_older(source.value):
        return []
    what = dict.fromkeys(
        MemorySpec.__struct_fields__,
        "this key is outside memory and has no effect; if it belongs to memory, indent it under `memory:`",
    )
    what[SETTINGS_KEY] = "this key has an effect only next to a memory list; move what it holds under `memory:`"
    problems = [Problem((key,), what[key], at_key=True) for key in source.value if key in what]
    return str(source.error(problems)).splitlines()


def _document_problems(document: Mapping[str, Any], *, path: Path | None) -> list[Problem]:
    """The problems between the parts of the plain document, and with its directory."""
    memory = document.get("memory")
    directory = memory.get("directory") if isinstance(memory, Mapping) else None
    if path is None or not isinstance(directory, str) or not can_be_directory(directory):  # the models report that
        return cross_problems(document)
    why = directory_problem(directory, folder=path.parent)
    return [*cross_problems(document), *([Problem(("memory", "directory"), why)] if why else [])]
