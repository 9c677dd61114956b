"""The secrets gate: every text passes it before it is stored, whether a model or a person writes it.

The rules this file guards: a credential's value never leaves it, neither in an error nor in a warning; both name the
kind of credential and the place. Of a change it judges the result, as two harmless texts can make a credential;
what the text held before is not held against a change; and a change costs by its own size, not by that of the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Literal, Protocol, cast

from msgspec import Struct
from msgspec.structs import replace

from memfiles.errors import InvalidArgument, SecretRefused
from memfiles.records import late_logger as _log
from memfiles.records import late_pattern
from memfiles.records.graphemes import first_few
from memfiles.secrets.rules import REACH, REACH_OF_ANCHOR, RULES, UNBROKEN, Rule

Policy = Literal["block", "redact", "warn", "off"]
POLICIES: tuple[Policy, ...] = ("block", "redact", "warn", "off")
LABEL_BYTES_MAX = 255
_SHOWN = 5  # findings named in one message
_ROUNDS = 8
_REMEMBERED = 256  # labels
_UNBROKEN = late_pattern(UNBROKEN)
_KEY = "PRIVATE KEY"  # the match of its rule runs over many lines; in every other rule, two lines meet in a gap
_GAP = 16
_GAP_LETTERS = "\"'`*:=> \t\n\r\f\vis"


class Finding(Struct, frozen=True):
    """One credential in a text: its kind and its place in UTF-8 bytes, never its value."""

    rule: str
    offset: int
    length: int


class Leak(Struct, frozen=True):
    """A credential that another scanner found: its first character, the one after its last, and the rule's name."""

    start: int
    end: int
    rule: str


class Scan(Struct, frozen=True):
    """The result of another scanner: its findings, and in ``trouble`` why it may have missed some."""

    leaks: tuple[Leak, ...] = ()
    trouble: str | None = None


