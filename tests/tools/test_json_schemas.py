"""The JSON Schemas say what the loader does, are fresh, and are found by editors."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from memfiles.errors import WorkflowError
from memfiles.records.record import Actor, Change, Record, digest, encode
from memfiles.tools.json_schemas import SCHEMAS, as_text, record_schema, tools_schema, workflow_schema, write
from memfiles.workflow.workflow import Workflow
from tests.support import ROOT
from tests.support.records import files_under
from tests.support.workflows import opened, write_workflow
from tests.workflow.workflow_texts import EXAMPLE, OLDER

CHECKED_IN = ROOT / "schemas"
WORKFLOW = jsonschema.Draft202012Validator(workflow_schema())
EVERYTHING = """\
name: desk
memory:
  files: [{uid: notes-1, name: notes}]
  entries: {}
agents:
  support: {memory: [{id: notes-1, mode: rw}]}
"""
BAD = [
    "memory: {dir: x}",
    "memory: {files: [{uid: ../x, name: n}]}",
    "memory: {files: [{uid: x, name: a b}]}",
    "memory: {files: [{uid: x}]}",
    "memory: {files: [{uid: x, name: n, siez: 1}]}",
    "memory: {files: [{uid: x, name: n, max_size_bytes: 0}]}",
    "memory: {files: [{uid: x, name: n, max_size_bytes: '5'}]}",
    "memory: {files: [{uid: x, name: n, content: }]}",
    "memory: {files: [{uid: x, name: n, level: a b}]}",
    "memory: {files: {uid: x, name: n}}",
    "memory: {levels: []}",
    "memory: {levels: [A, A]}",
    "memory: {durability: disk}",
    "memory: {secrets: hide}",
    "memory: {directory: ~/x}",
    "memory: {directory: ''}",
    "memory: {mirror: s3://b/p}",
    "memory: {mirror: {url: b}}",
    "memory: {mirror: {pull: restore}}",
    "memory: {mirror: {url: 's3://b', pull: 0}}",
    "memory: {mirror: {url: 's3://b', pull: 5 m}}",
    "memory: {mirror: {url: 's3://b', on_conflict: both}}",
    "memory: {entries: {max_entries: 0}}",
    "memory: {entries: {categories: {a b: {}}}}",
    "memory: {entries: {categories: {daily: {ttl: soon}}}}",
    "memory: {entries: {categories: {daily: {max_bytes: 0}}}}",
    "memory: {entries: {kinds: {epos: {}}}}",
    "memory: {entries: {kinds: {note: {ttl: 5}}}}",
    "memory: {}\nagents: {a: {memory: [{id: x, mode: w}]}}",
    "memory: {}\nagents: {a: {memory: [{id: x}]}}",
    "memory: {}\nagents: {a: {files: []}}",
    "memory: {}\nagents: {'': {}}",
    "memory: {}\nagents: [a]",
    "memory: 5",
    "memory: {}\nname: 5",
    "name: x",
    "[]",
    "memory: [{type: MemoryFile}]",
    "memory: [{type: MemoryFile, id: ../x}]",
    "memory: [{type: MemoryFile, id: x, maxSizeBytes: -1}]",
    "{memory: [], memfiles: {files: []}}",
    "{memory: [], memfiles: {dir: x}}",
    "memory: [{type: MemoryFile, id: x, content: 5}]",
    "memory: [{id: x}]",
    "memory: [x]",
]
GOOD = [
    EXAMPLE,
    OLDER,
    "memory: {}",
    "memory: {files: [{uid: x, name: n, level: }], mirror: , entries: }\nagents: {é: {}}",
    "memory: {mirror: {url: 'file:///m', pull: 30}, directory: /var/lib/m}\nextra: {any: [1, x]}",
    "memory: {mirror: {url: 'file:///m', pull: 5m}}\npath: 5",
    "memory: {entries: {kinds: {note: {max_entries: 5}}, categories: {daily: {ttl: 2d, max_bytes: 5}}}}",
    "memory: [{type: Other, id: 5}]\nagents: [1]\nname: 5",
    "memory: [{type: MemoryFile, id: x, maxSizeBytes: 0, content: over}]\nmemfiles: {directory: d, mirror: }",
    "memory: {}\nmemfiles: 5",
]


@pytest.mark.parametrize("name", SCHEMAS)
def test_fresh(name: str) -> None:
    """The checked-in schema is the generated one: ``python -m memfiles.tools.json_schemas`` refreshes it."""

    assert as_text(SCHEMAS[name]()) == (CHECKED_IN / f"{name}.schema.json").read_text("utf-8")


def test_write(tmp_path: Path) -> None:
    """Writing makes one file a schema, and nothing else stands in ``schemas/``."""
    written = {path.name for path in write(tmp_path / "new")}

    assert (
        {path.name for path in CHECKED_IN.iterdir()} == written == {path.name for path in (tmp_path / "new").iterdir()}
    )


@pytest.mark.slow
def test_metaschema() -> None:
    """Every schema is a valid one, for the library and for the tool that pre-commit users run."""
    for make in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(make())
    command = [sys.executable, "-m", "check_jsonschema", "--check-metaschema", *map(str, CHECKED_IN.iterdir())]

    assert 0 == subprocess.run(command, capture_output=True, check=False).returncode


@pytest.mark.parametrize("text", GOOD)
def test_good_for_both(text: str) -> None:
    """What the loader reads, the schema allows."""

    assert Workflow.parse(text)
    assert [] == [error.message for error in WORKFLOW.iter_errors(yaml.safe_load(text))]


@pytest.mark.parametrize("text", BAD)
def test_bad_for_both(text: str) -> None:
    """What the schema can express is refused by it and by the loader."""
    with pytest.raises(WorkflowError):
        Workflow.parse(text)

    assert not WORKFLOW.is_valid(yaml.safe_load(text))


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_equals_its_file(name: str) -> None:
    """What is read back from JSON is the same value, as doctor compares a file of the schema with it."""
    schema = SCHEMAS[name]()

    assert json.loads(as_text(schema)) == schema


def test_every_key_is_explained() -> None:
    """An editor shows a description for every key of the workflow."""
    schema = workflow_schema()
    objects = [*schema["$defs"].values(), schema]

    assert [] == [
        key
        for holder in objects
        for key, about in holder.get("properties", {}).items()
        if len(about.get("description", "")) < 15
    ]


def test_unknown_keys_are_closed_off() -> None:
    """Inside ``memory`` and ``agents`` no object allows other keys; beside them everything is allowed."""
    schema = workflow_schema()
    ours = {name: held for name, held in schema["$defs"].items() if not name.startswith("Older")}

    assert dict.fromkeys(ours, False) == {name: held["additionalProperties"] for name, held in ours.items()}
    assert "additionalProperties" not in schema


def test_the_first_line_finds_the_schema(tmp_path: Path) -> None:
    """The comment of the example, followed from the workflow's folder, leads to a schema that accepts it."""
    write(tmp_path / "schemas")
    schema = json.loads(_schema_named_by(write_workflow(tmp_path, EXAMPLE)).read_text())

    assert jsonschema.Draft202012Validator(schema).is_valid(yaml.safe_load(EXAMPLE))


