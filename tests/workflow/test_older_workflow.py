"""The older shape of a workflow is read as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import astuple

from memfiles.errors import InvalidArgument, WorkflowError
from memfiles.workflow.workflow import MemoryFile, MemoryRef, MemorySpec, Workflow, misplaced_keys
from tests.workflow.workflow_texts import OLDER

NOTES = "7c9e6679-7425-40de-944b-e07fc1f90ae7"


NODE: dict[str, Any] = {"arguments": {"memoryRefs": []}}


def node(*refs: Any) -> dict[str, Any]:
    return {"id": "a", "arguments": {"memoryRefs": list(refs)}}


def file(uid: str, **fields: Any) -> dict[str, Any]:
    return {"type": "MemoryFile", "id": uid, **fields}


def read(memory: list[Any], **rest: Any) -> Workflow:
    return Workflow.parse(json.dumps({"memory": memory, **rest}))


def refusal(document: dict[str, Any]) -> list[str]:
    with pytest.raises(WorkflowError) as caught:
        Workflow.parse(json.dumps(document, indent=1), source="w.json")
    return str(caught.value).splitlines()


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_yaml_and_json(tmp_path: Path, suffix: str) -> None:
    """Files, agents and references are found in YAML and in JSON, and the file is left as it was."""
    text = OLDER if suffix == "yaml" else json.dumps(yaml.safe_load(OLDER))
    path = tmp_path / f"w.{suffix}"
    path.write_text(text)
    workflow = Workflow.load(path)

    assert {
        "name": "support",
        "files": [
            (
                NOTES,
                "customer-notes",
                "What we know about each customer.",
                4096,
                "PUBLIC",
                "# Customers\n",
                (),
                None,
                False,
            ),
            ("playbook", "playbook", "", 8388608, "PUBLIC", "", (), None, False),
        ],
        "agents": {"support": (MemoryRef(id=NOTES, mode="rw"), MemoryRef(id="playbook", mode="r"))},
        "extra": ["edges", "nodes"],
        "text": text,
    } == {
        "name": workflow.name,
        "files": [astuple(kept) for kept in workflow.memory.files],
        "agents": {name: agent.memory for name, agent in workflow.agents.items()},
        "extra": sorted(workflow.extra),
        "text": path.read_text(),
    }


def test_the_rest_is_at_its_default() -> None:
    """Where the records lie and how they are kept is what it is for any workflow that says nothing."""

    assert MemorySpec() == read([]).memory


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([file("a", label="notes")], ["notes"]),
        ([file("a", label="two words"), file("b"), file("c", label=None), file("d", label="")], ["a", "b", "c", "d"]),
        ([file("a", label="same"), file("b", label="same"), file("c", label="own")], ["a", "b", "own"]),
        ([file("a", label="b"), file("b", label="../b")], ["a", "b"]),
        ([file("a", label="a")], ["a"]),
        ([file("u" * 100)], ["u" * 64]),
    ],
)
def test_names(files: list[dict[str, Any]], expected: list[str]) -> None:
    """A file is named by its label where that is a valid name and nobody else's, else by its id."""

    assert expected == [declared.name for declared in read(files).memory.files]


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ({"nodes": [{"id": "i", "name": "n", "label": "l", **NODE}]}, ["i"]),
        ({"nodes": [{"name": "n", "label": "l", **NODE}]}, ["n"]),
        ({"nodes": [{"label": "l", **NODE}]}, ["l"]),
        ({"nodes": {"key": NODE}}, ["key"]),
        ({"flow": [{"steps": [{}, {**NODE}]}]}, ["flow[0].steps[1]"]),
        (NODE, ["agent"]),
        ({"flow": {"a": {"id": " ", **NODE, "sub": {"b": NODE}}}}, ["a", "b"]),
        ({"nodes": [{"id": "x", "arguments": {"memoryRefs": None}}, {"id": "y", "arguments": {}}, {"id": "z"}]}, []),
    ],
)
def test_agents(rest: dict[str, Any], expected: list[str]) -> None:
    """An agent is any node with memory references, wherever it stands, and is named by what it has."""

    assert expected == list(read([], **rest).agents)


