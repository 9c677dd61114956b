"""Four processes on one database instead of a mirror: what each did, and what all of them must find afterwards.

A script gives each process a list of calls on the same few files and entries. The processes make them at the same time,
and say of each what became of it. ``violations`` compares that with what is there at the end, and with what each was
shown on the way.

In every fourth script, the processes work for one user most of the time, whom one of them may forget. In another
fourth, all calls are on one entry.

What must hold: an acknowledged line is in its file once, unless it was redacted; one whose outcome is unknown is there
once or not at all, and one that was refused is not; a redacted or forgotten text is nowhere; an entry has the content
of a save that no acknowledged later one replaced; a search shows what had been acknowledged, to anyone, before it
began; revisions of a record never go back; and a session of a user who was forgotten since saves nothing.

Where every outcome is known, that is all of it: the changes of a file, in the order of their revisions, make exactly
what is there and what was read on the way, and some order of the calls on an entry explains all that was seen of it.
"""

from __future__ import annotations

import json
import math
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import memfiles
from memfiles.errors import InvalidArgument, MemfilesError, OutcomeUnknown

FILES = ("board", "notes")
KEYS = ("plan", "tea", "color")
PROCESSES = 4
CHANGING = ("append", "edit", "redact", "undo", "append_many")
USER = "ada"
WEIGHTS = {
    "append": 8, "edit": 2, "redact": 1, "undo": 1, "save": 6, "update": 1, "delete": 1, "restore": 1, "forget": 1,
    "search": 4, "append_many": 1,
}  # fmt: skip
USER_WEIGHTS = {"save_mine": 12, "forget_user": 1, "search": 1, "append": 1}
ENTRY_WEIGHTS = {"save": 4, "update": 2, "delete": 4, "restore": 6, "forget": 1, "search": 4}
ERASING = ("redact", "forget", "forget_user")
ENTRY_VERBS = ("save", "update", "delete", "restore", "forget")
CERTAIN = ("refused edit_no_match", "refused entry_not_found", "refused invalid_argument")
"""Outcomes of which nothing was done, for certain."""

REDACTED = "[redacted]"
WORKFLOW = """
name: shared
memory:
  store: {url}
  files:
    - {{uid: board, name: board, max_size_bytes: 1000000}}
    - {{uid: notes, name: notes, max_size_bytes: 1000000}}
  entries: {{}}
agents: {{desk: {{memory: [{{id: board, mode: rw}}, {{id: notes, mode: rw}}]}}}}
"""
Call = dict[str, Any]


@dataclass
class Done:
    """A call and what became of it: ``ok``, ``refused CODE`` or ``unknown``; times are those of one clock."""

    call: Call
    outcome: str
    begun: float
    ended: float
    shown: Any = None
    revision: int = 0


@dataclass
class Ending:
    """What is there at the end: the files, the entries by key, and the texts of everything that is kept."""

    files: dict[str, str]
    entries: dict[str, str | None]
    kept: str = field(repr=False)


def script(seed: int, *, calls: int = 8, erases: bool = True) -> list[list[Call]]:
    """The calls of each process; texts are found nowhere else. Without ``erases`` none waits for open transactions."""
    chance = random.Random(f"shared {seed}")
    names = [[f"s{seed}p{process}c{number}" for number in range(calls)] for process in range(PROCESSES)]
    weights = {1: USER_WEIGHTS, 3: ENTRY_WEIGHTS}.get(seed % 4, WEIGHTS)
    weights = {verb: weight for verb, weight in weights.items() if erases or verb not in ERASING}
    keys = KEYS[:1] if seed % 4 == 3 else KEYS
    return [[_call(chance, name, weights, keys) for name in own] for own in names]


def _call(chance: random.Random, name: str, weights: Mapping[str, int], keys: Sequence[str]) -> Call:
    (verb,) = chance.choices([*weights], [*weights.values()])
    return {"verb": verb, "file": chance.choice(FILES), "key": chance.choice(keys), "text": f"w{name}w", "id": name}


class UserSession:
    """The session of the user in one process, made when it is first needed and after the user was forgotten."""

    def __init__(self, memory: memfiles.Memory) -> None:
        self._memory = memory
        self._session: memfiles.Session | None = None
        self.since = 0.0

    def save(self, text: str) -> float:
        """Save a text; returns since when the session, as whose user it was saved, is there."""
        if self._session is None:
            self._session, self.since = self._memory.session("desk", user=USER), time.monotonic()
        try:
            self._memory.entries.save(self._session, f"of {text}", text)  # a new record: none that the forget took
        except InvalidArgument:
            self._session = None
            raise
        return self.since