WORKFLOWS = [path for folder in ("examples", "tests") for path in (ROOT / folder).rglob("*.yaml")]
WITH_SCHEMA = [path for path in WORKFLOWS if "yaml-language-server" in path.read_text()]


@pytest.mark.parametrize("path", WITH_SCHEMA, ids=lambda it: it.name)
def test_the_repositorys_workflows(path: Path) -> None:
    """Every workflow in the repository that names a schema names one that exists and accepts it."""
    schema = json.loads(_schema_named_by(path).read_text())

    assert jsonschema.Draft202012Validator(schema).is_valid(yaml.safe_load(path.read_text()))


def test_record() -> None:
    """A record as it is written is described, and one that lacks its format is not."""
    now = "2026-11-21T09:00:00.000Z"
    change = Change(revision=1, at=now, op="append", by=Actor(agent="support"), bytes=2)
    record = Record("x", "x", "", 9, "PUBLIC", "hi", digest(b"hi"), 1, now, now, history=(change,))
    written = json.loads(encode(record))
    validator = jsonschema.Draft202012Validator(record_schema())

    assert [True, False, False] == [
        validator.is_valid(written),
        validator.is_valid({key: value for key, value in written.items() if key != "format"}),
        validator.is_valid({**written, "uid": "../x"}),
    ]


