"""Every way by which a session could tell two worlds apart: each verb of the library, and of what is built on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import chdir
from typing import TYPE_CHECKING, Any

from memfiles.adapters.shapes.items import ItemChange, Items
from memfiles.adapters.shapes.memory_tool import MemoryCommands
from memfiles.adapters.shapes.notebook import Notebook
from memfiles.entries.callers import own_level
from memfiles.entries.transfer.exchange import ExportFormat
from memfiles.records.keys import entry_uid
from tests.cli.command_line import run
from tests.server.mcp_clients import Offer, client_of, in_loop

if TYPE_CHECKING:
    from tests.surfaces.worlds import Actor, World

Answer = Any
Verb = Callable[..., Answer]


def _entries(name: str) -> Verb:
    """The library's verb of that name."""
    return lambda world, actor, **given: getattr(world.memory.entries, name)(world.session(actor), **given)


def _list(world: World, actor: Actor, *, follow: bool, **given: Any) -> Answer:
    """A page of a list; ``follow``: the one after the actor's last one, if there is more."""
    limit = given.pop("limit")
    given = world.lists.pop(actor, given) if follow else given
    page = world.memory.entries.list(world.session(actor), limit=limit, **given)
    if page.next is not None:
        world.lists[actor] = given | {"cursor": page.next}
    return page


def _plan(world: World, actor: Actor, *, share: float) -> Answer:
    plan = world.memory.entries.plan(world.session(actor), share=share)
    world.plans.setdefault(actor, []).append(plan)
    return plan.to_dict()


def _apply(world: World, actor: Actor) -> Answer:
    """Apply the actor's last plan."""
    plans = world.plans.get(actor)
    return world.memory.entries.apply(world.session(actor), plans[-1]).to_dict() if plans else "no plan"


def _undo_plan(world: World, actor: Actor) -> Answer:
    plans = world.plans.get(actor)
    return world.memory.entries.undo_plan(world.session(actor), plans.pop().id).to_dict() if plans else "no plan"


def _forget_uid(world: World, actor: Actor, *, key: str, level: str | None) -> Answer:
    """Forget by the uid that an entry of this key would have in each place, at the session's level or another."""
    uids = [
        entry_uid(each.folder, each.level, key, each.run) for each in own_level(world.session(actor), level).values()
    ]
    return [world.memory.entries.forget(world.session(actor), uid=uid).to_dict() for uid in uids]


def _forget_id(world: World, actor: Actor, *, key: str) -> Answer:
    """Forget the entry that the actor sees under a key, by its id."""
    found = world.memory.entries.get(world.session(actor), key)
    return world.memory.entries.forget(world.session(actor), id=found.id).to_dict() if found else "nothing to forget"


def _export(world: World, actor: Actor, *, format: ExportFormat) -> Answer:
    """What an export writes, and what it reports."""
    target = world.folder / f"export-{len(list(world.folder.glob('export-*')))}"
    report = world.memory.entries.export(world.session(actor), target, format=format).to_dict()
    files = sorted(target.rglob("*")) if target.is_dir() else [target]
    texts = {path.name: path.read_text() for path in files}
    for path in files:
        path.unlink()
    target.rmdir() if target.is_dir() else None
    return {**report, "texts": texts}


def _import(world: World, actor: Actor, *, documents: list[dict[str, Any]], dry_run: bool) -> Answer:
    source = world.folder / "import.jsonl"
    source.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return world.memory.entries.import_(world.session(actor), source, dry_run=dry_run).to_dict()


def _tool(world: World, actor: Actor, *, name: str, sent: Any, names: str, call_id: str | None = None) -> Answer:
    """A tool call under one of the naming profiles."""
    with world.joining(actor, names) as session:
        return session.call(name, sent, call_id=call_id).to_dict()


def _diary(world: World, actor: Actor, *, name: str, sent: Any) -> Answer:
    """A call about the file that each user has of their own, and what the library has of it."""
    answer, session = world.session(actor).call(name, {"file": "diary", **sent}).to_dict(), world.session(actor)
    if actor.user is None or not any(file.card.name == "diary" for file in session.files()):
        return answer
    of = {"user": actor.user}
    manager = world.memory.manager
    return answer, manager.card("diary", **of), manager.read("diary", **of), manager.log("diary", **of)


def _tools(world: World, actor: Actor, *, dialect: str, names: str) -> Answer:
    with world.joining(actor, names) as session:
        return session.tools(dialect)


