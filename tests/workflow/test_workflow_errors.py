"""Every mistake in a workflow is one line, with its position, its path and what to do."""

from __future__ import annotations

import pytest

from memfiles.errors import WorkflowError
from memfiles.workflow.workflow import Workflow

TWO_FILES = "memory:\n  files:\n    - {uid: a, name: one}\n    - {uid: b, name: two}\n"


def refusal(text: str) -> list[str]:
    with pytest.raises(WorkflowError) as caught:
        Workflow.parse(text, source="w.yaml")
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("memory:\n  files:\n    - {uid: ../x, name: n}\n", "3:13: memory.files[0].uid: uid '../x' is not allowed"),
        ("memory:\n  files:\n    - {uid: x, name: a b}\n", "3:22: memory.files[0].name: name 'a b' is not allowed"),
        (TWO_FILES + "    - {uid: a, name: x}\n", "5:13: memory.files[2].uid: uid 'a' is also used by another file"),
        (
            TWO_FILES + "    - {uid: c, name: one}\n",
            "5:22: memory.files[2].name: name 'one' is also used by the file with uid 'a'",
        ),
        (
            TWO_FILES + "    - {uid: c, name: a}\n",
            "5:22: memory.files[2].name: name 'a' is the uid of another file; a call could mean either, so change one",
        ),
        (TWO_FILES + "    - {uid: B, name: x}\n", "5:13: memory.files[2].uid: uid 'B' differs from 'b' only by case"),
        ("memory:\n  files:\n    - {name: n}\n", "3:7: memory.files[0].uid: this key is missing; add it"),
        ("memory:\n  files:\n    - name: n\n", "3:7: memory.files[0].uid: this key is missing; add it"),
        (
            "memory: {files: [{uid: x, name: n, max_size: 1}]}",
            "1:36: memory.files[0].max_size: unknown key; did you mean 'max_size_bytes'?",
        ),
        ("memory: {dir: x}", "1:10: memory.dir: unknown key; use one of directory, mirror,"),
        (
            "memory: {files: [{uid: x, name: n, max_size_bytes: 2, content: äb}]}",
            "1:64: memory.files[0].content: the content is 3 bytes and the cap is 2; shorten it by 1 bytes or",
        ),
        (
            "memory: {files: [{uid: x, name: n, max_size_bytes: 0}]}",
            "1:52: memory.files[0].max_size_bytes: this must be at least 1",
        ),
        (
            "memory: {files: [{uid: x, name: n, max_size_bytes: 8388609}]}",
            "1:52: memory.files[0].max_size_bytes: this must be at most 8388608",
        ),
        (
            "memory: {files: [{uid: x, name: n, max_size_bytes: '9'}]}",
            "1:52: memory.files[0].max_size_bytes: this must be a whole number, without quotes",
        ),
        (
            "memory: {files: [{uid: x, name: n, description: 5}]}",
            "1:49: memory.files[0].description: this must be text; put it in quotes",
        ),
        ("memory: {files: [{uid: x, name: n, content: }]}", "1:45: memory.files[0].content: this key has no value"),
        (
            "memory: {files: [{uid: x, name: n, level: SECRET}]}",
            "1:43: memory.files[0].level: level 'SECRET' is not declared; use one of PUBLIC,",
        ),
        ("memory: {files: {uid: x}}", "1:17: memory.files: this must be a list"),
        ("memory: {files: [x]}", "1:18: memory.files[0]: this must be a mapping"),
        ("memory: {levels: [A, B, A]}", "1:25: memory.levels[2]: level 'A' is listed twice"),
        ("memory: {levels: []}", "1:18: memory.levels: list 1 to 32 levels, lowest first"),
        ("memory: {levels: [a b]}", "1:19: memory.levels[0]: a level is 1 to 64"),
        ("memory: {durability: none}", "1:22: memory.durability: use 'fsync' or 'os'"),
        ("memory: {secrets: NO}", "1:19: memory.secrets: use 'block', 'redact', 'warn' or 'off'"),
        ("memory: {directory: ~/x}", "1:21: memory.directory: '~' is not expanded"),
        ("memory: {directory: ../..}", "1:21: memory.directory: the memory needs a directory of its own"),
        ("memory: {directory: 's3://b/desk'}", "1:21: memory.directory: this is a URL, not a path: a database is"),
        ("memory: {mirror: {url: nowhere}}", "1:24: memory.mirror.url: this must be a URL"),
        (
            "memory: {mirror: {url: 's3://b', pull: often}}",
            "1:40: memory.mirror.pull: use 'cold-start', 'restore' or an interval",
        ),
        ("memory: {mirror: s3://b}", "1:18: memory.mirror: this must be a mapping"),
        ("memory: {mirror: {url: 's3://b', key: sesame}}", "1:39: memory.mirror.key: write env:NAME, the environment"),
        ("memory: {mirror: {url: 's3://b', key: env:lower}}", "1:39: memory.mirror.key: write env:NAME"),
        (f"memory: {{mirror: {{url: 's3://b', key: env:{'AB01' * 8}}}}}", "1:39: memory.mirror.key: write env:NAME"),
        ("memory: {mirror: {url: 's3://b', key: }}", "1:39: memory.mirror.key: this key has no value; set one"),
        (
            "memory: {mirror: {url: 'https://b', key: env:K}}",
            "1:42: memory.mirror.key: the HTTP service keeps content only and cannot hold signed objects",
        ),
        (
            "memory: {mirror: {url: 's3://b', encrypt: true}}",
            "1:43: memory.mirror.encrypt: encryption needs a key; add `key: env:MEMFILES_MIRROR_KEY`",
        ),
        (
            "memory: {entries: {categories: {daily: {ttl: 72 hours}}}}",
            "1:46: memory.entries.categories.daily.ttl: this must be a duration",
        ),
        (TWO_FILES + "agents:\n  s: {memory: [{id: a, mode: w}]}\n", "6:30: agents.s.memory[0].mode: use 'r' or 'rw'"),
        (
            TWO_FILES + "agents:\n  s: {memory: [{id: zz, mode: r}]}\n",
            "6:21: agents.s.memory[0].id: no file with uid 'zz' is declared",
        ),
        (
            TWO_FILES + "agents:\n  s: {memory: [{id: two, mode: r}]}\n",
            "6:21: agents.s.memory[0].id: this is a file name; refer to the file by its uid 'b'",
        ),
        (
            TWO_FILES + "agents:\n  s: {memory: [{id: a, mode: r}, {id: a, mode: rw}]}\n",
            "6:39: agents.s.memory[1].id: this agent refers to this file twice",
        ),
        (TWO_FILES + "agents:\n  s: {levle: X}\n", "6:7: agents.s.levle: unknown key; did you mean 'level'?"),
        (TWO_FILES + "agents:\n  s: {level: X}\n", "6:14: agents.s.level: level 'X' is not declared"),
        (TWO_FILES + "agents:\n  1: {}\n", "6:3: agents.1: YAML does not read this key as text"),
        (TWO_FILES + "agents:\n  ' ': {}\n", "6:3: agents.(key): an agent's name is 1 to 255 bytes"),
        (TWO_FILES + "agents: [s]\n", "5:9: agents: this must be a mapping"),
        ("memory: 5", "1:9: memory: this must be a mapping"),
        ("memory:", "1:8: memory: this key has no value"),
        (
            "x: 1\nmemroy: {}",
            "2:1: memroy: no memory is declared; add `memory: {files: [...]}`, or did you mean this key?",
        ),
        ("{}", "1:1: no memory is declared"),
        ("[]", "1:1: a workflow is a mapping"),
        ("name: 5\nmemory: {}", "1:7: name: this must be text; put it in quotes"),
    ],
)
def test_one_clear_error(text: str, expected: str) -> None:
    """A single mistake is a single line, at the key or value that is wrong, and says what to do."""
    lines = refusal(text)

    assert [True, 1] == [lines[0].startswith(f"w.yaml:{expected}"), len(lines)], lines


