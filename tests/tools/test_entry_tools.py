"""The tools for entries do what they say, in one JSON object, and never raise into the agent's loop."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import memfiles
from memfiles.errors import InvalidArgument
from memfiles.tools.results import ToolResult
from memfiles.tools.session import Session
from memfiles.workflow.fields import TOOL_NAMES
from tests.support.saved import files_holding
from tests.support.workflows import opened
from tests.tools.entry_calls import done, save

WORKFLOW = """\
memory:
  durability: os
  files: [{uid: notes-1, name: notes, description: What is known., level: INTERNAL}]
  entries: {max_entries: 100}
agents:
  support: {level: INTERNAL, memory: [{id: notes-1, mode: rw}]}
  other: {level: INTERNAL}
"""
FOUND = {
    "found": True,
    "key": "plan",
    "content": "Ada is on Pro",
    "level": "INTERNAL",
    "tags": ["ada"],
    "category": "general",
    "kind": "fact",
    "confidence": 0.5,
    "importance": 0.75,
    "pinned": True,
    "links": ["refund"],
    "expires_at": None,
    "revision": 1,
    "successes": 0,
    "failures": 0,
    "size_bytes": 13,
}


@pytest.fixture
def session(memory: memfiles.Memory) -> Session:
    return memory.session("support", run="monday")


def names(session: Session) -> list[str]:
    return [tool["name"] for tool in session.tools("anthropic")]


def test_a_save_answers_with_its_receipt(session: Session) -> None:
    """What was saved, at which level and revision, and what had to make room."""

    receipt = save(session)

    assert re.fullmatch("[0-9a-f]{32}", receipt.pop("id"))
    assert {"saved": True, "key": "plan", "level": "INTERNAL", "revision": 1, "evicted": []} == receipt


def test_a_get_answers_with_everything(session: Session) -> None:
    """The whole entry, with its own level and times."""
    save(session, tags=["ada"], kind="fact", importance=0.75, pinned=True, confidence=0.5, links=["refund"])
    found = done(session, "memory_get", {"key": "plan"})

    assert found.pop("created_at") == found.pop("updated_at")
    assert re.fullmatch("[0-9a-f]{32}", found.pop("id"))
    assert {"agent": "support", "session": "monday", "run": "monday"} == found.pop("provenance")
    assert FOUND == found


def test_an_unknown_key_is_no_error(session: Session) -> None:
    """A model that asks for what is not there is told so, and goes on."""

    assert {"found": False, "key": "nothing"} == done(session, "memory_get", {"key": "nothing"})


def test_a_search_answers_with_matches(session: Session) -> None:
    """Each with its key, level, tags and score; and with what was asked."""
    save(session, tags=["ada"])
    found = done(session, "memory_search", {"query": "which plan is Ada on?"})

    assert ["results", "query", "meaning"] == list(found)
    assert "which plan is Ada on?" == found["query"]
    assert [("plan", "Ada is on Pro", "INTERNAL", ["ada"])] == [
        (result["key"], result["content"], result["level"], result["tags"]) for result in found["results"]
    ]
    assert {"score", "legs", "snippet", "category", "kind", "updated_at"} <= set(found["results"][0])


def test_a_long_content_is_cut_in_a_search(session: Session) -> None:
    """It says so, and a get returns all of it."""
    save(session, content="Ada " * 1000)
    result = done(session, "memory_search", {"query": "Ada"})["results"][0]

    assert (True, 2000) == (result["truncated"], len(result["content"].encode()))
    assert "Ada " * 1000 == done(session, "memory_get", {"key": "plan"})["content"]


def test_a_search_is_bounded(session: Session) -> None:
    """Ten results unless another number was asked for."""
    for number in range(12):
        save(session, f"plan-{number}")

    assert 10 == len(done(session, "memory_search", {"query": "Ada"})["results"])
    assert 3 == len(done(session, "memory_search", {"q": "Ada", "top_k": 3})["results"])


def test_a_list_is_paged(session: Session) -> None:
    """The cursor leads to the next page, and null is the end."""
    for number in range(5):
        save(session, f"plan-{number}")
    save(session, "refund")
    first = done(session, "memory_list", {"prefix": "plan-", "limit": 3})
    second = done(session, "memory_list", {"prefix": "plan-", "limit": 3, "cursor": first["next"]})

    assert [f"plan-{number}" for number in range(5)] == [
        each["key"] for page in (first, second) for each in page["memories"]
    ]
    assert second["next"] is None
    assert {
        "key",
        "level",
        "tags",
        "category",
        "kind",
        "size_bytes",
        "updated_at",
        "pinned",
        "id",
        "provenance",
    } == set(first["memories"][0])


@pytest.mark.parametrize("tool", ["memory_search", "memory_list"])
def test_filters_leave_out(session: Session, tool: str) -> None:
    """By tag, category and kind."""
    save(session, "a", tags=["x", "y"], kind="fact")
    save(session, "b", tags=["x"], category="core")

    def keys(**filters: Any) -> set[str]:
        query = {"query": "Ada"} if tool == "memory_search" else {}
        data = done(session, tool, query | filters)
        return {each["key"] for each in (data.get("results") or data.get("memories") or [])}

    assert [{"a", "b"}, {"a"}, {"b"}, {"a"}, set()] == [
        keys(tags=["x"]),
        keys(tags=["x", "y"]),
        keys(category="core"),
        keys(kind="fact"),
        keys(kind="fact", category="core"),
    ]


def test_a_delete_hides(session: Session) -> None:
    """The key is then as good as never saved."""
    save(session)
    deleted = done(session, "memory_delete", {"key": "plan"})

    assert (True, "plan") == (deleted["deleted"], deleted["key"])
    assert {"found": False, "key": "plan"} == done(session, "memory_get", {"key": "plan"})


def test_an_update_changes_what_was_said(session: Session) -> None:
    """What is not passed stays, and an outcome is counted."""
    save(session, tags=["ada"], kind="procedure")
    updated = done(session, "memory_update", {"key": "plan", "pinned": True, "outcome": "success"})
    found = done(session, "memory_get", {"key": "plan"})

    assert (True, 2) == (updated["saved"], updated["revision"])
    assert ("Ada is on Pro", ["ada"], True, 1) == tuple(
        found[name] for name in ("content", "tags", "pinned", "successes")
    )


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("memory_delete", {"key": "nothing"}, "entry_not_found"),
        ("memory_update", {"key": "nothing", "content": "x"}, "entry_not_found"),
        ("memory_save", {"key": "plan"}, "invalid_argument"),
        ("memory_save", {"key": "plan", "content": "x", "level": "PUBLIC"}, "invalid_argument"),
        ("memory_save", {"key": " ", "content": "x"}, "invalid_argument"),
        ("memory_save", {"key": "x" * 1_000_000, "content": "x"}, "invalid_argument"),
        ("memory_save", {"key": "plan", "content": "x" * 1_000_000}, "size_exceeded"),
        ("memory_save", {"key": "plan", "content": "\ud800"}, "invalid_argument"),
        ("memory_save", {"key": "plan", "content": "x", "category": "a b"}, "invalid_argument"),
        ("memory_save", "not json", "invalid_argument"),
        ("memory_list", {"cursor": "a\nb"}, "invalid_argument"),
        ("memory_get", {"key": "a\nb"}, "invalid_argument"),
        ("memory_store", {"key": "plan", "content": "x"}, "unknown_tool"),
    ],
)
def test_a_refusal_is_an_error_with_a_stable_code(session: Session, tool: str, arguments: object, code: str) -> None:
    """Nothing is raised, and the sentence is short."""
    result = session.call(tool, arguments)

    assert (True, code) == (result.is_error, result.code)
    assert 0 < len(result.text) < 700


def test_a_refused_level_says_why(session: Session) -> None:
    """The model learns that the session decides."""
    result = session.call("memory_save", {"key": "plan", "content": "x", "level": "PUBLIC"})

    assert "'level' is not an argument: no call can choose it" in result.text


@pytest.mark.parametrize("tool", ["memory_get", "memory_delete", "memory_update"])
def test_a_hidden_key_looks_like_an_unknown_one(memory: memfiles.Memory, session: Session, tool: str) -> None:
    """What another agent saved, or what lies above the session, is not there."""
    save(memory.session("other"), "others")
    save(memory.session("support", level="CONFIDENTIAL"), "higher")
    more = {"content": "x"} if tool == "memory_update" else {}
    answers = {
        key: session.call(tool, {"key": key, **more}).text.replace(key, "KEY")
        for key in ("others", "higher", "nothing")
    }

    assert 1 == len(set(answers.values()))


def test_a_raised_level_counts_for_the_very_next_call(session: Session) -> None:
    """The same toolset saves higher at once, and sees both levels."""
    save(session)
    session.raise_level("CONFIDENTIAL")

    assert "CONFIDENTIAL" == save(session, content="20 % off")["level"]
    assert "20 % off" == done(session, "memory_get", {"key": "plan"})["content"]


def test_a_call_made_twice_is_made_once(session: Session) -> None:
    """The same call with the same id is answered again and changes nothing."""
    call = ("memory_save", {"key": "plan", "content": "Ada is on Pro"})
    first = done(session, *call, call_id="toolu_1")
    save(session, content="Ada is on Max")
    again = done(session, *call, call_id="toolu_1")

    assert (1, 1, True) == (first["revision"], again["revision"], again["replayed"])
    assert "Ada is on Max" == done(session, "memory_get", {"key": "plan"})["content"]


def test_a_credential_is_refused(session: Session) -> None:
    """The message names the rule and never the value."""
    secret = "dop_v1_" + hashlib.sha256(b"a token of no use").hexdigest()
    result = session.call("memory_save", {"key": "plan", "content": f"token: {secret}"})

    assert "secret_refused" == result.code
    assert secret not in result.text


@pytest.mark.parametrize(("tool_names", "operations"), TOOL_NAMES.items())
def test_the_names_of_a_session(memory: memfiles.Memory, tool_names: str, operations: dict[str, str]) -> None:
    """A session has the tools of one set of names, after those for files; compact tools are for both."""
    session = memory.session("support", tool_names=tool_names)

    of_files = [] if tool_names == "compact" else ["read_memory", "append_memory", "edit_memory"]

    assert [*of_files, *operations] == names(session)


def test_the_names_that_a_workflow_declares(tmp_path: Path) -> None:
    """They count where a session does not choose; a session may."""
    with opened(tmp_path, WORKFLOW.replace("{max_entries: 100}", "{tool_names: crud}")) as memory:
        assert "memory_create" in names(memory.session("support"))
        assert "memory_store" in names(memory.session("support", tool_names="store-recall"))


def test_unknown_names_are_refused(memory: memfiles.Memory) -> None:
    """A session is not made, and the known names are listed."""
    with pytest.raises(InvalidArgument, match="default, store-recall, crud, compact"):
        memory.session("support", tool_names="langchain")


def test_store_recall_and_delete(memory: memfiles.Memory) -> None:
    """A recall is a get by key or a search by query, and a delete hides."""
    session = memory.session("support", tool_names="store-recall")
    done(session, "memory_store", {"key": "plan", "value": "Ada is on Pro"})

    assert "Ada is on Pro" == done(session, "memory_recall", {"key": "plan"})["content"]
    assert ["plan"] == [each["key"] for each in done(session, "memory_recall", {"query": "Ada"})["results"]]
    assert done(session, "memory_delete", {"key": "plan"})["deleted"]
    assert {"found": False, "key": "plan"} == done(session, "memory_recall", {"key": "plan", "query": ""})


ALLOWED = """\
memory:
  durability: os
  entries: {}