def _prompt(world: World, actor: Actor, **given: Any) -> Answer:
    return world.session(actor).system_prompt(**given)


def _recall(world: World, actor: Actor, **given: Any) -> Answer:
    """The block for a turn, and its values."""
    found = world.session(actor).recall(**given)
    return {"text": found.text, **found.data}


def _close(world: World, actor: Actor) -> Answer:
    """Close the actor's session, one made for that if there is none; its next call makes another."""
    world.session(actor).close()
    del world.sessions[actor]
    return "closed"


def _end_run(world: World, actor: Actor) -> Answer:
    return world.memory.entries.end_run(world.session(actor))


def _restart(world: World, actor: Actor) -> Answer:
    """Close the memory with all its sessions, and open it again."""
    world.close()
    world.open()
    return "opened"


def _commands(world: World, actor: Actor, *, name: str, given: list[Any]) -> Answer:
    """A command of Anthropic's memory tool, as two adapters offer it."""
    return getattr(MemoryCommands(world.session(actor)), name)(*given)


def _items(world: World, actor: Actor, *, name: str, given: list[Any]) -> Answer:
    """A call of a store of items, as LangGraph has it."""
    items = Items(world.session(actor))
    if name == "change":
        return items.change([ItemChange(*given)])
    if name == "search":
        return list(items.search(tuple(given[0]), query=given[1]))
    return items.get(tuple(given[0]), given[1]) if name == "get" else items.namespaces()


def _renew(world: World, actor: Actor, *, key: str, seconds: int) -> Answer:
    """What a read does to an entry with a lifetime, if the store of LangGraph is told so."""
    found = world.memory.entries.get(world.session(actor), key)
    return world.memory.entries.renew(world.session(actor), [(found, seconds)]) if found else "nothing to renew"


def _notebook(world: World, actor: Actor, *, name: str, given: list[Any]) -> Answer:
    """A call of a notebook, as pydantic-ai's harness has it; a write goes by the revision that was read."""
    notebook = Notebook(world.session(actor))
    if name in ("find", "texts"):
        found = getattr(notebook, name)(*given)
        return list(found) if name == "texts" else found
    before = notebook.find(given[0])
    return getattr(notebook, name)(*given, expected=before.revision if before else 0)


def _command_line(world: World, actor: Actor, *, args: list[str]) -> Answer:
    """A command, as a person or a script gives it; it opens the memory for itself."""
    who = ["--level", actor.level, *(["--user", actor.user] if actor.user else [])]
    who += [*(["--run", actor.run] if actor.run and args[0] in ("entries", "call") else [])]
    agent = ["--agent", actor.agent] if args[0] == "entries" else []
    place = [args[0], actor.agent, *args[1:]] if args[0] != "entries" else args
    with chdir(world.folder):
        ran = run(*place, *agent, *who, "--json")
    return f"{ran.code}: {ran.out}{ran.err}"


def _mcp(world: World, actor: Actor, *, name: str, sent: Any) -> Answer:
    """All that a client of the MCP server sees, and one call."""
    offer = Offer(world.memory, world.session(actor))

    async def asked() -> Answer:
        async with client_of(offer) as client:
            tools = await client.list_tools()
            resources = await client.list_resources()
            shown = [await client.read_resource(each.uri) for each in resources.resources]
            recalled = await client.get_prompt("recall", {"query": "ada plan"})
            called = await client.call_tool(name, sent)
        return [each.model_dump(mode="json") for each in (tools, resources, *shown, recalled, called)]

    return in_loop(asked)


VERBS: dict[str, Verb] = {
    **{name: _entries(name) for name in "save save_many get search update delete delete_many".split()},
    **{name: _entries(name) for name in "relocate restore forget hydrate explain log diff deleted tombstones".split()},
    "list": _list,
    "plan": _plan,
    "apply": _apply,
    "undo": _entries("undo"),
    "undo_plan": _undo_plan,
    "forget_uid": _forget_uid,
    "forget_id": _forget_id,
    "export": _export,
    "import": _import,
    "tool": _tool,
    "tools": _tools,
    "diary": _diary,
    "prompt": _prompt,
    "recall": _recall,
    "close": _close,
    "end_run": _end_run,
    "restart": _restart,
    "commands": _commands,
    "items": _items,
    "renew": _renew,
    "notebook": _notebook,
    "command line": _command_line,
    "mcp": _mcp,
}
