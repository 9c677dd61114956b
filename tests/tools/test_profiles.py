"""The profile ``compact``: few and short tools, each of which serves memory files and entries under the same rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import memfiles
from memfiles.tools.definitions import ToolDefinition
from memfiles.tools.dialects import DIALECTS
from memfiles.tools.profiles import offered
from memfiles.tools.session import Session
from memfiles.workflow.fields import TOOL_NAMES
from tests.support.records import files_under
from tests.support.saved import without_ids

WORKFLOW = """\
memory:
  durability: os
  files:
    - {uid: notes-1, name: notes, description: What is known., level: INTERNAL, content: "- Ada is on Free.\\n"}
    - {uid: rules-1, name: rules, description: Rules., level: INTERNAL, content: "Be kind.\\n"}
    - {uid: deals-1, name: deals, description: Deals., level: CONFIDENTIAL, content: "secret deal\\n"}
  entries: {tool_names: compact}
agents:
  support: {level: INTERNAL, memory: [{id: notes-1, mode: rw}, {id: rules-1, mode: r}, {id: deals-1, mode: rw}]}
  other: {level: INTERNAL}
"""
COMPACT = offered("compact", readable=["customer-notes", "playbook"], writable=["customer-notes"])


@pytest.fixture
def session(memory: memfiles.Memory) -> Session:
    return memory.session("support")


def done(session: Session, tool: str, call_id: str | None = None, /, **sent: Any) -> dict[str, Any]:
    result = session.call(tool, sent, call_id=call_id)
    assert not result.is_error, result.text
    return result.data or {}


def refused(session: Session, tool: str, **sent: Any) -> tuple[str | None, str]:
    result = session.call(tool, sent)
    assert result.is_error
    return result.code, result.text


@pytest.mark.parametrize("dialect", DIALECTS)
def test_it_is_small(session: Session, dialect: str) -> None:
    """At most six tools and 4,000 characters for memory files and entries together, whatever the vendor."""
    shapes = session.tools(dialect)

    assert (True, True) == (len(shapes) <= 6, len(json.dumps(shapes)) <= 4000)


def test_it_is_less_than_half_of_the_default() -> None:
    """In characters of JSON, as a vendor gets them."""
    sizes = {
        names: len(json.dumps([[tool.name, tool.description, tool.parameters] for tool in offered(
            names, readable=["a", "b"], writable=["a"])])) for names in TOOL_NAMES
    }  # fmt: skip

    assert sizes["compact"] * 2 < sizes["default"] < 7500


@pytest.mark.parametrize("tool", COMPACT, ids=lambda tool: tool.name)
def test_schemas_are_closed_and_plain(tool: ToolDefinition) -> None:
    """As those of the other profiles: no union, reference, title or level; and the examples fit."""
    Draft202012Validator.check_schema(tool.parameters)
    properties = tool.parameters["properties"]
    keywords = {keyword for part in properties.values() for keyword in part}
    validator = Draft202012Validator(tool.parameters)

    assert tool.parameters["additionalProperties"] is False
    assert set() == keywords - {"type", "description", "enum", "minimum", "maximum", "items"}
    assert "level" not in properties
    assert tool.examples
    assert [] == [error.message for example in tool.examples for error in validator.iter_errors(example)]


def test_the_files_that_may_be_named_are_those_of_the_session(session: Session, memory: memfiles.Memory) -> None:
    """What may be read and what may be changed; without any, the tools are for entries alone."""

    def files(session: Session) -> dict[str, Any]:
        return {tool.name: tool.parameters["properties"].get("file", {}).get("enum") for tool in session.definitions()}

    none = {"memory_search": None, "memory_delete": None}
    assert {"memory_read": ["notes", "rules"], **dict.fromkeys(("memory_write", "memory_edit"), ["notes"]), **none} == (
        files(session)
    )
    of_other = memory.session("other").definitions()
    assert [["key"], ["key"], ["key", "old_string", "new_string"], [], ["key"]] == (
        [tool.parameters["required"] for tool in of_other]
    )
    assert not any("file" in example for tool in of_other for example in tool.examples)
    session.raise_level("CONFIDENTIAL")
    assert (["deals", "notes", "rules"], ["deals"]) == tuple(files(session).values())[:2]


def test_a_file_is_read_added_to_and_edited(session: Session) -> None:
    """By the tools that the index card names, with the receipts of the other profiles."""
    added = done(session, "memory_write", file="notes", content="- Bob is on Free.\n")
    edited = done(session, "memory_edit", file="notes", old_string="Free", new_string="Pro")

    assert "- Ada is on Pro.\n- Bob is on Free.\n" == session.call("memory_read", {"file": "notes"}).text
    assert "- Bob is on Free.\n" == session.call("memory_read", {"file": "notes", "offset": 2}).text
    assert ("notes", 2, 3, 2, 1) == (
        *(added["name"], added["revision"]), *(edited["revision"], edited["matches"], edited["line"])
    )  # fmt: skip
    assert "Read with memory_read(file). Change RW files with memory_write or memory_edit." in session.system_prompt()
    assert "read_memory" not in session.system_prompt()


def test_an_entry_is_saved_read_edited_found_and_deleted(session: Session) -> None:
    """In the shapes that entries have under every profile."""
    saved = done(session, "memory_write", key="ada/plan", content="Ada is on Free.", tags=["ada"], kind="fact")
    done(session, "memory_edit", key="ada/plan", old_string="Free", new_string="Pro")
    found = done(session, "memory_read", key="ada/plan")
    line = done(session, "memory_search", prefix="ada/")["memories"][0]

    assert {"saved": True, "key": "ada/plan", "level": "INTERNAL", "revision": 1, "evicted": []} == without_ids(saved)
    assert (True, "Ada is on Pro.", ["ada"], "fact", 2) == (
        *(found["found"], found["content"], found["tags"]), *(found["kind"], found["revision"])
    )  # fmt: skip
    assert ["ada/plan"] == [each["key"] for each in done(session, "memory_search", query="which plan")["results"]]
    assert ("ada/plan", False) == (line["key"], "content" in line)
    assert done(session, "memory_delete", key="ada/plan")["deleted"]
    assert {"found": False, "key": "ada/plan"} == done(session, "memory_read", key="ada/plan")


def test_labels_and_outcomes_change_without_the_text(session: Session) -> None:
    """What is left out stays; an outcome counts for an entry that is there."""
    done(session, "memory_write", key="how-to", content="Refund at once.", kind="procedure")
    done(session, "memory_write", key="how-to", tags=["refund"], outcome="success")
    done(session, "memory_write", key="how-to", content="Refund within a day.", outcome="success")
    found = done(session, "memory_read", key="how-to")

    assert ("Refund within a day.", ["refund"], 2) == (found["content"], found["tags"], found["successes"])
    assert "entry_not_found" == refused(session, "memory_write", key="nothing", tags=["a"])[0]


def test_pages_are_continued(session: Session) -> None:
    """A list without a query is bounded, and says where it goes on."""
    for name in "abc":
        done(session, "memory_write", key=name, content="x")
    page = done(session, "memory_search", max_results=2)
    rest = done(session, "memory_search", max_results=2, cursor=page["next"])

    assert [["a", "b"], ["c"], None] == [
        *([each["key"] for each in found["memories"]] for found in (page, rest)), rest["next"]
    ]  # fmt: skip


def test_a_key_that_names_a_file_means_the_file(session: Session) -> None:
    """Models take the name on the index card for a key. An entry that has the key comes first."""
    done(session, "memory_write", name="notes", content="- Bob.\n")

    assert "- Ada is on Free.\n- Bob.\n" == session.call("memory_read", {"key": "notes"}).text
    assert session.entries is not None
    session.entries.save(session, "notes", "an entry")
    assert "an entry" == done(session, "memory_read", key="notes")["content"]
    assert "- Ada is on Free.\n- Bob.\n" == session.call("memory_read", {"file": "notes"}).text


def test_a_hidden_file_is_not_there(session: Session) -> None:
    """Its name is a key like any other, and as a file it is unknown."""
    unknown = refused(session, "memory_read", file="nowhere")[1]

    assert refused(session, "memory_read", file="deals")[1] == unknown.replace("nowhere", "deals")
    assert {"found": False, "key": "deals"} == done(session, "memory_read", key="deals")
    done(session, "memory_write", key="deals", content="Ours.")
    session.raise_level("CONFIDENTIAL")
    assert "Ours." == done(session, "memory_read", key="deals")["content"]
    assert "secret deal\n" == session.call("memory_read", {"file": "deals"}).text


@pytest.mark.parametrize(
    ("tool", "sent", "expected"),
    [
        ("memory_read", {}, "memory_read: pass 'file' for a memory file, or 'key' for an entry, and not both"),
        ("memory_read", {"file": "notes", "key": "k"}, "memory_read: pass 'file' for a memory file, or 'key'"),
        ("memory_read", {"key": "k", "limit": 3}, "memory_read: 'limit' is only for memory files"),
        ("memory_write", {"file": "notes"}, "memory_write: 'content' is missing: pass the text to add"),
        ("memory_write", {"file": "n" * 9000}, "memory_write: 'content' is missing: pass the text to add"),
        ("memory_write", {"key": "k"}, "memory_write: 'content' is missing: pass the text to save"),
        ("memory_write", {"file": "notes", "content": "x", "tags": []}, "memory_write: 'tags' is only for entries"),
        ("memory_write", {"key": "k", "content": "x", "level": "PUBLIC"}, "'level' is not an argument: no call can"),
        ("memory_write", {"file": "rules", "content": "x"}, "rules is read-only here; write to a file marked RW"),
        ("memory_edit", {"key": "k", "old_string": "a"}, "'new_string' is missing: pass the new text, or"),
        ("memory_edit", {"key": "k", "old_string": "a", "new_string": "b"}, "there is no entry 'k' at this session's"),
        ("memory_edit", {"file": "notes", "old_string": "Bo", "new_string": "b"}, "does not occur in notes"),
        ("memory_search", {"query": "x", "cursor": "k"}, "memory_search: 'cursor' continues a list: leave out 'query'"),
        ("memory_search", {"query": "x", "max_results": 51}, "'max_results' must be 50 or less"),
        ("memory_delete", {"key": "notes"}, "there is no entry 'notes' at this session's level"),
        ("memory_save", {"key": "k", "content": "x"}, "unknown tool 'memory_save': use one of memory_read, memory_wri"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(session: Session, tool: str, sent: dict[str, Any], expected: str) -> None:
    """With the argument, and what to do, however long what was sent; nothing was changed."""
    said = refused(session, tool, **sent)[1]

    assert (True, True) == (expected in said, len(said) < 1000), said[:1000]
    assert "- Ada is on Free.\n" == session.call("memory_read", {"file": "notes"}).text
    assert [] == done(session, "memory_search")["memories"]


def test_nothing_is_not_given(session: Session) -> None:
    """Strict modes send null or an empty text for what was left out."""
    done(session, "memory_write", file=None, key="k", content="x", category="", kind=None, outcome="", tags=None)

    assert "x" == done(session, "memory_read", file="", key="k", offset=None)["content"]


def test_a_repeated_call_changes_nothing(session: Session) -> None:
    """Of each tool, for files and entries alike."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("memory_write", {"file": "notes", "content": "- a a\n"}),
        ("memory_edit", {"file": "notes", "old_string": "a", "new_string": "b"}),
        ("memory_write", {"key": "k", "content": "a a"}),
        ("memory_edit", {"key": "k", "old_string": "a", "new_string": "b"}),
    ]
    first = [done(session, tool, f"call_{at}", **sent) for at, (tool, sent) in enumerate(calls)]
    again = [done(session, tool, f"call_{at}", **sent) for at, (tool, sent) in enumerate(calls)]

    assert [it["revision"] for it in first] == [it["revision"] for it in again]
    assert [True] * 4 == [it["replayed"] for it in again]
    assert "b a" == done(session, "memory_read", key="k")["content"]


def test_refusals_of_files_reach_the_audit(memory: memfiles.Memory, session: Session, tmp_path: Path) -> None:
    """A write to a file that may not be changed is a line there, as under the other profiles."""
    refused(session, "memory_write", file="rules", content="x")
    memory.close()
    lines = [line for body in files_under(tmp_path / ".memory/audit").values() for line in body.decode().splitlines()]

    assert ["append_memory"] == [json.loads(line)["op"] for line in lines if "read_only" in line]
