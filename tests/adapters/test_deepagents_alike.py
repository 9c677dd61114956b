"""On entries, the backend over a session answers as deepagents' own backend over a store does."""

from __future__ import annotations

from typing import Any

import pytest
from deepagents.backends import StoreBackend
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.store.memory import InMemoryStore

import memfiles
from memfiles.adapters.deepagents import MemfilesBackend

WORKFLOW = "memory: {durability: os, entries: {max_entries: 500}}\nagents:\n  support: {level: INTERNAL}\n"

PATHS = st.sampled_from(["/a", "/a.md", "/b/a.md", "/b/c/d.md", "/b/c", "/B", "/é"])
FOLDERS = st.sampled_from(["/", "/b", "/b/", "/b/c", "/nothing"])
TEXTS = st.sampled_from(["one\ntwo\n", "two two", "x\r\ny\r\n", "deux\n\n\ntwo\n", "", " "])
WORDS = st.sampled_from(["two", "one", "two\n", "\n", "zero", ""])
STEPS = st.one_of(
    st.tuples(st.just("write"), PATHS, TEXTS),
    st.tuples(st.just("edit"), PATHS, WORDS, st.sampled_from(["2", "two"]), st.booleans()),
    st.tuples(st.just("delete"), PATHS | st.just("/b")),
    st.tuples(st.just("read"), PATHS, st.integers(-1, 4), st.integers(0, 3)),
    st.tuples(st.just("ls"), FOLDERS),
    st.tuples(st.just("grep"), WORDS, st.none() | FOLDERS, st.sampled_from([None, "*.md", "b/**"])),
    st.tuples(st.just("glob"), st.sampled_from(["*.md", "**/*.md", "/*", "b/*", "*", "../x"]), st.none() | FOLDERS),
    st.tuples(st.just("download_files"), st.lists(PATHS, max_size=2)),
)


def told(result: Any) -> Any:
    """What a result says, but for the words of an error, times, the order, and the size of folders."""
    if isinstance(result, list):
        return [(each.path, each.content, bool(each.error)) for each in result]
    said = dict(vars(result)) | {"error": bool(result.error)}
    data = said.pop("file_data", None)
    found = [_known(entry) for name in ("entries", "matches") for entry in said.pop(name, None) or []]
    return said, data and data["content"], sorted(map(str, found))


def _known(entry: dict[str, Any]) -> dict[str, Any]:
    known = ("path", "is_dir", "line", "text") if entry.get("is_dir") else ("path", "is_dir", "line", "text", "size")
    return {name: entry[name] for name in known if name in entry}


@given(steps=st.lists(STEPS, max_size=30))
@settings(max_examples=60, deadline=None)
def test_the_same_calls_have_the_same_results(tmp_path_factory: pytest.TempPathFactory, steps: list[Any]) -> None:
    """Reading, listing, searching, editing and deleting texts, in any order."""
    path = tmp_path_factory.mktemp("alike") / "workflow.yaml"
    path.write_text(WORKFLOW)
    with memfiles.open(path, watch=False) as memory:
        ours = MemfilesBackend(memory.session("support"))
        theirs = StoreBackend(store=InMemoryStore(), namespace=lambda _: ("files",))
        for method, *arguments in steps:
            expected, got = (told(getattr(each, method)(*arguments)) for each in (theirs, ours))

            assert expected == got, (method, arguments)