def carry_out(memory: memfiles.Memory, call: Call, of_user: UserSession) -> tuple[Any, int]:
    """Make one call; what it showed, and the revision that it made."""
    manager, entries, session = memory.manager, memory.entries, memory.session("desk")
    file, key, text, id = call["file"], call["key"], call["text"], call["id"]
    match call["verb"]:
        case "append":
            return None, manager.append(file, f"{text}\n", call_id=id).revision
        case "append_many":
            receipts = manager.append_many([(each, f"{text}-{each}\n") for each in FILES])
            return {receipt.uid: receipt.revision for receipt in receipts}, 0
        case "edit":
            line = _some_line(manager.read(file))
            return line, manager.edit(file, f"{line}\n", f"{line}\n{text}\n", call_id=id).revision
        case "redact":
            line = call["target"] = _some_line(manager.read(file))
            done = manager.redact(file, line)
            return line, done.receipt.revision if done.in_content or done.in_history else 0
        case "undo":
            return manager.read(file), manager.append(file, f"{text}\n").revision
        case "save":
            return None, entries.save(session, key, text, call_id=id).revision
        case "update":
            return None, entries.update(session, key, tags=[text], call_id=id).revision
        case "delete":
            entries.delete(session, key, call_id=id)
            return None, 0
        case "restore":
            return None, entries.restore(session, key, call_id=id).revision
        case "forget":
            found = entries.get(session, key)
            call["target"] = found.content if found is not None else None
            entries.forget(session, key=key)
            return call["target"], 0
        case "save_mine":
            return of_user.save(text), 0
        case "forget_user":
            memory.users.forget(USER)
            return None, 0
    hits = {match.found.key: match.found.content for match in entries.search(session, " ".join(KEYS)).matches}
    every = {each.key: each.content for each in entries.list(session).memories}
    return {"files": {each: manager.read(each) for each in FILES}, "found": hits, "listed": every}, 0


def _some_line(content: str) -> str:
    lines = [line for line in content.splitlines() if line.startswith("ws")]
    return lines[len(content) % len(lines)] if lines else "nothing"


def work(folder: Path, lines: Iterator[str]) -> None:
    """The process: for each line, open the memory, make the calls, and print what became of them."""
    for line in lines:
        url, calls = json.loads(line)
        path = folder / "workflow.yaml"
        path.write_text(WORKFLOW.format(url=json.dumps(url)))
        done: list[Any] = []
        memory = _opened(path)
        of_user = UserSession(memory)
        print("ready", flush=True)
        next(lines)
        for call in calls:
            begun = time.monotonic()
            try:
                shown, revision = carry_out(memory, call, of_user)
                outcome = "ok"
            except OutcomeUnknown:
                outcome, shown, revision = "unknown", call.get("target"), 0
            except MemfilesError as error:  # a text may be out of its record, and not yet out of all that is kept
                outcome, shown, revision = f"refused {error.code}", call.get("target"), 0
            done.append([call, outcome, begun, time.monotonic(), shown, revision])
        with suppress(MemfilesError):
            memory.close()
        print(json.dumps(done), flush=True)


def _opened(path: Path) -> memfiles.Memory:
    for _ in range(100):
        with suppress(MemfilesError):
            return memfiles.open(path, watch=False)
        time.sleep(0.2)
    raise AssertionError("the memory cannot be opened")


def violations(processes: Sequence[Sequence[Done]], end: Ending) -> list[str]:
    """What should not be: nothing, if the store keeps its promises."""
    every = [done for process in processes for done in process]
    removed = {done.shown for done in every if done.call["verb"] in ("redact", "forget")}
    gone = {done.shown for done in every if done.call["verb"] in ("redact", "forget") and done.outcome == "ok"}
    found = []
    for done in every:
        verb, text = done.call["verb"], done.call["text"]
        if verb in ("append", "edit", "undo", "append_many"):
            many = verb == "append_many"
            for file in FILES if many else (done.call["file"],):
                line = f"{text}-{file}" if many else text
                number = end.files[file].splitlines().count(line)
                least = 1 if done.outcome == "ok" and line not in removed else 0
                most = 0 if done.outcome.startswith("refused") else 1
                if not least <= number <= most:
                    found.append(f"{verb} of {line}: {done.outcome}, and it is {number} times in {file}")
    found += [f"{text} was taken out, and is there" for text in gone - {None, "nothing"} if text in end.kept]
    found += [*_lost_saves(every, end, removed), *_late_views(every, removed), *_revisions(processes)]
    found += _of_forgotten_users(every, end)
    if all(done.outcome == "ok" or done.outcome in CERTAIN for done in every):
        for file in FILES:
            found += _replayed(file, every, end.files[file])
        found += [f"no order of the calls explains what {key} was" for key in KEYS if not _is_in_order(key, every, end)]
    return found