class Gated(Struct, frozen=True):
    """A text that may be stored, the warnings for its writer, and the parts of credentials that a change took out."""

    text: str
    warnings: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


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

    Raises ``InvalidArgument`` if it cannot be loaded: a workflow must not run with a weaker gate than it declares.
    """
    if name is None:
        return None
    from importlib.metadata import entry_points  # late: few workflows name a scanner, and it takes 15 ms to import

    for found in entry_points(group=SCANNERS, name=name):
        try:
            scanner = found.load()
        except Exception as error:  # another package's code, which may raise anything
            what = f"secrets_scanner {name!r} cannot be loaded from {found.value}"
            raise InvalidArgument(f"{what}: {type(error).__name__}: {error}") from error
        if callable(scanner):
            return cast(Scanner, scanner)
        raise InvalidArgument(f"secrets_scanner {name!r} at {found.value} is not a function that takes a text")
    installed = ", ".join(sorted(entry_points(group=SCANNERS).names)) or "none"
    raise InvalidArgument(
        f"unknown secrets_scanner {name!r}: no installed package registers it in the entry point group {SCANNERS!r} "
        f"(registered: {installed})"
    )


class _Span(Struct, frozen=True):
    start: int  # in characters
    end: int
    rank: int  # the rule's place in the table
    rule: str


def find_secrets(text: str) -> list[Finding]:
    """The credentials in ``text``, in order and not overlapping; where rules meet, the first in the table counts."""
    return _findings(text, _spans(text))


def check_policy(policy: Policy) -> Policy:
    """Return a known policy; ``InvalidArgument`` for any other value."""
    if policy not in POLICIES:
        raise InvalidArgument(f"secrets policy {policy!r} is not known; use one of {', '.join(POLICIES)}")
    return policy


def gate(
    text: str, *, policy: Policy, allow: Collection[str] = (), scan: Scanner | None = None, what: str = "this text"
) -> Gated:
    """Check ``text`` according to ``policy``; return the text to store, or raise ``SecretRefused``.

    ``block`` refuses a text that holds a credential, ``redact`` puts ``[redacted:<rule>]`` in its place, ``warn`` lets
    it pass with a warning, ``off`` does not look. ``allow`` lists exceptions: names of rules, or the exact texts of
    false alarms. Findings of ``scan`` count as well; if it fails, that is a warning. ``what`` names the text.
    """
    check_policy(policy)
    return judge_change(
        "", text, start=0, end=len(text), is_given=False, policy=policy, allow=allow, scan=scan, what=what
    )


def judge_change(
    before: str,
    after: str,
    *,
    start: int,
    end: int,
    is_given: bool = True,
    policy: Policy,
    allow: Collection[str] = (),
    scan: Scanner | None = None,
    what: str = "this text",
) -> Gated:
    """Judge the change of ``before`` into ``after``, whose characters from ``start`` to ``end`` are new.

    ``is_given``: the caller gave the new text, which must not hold a credential by itself either. The rest is as in
    ``gate``; places are in ``after``. ``redact`` replaces a whole credential, including its part in ``before``.
    """
    if policy == "off":
        return Gated(after)
    find = partial(_new_spans, before, is_given=is_given, allow=allow)
    found, troubles = find(after, start, end, scan=scan)
    if not found:
        return Gated(after, troubles)
    places = first_few([f"{it.rule} at byte {it.offset}" for it in _findings(after, found)], _SHOWN)
    if policy == "warn":
        subject = "" if what == "this text" else f"{what} "
        return Gated(after, (f"{subject}appears to contain a credential: {places}", *troubles))
    if policy == "block":
        alone = [after[start + span.start : start + span.end] for span in _spans(after[start:end])]
        is_joined = any(after[span.start : span.end] not in alone for span in found)
        joined = " together with the text around it" if is_joined and scan is None else ""  # a scan does not tell
        raise SecretRefused(
            f"{what} appears to contain a credential{joined} ({places}); nothing was written. Replace it with a "
            f"reference such as secret:NAME."
        )
    text, lost = _redacted(after, found, start, end, find=partial(find, scan=None))
    return Gated(text, (f"redacted an apparent credential: {places}", *troubles), lost)


def _redacted(
    text: str, found: list[_Span], start: int, end: int, *, find: Callable[..., tuple[list[_Span], object]]
) -> tuple[str, tuple[str, ...]]:
    """The text without these credentials, and their parts outside of ``start`` to ``end``, which were there before."""
    lost: list[str] = []
    for _ in range(_ROUNDS):  # a redaction may uncover another credential next to it
        lost += [text[span.start : min(start, span.end)] for span in found]
        lost += [text[max(end, span.start) : span.end] for span in found]
        tail = len(text) - max(end, found[-1].end)
        start, text = min(start, found[0].start), _replaced(text, found)
        end = len(text) - tail
        if not (found := find(text, start, end)[0]):
            break
    return text, tuple(dict.fromkeys(filter(None, lost)))


def gate_labels(
    labels: Mapping[str, str | None], *, policy: Policy, allow: Collection[str] = (), scan: Scanner | None = None
) -> tuple[str, ...]:
    """Check labels by what they are; returns warnings, or raises ``SecretRefused``.

    A label identifies, so no part of it can be replaced: ``redact`` refuses it as ``block`` does.
    """
    given = {what: text for what, text in labels.items() if text}
    if not given or (scan is None and not may_hold_secrets("\n".join(given.values()))):  # one look is mostly enough
        return ()
    strict: Policy = "block" if policy == "redact" else policy
    checked = [gate(text, policy=strict, allow=allow, scan=scan, what=what) for what, text in given.items()]
    return tuple(warning for each in checked for warning in each.warnings)


class LabelGate:
    """Refuses credentials in the labels of changes, such as agent and run; logs once each one that it lets pass."""

    def __init__(self, policy: Policy, scan: Scanner | None) -> None:
        self._policy = policy
        self._scan = scan
        self._passed: set[str] = set()  # a session and its manager ask about the same label
        self._warned: set[str] = set()

    def check(self, labels: Mapping[str, str | None], *, allow: Collection[str] = ()) -> None:
        """See ``gate_labels``."""
        given = {what: text for what, text in labels.items() if text and text not in self._passed}
        found = gate_labels(given, policy=self._policy, allow=allow, scan=self._scan)
        if not found and not allow:
            if len(self._passed) > _REMEMBERED:
                self._passed.clear()
            self._passed.update(given.values())
        for warning in set(found) - self._warned:
            self._warned.add(warning)
            _log.tell(warning)


def check_label(text: object, *, what: str) -> None:
    """Refuse a label that cannot be recorded in a history: it has 1 to 255 bytes and no control characters."""
    if text is None:
        return
    if not isinstance(text, str):
        raise InvalidArgument(f"{what} must be text, not {type(text).__name__}")
    size = len(text.encode(errors="replace"))
    if not 1 <= size <= LABEL_BYTES_MAX:
        raise InvalidArgument(f"{what} is {size} bytes long; 1 to {LABEL_BYTES_MAX} are allowed")
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in text):
        raise InvalidArgument(f"{what} holds a control character or half of a surrogate pair")


def may_hold_secrets(text: str) -> bool:
    """Whether an anchor of any rule occurs. If not, no part of ``text`` needs a check either."""
    return bool(_ranks(text, _folded(text)))


def _new_spans(
    before: str, after: str, start: int, end: int, *, is_given: bool, allow: Collection[str], scan: Scanner | None
) -> tuple[list[_Span], tuple[str, ...]]:
    """The credentials that the change brought into ``after``, and the troubles of the other scanner."""
    left, right = _window(after, start, end)
    scanned = scan(after) if scan is not None else Scan()
    troubles = (scanned.trouble,) if scanned.trouble else ()
    if not scanned.leaks and not may_hold_secrets(after[left:right]):
        return [], troubles
    places = [(left, after[left:right])]
    if is_given:
        places.append((start, after[start:end]))  # nothing around a credential may hide it
    spans = [replace(it, start=it.start + at, end=it.end + at) for at, part in places for it in _spans(part)]
    spans += [_Span(leak.start, leak.end, len(RULES), leak.rule) for leak in scanned.leaks if leak.start < leak.end]
    found = [span for span in _merged(spans) if span.rule not in allow and after[span.start : span.end] not in allow]
    if not found:
        return [], troubles
    old = before[left : len(before) - (len(after) - right)]
    known = Counter(old[span.start : span.end] for span in _spans(old))
    known.update(before[leak.start : leak.end] for leak in (scan(before).leaks if scan is not None and before else ()))
    return [span for span in found if not _was_there(after[span.start : span.end], known)], troubles


def _was_there(value: str, known: Counter[str]) -> bool:
    """Whether the text before held this credential, or a longer one that contains it."""
    if known[value] > 0:
        known[value] -= 1
        return True
    return any(value != longer and value in longer for longer in known)


def _window(text: str, start: int, end: int) -> tuple[int, int]:
    """The part of ``text`` that holds every match of a rule that overlaps the text from ``start`` to ``end``.

    No match is longer than ``REACH``. A match lies on one line, or on two with a gap of a few characters between them;
    only private keys take more lines.
    """
    least, most = max(0, start - REACH), min(len(text), end + REACH)
    if text.rfind(_KEY, least, min(end + REACH_OF_ANCHOR, most)) >= 0:
        return least, most
    left, right = text.rfind("\n", least, start) + 1 or least, text.find("\n", end, most)
    if (gap := text[max(least, left - _GAP) : left]) and left > least:
        left = text.rfind("\n", least, left - len(gap) + len(gap.rstrip(_GAP_LETTERS))) + 1 or least
    if right < 0:
        return left, most
    gap = text[right : right + _GAP]
    right = text.find("\n", right + len(gap) - len(gap.lstrip(_GAP_LETTERS)), most)
    return left, right if right >= 0 else most


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


def _anchors(rules: Sequence[Rule], *, folded: bool) -> tuple[tuple[str, int], ...]:
    return tuple((anchor, rank) for rank, rule in enumerate(rules) if rule.folded == folded for anchor in rule.anchors)


_EXACT_ANCHORS = _anchors(RULES, folded=False)
_FOLDED_ANCHORS = _anchors(RULES, folded=True)
