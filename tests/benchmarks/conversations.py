"""The conversations of LoCoMo (Maharana et al., ACL 2024) as entries and questions; not part of this project."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}


@dataclass(frozen=True)
class Turn:
    """What someone said: the entry's key, its content, and the session and the day it was said in."""

    key: str
    content: str
    session: str
    said: str


@dataclass(frozen=True)
class Question:
    """A question, and the keys of the turns that answer it."""

    text: str
    evidence: tuple[str, ...]
    category: int


@dataclass(frozen=True)
class Conversation:
    """Two people's talks over months."""

    name: str
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]


def load() -> list[Conversation]:
    """The conversations of the file that MEMFILES_LOCOMO names; skips without it."""
    path = os.environ.get("MEMFILES_LOCOMO")
    if not path:
        pytest.skip("MEMFILES_LOCOMO names no file: get locomo10.json from snap-research/locomo (CC BY-NC 4.0)")
    samples = json.loads(Path(path).read_text("utf-8"))
    return [
        Conversation(str(sample.get("sample_id", number)), tuple(_turns(sample["conversation"])), tuple(_asked(sample)))
        for number, sample in enumerate(samples)
    ]


def _turns(conversation: dict[str, Any]) -> Iterator[Turn]:
    sessions = [name for name in conversation if re.fullmatch(r"session_\d+", name)]
    for session in sorted(sessions, key=lambda name: int(name.rpartition("_")[2])):
        day = datetime.strptime(conversation[f"{session}_date_time"].partition(" on ")[2], "%d %B, %Y")
        for turn in conversation[session]:
            caption = f" [{turn['blip_caption']}]" if turn.get("blip_caption") else ""
            yield Turn(turn["dia_id"], f"{turn['speaker']}: {turn['text']}{caption}", session, f"{day:%Y-%m-%d}")


def _asked(sample: dict[str, Any]) -> Iterator[Question]:
    for asked in sample["qa"]:
        evidence = dict.fromkeys(key for text in asked.get("evidence", ()) for key in re.findall(r"D\d+:\d+", text))
        if evidence:
            yield Question(asked["question"], tuple(evidence), asked["category"])