def test_everything_at_once() -> None:
    """Mistakes of every kind are told together, in the order of the document."""
    text = (
        "memory:\n  secrets: no\n  files:\n    - {uid: a/b, name: n, siez: 1}\n    - {uid: x, name: n, level: Q}\n"
        "agents:\n  s: {memory: [{id: y, mode: r}]}\n"
    )

    assert [
        "w.yaml:2:12: memory.secrets:",
        "w.yaml:4:13: memory.files[0].uid:",
        "w.yaml:4:27: memory.files[0].siez:",
        "w.yaml:5:22: memory.files[1].name:",
        "w.yaml:5:32: memory.files[1].level:",
        "w.yaml:7:21: agents.s.memory[0].id:",
    ] == [" ".join(line.split(" ")[:2]) for line in refusal(text)]


@pytest.mark.parametrize(
    "text",
    [
        "memory: {mirror: {url: 'https:/user:hunter2@host'}}",
        "memory: {mirror: {url: 's3://b', pull: hunter2}}",
        "memory: {mirror: {url: 's3://b', key: hunter2}}",
        "memory: {mirror: {url: 's3://b', key: 'env:hunter2'}}",
        "memory: {secrets: hunter2 }",
        "memory: {files: [{uid: x, name: n, max_size_bytes: 1, content: hunter2}]}",
        "memory: {files: [{uid: x, name: n, max_size_bytes: hunter2}]}",
        "memory: {directory: '~hunter2'}",
        "memory: {files: [{uid: x, name: n, level: 'a hunter2'}]}",
        "memory: {'the password is hunter2': 1}",
        "memory: {files: hunter2}",
        "memory: {files: [hunter2]}",
        "agents: {a: hunter2}\nmemory: {}",
        "memory: {entries: {categories: {daily: {ttl: hunter2}}}}",
    ],
)
def test_values_are_not_repeated(text: str) -> None:
    """No error repeats a value, which may be somebody's content or credential."""

    assert "hunter2" not in "".join(refusal(text))