def explained(seed: int, found: Sequence[str], processes: Sequence[Sequence[Done]], end: Ending) -> str:
    """What went wrong in a script, with every call in the order of their begin, and what is there at the end."""
    numbered = [(done, number) for number, process in enumerate(processes) for done in process]
    first = min(done.begun for done, _ in numbered)
    lines = [f"seed {seed}:", *found, "ms from, to, process, call, outcome, revision, shown:"]
    for done, number in sorted(numbered, key=lambda each: each[0].begun):
        call, times = done.call, [round((at - first) * 1000, 1) for at in (done.begun, done.ended)]
        at = call["file"] if call["verb"] in CHANGING else call["key"]
        lines.append(f"{times} {number} {call['verb']} {at} {call['id']}: {done.outcome} {done.revision} {done.shown}")
    return "\n".join([*lines, f"{end.files}", f"{end.entries}", end.kept])


def _replayed(file: str, every: Sequence[Done], content: str) -> Iterator[str]:
    """What the changes of a file make in the order of their revisions, which is what must be there and was read."""
    made: dict[int, Done] = {}
    for done in every:
        of_many = done.shown if done.call["verb"] == "append_many" and done.outcome == "ok" else {}
        revision = of_many.get(file, 0) or (done.revision if done.call["file"] == file else 0)
        if revision and done.call["verb"] in CHANGING:
            if revision in made:
                yield f"{made[revision].call['id']} and {done.call['id']} both made revision {revision} of {file}"
            made[revision] = done
    lines: list[str] = []
    states = {1: ""}
    for revision in range(2, len(made) + 2):
        if (did := made.get(revision)) is None:
            yield f"nobody made revision {revision} of {file}"
            return
        text, verb = did.call["text"], did.call["verb"]
        match verb:
            case "edit" if did.shown not in lines:
                yield f"{did.call['id']} put a text after {did.shown}, which was not there"
            case "edit":
                lines.insert(lines.index(did.shown) + 1, text)
            case "redact":
                lines = [REDACTED if line == did.shown else line for line in lines]
            case _:
                lines.append(f"{text}-{file}" if verb == "append_many" else text)
        states[revision] = "".join(f"{line}\n" for line in lines)
    if states[len(made) + 1] != content:
        yield f"{file} is {content!r}, and its changes make {states[len(made) + 1]!r}"
    for view in (it for it in every if it.call["verb"] == "search" and it.outcome == "ok"):
        least = max((revision for revision, it in made.items() if it.ended < view.begun), default=1)
        most = max((revision for revision, it in made.items() if it.begun < view.ended), default=1)
        if view.shown["files"][file] not in [states[revision] for revision in range(least, most + 1)]:
            yield f"{view.call['id']} read {file} as it was at no revision from {least} to {most}"


def _is_in_order(key: str, every: Sequence[Done], end: Ending) -> bool:
    """Whether the calls on an entry can be put in an order, each between its begin and its end, that explains all.

    The state is what is visible under the key, and what a restore would bring back.
    """
    calls = [it for it in every if it.call["key"] == key and it.call["verb"] in ENTRY_VERBS]
    steps: list[tuple[float, float, str, Any]] = [
        (it.begun, it.ended, it.call["verb"] if it.outcome == "ok" else f"no {it.call['verb']}", it.call["text"])
        for it in calls
    ]
    for view in (it for it in every if it.call["verb"] == "search" and it.outcome == "ok"):
        is_quiet = not any(it.begun < view.ended and it.ended > view.begun for it in calls)
        for way in ("found", "listed"):
            content = view.shown[way].get(key)
            if content is not None or is_quiet:  # an entry that changes meanwhile may be left out
                steps.append((view.begun, view.ended, "read", content))
    steps.append((math.inf, math.inf, "read", end.entries[key]))
    seen = set()

    def explains(left: frozenset[int], state: State) -> bool:
        if not left:
            return True
        if (left, state) in seen:
            return False
        seen.add((left, state))
        first = min(steps[at][1] for at in left)
        return any(
            explains(left - {at}, after)
            for at in left
            if steps[at][0] <= first and (after := _after(state, *steps[at][2:])) is not None
        )

    return explains(frozenset(range(len(steps))), (None, None))


State = tuple[str | None, str | None]


