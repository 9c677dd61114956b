"""The author of the programs that two worlds carry out: what every verb may be given, and how often it is drawn."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from memfiles.tools.dialects import DIALECTS
from memfiles.workflow.fields import TOOL_NAMES, operations_of
from tests.surfaces.worlds import BOUNDARIES, LIVES, QUERIES, TTLS, WORDS, Actor, Boundary, Program, Step

LEVELS = ("PUBLIC", "INTERNAL", "CONFIDENTIAL")
KEYS = ("plan", "plan/ada", "bob", "zoe", "how-to/refund")
SHARED_KEYS = ("team", "team/hours")
FILES = ("board", "notes", "deals", "leads", "diary", "diary", "nowhere")
TAGS = ("ada", "bob", "billing")
KINDS = (None, None, "fact", "procedure", "episode")
CATEGORIES = ("daily", "core", "conversation", "conversation", "own")
SHARED = "workspace"
_LISTED: dict[str, tuple[Any, ...]] = {
    **{"prefix": ("plan",), "order": ("key", "updated", "updated"), "since": ("1h", "2026-01-01")},
    **{"tags_any": (["ada"], ["bob", "billing"]), "kinds": (["fact"], ["note", "episode"])},
}


class Author:
    """Writes programs from a seed, within one of the boundaries."""

    def __init__(self, seed: int, boundaries: Sequence[Boundary] = BOUNDARIES) -> None:
        self._random = Random(seed)
        self._boundary = self._random.choice(boundaries)

    def program(self) -> Program:
        """Steps of all actors, and what the seen ones ask at the end."""
        everyone = [*self._boundary.seen, *self._boundary.hidden]
        # two or three of each are at work, so that they meet under the same keys
        seen, hidden = (self._some(actors, 1, 3) for actors in (self._boundary.seen, self._boundary.hidden))
        at_work = [actor for actor in everyone if actor in seen or actor in hidden]
        steps = [self._step(self._one(at_work)) for _ in range(self._random.randint(6, 24))]
        asked = [Step(actor, verb, given) for actor in seen for verb, given in self._examination()]
        return Program(self._boundary, (*steps, *asked))

    def _step(self, actor: Actor) -> Step:
        verb = self._random.choices(list(_DRAWN), [weight for weight, _ in _DRAWN.values()])[0]
        if verb == "restart" and actor in self._boundary.hidden:  # it ends the sessions of all
            verb = "close"
        is_free = self._boundary.may_share or actor in self._boundary.seen
        return Step(actor, verb, _DRAWN[verb][1](self, SHARED_KEYS if is_free and self._maybe(0.3) else KEYS))

    def _examination(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """What shows most of what a session sees."""
        yield "prompt", {"read_only": False}
        yield "export", {"format": "jsonl"}
        yield "search", {"query": self._words(3), "max_results": 50}
        yield "recall", {"query": self._words(3)}
        yield "diary", {"name": "read_memory", "sent": {}}
        for key in self._some((*KEYS, *SHARED_KEYS), 2, 3):
            yield "explain", {"key": key}
            yield "log", {"key": key}
        yield "deleted", {"limit": 100}
        yield "tombstones", {"limit": 100}
        yield "plan", {"share": 0.5}
        yield "save", {"key": "last", "content": self._words(4)}  # and who is evicted for it

    def _one(self, choices: Sequence[Any]) -> Any:
        return self._random.choice(choices)

    def _some(self, choices: Sequence[Any], least: int, most: int) -> list[Any]:
        return self._random.sample(choices, min(len(choices), self._random.randint(least, most)))

    def _maybe(self, chance: float = 0.5) -> bool:
        return self._random.random() < chance

    def _words(self, most: int = 12) -> str:
        return " ".join(self._random.choices(WORDS, k=self._random.randint(1, most)))

    def _draft(self, keys: Sequence[str], *, may_stay: bool = False) -> dict[str, Any]:
        """What a save or an update is given."""
        given: dict[str, Any] = {"key": self._one(keys)}
        if not may_stay or self._maybe():
            given["content"] = self._words(30)
        offered = {
            "category": SHARED if keys is SHARED_KEYS and self._maybe(0.8) else self._one(CATEGORIES),
            "kind": self._one(KINDS),
            "tags": self._some(TAGS, 0, 2),
            "importance": self._one((0.2, 0.5, 0.5, 0.9)),
            "confidence": self._one((0.5, 1)),
            "pinned": self._maybe(),
            "links": self._some(KEYS, 0, 2),
        }
        return given | {name: value for name, value in offered.items() if value is not None and self._maybe(0.3)}

    def _save(self, keys: Sequence[str]) -> dict[str, Any]:
        extra = {"ttl": self._one(TTLS), "expected_revision": self._one((0, 1, 2)), "call_id": self._one(("c1", "c2"))}
        return self._draft(keys) | {name: value for name, value in extra.items() if self._maybe(0.1)}

    def _update(self, keys: Sequence[str]) -> dict[str, Any]:
        extra = {"outcome": self._one(("success", "failure")), "expected_revision": self._one((1, 2))}
        return self._draft(keys, may_stay=True) | {name: value for name, value in extra.items() if self._maybe(0.2)}

    def _undo(self, keys: Sequence[str]) -> dict[str, Any]:
        return {"key": self._one(keys)} | ({"to_revision": self._one((1, 2))} if self._maybe(0.3) else {})

    def _search(self, keys: Sequence[str]) -> dict[str, Any]:
        extra = {
            "tags": self._some(TAGS, 1, 1),
            "kind": self._one(KINDS[2:]),
            "prefix": self._one(("plan", "team", "z")),
            "associate": False,
            "max_results": self._one((1, 3, 50)),
            "budget_bytes": self._one((512, 900, 4096)),
        }
        query = self._one(QUERIES) if self._maybe() else self._words(5)
        return {"query": query} | {name: value for name, value in extra.items() if self._maybe(0.2)}

    def _recalling(self, keys: Sequence[str]) -> dict[str, Any]:
        query = self._one(QUERIES) if self._maybe() else self._words(5)
        extra = {"budget_bytes": self._one((0, 400, 900)), "include": self._some(KEYS, 1, 3)}
        return {"query": query} | {name: value for name, value in extra.items() if self._maybe(0.4)}

    def _listing(self, keys: Sequence[str]) -> dict[str, Any]:
        given = {"follow": self._maybe(0.3), "limit": self._one((1, 2, 100))}
        for name, values in _LISTED.items():
            given |= {name: self._one(values)} if self._maybe(0.2) else {}
        return given

    def _forget(self, keys: Sequence[str]) -> dict[str, Any]:
        """By key; by what else, only where nobody's shared entries can be meant."""
        other = {"tag": self._one(TAGS)}, {"kind": self._one(KINDS[2:])}, {"provenance": {"run": "monday"}}
        by_key = keys is not SHARED_KEYS and (not self._boundary.may_share or self._maybe(0.6))
        return ({"key": self._one(keys)} if by_key else self._one(other)) | {"dry_run": self._maybe(0.3)}

    def _moves(self, keys: Sequence[str]) -> dict[str, Any]:
        old, new = self._random.sample(keys, 2)
        return {"moves": {old: new}}

    def _documents(self, keys: Sequence[str]) -> dict[str, Any]:
        drafts = (self._draft(keys) for _ in range(self._random.randint(1, 2)))
        names = ("key", "content", "tags", "category")
        kept = [{name: draft[name] for name in names if name in draft} for draft in drafts]
        return {"documents": kept, "dry_run": self._maybe(0.3)}

    def _call(self, keys: Sequence[str]) -> dict[str, Any]:
        """A tool call of a model, under the names of a profile."""
        names = self._one(tuple(TOOL_NAMES))
        tool = self._one((*operations_of(names), "read_memory", "append_memory", "edit_memory"))
        operation = operations_of(names).get(tool, tool)
        sent: dict[str, Any] = {
            "save": lambda: self._draft(keys),
            "get": lambda: {"key": self._one(keys)},
            "recall": lambda: {"key": self._one(keys)} if self._maybe() else {"query": self._one(QUERIES)},
            "search": lambda: {"query": self._one(QUERIES)} | ({"budget_bytes": 900} if self._maybe(0.3) else {}),
            "list": lambda: {"limit": self._one((1, 100)), "order": self._one(("key", "updated"))},
            "delete": lambda: {"key": self._one(keys)},
            "update": lambda: self._draft(keys, may_stay=True),
            "read_memory": lambda: {"file": self._one(FILES)},
            "append_memory": lambda: {"file": self._one(FILES), "content": f"- {self._words()}\n"},
            "edit_memory": lambda: {"file": self._one(FILES), "old_string": self._one(WORDS), "new_string": "changed"},
            "read": lambda: self._either(keys),
            "write": lambda: (
                self._draft(keys, may_stay=self._maybe())
                if self._maybe()
                else {**self._either(keys), "content": f"- {self._words()}\n"}
            ),
            "edit": lambda: {**self._either(keys), "old_string": self._one(WORDS), "new_string": "changed"},
            "look": lambda: {"query": self._one(QUERIES)} if self._maybe() else {"prefix": self._one(("", *keys))},
        }[operation]()
        return {"name": tool, "sent": sent, "names": names} | ({"call_id": "c3"} if self._maybe(0.1) else {})

    def _of_diary(self, keys: Sequence[str]) -> dict[str, Any]:
        calls: dict[str, dict[str, str]] = {
            "read_memory": {},
            "append_memory": {"content": f"- {self._words(6)}\n"},
            "edit_memory": {"old_string": self._one(WORDS), "new_string": "changed"},
        }
        name = self._one(("read_memory", "append_memory", "append_memory", "edit_memory"))
        return {"name": name, "sent": calls[name]}

    def _either(self, keys: Sequence[str]) -> dict[str, Any]:
        """A memory file or an entry; a key may be the name of a file."""
        return {"file": self._one(FILES)} if self._maybe() else {"key": self._one((*keys, *FILES))}

    def _memory_tool(self, keys: Sequence[str]) -> dict[str, Any]:
        paths = [f"/memories/{name}" for name in (*keys, *FILES)]
        path, other = self._one(paths), f"/memories/{self._one(keys)}"
        calls: list[tuple[str, list[Any]]] = [
            ("view", ["/memories"]),
            ("view", [path]),
            ("create", [path, self._words()]),
            ("str_replace", [path, self._one(WORDS), "changed"]),
            ("insert", [path, 0, self._words()]),
            ("delete", [f"/memories/{self._one(keys)}"]),
            ("rename", [f"/memories/{self._one(keys)}", other]),
        ]
        name, given = self._one(calls)
        return {"name": name, "given": given}

    def _store(self, keys: Sequence[str]) -> dict[str, Any]:
        key = self._one(keys).replace("/", "-")
        value = {"text": self._words()} if self._maybe(0.7) else None
        calls: list[tuple[str, list[Any]]] = [
            ("change", [("items",), key, value]),
            ("get", [("items",), key]),
            ("search", [("items",), self._one((None, *QUERIES))]),
            ("namespaces", []),
        ]
        name, given = self._one(calls)
        return {"name": name, "given": given}

    def _note(self, keys: Sequence[str]) -> dict[str, Any]:
        key = self._one(keys)
        calls = [("find", [key]), ("texts", [""]), ("put", [key, self._words()]), ("remove", [key])]
        name, given = self._one(calls)
        return {"name": name, "given": given}

    def _command(self, keys: Sequence[str]) -> dict[str, Any]:
        key, query = self._one(keys), self._one(QUERIES)
        drawn = self._call(keys)
        return {
            "args": self._one(
                (
                    ["entries", "get", key],
                    ["entries", "search", query],
                    ["entries", "list", "--limit", "1"],
                    ["entries", "list", "--order", "updated", "--tag-any", "ada", "--since", "1h"],
                    ["entries", "explain", key],
                    ["entries", "log", key],
                    ["entries", "diff", key],
                    ["entries", "undo", key],
                    ["entries", "deleted"],
                    ["entries", "tombstones"],
                    ["entries", "hydrate"],
                    ["entries", "recall", query, "--include", key],
                    ["entries", "save", key, self._words()],
                    ["entries", "delete", key],
                    ["entries", "restore", key],
                    ["entries", "consolidate"],
                    ["entries", "forget", "--key", key, "--dry-run"],
                    ["call", drawn["name"], json.dumps(drawn["sent"]), "--tool-names", drawn["names"]],
                    ["card"],
                    ["tools", "--dialect", self._one(sorted(DIALECTS))],
                )
            )
        }


