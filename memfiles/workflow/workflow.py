"""Workflow models: which memory exists, who may use it, and where it is kept.

The rule this file guards: a ``Workflow`` object is always valid. All problems of a declaration are found before
anything on disk or in memory changes, and are reported together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, Strict, ValidationError, ValidationInfo, field_validator, model_validator

from memfiles.errors import InvalidArgument
from memfiles.records.entry import MAX_ENTRY_BYTES
from memfiles.records.levels import DEFAULT_LEVELS, Levels
from memfiles.workflow import yaml_source
from memfiles.workflow.cross_checks import ParsedWorkflow, cross_problems, directory_problem
from memfiles.workflow.fields import (
    DEFAULT_MAX_SIZE_BYTES,
    MAX_SIZE_BYTES,
    AgentName,
    DeclaredText,
    Directory,
    Levelling,
    LevelName,
    Name,
    Uid,
    can_be_directory,
)
from memfiles.workflow.older_workflow import SETTINGS_KEY, is_older, read_older
from memfiles.workflow.problems import Problem, invalid_argument, nearest_to, problems_in
from memfiles.workflow.specs import Allowed, AuditSpec, Declared, EntriesSpec, MirrorSpec, RetentionSpec
from memfiles.workflow.yaml_source import YamlDocument

_OUR_KEYS = ("name", "memory", "agents")
_WITH_POSITIONS, _OLDER = object(), object()
"""Validation contexts in which problems are collected with positions instead of raised one model at a time.

In the older shape a file may also have the cap 0, and its declared content may be over its cap.
"""


LeveledT = TypeVar("LeveledT", "MemoryFile", "AgentSpec")


class MemoryFile(Declared):
    """A memory file: text that an agent may read, append to and edit.

    Descriptions and content may hold any text; the index card shows a description on one line. Raises
    ``InvalidArgument`` for bad names, unknown fields or content over the cap.
    """

    uid: Uid = Field(
        description="The stable identity of the file and the name of its record on disk. Never change it.",
        examples=["customer-notes-7f3a"],
    )
    name: Name = Field(
        description="The name that the model uses for the file; unique in the workflow.", examples=["customer-notes"]
    )
    description: DeclaredText = Field("", description="The purpose of the file in one sentence; the model sees it.")
    max_size_bytes: Annotated[int, Strict(), Field(ge=0, le=MAX_SIZE_BYTES)] = Field(
        DEFAULT_MAX_SIZE_BYTES,
        description="The cap on the content, in UTF-8 bytes.",
        json_schema_extra={"minimum": 1},
    )
    level: LevelName | None = Field(
        None, description="The classification, one of memory.levels; by default the lowest."
    )
    content: DeclaredText = Field(
        "", description="The content of the file when it is first created; later changes are kept on disk.", repr=False
    )
    secrets_allow: Allowed = ()
    per: Literal["user"] | None = Field(
        None,
        description="user: each user has a record of the file, which no other user sees, made from the declared "
        "content at the first change. Only sessions that have a user see such a file.",
    )
    from_users: Annotated[bool, Strict()] = Field(
        False, description="Whether sessions that have a user may change the file, which other users see."
    )

    @field_validator("max_size_bytes")
    @classmethod
    def _can_hold_something(cls, cap: int, info: ValidationInfo) -> int:
        if cap == 0 and info.context is not _OLDER:
            raise ValueError("this must be at least 1")
        return cap

    @field_validator("per")
    @classmethod
    def _fits_in_an_entry(cls, per: str | None, info: ValidationInfo) -> str | None:
        if per is not None and info.data.get("max_size_bytes", 0) > MAX_ENTRY_BYTES:
            raise ValueError(f"a file per user holds at most {MAX_ENTRY_BYTES} bytes; lower max_size_bytes")
        return per

    @field_validator("from_users")
    @classmethod
    def _is_for_others(cls, from_users: bool, info: ValidationInfo) -> bool:
        if from_users and info.data.get("per") is not None:
            raise ValueError("other users do not see a file per user, and its own user may change it; remove this")
        return from_users

    @field_validator("content")
    @classmethod
    def _fits(cls, content: str, info: ValidationInfo) -> str:
        size, cap = len(content.encode()), info.data.get("max_size_bytes")
        cap = MAX_SIZE_BYTES if info.context is _OLDER else cap
        if cap is not None and size > cap:
            raise ValueError(f"the content is {size} bytes and the cap is {cap}; "
                             f"shorten it by {size - cap} bytes or raise the cap")  # fmt: skip
        return content


class MemoryRef(Declared):
    """An agent's reference to a memory file."""

    id: Uid = Field(description="The uid of a declared memory file.")
    mode: Literal["r", "rw"] = Field(description="r: the agent may read the file. rw: it may also change it.")