def _after(state: State, verb: str, text: Any) -> State | None:
    """The state after a step, None if it cannot be."""
    live, hidden = state
    match verb:
        case "save":
            return text, None
        case "no save":
            return state
        case "read":
            return state if live == text else None
        case "update":
            return state if live is not None else None
        case "delete":
            return (None, live) if live is not None else None
        case "no update" | "no delete":
            return state if live is None else None
        case "restore":
            return (hidden, None) if live is None and hidden is not None else None
        case "no restore":
            return state if live is not None or hidden is None else None
    return None, None  # forgotten


def _lost_saves(every: Sequence[Done], end: Ending, removed: set[Any]) -> Iterator[str]:
    """Entries whose content at the end is that of a save which a later acknowledged one replaced."""
    for key in KEYS:
        calls = [it for it in every if it.call["verb"] == "save" and it.call["key"] == key]
        saves = [it for it in calls if not it.outcome.startswith("refused")]
        content = end.entries[key]
        touched = [it for it in every if it.call["key"] == key and it.call["verb"] in ("delete", "forget", "restore")]
        if content is None:
            if any(it.outcome == "ok" for it in saves) and not touched:
                yield f"{key} was saved, and is not there"
            continue
        made = [it for it in saves if it.call["text"] == content]
        if not made:
            yield f"{key} has {content}, which nobody saved"
        later = [it for it in saves if it.outcome == "ok" and made and it.begun > made[0].ended]
        if not touched and any(it.call["text"] not in removed for it in later):
            yield f"{key} has {content}, although another save came after it"


def _late_views(every: Sequence[Done], removed: set[Any]) -> Iterator[str]:
    """Searches and reads that did not show what had been acknowledged before they began."""
    appends = [it for it in every if it.call["verb"] in ("append", "edit", "undo") and it.outcome == "ok"]
    gone = [it for it in every if it.call["verb"] in ("redact", "forget") and it.outcome == "ok" and it.shown]
    touched = {it.call["key"] for it in every if it.call["verb"] in ("delete", "forget", "restore")}
    for view in (it for it in every if it.call["verb"] == "search" and it.outcome == "ok"):
        for it in appends:
            lines = view.shown["files"][it.call["file"]].splitlines()
            is_removed = any(  # or was about to be
                each.shown == it.call["text"] and each.begun < view.ended
                for each in every
                if each.call["verb"] == "redact"
            )
            if it.ended < view.begun and not is_removed and it.call["text"] not in lines:
                yield f"{it.call['text']} was acknowledged before {view.call['id']} read the file without it"
        for it in gone:
            if it.ended < view.begun and it.shown != "nothing" and it.shown in json.dumps(view.shown):
                yield f"{it.shown} was gone before {view.call['id']} showed it"
        for key in set(KEYS) - touched:
            changes = [it for it in every if it.call["verb"] in ("save", "update") and it.call["key"] == key]
            if any(it.begun < view.ended and it.ended > view.begun for it in changes):
                continue  # an entry that changes meanwhile may be left out
            saves = [it for it in changes if it.call["verb"] == "save" and it.outcome == "ok"]
            for way in ("found", "listed"):
                if any(it.ended < view.begun for it in saves) and key not in view.shown[way]:
                    yield f"{key} was saved before {view.call['id']}, where it is not {way}"


def _of_forgotten_users(every: Sequence[Done], end: Ending) -> Iterator[str]:
    """What a session saved after its user was forgotten, and what is left of what it saved before."""
    saves = [it for it in every if it.call["verb"] == "save_mine" and it.outcome == "ok"]
    for forget in (it for it in every if it.call["verb"] == "forget_user" and it.outcome == "ok"):
        for it in saves:
            text = it.call["text"]
            if it.shown < forget.begun and it.begun > forget.ended:
                yield f"{text} was saved in a session of a user who was forgotten before"
            if it.shown < forget.begun and text in end.kept:
                yield f"{text} is of a user who was forgotten, and is there"


def _revisions(processes: Sequence[Sequence[Done]]) -> Iterator[str]:
    """Revisions of one file that a process saw go back, or that two changes share."""
    made: dict[tuple[str, int], str] = {}
    for process in processes:
        last: dict[str, int] = {}
        for done in process:
            if done.outcome != "ok" or done.call["verb"] not in ("append", "edit", "undo"):
                continue
            file, revision = done.call["file"], done.revision
            if revision <= last.get(file, 0):
                yield f"{done.call['id']} made revision {revision} of {file} after {last[file]}"
            last[file] = revision
            if (other := made.setdefault((file, revision), done.call["id"])) != done.call["id"]:
                yield f"{other} and {done.call['id']} both made revision {revision} of {file}"


if __name__ == "__main__":
    work(Path(sys.argv[1]), iter(sys.stdin))
