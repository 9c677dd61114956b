"""A desk on a signed mirror, for tests: its key, its workflow, and what its directory and bucket hold."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

from memfiles import Memory
from mirrors import MirrorKeys
from tests.support.workflows import opened

NEW, OLD = secrets.token_hex(32), secrets.token_hex(32)
NEEDLE = "Bob-is-on-Pro"
KEYS = MirrorKeys.parse(NEW, source="the test")
FILES = ("notes-1.json", "plan-1.json")


def workflow(bucket: Path, settings: str = ", key: env:DESK_KEY") -> str:
    return f"""
        memory:
          mirror: {{url: "{bucket.as_uri()}"{settings}}}
          files:
            - {{uid: notes-1, name: notes, content: "# Notes\\n"}}
            - {{uid: plan-1, name: plan, content: "# Plan\\n"}}
          entries: {{}}
        agents: {{desk: {{memory: [{{id: notes-1, mode: rw}}, {{id: plan-1, mode: rw}}]}}}}
        """


def save(memory: Memory, *keys: str, content: str = NEEDLE) -> None:
    session = memory.session("desk", ends_run=False)
    for name in keys:
        memory.entries.save(session, name, f"{content} {name}")


def entries_of(memory: Memory) -> dict[str, str]:
    session, cursor = memory.session("desk", ends_run=False), None
    found: dict[str, str] = {}
    while cursor or not found:
        page = memory.entries.list(session, limit=100, cursor=cursor)
        found |= {each.key: each.content for each in page.memories}
        if not (cursor := page.next):
            break
    return found


def records_in(directory: Path) -> dict[str, bytes]:
    """Every record of a memory directory or of a bucket."""
    found = (path for path in directory.rglob("*.json") if ".state" not in path.parts)
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


def signed_world(folder: Path, bucket: Path, settings: str) -> Path:
    """A machine that is equal with its mirror: two files and three entries."""
    with opened(folder, workflow(bucket, settings)) as memory:
        memory.manager.append("notes-1", f"- {NEEDLE}\n")
        save(memory, "a", "b", "c")
        assert memory.sync.flush(60)
    return folder / ".memory"


def forged_body(bucket: Path, path: Path) -> bytes:
    """The record of an object as somebody without the key would put it there."""
    record = json.loads(KEYS.open(str(path.relative_to(bucket)), path.read_bytes()))
    return json.dumps(record | {"revision": record["revision"] + 5}).encode()
