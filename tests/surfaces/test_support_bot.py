"""The support bot of ``docs/many-users.md`` with two users: neither sees anything that the other one said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated

import memfiles
from memfiles import MemfilesError, Session
from memfiles.server.server import build
from memfiles.tools.dialects import DIALECTS
from memfiles.workflow.fields import TOOL_NAMES
from tests.cli.command_line import run
from tests.server.mcp_clients import ERAS, in_loop, listening
from tests.support import ROOT
from tests.support.workflows import write_workflow

PAGE = (ROOT / "docs" / "many-users.md").read_text("utf-8")
WORKFLOW = PAGE.split("```yaml\n")[1].split("```")[0]
SAID = {
    "ada": {"plan": "Ada is on zebra Pro since may.", "customers/ada/pet": "She has a zebra.", "zebra": "By name."},
    "bob": {"plan": "Bob is on walrus Free since june.", "customers/bob/pet": "He has a walrus.", "walrus": "By name."},
}
ANIMALS = {"ada": "zebra", "bob": "walrus"}
QUESTIONS = ("Which plan is the customer on?", "pet", "zeb", "walr", "by name since", "zebra walrus", "plan may june")
KEYS = ("plan", "zebra", "walrus", "customers/ada/pet", "customers/bob/pet", "never")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_workflow(tmp_path, WORKFLOW)


@pytest.fixture
def memory(path: Path) -> Iterator[memfiles.Memory]:
    """A memory in which both users have spoken, in turns."""
    with memfiles.open(path, watch=False) as memory:
        for spoken in zip(*(SAID[user].items() for user in SAID), strict=True):
            for user, (key, content) in zip(SAID, spoken, strict=True):
                saved = memory.session("support", user=user).call("memory_save", {"key": key, "content": content})
                assert not saved.is_error
        yield memory


def without_echo(text: str, asked: object) -> str:
    """An answer without the words of the question, which some answers repeat."""
    for words in [asked, json.dumps(asked), *(asked.values() if isinstance(asked, dict) else ())]:
        text = text.replace(str(words), "")
    return text


def calls() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every kind of call of a model, and what makes each of them fail."""
    for key in KEYS:
        yield "memory_get", {"key": key}
        yield "memory_list", {"prefix": key[:3]}
    for question in QUESTIONS:
        yield "memory_search", {"query": question}
        yield "memory_search", {"query": question, "budget_bytes": 4096}
    for name, arguments in (
        ("memory_list", {}),
        ("memory_list", {"cursor": "customers/a"}),
        ("memory_get", {}),
        ("memory_save", {"key": "plan", "content": ""}),
        ("memory_save", {"key": "team", "content": "x", "category": "workspace"}),
        ("memory_save", {"key": "new", "content": "x", "links": ["plan", "customers/x"]}),
        ("memory_update", {"key": "customers/x", "content": "y"}),
        ("memory_delete", {"key": "customers/x"}),
        ("read_memory", {"file": "plan"}),
        ("append_memory", {"file": "playbook", "content": "x"}),
        ("edit_memory", {"file": "playbook", "old_string": "Refund", "new_string": "x"}),
        ("no_such_tool", {}),
    ):
        yield name, dict(arguments)


def shown(memory: memfiles.Memory, session: Session, folder: Path) -> Iterator[str]:
    """Whatever a session of one user is shown, without what it said in its question."""
    entries = memory.entries
    yield session.system_prompt()
    for dialect in DIALECTS:
        yield json.dumps(session.tools(dialect))
    for question in QUESTIONS:
        yield without_echo(session.recall(question).text + str(session.recall(question).data), question)
        yield without_echo(session.system_prompt(query=question), question)
        yield without_echo(str(entries.search(session, question)), question)
    for name, arguments in calls():
        result = session.call(name, arguments)
        yield without_echo(result.text + str(result.data), arguments)
    yield from (str(each) for each in (entries.list(session), entries.hydrate(session)))
    for key in KEYS:
        for ask in (entries.get, entries.explain):
            with suppress(MemfilesError):
                yield without_echo(str(ask(session, key)), key)
        try:
            entries.update(session, f"{key}?", content="x")
        except MemfilesError as error:
            yield without_echo(str(error), key)
    entries.export(session, folder / "export")
    yield from (f"{each} {each.read_text()}" for each in (folder / "export").rglob("*") if each.is_file())