_DRAWN: dict[str, tuple[float, Callable[[Author, Sequence[str]], dict[str, Any]]]] = {
    "save": (24, Author._save),
    "save_many": (2, lambda author, keys: {"drafts": [author._draft(keys[:1]), author._draft(keys[1:2])]}),
    "get": (10, lambda author, keys: {"key": author._one(keys)}),
    "search": (8, Author._search),
    "list": (4, Author._listing),
    "update": (6, Author._update),
    "delete": (5, lambda author, keys: {"key": author._one(keys)}),
    "delete_many": (1, lambda author, keys: {"keys": author._some(keys, 1, 2)}),
    "restore": (4, lambda author, keys: {"key": author._one(keys)}),
    "relocate": (2, Author._moves),
    "forget": (3, Author._forget),
    "forget_uid": (1, lambda author, keys: {"key": author._one(keys), "level": author._one((None, *LEVELS))}),
    "forget_id": (1, lambda author, keys: {"key": author._one(keys)}),
    "hydrate": (2, lambda author, keys: {"budget_bytes": author._one((0, 400, 900, 4000))}),
    "explain": (2, lambda author, keys: {"key": author._one(keys)}),
    "plan": (3, lambda author, keys: {"share": author._one((0.3, 0.5, 1.0))}),
    "apply": (3, lambda author, keys: {}),
    "undo_plan": (2, lambda author, keys: {}),
    "undo": (3, Author._undo),
    "log": (4, lambda author, keys: {"key": author._one(keys)}),
    "diff": (
        2,
        lambda author, keys: {"key": author._one(keys), "from_revision": 1, "to_revision": author._one((2, 3))},
    ),
    "deleted": (2, lambda author, keys: {"limit": author._one((1, 100))}),
    "tombstones": (2, lambda author, keys: {"limit": author._one((1, 100))}),
    "export": (1, lambda author, keys: {"format": author._one(("jsonl", "markdown"))}),
    "import": (2, Author._documents),
    "tool": (10, Author._call),
    "tools": (
        1,
        lambda author, keys: {"dialect": author._one(sorted(DIALECTS)), "names": author._one(list(TOOL_NAMES))},
    ),
    "diary": (8, Author._of_diary),
    "prompt": (2, lambda author, keys: {"read_only": author._maybe(), "query": author._one((None, *QUERIES))}),
    "recall": (5, Author._recalling),
    "close": (6, lambda author, keys: {}),
    "end_run": (1, lambda author, keys: {}),
    "restart": (1, lambda author, keys: {}),
    "commands": (3, Author._memory_tool),
    "items": (2, Author._store),
    "renew": (2, lambda author, keys: {"key": author._one((*KEYS, *SHARED_KEYS)), "seconds": author._one(LIVES)}),
    "notebook": (2, Author._note),
    "command line": (0.5, Author._command),
    "mcp": (
        0.6,
        lambda author, keys: {name: given for name, given in author._call(keys).items() if name in ("name", "sent")},
    ),
}
"""How often a verb is drawn, and what it is given; the keys are those that the actor may change."""