class AgentSpec(Declared):
    """The memory that one agent may use."""

    level: LevelName | None = Field(
        None, description="The level at which its sessions start, one of memory.levels; by default the lowest."
    )
    memory: tuple[MemoryRef, ...] = Field((), description="The memory files it may use.")
    entries: Literal["r", "rw"] = Field(
        "rw", description="r: the agent may only read entries. rw: it may also save, change and delete them."
    )
    forget: Annotated[bool, Strict()] = Field(
        False, description="Whether the agent has the tool memory_forget, which forgets an entry for good."
    )

    @field_validator("forget")
    @classmethod
    def _may_forget(cls, forget: bool, info: ValidationInfo) -> bool:
        if forget and info.data.get("entries") == "r":
            raise ValueError("an agent that may only read entries cannot forget them; remove this, or `entries: r`")
        return forget

    users: Literal["optional", "required"] = Field(
        "optional", description="Whether each of its sessions must name the user that it works for."
    )


class MemorySpec(Declared):
    """The memory of a workflow."""

    directory: Directory = Field(
        ".memory", description="The directory of the records, relative to this file. It holds nothing else."
    )
    mirror: MirrorSpec | None = Field(None, description="A second home for the records.")
    durability: Literal["fsync", "os"] = Field(
        "fsync",
        description="fsync: an acknowledged change survives a power cut. os: it survives only a crash of the program.",
    )
    levels: Levelling = Field(DEFAULT_LEVELS, description="The classification levels, lowest first.")
    secrets: Literal["block", "redact", "warn", "off"] = Field(
        "block", description="What happens to text that looks like a credential."
    )
    secrets_scanner: str | None = Field(
        None, min_length=1, description="A second scanner besides the built-in rules, by the name of its entry point."
    )
    retention: RetentionSpec = Field(
        RetentionSpec(), description="How long expired and deleted content is kept, and the audit."
    )
    files: tuple[MemoryFile, ...] = Field((), description="The memory files.")
    entries: EntriesSpec | None = Field(
        None,
        description="Entries that agents save under keys while they run; {} enables them with the default budgets.",
    )
    audit: AuditSpec = Field(AuditSpec(), description="Whether the audit holds more than changes and refusals.")

    @field_validator("files")
    @classmethod
    def _at_a_level(cls, files: tuple[MemoryFile, ...], info: ValidationInfo) -> tuple[MemoryFile, ...]:
        return tuple(_leveled(file, info.data.get("levels")) for file in files)