@pytest.mark.parametrize("user", SAID)
def test_a_user_sees_nothing_of_the_other_one(memory: memfiles.Memory, tmp_path: Path, user: str) -> None:
    """In prompts, searches, lists, recall, receipts, errors, tools and exports; and all of her own."""
    (other,) = SAID.keys() - {user}
    parts = list(shown(memory, memory.session("support", user=user), tmp_path))

    assert [] == [part for part in parts if ANIMALS[other] in part.lower() or f"customers/{other}/pet" in part]
    assert all(any(content in part for part in parts) for content in SAID[user].values())


@pytest.mark.parametrize("names", TOOL_NAMES)
@pytest.mark.parametrize("user", SAID)
def test_the_same_under_every_profile_of_tools(memory: memfiles.Memory, user: str, names: str) -> None:
    """Each tool, with each key and question."""
    (other,) = SAID.keys() - {user}
    session = memory.session("support", user=user, tool_names=names)
    arguments = [*({"key": key} for key in KEYS), *({"query": question} for question in QUESTIONS), {}]
    reading = [tool.name for tool in session.definitions() if tool.read_only]
    told = [without_echo(session.call(name, sent).text, sent) for name in reading for sent in arguments]

    assert [] == [text for text in told if ANIMALS[other] in text.lower()]
    assert any(ANIMALS[user] in text for text in told)


@pytest.mark.parametrize("user", SAID)
def test_the_same_on_the_command_line(memory: memfiles.Memory, path: Path, user: str) -> None:
    """``--user`` shows what a session of that user sees."""
    memory.close()
    (other,) = SAID.keys() - {user}
    told = ""
    for args in (["list"], ["search", "plan pet name"], ["hydrate"], ["explain", "plan"], ["get", "plan"]):
        ran = run("entries", *args, "-w", str(path), "--agent", "support", "--user", user)
        told += ran.out + ran.err

    assert [True, False] == [ANIMALS[each] in told.lower() for each in (user, other)]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("user", SAID)
def test_the_same_over_mcp(memory: memfiles.Memory, user: str, era: str) -> None:
    """Resources, their texts, prompts, tools, errors: of one server for both."""
    (other,) = SAID.keys() - {user}

    async def asked() -> list[str]:
        async with Client(build(lambda _: memory.session("support", user=user)), mode=era) as client:
            resources = (await client.list_resources()).resources
            told = [str(resources), str(await client.list_resource_templates()), str(await client.list_tools())]
            told += [str(await client.read_resource(each.uri)) for each in resources]
            told += [str(await client.get_prompt("memory")), str(await client.list_prompts())]
            for key in KEYS:
                try:
                    await client.read_resource(f"memory://entries/{key.replace('/', '%2F')}")
                except MCPError as error:
                    told.append(without_echo(str(error), key))
            for name, arguments in calls():
                answer = await client.call_tool(name, arguments)
                told.append(without_echo(str(answer.content), arguments))
            return told

    told = in_loop(asked)
    assert [] == [text for text in told if ANIMALS[other] in text.lower()]
    assert any(ANIMALS[user] in text for text in told)


@pytest.mark.parametrize("era", ERAS)
def test_a_user_hears_of_no_change_of_the_other_one(memory: memfiles.Memory, era: str) -> None:
    """Of one server; the other one's changes come first, and nothing is heard of them."""
    plan, end = "memory://entries/plan", "memory://entries/end"

    async def heard() -> list[Any]:
        async with listening(build(lambda _: memory.session("support", user="bob")), era, [plan, end]) as (_, news):
            ada, bob = (memory.session("support", user=user) for user in SAID)
            for change in (
                ("memory_save", {"key": "plan", "content": "Ada is on zebra Free."}),
                ("memory_save", {"key": "end", "content": "The end of Ada."}),
                ("memory_delete", {"key": "plan"}),
            ):
                assert not ada.call(*change).is_error
            memory.entries.forget(ada, key="zebra", why="she asked")
            assert not bob.call("memory_save", {"key": "end", "content": "The end."}).is_error
            return [await news(), await news()]

    assert [ResourceUpdated(end), ResourcesListChanged()] == in_loop(heard)