def test_every_record_on_a_disk(tmp_path: Path) -> None:
    """Files, entries and marks with all that happened to them are described, each as one kind."""
    with opened(tmp_path, EVERYTHING) as memory:
        session = memory.session("support", run="evt-1", channel="email", thread="t")
        memory.manager.append("notes-1", "- one\n", call_id="toolu_01")
        memory.manager.edit("notes-1", "one", "two")
        memory.manager.undo("notes-1", to_revision=1)
        memory.manager.redact("notes-1", "two")
        for key in ("plan", "gone", "deleted"):
            memory.entries.save(session, key, f"about {key}", tags=["a"], links=["plan"], category="daily", source="s")
        memory.entries.update(session, "plan", content="new", outcome="success", pinned=True)
        memory.entries.delete(session, "deleted")
        memory.entries.forget(session, key="gone", why="asked for")
        memory.entries.save(session, "gone", "again")
        memory.entries.forget(session, key="gone")
    directory = tmp_path / ".memory"
    kept = files_under(directory).items()
    records = [json.loads(body) for path, body in kept if re.fullmatch(r"[^/]+\.json|entries/[^/]+/[^/]+", path)]
    validator = jsonschema.Draft202012Validator(record_schema())

    assert ["entry", "entry", "file", "tombstone", "tombstone", "vacated"] == sorted(
        record["type"] for record in records
    )
    assert [] == [error.message for record in records for error in validator.iter_errors(record)]
    assert not any(validator.is_valid({**record, "type": "other"}) for record in records)
    assert not any(validator.is_valid({**record, "revision": "1"}) for record in records)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ({"name": "read_memory", "arguments": {"file": "notes", "offset": 1}}, True),
        ({"name": "append_memory", "arguments": {"file": "notes", "content": "x"}}, True),
        ({"name": "edit_memory", "arguments": {"file": "notes", "old_string": "x", "new_string": ""}}, True),
        ({"name": "edit_memory", "arguments": {"file": "notes", "content": "x"}}, False),
        ({"name": "append_memory", "arguments": {"file": "../notes", "content": "x"}}, False),
        ({"name": "memory_save", "arguments": {"key": "k", "content": "x", "tags": ["a"], "kind": "fact"}}, True),
        ({"name": "memory_save", "arguments": {"key": "k", "content": "x", "level": "PUBLIC"}}, False),
        ({"name": "memory_save", "arguments": {"key": "k", "content": "x", "tags": "a"}}, False),
        ({"name": "memory_list", "arguments": {}}, True),
        ({"name": "memory_search", "arguments": {"query": "x", "max_results": 51}}, False),
        ({"name": "memory_recall", "arguments": {"query": "x"}}, True),
        ({"name": "memory_create", "arguments": {"key": "k", "content": "x"}}, True),
        ({"name": "drop_memory", "arguments": {"file": "notes"}}, False),
        ({"name": "read_memory"}, False),
    ],
)
def test_tools(call: dict[str, Any], expected: bool) -> None:
    """A tool call is described with the arguments of its own tool."""

    assert expected == jsonschema.Draft202012Validator(tools_schema()).is_valid(call)


def test_command_line(tmp_path: Path) -> None:
    """``python -m memfiles.tools.json_schemas DIRECTORY`` writes the schemas there and lists them."""
    run = subprocess.run(
        [sys.executable, "-m", "memfiles.tools.json_schemas", str(tmp_path)], capture_output=True, text=True, check=True
    )

    assert sorted(map(str, tmp_path.iterdir())) == run.stdout.splitlines()


def _schema_named_by(path: Path) -> Path:
    comment = re.match(r"# yaml-language-server: \$schema=(\S+)\n", path.read_text())
    assert comment
    return path.parent / comment[1]
