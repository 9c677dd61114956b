"""Transcript of a conversation for a model: bounded, and without credentials.

The rules this file guards: a credential that a stream split between two parts or messages is removed from both. Text
is scanned before it is cut. An unreadable message is left out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memfiles.records.graphemes import last_bytes
from memfiles.secrets.gate import Finding, find_secrets, gate

MAX_MESSAGES = 200
MAX_TRANSCRIPT_BYTES = 128 * 1024
_MARGIN_BYTES = 64 * 1024  # scanned in addition to the text that is shown
_UNSURE = 8 * 1024  # characters: the start of a cut text may be the end of a credential
_NOT_TEXT = ("image", "image_url", "input_image", "audio", "input_audio", "document", "file", "input_file")


@dataclass(frozen=True, slots=True)
class Transcript:
    """The newest messages, oldest first, one line each; ``messages`` is their number."""

    text: str
    messages: int

    @property
    def digest(self) -> str:
        """A digest that identifies the transcript."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:24]


@dataclass(slots=True)
class _Message:
    """One message: its role and its parts; ``unsure`` is text before the first part, scanned but not shown."""

    role: str
    parts: list[str]
    unsure: str = ""


def transcript_of(messages: Sequence[Any]) -> Transcript:
    """The newest messages that fit, oldest first, without credentials."""
    said = _newest(messages)
    clean = iter(redacted([part for each in said for part in (each.unsure, *each.parts)]))
    lines = []
    for each in said:
        next(clean)
        text = " ".join(filter(None, (next(clean) for _ in each.parts)))
        lines.append(f"{each.role}: {text}" if text.strip() else "")
    return _bounded(lines)


def redacted(parts: Sequence[str]) -> list[str]:
    """The parts of a text without credentials, including those split between parts.

    The parts are scanned joined directly and joined by line feeds, as a stream may cut anywhere.
    """
    for glue in ("", "\n"):
        found = _found(parts, glue)
        parts = [_without(part, found.get(place, ())) for place, part in enumerate(parts)]
    return [gate(part, policy="redact").text for part in parts]


def _found(parts: Sequence[str], glue: str) -> dict[int, list[Finding]]:
    """The findings of the joined text, by part; offset and length are in bytes of the part."""
    findings, begin = find_secrets(glue.join(parts)), 0
    found: dict[int, list[Finding]] = {}
    for place, part in enumerate(parts):
        end = begin + len(part.encode())
        for finding in findings:
            first, last = max(finding.offset, begin), min(finding.offset + finding.length, end)
            if first < last:
                found.setdefault(place, []).append(Finding(finding.rule, first - begin, last - first))
        begin = end + len(glue)
    return found


def _without(part: str, found: Sequence[Finding]) -> str:
    data = part.encode()
    for each in reversed(found):
        data = data[: each.offset] + f"[redacted:{each.rule}]".encode() + data[each.offset + each.length :]
    return data.decode()


def _newest(messages: Sequence[Any]) -> list[_Message]:
    """The newest messages, oldest first, up to the limit of shown text plus the margin."""
    left, said = MAX_TRANSCRIPT_BYTES + _MARGIN_BYTES, list[_Message]()
    for message in reversed(messages[-MAX_MESSAGES:]):
        each = _Message(*_read(message))
        for place in reversed(range(len(each.parts))):
            part = each.parts[place]
            kept = last_bytes(part[-left:], left)
            left -= len(kept.encode())
            if kept != part:
                each.unsure, each.parts = kept[:_UNSURE], [kept[_UNSURE:], *each.parts[place + 1 :]]
                break
        said.append(each)
        if left <= 0:
            break
    return said[::-1]


def _bounded(lines: Sequence[str]) -> Transcript:
    chosen: list[str] = []
    left = MAX_TRANSCRIPT_BYTES
    for line in reversed(lines):
        if left > 1 and (text := last_bytes(line, left)):
            chosen.append(text)
            left -= len(text.encode()) + 1
    return Transcript("\n".join(reversed(chosen)), len(chosen))


def _read(message: Any) -> tuple[str, list[str]]:
    """The role of a message and its texts; none if it is unreadable."""
    try:
        role, content = _field(message, "role"), _field(message, "content")
        said = message if content is None else [content, _field(message, "tool_calls")]
        texts = [text.encode("utf-8", "replace").decode() for text in _texts(said) if text]
        return str(role or "message"), texts
    except Exception:  # noqa: BLE001 (a foreign class, or endless nesting: the other messages count)
        return "message", []


def _texts(value: Any) -> Iterator[str]:
    """The texts in a message's content: the JSON of a tool call or result, nothing of an image."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        if isinstance(value.get("text"), str):
            yield value["text"]
        elif isinstance(value.get("content"), (str, list)):
            yield from _texts(value["content"])
        elif value and value.get("type") not in _NOT_TEXT:
            yield json.dumps(value, ensure_ascii=False, default=str)
    elif isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        for item in value:
            yield from _texts(item)
    elif value is not None:
        yield str(value)


def _field(message: Any, name: str) -> Any:
    return message.get(name) if isinstance(message, Mapping) else getattr(message, name, None)
