"""Cross checks of a whole workflow: repeated names, dangling references, undeclared levels.

They work on the plain data as written, valid or not, so that one report holds these problems and those of the models.
Values of a wrong type are skipped here, as the models report them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from memfiles.records.keys import case_clashes
from memfiles.records.levels import DEFAULT_LEVELS
from memfiles.workflow.problems import Problem, Where, is_identifier, shown


class ParsedWorkflow(Struct, frozen=True):
    """A document, or a part of one, in the shape of the models, and the original positions of what it holds.

    ``origins`` maps paths in ``document`` to paths in the original. Values below a mapped path, and unmapped values,
    keep their keys.
    """

    document: Any
    problems: list[Problem] = field(default_factory=list)
    origins: dict[Where, Where] = field(default_factory=dict)

    def as_written(self, problem: Problem) -> Problem:
        """The problem at the path in the original document."""
        for length in range(len(problem.where), 0, -1):
            origin = self.origins.get(problem.where[:length])
            if origin is not None:
                return replace(problem, where=origin + problem.where[length:])
        return problem


def cross_problems(document: Mapping[str, Any]) -> list[Problem]:
    """The problems between the parts of a workflow's plain data (``memory`` and ``agents``)."""
    memory = _mapping(document.get("memory"))
    agents = _mapping(document.get("agents"))
    return [
        *_repeated_levels(memory),
        *_repeated_files(memory),
        *_case_problems(memory),
        *_ambiguous_names(memory),
        *_level_problems(memory, agents),
        *_agent_problems(memory, agents),
    ]


def directory_problem(directory: str, *, folder: Path) -> str | None:
    """The reason why ``directory``, relative to the workflow's ``folder``, cannot hold the memory; None if it can.

    It may be anywhere, also outside ``folder``, as the author of a workflow decides what runs. It must be a directory
    of its own, as anything there that is not a record is quarantined.
    """
    home = Path(os.path.abspath(folder))
    target = Path(os.path.abspath(home / directory))
    if target == home or target in home.parents:
        return "this directory holds the workflow itself; give the memory its own directory, such as .memory"
    return None


def _repeated_files(memory: Mapping[str, Any]) -> Iterator[Problem]:
    for key, of in (("uid", "another file"), ("name", "the file with uid")):
        first: dict[str, Mapping[str, Any]] = {}
        for where, file in _files(memory):
            value = file.get(key)
            if isinstance(value, str) and first.setdefault(value, file) is not file:
                other = shown(first[value].get("uid")) if key == "name" else ""
                what = f"{key}{shown(value)} is also used by {of}{other}; each file needs its own"
                yield Problem((*where, key), what)


def _case_problems(memory: Mapping[str, Any]) -> Iterator[Problem]:
    uids = {file["uid"]: where for where, file in _files(memory) if isinstance(file.get("uid"), str)}
    for first, uid in case_clashes(uids):
        yield Problem(
            (*uids[uid], "uid"),
            f"uid{shown(uid)} differs from{shown(first)} only by case, which some file systems ignore; change one",
        )


def _ambiguous_names(memory: Mapping[str, Any]) -> Iterator[Problem]:
    """A file may be asked for by its name or by its uid, so no name may be the uid of another file."""
    uids = {file["uid"] for _, file in _files(memory) if isinstance(file.get("uid"), str)}
    for where, file in _files(memory):
        name = file.get("name")
        if isinstance(name, str) and name in uids and name != file.get("uid"):
            what = f"name{shown(name)} is the uid of another file; a call could mean either, so change one"
            yield Problem((*where, "name"), what)


def _repeated_levels(memory: Mapping[str, Any]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, level in _numbered(memory.get("levels")):
        if isinstance(level, str) and first.setdefault(level, index) != index:
            yield Problem(("memory", "levels", index), f"level{shown(level)} is listed twice; remove one")


def _level_problems(memory: Mapping[str, Any], agents: Mapping[str, Any]) -> Iterator[Problem]:
    levels = [each for _, each in _numbered(memory.get("levels", DEFAULT_LEVELS)) if isinstance(each, str)]
    known, declared = frozenset(levels), ", ".join(filter(is_identifier, levels[:10]))
    for where, item in [*_files(memory), *_agents(agents)] if levels else ():
        level = item.get("level")
        if isinstance(level, str) and level not in known:
            yield Problem((*where, "level"), f"level{shown(level)} is not declared; use one of {declared}")


def _agent_problems(memory: Mapping[str, Any], agents: Mapping[str, Any]) -> Iterator[Problem]:
    files = [file for _, file in _files(memory) if isinstance(file.get("uid"), str)]
    uids = {file["uid"] for file in files}
    uid_of_name = {file["name"]: file["uid"] for file in files if isinstance(file.get("name"), str)}
    for where, agent in _agents(agents):
        seen: set[str] = set()
        for index, ref in _numbered(agent.get("memory")):
            uid, at = _mapping(ref).get("id"), (*where, "memory", index, "id")
            if not isinstance(uid, str):
                continue
            if uid in seen:
                yield Problem(at, "this agent refers to this file twice; keep one reference")
            elif uid in uid_of_name and uid not in uids:
                yield Problem(at, f"this is a file name; refer to the file by its uid{shown(uid_of_name[uid])}")
            elif uid not in uids:
                yield Problem(at, f"no file with uid{shown(uid)} is declared", written=uid, allowed=uids)
            seen.add(uid)


def _files(memory: Mapping[str, Any]) -> list[tuple[Where, Mapping[str, Any]]]:
    return [(("memory", "files", index), _mapping(file)) for index, file in _numbered(memory.get("files"))]


def _agents(agents: Mapping[str, Any]) -> list[tuple[Where, Mapping[str, Any]]]:
    return [(("agents", name), _mapping(agent)) for name, agent in agents.items()]


def _numbered(value: Any) -> Iterable[tuple[int, Any]]:
    return enumerate(value) if isinstance(value, (list, tuple)) else ()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