def test_a_node_inside_memory_is_no_agent() -> None:
    """The memory list is not searched for agents."""

    assert {} == read([{"type": "Other", **NODE}]).agents


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"memory": [file("../x")]}, "5:10: memory[0].id: uid '../x' is not allowed"),
        ({"memory": [file("x"), file("x", label="y")]}, "9:10: memory[1].id: uid 'x' is also used by another file"),
        (
            {"memory": [file("x", content="ä" * (4 << 20) + "b")]},
            "6:15: memory[0].content: the content is 8388609 bytes and the cap is 8388608",
        ),
        ({"memory": [file("x", maxSizeBytes="2")]}, "6:20: memory[0].maxSizeBytes: this must be a whole number"),
        ({"memory": [file("x", maxSizeBytes=-1)]}, "6:20: memory[0].maxSizeBytes: this must be at least 0"),
        ({"memory": [file("x", description=5)]}, "6:19: memory[0].description: this must be text"),
        ({"memory": [{"type": "MemoryFile"}]}, "3:3: memory[0].id: this key is missing"),
        ({"memory": [{"id": "x"}]}, "3:3: memory[0]: this item has no type"),
        ({"memory": ["x"]}, "3:3: memory[0]: this item has no type"),
        (
            {"memory": [], "n": [node({"id": "x", "mode": "r"})]},
            "9:13: n[0].arguments.memoryRefs[0].id: no file with uid 'x'",
        ),
        (
            {"memory": [file("x")], "n": [node({"id": "x", "mode": "w"})]},
            "15:15: n[0].arguments.memoryRefs[0].mode: use 'r' or 'rw'",
        ),
        (
            {"memory": [file("x")], "n": [node({"id": "x"})]},
            "13:6: n[0].arguments.memoryRefs[0].mode: this key is missing",
        ),
        ({"memory": [], "n": [node("x")]}, "8:6: n[0].arguments.memoryRefs[0]: this must be a mapping"),
        (
            {"memory": [], "n": [{"id": "a", "arguments": {"memoryRefs": "x"}}]},
            "7:19: n[0].arguments.memoryRefs: this must be a list",
        ),
        ({"memory": [], "n": [node()] * 2}, "10:3: n[1]: another node has the same name 'a'"),
        (
            {
                "memory": [{"type": "V", "id": "v"}, file("x")],
                "n": [node({"id": "v", "mode": 1}, {"id": "x", "mode": "r"}, {"id": "x", "mode": "r"})],
            },
            "26:13: n[0].arguments.memoryRefs[2].id: this agent refers to this file twice",
        ),
        ({"memory": [], "n": {"\n": NODE}}, "4:3: n.(key): an agent's name is"),
    ],
)
def test_errors_stand_where_the_author_wrote(document: dict[str, Any], expected: str) -> None:
    """A mistake is one line, with the position and the words of the older shape."""
    lines = refusal(document)

    assert [True, 1] == [lines[0].startswith(f"w.json:{expected}"), len(lines)], lines


@pytest.mark.parametrize(
    ("fields", "cap"),
    [({}, 8388608), ({"maxSizeBytes": None}, 8388608), ({"maxSizeBytes": 0}, 0), ({"maxSizeBytes": 2}, 2)],
)
@pytest.mark.parametrize("content", ["", "x" * 20_000])
def test_caps(fields: dict[str, Any], cap: int, content: str) -> None:
    """Without a cap there is only the limit of a file, 0 is a cap, and declared content may be over the cap."""
    [found] = read([file("x", content=content, **fields)]).memory.files

    assert (cap, content) == (found.max_size_bytes, found.content)


