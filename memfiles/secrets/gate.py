"""The secrets gate: every text passes it before it is stored, whether a model or a person writes it.

The rule this file guards: a credential's value never leaves it, neither in an error nor in a warning;
both name the kind of credential and the place, so that the writer can find it in its own text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, Protocol, cast

from memfiles.errors import InvalidArgument, SecretRefused
from memfiles.secrets.rules import RULES, UNBROKEN, Rule

Policy = Literal["block", "redact", "warn", "off"]
POLICIES: tuple[Policy, ...] = ("block", "redact", "warn", "off")
_SHOWN = 5  # findings named in one message
_ROUNDS = 8
_UNBROKEN = re.compile(UNBROKEN)


@dataclass(frozen=True, slots=True)
class Finding:
    """One credential in a text: its kind and its place in UTF-8 bytes, never its value."""

    rule: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Gated:
    """A text that may be stored, and the warnings for its writer."""

    text: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Leak:
    """A credential that another scanner found: its first character, the one after its last, and the rule's name."""

    start: int
    end: int
    rule: str


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of another scanner: its findings, and in ``trouble`` why it may have missed some."""

    leaks: tuple[Leak, ...] = ()
    trouble: str | None = None


class Scanner(Protocol):
    """A scanner that runs in addition to the built-in rules, never instead of them.

    Threads may share it. It returns within bounded time and raises nothing: a failure is reported in ``Scan.trouble``,
    which the writer gets as a warning.
    """

    def __call__(self, text: str) -> Scan:
        """The credentials in ``text``."""


SCANNERS = "memfiles.scanners"
"""The entry point group in which a distribution registers a ``Scanner`` under a name."""


def scanner_called(name: str | None) -> Scanner | None:
    """The installed scanner of that name, None for None.

    Raises ``InvalidArgument`` if none is registered: a workflow must not run with a weaker gate than it declares.
    """
    if name is None:
        return None
    from importlib.metadata import entry_points  # late: few workflows name a scanner, and it takes 15 ms to import

    for found in entry_points(group=SCANNERS, name=name):
        return cast(Scanner, found.load())
    installed = ", ".join(sorted(entry_points(group=SCANNERS).names)) or "none"
    raise InvalidArgument(
        f"unknown secrets_scanner {name!r}: no installed package registers it in the entry point group {SCANNERS!r} "
        f"(registered: {installed})"
    )


@dataclass(frozen=True, slots=True)
class _Span:
    start: int  # in characters
    end: int
    rank: int  # the rule's place in the table
    rule: str


def find_secrets(text: str) -> list[Finding]:
    """The credentials in ``text``, in order and not overlapping; where rules meet, the first in the table counts."""
    return _findings(text, _spans(text))


def gate(
    text: str, *, policy: Policy, allow: Collection[str] = (), scan: Scanner | None = None, what: str = "this text"
) -> Gated:
    """Check ``text`` according to ``policy``; return the text to store, or raise ``SecretRefused``.

    ``block`` refuses a text that holds a credential, ``redact`` puts ``[redacted:<rule>]`` in its place, ``warn``
    lets it pass with a warning, ``off`` does not look. ``allow`` lists exceptions: names of rules,
    or the exact texts of false alarms. Findings of ``scan`` count as well; if it fails, that is a warning. ``what``
    names the text in an error or warning.
    """
    if policy not in POLICIES:
        raise InvalidArgument(f"secrets policy {policy!r} is not known; use one of {', '.join(POLICIES)}")
    if policy == "off":
        return Gated(text)
    scanned = scan(text) if scan is not None else Scan()
    troubles = (scanned.trouble,) if scanned.trouble else ()
    leaks = [_Span(leak.start, leak.end, len(RULES), leak.rule) for leak in scanned.leaks if leak.start < leak.end]
    spans = _unless_allowed(text, _merged([*_spans(text), *leaks]), allow)
    if not spans:
        return Gated(text, troubles)
    places = _places(_findings(text, spans))
    if policy == "block":
        raise SecretRefused(
            f"{what} appears to contain a credential ({places}); nothing was written. Replace it with a reference "
            f"such as secret:NAME."
        )
    if policy == "warn":
        subject = "" if what == "this text" else f"{what} "
        return Gated(text, (f"{subject}appears to contain a credential: {places}", *troubles))
    for _ in range(_ROUNDS):  # a redaction may uncover another credential next to it
        text = _replaced(text, spans)
        if not (spans := _unless_allowed(text, _spans(text), allow)):
            break
    return Gated(text, (f"redacted an apparent credential: {places}", *troubles))


def gate_labels(
    labels: Mapping[str, str | None], *, policy: Policy, allow: Collection[str] = (), scan: Scanner | None = None
) -> tuple[str, ...]:
    """Check labels by what they are; returns warnings, or raises ``SecretRefused``.

    A label identifies, so no part of it can be replaced: ``redact`` refuses it as ``block`` does.
    """
    given = {what: text for what, text in labels.items() if text}
    if scan is None and not may_hold_secrets("\n".join(given.values())):  # one look is enough most of the time
        return ()
    strict: Policy = "block" if policy == "redact" else policy
    checked = [gate(text, policy=strict, allow=allow, scan=scan, what=what) for what, text in given.items()]
    return tuple(warning for each in checked for warning in each.warnings)


def may_hold_secrets(text: str) -> bool:
    """Whether an anchor of any rule occurs. If not, no part of ``text`` needs a check either."""
    return bool(_ranks(text, _folded(text)))


def _spans(text: str) -> list[_Span]:
    folded, spans = _folded(text), []
    for rank in sorted(_ranks(text, folded)):
        rule = RULES[rank]
        for match in _compiled(rule.pattern).finditer(folded if rule.folded else text):
            start, end = match.span(match.lastindex or 0)
            if rule.judge(text[start:end]):
                spans.append(_Span(start, end, rank, rule.name))
    return _merged(spans)


def _ranks(text: str, folded: str) -> set[int]:
    """The rules with an anchor in the text."""
    ranks = {rank for anchor, rank in _FOLDED_ANCHORS if anchor in folded}
    if _UNBROKEN.search(text):
        ranks.update(rank for anchor, rank in _EXACT_ANCHORS if anchor in text)
    return ranks


def _folded(text: str) -> str:
    """``text`` in lower case with every character at its place (one letter, the dotted I, lowers to two)."""
    folded = text.lower()
    return folded if len(folded) == len(text) else "".join(char.lower()[0] for char in text)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def _merged(spans: Iterable[_Span]) -> list[_Span]:
    """Overlapping spans become one, so that a redaction leaves no part of a credential."""
    merged: list[_Span] = []
    for span in sorted(spans, key=lambda span: span.start):
        if merged and span.start < merged[-1].end:
            last = merged.pop()
            first = min(last, span, key=lambda span: span.rank)
            span = _Span(last.start, max(last.end, span.end), first.rank, first.rule)
        merged.append(span)
    return merged


def _unless_allowed(text: str, spans: Sequence[_Span], allow: Collection[str]) -> list[_Span]:
    return [span for span in spans if span.rule not in allow and text[span.start : span.end] not in allow]


def _findings(text: str, spans: Sequence[_Span]) -> list[Finding]:
    findings, offset, position = [], 0, 0
    for span in spans:
        offset += _byte_length(text[position : span.start])
        length = _byte_length(text[span.start : span.end])
        findings.append(Finding(span.rule, offset, length))
        offset, position = offset + length, span.end
    return findings


def _byte_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _replaced(text: str, spans: Sequence[_Span]) -> str:
    parts, position = [], 0
    for span in spans:
        parts += [text[position : span.start], f"[redacted:{span.rule}]"]
        position = span.end
    return "".join([*parts, text[position:]])


def _places(findings: Sequence[Finding]) -> str:
    named = [f"{finding.rule} at byte {finding.offset}" for finding in findings[:_SHOWN]]
    rest = len(findings) - len(named)
    return ", ".join(named) + (f" and {rest} more" if rest else "")


def _anchors(rules: Sequence[Rule], *, folded: bool) -> tuple[tuple[str, int], ...]:
    return tuple((anchor, rank) for rank, rule in enumerate(rules) if rule.folded == folded for anchor in rule.anchors)


_EXACT_ANCHORS = _anchors(RULES, folded=False)
_FOLDED_ANCHORS = _anchors(RULES, folded=True)
