"""Others who keep texts and answer questions about them offline, each as its own manual shows it; used if installed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

Ask = Callable[[str], object]


def opened(name: str, directory: Path, texts: Sequence[str]) -> Ask:
    """What answers a question about ``texts``; skips if it is not installed."""
    return _PEERS[name](directory, texts)


def _needed(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        pytest.skip(f"{module} is not installed")


def _files(directory: Path, texts: Sequence[str]) -> Ask:
    """A memory directory of Markdown files, looked through for any of the words."""
    for number, text in enumerate(texts):
        (directory / f"{number}.md").write_text(text)

    def ask(question: str) -> object:
        words = question.lower().split()
        found = []
        for path in directory.iterdir():
            text = path.read_text().lower()
            if hits := sum(word in text for word in words):
                found.append((hits, path.name))
        return sorted(found, reverse=True)[:10]

    return ask


def _graph_file(directory: Path, texts: Sequence[str]) -> Ask:
    """The MCP reference server's memory: a file of JSON lines, parsed for every question and looked through."""
    import json

    path = directory / "memory.jsonl"
    lines = [
        {"type": "entity", "name": f"n{n}", "entityType": "note", "observations": [t]} for n, t in enumerate(texts)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))

    def ask(question: str) -> object:
        words = question.lower().split()
        entities = [json.loads(line) for line in path.read_text().split("\n")]
        return [e for e in entities if any(word in text.lower() for text in e["observations"] for word in words)][:10]

    return ask


def _whoosh(directory: Path, texts: Sequence[str]) -> Ask:
    _needed("whoosh")
    index, fields, analysis, qparser = (
        importlib.import_module(f"whoosh.{part}") for part in ("index", "fields", "analysis", "qparser")
    )
    schema = fields.Schema(content=fields.TEXT(analyzer=analysis.StemmingAnalyzer(), stored=True))
    made = index.create_in(str(directory), schema)
    with made.writer(limitmb=256) as writer:
        for text in texts:
            writer.add_document(content=text)
    searcher = made.searcher()
    parser = qparser.QueryParser("content", schema, group=qparser.OrGroup)
    return lambda question: [hit["content"] for hit in searcher.search(parser.parse(question), limit=10)]


def _rank_bm25(directory: Path, texts: Sequence[str]) -> Ask:
    made = _needed("rank_bm25").BM25Okapi([text.split() for text in texts])
    return lambda question: made.get_top_n(question.split(), texts, n=10)


def _langgraph(directory: Path, texts: Sequence[str]) -> Ask:
    """LangGraph's store in memory, with the small encoder that is an extra here."""
    memory, encoder = _needed("langgraph.store.memory"), _needed("memfiles.index.search.embedder")
    embedder = encoder.WordVectors()
    store = memory.InMemoryStore(
        index={"dims": 512, "embed": lambda many: [list(map(float, each)) for each in embedder.embed(many)]}
    )
    for number, text in enumerate(texts):
        store.put(("notes",), str(number), {"text": text})
    return lambda question: store.search(("notes",), query=question, limit=10)


_PEERS: dict[str, Callable[[Path, Sequence[str]], Ask]] = {
    "Markdown files looked through": _files,
    "a JSON Lines graph file": _graph_file,
    "whoosh": _whoosh,
    "rank_bm25": _rank_bm25,
    "LangGraph's InMemoryStore": _langgraph,
}
NAMES = tuple(_PEERS)
