"""One machine of several that share a mirror: opens a workflow, works, and does what its input tells it.

``python -m tests.sync.machine WORKFLOW NAME`` reads a line of JSON for each command and answers each with one. One
that is killed says nothing any more; what it answered before is acknowledged.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import memfiles
from memfiles import Actor, MemfilesError, Memory

LINE = "- a line that an agent would append to its notes\n"


def append(memory: Memory, name: str, *, uid: str, first: int, count: int, pause: float = 0.0) -> int:
    """Append numbered lines, saying each when it is acknowledged; how many."""
    for number in range(first, first + count):
        memory.manager.append(uid, f"- {name} {number}\n", by=Actor(session=name))
        print(json.dumps({"acknowledged": number}), flush=True)
        time.sleep(pause)
    return count


def edit(memory: Memory, name: str, *, uid: str, old: str, new: str) -> int:
    """Make one edit; the revision it made."""
    return memory.manager.edit(uid, old, new, by=Actor(session=name)).revision


def pull(memory: Memory, name: str, *, timeout: float = 120.0) -> dict[str, Any]:
    """Pull once; the report, or what went wrong."""
    try:
        return memory.sync.pull(timeout).to_dict()
    except MemfilesError as error:
        return {"error": str(error)}


def flush(memory: Memory, name: str, *, timeout: float = 120.0) -> bool:
    """Push everything."""
    return memory.sync.flush(timeout)


def status(memory: Memory, name: str) -> dict[str, Any]:
    """The status of the synchronisation."""
    return memory.sync.status().to_dict()


def touch_all(memory: Memory, name: str) -> int:
    """Append a line to every file at once; how many."""
    return len(memory.manager.append_many([(uid, LINE) for uid in memory.manager.uids()]))


def measure(memory: Memory, name: str, *, verb: str, uid: str, times: int) -> list[float]:
    """The seconds of each call; a read is made warm first, since each machine sleeps while the other works."""
    call = partial(memory.manager.append, uid, LINE) if verb == "append" else partial(memory.manager.read, uid)
    taken = []
    for _ in range(times if verb == "read" else 0):
        call()
    for _ in range(times):
        begun = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begun)
    return taken


COMMANDS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (append, edit, pull, flush, status, touch_all, measure)
}


def main(workflow: str, name: str) -> None:
    """Work until the input ends."""
    logging.getLogger("memfiles").setLevel(logging.ERROR)
    with memfiles.open(workflow, watch=False) as memory:
        print(json.dumps({"opened": memory.report.to_dict()}), flush=True)
        for line in sys.stdin:
            command = json.loads(line)
            result = COMMANDS[command.pop("do")](memory, name, **command)
            print(json.dumps({"result": result}), flush=True)
    print(json.dumps({"closed": True}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
