"""The size of the tools that a model is sent, in characters and in tokens, and how good the estimate of tokens is.

Tokens are counted with a vendor's own vocabulary, Mistral's Tekken (131,072 tokens), which comes in the package
mistral-common (Apache-2.0) and is read by tiktoken (MIT), without a network: ``pip install tiktoken`` and
``pip install --no-deps mistral-common``, as its own dependencies are not needed.
"""

from __future__ import annotations

import base64
import json
from importlib.metadata import files
from pathlib import Path
from typing import Any

import pytest

from memfiles.records.graphemes import estimate_tokens
from memfiles.tools.dialects import DIALECTS, render
from memfiles.tools.profiles import offered
from memfiles.workflow.fields import TOOL_NAMES
from tests.benchmarks.bare import show
from tests.support import ROOT

VOCABULARY = "mistral_common/data/tekken_240911.json"


def test_the_size_of_the_tools() -> None:
    """Two memory files, one of them writable, and entries, under each naming profile and for each vendor."""
    tekken = _tekken()
    for dialect in DIALECTS:
        for names in TOOL_NAMES:
            tools = offered(names, readable=["customer-notes", "playbook"], writable=["customer-notes"])
            text = json.dumps(render(tools, dialect), ensure_ascii=False)
            figure = f"{len(tools)} tools, {len(text):,} characters, {len(tekken.encode(text)):,} tokens"
            show(f"{names} for {dialect}", figure, "goal 6 tools, 4,000 characters" if names == "compact" else "")


def test_the_estimate_of_tokens() -> None:
    """Against the true count, of this repository's own texts."""
    tekken = _tekken()
    for path in ("docs/mirrors.md", "CHANGELOG.md", "memfiles/entries/writer.py", "schemas/workflow.schema.json"):
        text = (ROOT / path).read_text(encoding="utf-8")
        show(f"estimate of {path}", f"{estimate_tokens(text) / len(tekken.encode(text)):.2f} times", "goal 0.8 to 1.2")


def _tekken() -> Any:
    """The encoding; the test is skipped where its packages are not installed."""
    tiktoken = pytest.importorskip("tiktoken", reason="pip install tiktoken; pip install --no-deps mistral-common")
    place = next(str(path.locate()) for path in files("mistral-common") or () if str(path) == VOCABULARY)
    said = json.loads(Path(place).read_text(encoding="utf-8"))
    size = said["config"]["default_vocab_size"] - said["config"]["default_num_special_tokens"]
    ranks = {base64.b64decode(word["token_bytes"]): word["rank"] for word in said["vocab"][:size]}
    return tiktoken.Encoding("tekken", pat_str=said["config"]["pattern"], mergeable_ranks=ranks, special_tokens={})