agents:
  clerk: {forget: true}
  plain: {}
  guest: {entries: r}
"""


@pytest.mark.parametrize("tool_names", TOOL_NAMES)
def test_to_forget_is_for_good(tmp_path: Path, tool_names: str) -> None:
    """The text and the key are in no file any more, and nobody can restore it; a key that is not there is an error."""
    with opened(tmp_path, ALLOWED) as memory:
        session = memory.session("clerk", tool_names=tool_names)
        memory.entries.save(session, "zebra/plan", "Ada has a zebrafish")
        forgotten = done(session, "memory_forget", {"key": "zebra/plan", "why": "she asked"})
        again = session.call("memory_forget", {"key": "zebra/plan"})

        assert (1, ["zebra/plan"]) == (forgotten["forgotten"], forgotten["keys"])
        assert "entry_not_found" == again.code
        assert [] == files_holding(tmp_path, "zebra")


@pytest.mark.parametrize("tool_names", TOOL_NAMES)
def test_who_may_not_forget_is_told_to_delete(tmp_path: Path, tool_names: str) -> None:
    """An agent that was used to the old name of the delete learns the new one, and nothing is hidden or gone."""
    with opened(tmp_path, ALLOWED) as memory:
        session = memory.session("plain", tool_names=tool_names)
        memory.entries.save(session, "plan", "Ada is on Pro")
        result = session.call("memory_forget", {"key": "plan"})

        assert [] == [name for name in names(session) if "forget" in name]
        assert (True, "unknown_tool") == (result.is_error, result.code)
        assert "memory_delete" in result.text
        assert memory.entries.get(session, "plan") is not None


WRITING: dict[str, dict[str, object]] = {
    **dict.fromkeys(("memory_save", "memory_store", "memory_create"), {"key": "plan", "content": "x"}),
    "memory_write": {"key": "plan", "content": "x"},
    "memory_update": {"key": "plan", "tags": ["x"]},
    "memory_edit": {"key": "plan", "old_string": "Pro", "new_string": "Max"},
    "memory_delete": {"key": "plan"},
}


@pytest.mark.parametrize("tool_names", TOOL_NAMES)
def test_an_agent_that_may_only_read(tmp_path: Path, tool_names: str) -> None:
    """It has no tool that writes and no guidance on saving; a call under any name is refused with the reason."""
    with opened(tmp_path, ALLOWED) as memory:
        memory.entries.save(memory.session("plain"), "plan", "Ada is on Pro", category="workspace")
        session = memory.session("guest", tool_names=tool_names)
        results = {name: session.call(name, sent) for name, sent in WRITING.items()}
        refused = {name: result for name, result in results.items() if result.code != "unknown_tool"}

        assert {"memory_save", "memory_delete", *WRITING}.intersection(TOOL_NAMES[tool_names]) == refused.keys()  # type: ignore[index]
        assert {"read_only"} == {result.code for result in refused.values()}
        assert all("entries: r" in result.text for result in refused.values())
        assert [] == [tool.name for tool in session.definitions() if not tool.read_only]
        assert "## Remembering" not in session.system_prompt()
        assert "Ada is on Pro" in session.system_prompt()


@pytest.mark.parametrize("sent", [{}, {"key": "plan", "query": "Ada"}])
def test_a_recall_is_by_key_or_by_query(memory: memfiles.Memory, sent: dict[str, str]) -> None:
    """Neither, or both, is an error that says so."""
    result = memory.session("support", tool_names="store-recall").call("memory_recall", sent)

    assert ("invalid_argument", True) == (result.code, "'key' to get one entry, or 'query' to search" in result.text)


def test_create_read_update_and_delete(memory: memfiles.Memory) -> None:
    """The third set of names does the same."""
    session = memory.session("support", tool_names="crud")
    done(session, "memory_create", {"title": "plan", "memory": "Ada is on Pro"})
    done(session, "memory_update", {"id": "plan", "text": "Ada is on Max"})

    assert "Ada is on Max" == done(session, "memory_read", {"key": "plan"})["content"]
    assert ["plan"] == [each["key"] for each in done(session, "memory_search", {"query": "Ada"})["results"]]
    assert done(session, "memory_delete", {"key": "plan"})["deleted"]


def test_without_a_declaration_there_are_no_tools_for_entries(tmp_path: Path) -> None:
    """Their names are unknown; only Python has entries then, under the usual budgets."""
    with opened(tmp_path, WORKFLOW.replace("  entries: {max_entries: 100}\n", "")) as memory:
        session = memory.session("support")

        assert ["read_memory", "append_memory", "edit_memory"] == names(session)
        assert "unknown_tool" == session.call("memory_save", {"key": "k", "content": "x"}).code
        assert "## Memory files available" == session.system_prompt().splitlines()[0]
        assert memory.entries.save(session, "k", "x").revision == 1


def test_the_system_prompt_is_the_card_and_then_what_was_saved(session: Session) -> None:
    """How the tools are used stands between them; the same state gives the same bytes."""
    before = session.system_prompt()
    save(session)
    after = session.system_prompt()

    assert before.startswith("## Memory files available\n")
    assert after.startswith(before)
    assert "| Ada is on Pro" in after.removeprefix(before).splitlines()
    assert after == session.system_prompt()


@pytest.mark.parametrize("tool_names", TOOL_NAMES)
def test_the_guidance_names_the_tools_that_there_are(memory: memfiles.Memory, tool_names: str) -> None:
    """And no tool of another set."""
    session = memory.session("support", tool_names=tool_names)
    prompt = session.system_prompt()
    others = {name for operations in TOOL_NAMES.values() for name in operations} - set(names(session))

    assert [] == [name for name in others if name in prompt]
    assert any(name in prompt for name in TOOL_NAMES[tool_names])  # type: ignore[index]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from(
    ["key", "content", "query", "tags", "kind", "limit", "cursor", "category", "importance", "level"]
)
TOOLS = st.sampled_from([name for operations in TOOL_NAMES.values() for name in operations])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tool=TOOLS, sent=st.dictionaries(KEYS | st.text(), JSON, max_size=5) | JSON)
def test_no_call_raises(session: Session, tool: str, sent: object) -> None:
    """Whatever is sent, a result comes back that can be sent on as JSON."""
    result = session.call(tool, sent)

    assert isinstance(result, ToolResult)
    assert "internal" != result.code
    assert json.dumps(result.to_dict())
    result.text.encode()