class Workflow(Declared):
    """A whole declaration, checked: its memory, its agents, and the other keys of the document.

    Files and agents without a level get the lowest. ``extra`` holds the top-level keys that belong to the workflow
    engine, unchanged. ``path`` is the file that it was loaded from, if any.
    """

    name: Annotated[DeclaredText, Field(max_length=256)] = Field("workflow", description="The name of the workflow.")
    memory: MemorySpec = Field(description="The memory: its files, where they are kept, and how.")
    agents: dict[AgentName, AgentSpec] = Field({}, description="The agents and the memory that each may use, by name.")
    extra: dict[str, Any] = Field({}, repr=False)
    path: Path | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, check_mirror: Callable[[str], object] | None = None) -> Workflow:
        """The workflow in a YAML or JSON file; touches nothing else.

        Raises ``WorkflowError`` with one line per problem, ``file:line:column: path: what``. ``check_mirror`` raises
        ``InvalidArgument`` for an invalid mirror URL.
        """
        source = yaml_source.load(path)
        return _workflow_in(source, path=Path(os.path.abspath(path)), check_mirror=check_mirror)

    @classmethod
    def parse(cls, text: str | bytes, *, source: str = "<workflow>") -> Workflow:
        """The workflow in ``text``; errors name ``source`` instead of a file and otherwise are those of ``load``."""
        return _workflow_in(yaml_source.parse(text, name=source), path=None)

    @property
    def directory(self) -> Path:
        """The absolute path of the records, relative to the workflow's folder, or to the current one if it has none."""
        folder = self.path.parent if self.path else Path.cwd()
        return Path(os.path.abspath(folder / self.memory.directory))

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
        return tuple(ref if ref.id in writable else ref.model_copy(update={"mode": "r"}) for ref in spec.memory)

    @property
    def shared_files(self) -> tuple[MemoryFile, ...]:
        """The memory files of which there is one for all users."""
        return tuple(file for file in self.memory.files if file.per is None)

    @property
    def levels(self) -> Levels:
        """The classification levels, with the rules for reading and writing across them."""
        return Levels(self.memory.levels)

    @field_validator("agents")
    @classmethod
    def _at_a_level(cls, agents: dict[str, AgentSpec], info: ValidationInfo) -> dict[str, AgentSpec]:
        memory = info.data.get("memory")
        return {name: _leveled(agent, memory and memory.levels) for name, agent in agents.items()}

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> Self:
        if info.context is None:  # otherwise the plain data has been checked
            problems = _document_problems(self.model_dump(include={"memory", "agents"}), path=self.path)
            if problems:
                raise invalid_argument(problems, model=type(self))
        return self


def _leveled(item: LeveledT, levels: tuple[str, ...] | None) -> LeveledT:
    return item.model_copy(update={"level": levels[0]}) if levels and item.level is None else item


def _workflow_in(
    source: YamlDocument, *, path: Path | None, check_mirror: Callable[[str], object] | None = None
) -> Workflow:
    """The workflow in a document of either shape, or one error with every problem."""
    if not isinstance(source.value, dict):
        raise source.error([Problem((), "a workflow is a mapping; declare `memory: {files: [...]}`")])
    older = is_older(source.value)
    reading = read_older(source.value) if older else _read(source)
    stem = path.stem.encode(errors="replace").decode() if path else "workflow"
    document = {"name": stem, **reading.document, "path": path}
    workflow, problems = None, list[Problem]()
    try:
        workflow = Workflow.model_validate(document, context=_OLDER if older else _WITH_POSITIONS)
        if check_mirror is not None and workflow.memory.mirror is not None:
            check_mirror(workflow.memory.mirror.url)
    except ValidationError as error:
        problems = problems_in(error, model=Workflow)
    except InvalidArgument as error:
        problems = [Problem(("memory", "mirror", "url"), str(error))]
    problems += _document_problems(document, path=path)
    if workflow is None or problems or reading.problems:
        raise source.error([*reading.problems, *(reading.as_written(problem) for problem in problems)])
    return workflow


def _read(source: YamlDocument) -> ParsedWorkflow:
    """The document in the current shape; other keys belong to the workflow engine."""
    ours = {key: source.value[key] for key in _OUR_KEYS if key in source.value}
    extra = {key: value for key, value in source.value.items() if key not in _OUR_KEYS}
    problems = [Problem(where, "YAML does not read this key as text; put it in quotes", at_key=True)
                for where in source.not_text if where[0] in ("memory", "agents") and len(where) > 1]  # fmt: skip
    if "memory" not in ours:
        what = "no memory is declared; add `memory: {files: [...]}`"
        likely = [key for key in extra if nearest_to(key, ["memory"])][:1]
        meant = f"{what}, or did you mean this key?" if likely else what
        problems.append(Problem(tuple(likely), meant, at_key=bool(likely)))
    return ParsedWorkflow({"memory": {}, **ours, "extra": extra}, problems)


def misplaced_keys(path: str | os.PathLike[str]) -> list[str]:
    """Warnings about keys at the top level that have the name of a key of ``memory``, one line each."""
    source = yaml_source.load(path)
    if not isinstance(source.value, dict) or is_older(source.value):
        return []
    what = dict.fromkeys(
        MemorySpec.model_fields,
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