def test_the_newer_shape_keeps_its_caps() -> None:
    """What the older shape allows is still an error in the newer one, also in Python."""
    for fields in ({"max_size_bytes": 0}, {"max_size_bytes": 2, "content": "abc"}):
        with pytest.raises(WorkflowError, match="at least 1|the cap is 2"):
            Workflow.parse(json.dumps({"memory": {"files": [{"uid": "x", "name": "x", **fields}]}}))
        with pytest.raises(InvalidArgument, match="at least 1|the cap is 2"):
            MemoryFile(uid="x", name="x", **fields)


BLOCK = {
    "directory": "kept",
    "mirror": {"url": "file:///m", "pull": "restore"},
    "levels": ["LOW", "HIGH"],
    "entries": {},
}


def test_a_block_of_our_own_next_to_the_list() -> None:
    """It names directory, mirror and whatever else the newer shape says, and the engine's keys stay the engine's."""
    workflow = read([file("x")], memfiles=BLOCK, n=[node({"id": "x", "mode": "rw"})])
    newer = {"memory": {**BLOCK, "files": [{"uid": "x", "name": "x", "max_size_bytes": 8388608}]}}

    assert Workflow.parse(json.dumps(newer)).memory == workflow.memory
    assert ({"a": "LOW"}, ["n"]) == ({name: it.level for name, it in workflow.agents.items()}, list(workflow.extra))
    assert read([file("x")]) == read([file("x")], memfiles=None) == read([file("x")], memfiles={})


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("kept", "3:14: memfiles: this must be a mapping"),
        ({"files": []}, "4:3: memfiles.files: the memory list declares the files"),
        ({"directory": "~/x"}, "4:16: memfiles.directory: '~' is not expanded"),
        ({"dir": "x"}, "4:3: memfiles.dir: unknown key; use one of directory, mirror"),
        ({"mirror": {"url": 5}}, "5:11: memfiles.mirror.url: this must be text"),
    ],
)
def test_errors_in_the_block(block: Any, expected: str) -> None:
    """They stand where they were written, as in the newer shape."""
    lines = refusal({"memory": [], "memfiles": block})

    assert [True, 1] == [lines[0].startswith(f"w.json:{expected}"), len(lines)], lines


def test_a_block_next_to_the_newer_shape_is_pointed_out(tmp_path: Path) -> None:
    """There it would have no effect."""
    path = tmp_path / "w.yaml"
    path.write_text("memory: {}\nmemfiles: {directory: x}\n")

    what = "this key has an effect only next to a memory list; move what it holds under `memory:`"
    assert [f"{path}:2:1: memfiles: {what}"] == misplaced_keys(path)
    path.write_text("memory: []\nmemfiles: {directory: x}\n")
    assert [] == misplaced_keys(path)


@pytest.mark.slow
def test_a_seed_of_the_largest_size(tmp_path: Path) -> None:
    """8 MiB of declared content load, however the document writes them."""
    path, content = tmp_path / "w.yaml", "some words in one line of many\n" * (8 * 1024 * 1024 // 31)
    for text in (json.dumps({"memory": [file("x", content=content)]}),
                 yaml.safe_dump({"memory": [file("x", content=content)]}, default_style="|")):  # fmt: skip
        path.write_text(text)
        assert content == Workflow.load(path).memory.files[0].content


def test_an_id_shared_with_another_type() -> None:
    """A reference to an id that a file has leads to the file, whatever else has that id."""
    workflow = read([{"type": "V", "id": "x"}, file("x")], n=[node({"id": "x", "mode": "r"})])

    assert (MemoryRef(id="x", mode="r"),) == workflow.agents["a"].memory


def test_a_name_that_is_no_text_belongs_to_the_engine() -> None:
    """The older shape promises nothing about other keys, so they may be anything."""

    assert "workflow" == read([], name={"en": "Support"}, agents=[1, 2]).name
