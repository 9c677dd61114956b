"""The second scanner: what it adds to the gate's rules, and that its failures are never silent."""

from __future__ import annotations

import itertools
import json
import logging
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import betterleaks
import pytest

import memfiles
from memfiles.errors import InvalidArgument, SecretRefused
from memfiles.files.manager import MemoryManager
from memfiles.secrets.betterleaks import LeakScanner, scanner_called
from memfiles.secrets.gate import Gated, Leak, Policy, Scan, find_secrets, gate
from memfiles.workflow.workflow import EntriesSpec, MemoryFile, Workflow
from tests.secrets.secret_corpus import FALSE_ALARMS, LOOK_ALIKES, MISSED, SECRETS
from tests.support.another_process import Other, another_process

THEIRS = "EZ" + "AK" + "9c1f" * 13 + "1a"
"""A token that betterleaks knows and the gate's own rules do not."""

TOKEN = next(secret for secret in SECRETS if secret.rule == "github-token")


class FarScanner:
    """The real scanner, in a process of its own: its threads would make every later fork of this one unsafe."""

    PROGRAM = """
import dataclasses, json
from memfiles.secrets.betterleaks import LeakScanner
scanner = LeakScanner()
while True:
    print(json.dumps(dataclasses.asdict(scanner(json.loads(input())))))
"""

    def __init__(self, other: Other) -> None:
        self.other = other

    def __call__(self, text: str) -> Scan:
        self.other.tell(json.dumps(text))
        said = json.loads(self.other.hear())
        return Scan(tuple(Leak(**leak) for leak in said["leaks"]), said["trouble"])


@pytest.fixture(scope="module")
def scanner() -> Iterator[FarScanner]:
    """The scanner, loaded once."""
    with another_process(f"try:\n{textwrap.indent(FarScanner.PROGRAM, '    ')}\nexcept EOFError: pass") as other:
        yield FarScanner(other)


class OneTokenLibrary:
    """A named fake of betterleaks that knows one token and needs no threads."""

    BetterleaksError = betterleaks.BetterleaksError

    @staticmethod
    def scan_string(text: str) -> list[betterleaks.Finding]:
        """The token, if it is there."""
        match = betterleaks.Match(full=THEIRS, value=THEIRS)
        finding = betterleaks.Finding("one-token", "", "high", match, betterleaks.Location(None, 1, 1))
        return [finding] if THEIRS in text else []


class FailingLibrary(OneTokenLibrary):
    """One that fails, and says the text in its message."""

    @staticmethod
    def scan_string(text: str) -> list[betterleaks.Finding]:
        """Fails."""
        raise betterleaks.BetterleaksError(text)


class DecodingLibrary(OneTokenLibrary):
    """One that found something in a decoded form of the second line."""

    @staticmethod
    def scan_string(text: str) -> list[betterleaks.Finding]:
        """A value that does not stand in the text."""
        where = betterleaks.Location(None, 2, 2)
        return [betterleaks.Finding("decoded", "", "high", betterleaks.Match(value="not there"), where)]


def found(text: str, scan: Scan) -> list[str]:
    """The texts that a scan found."""
    return [text[leak.start : leak.end] for leak in scan.leaks]


class Finding:
    """A named fake: the finder of one word, for what the gate does with what another scanner says."""

    def __init__(self, word: str, trouble: str | None = None) -> None:
        self.word, self.trouble = word, trouble

    def __call__(self, text: str) -> Scan:
        at = text.find(self.word)
        return Scan((Leak(at, at + len(self.word), "word"),) if at >= 0 else (), self.trouble)


def test_it_adds_a_kind_of_its_own(scanner: FarScanner) -> None:
    """A token that only betterleaks knows is found, whole, wherever it stands."""
    text = f"Grüße 😀 {THEIRS}\nund {THEIRS}"

    assert [] == find_secrets(text)
    assert [THEIRS, THEIRS] == sorted(found(text, scanner(text)))


def test_the_gate_refuses_what_it_finds(scanner: FarScanner) -> None:
    """The refusal names its rule and the place in bytes, and never the value."""
    with pytest.raises(SecretRefused, match=r"betterleaks-easypost-api-token at byte 8\.") as refusal:
        gate(f"Grüße {THEIRS}", policy="block", scan=scanner)

    assert THEIRS not in str(refusal.value)


def test_both_find_more_and_no_more_alarms(scanner: FarScanner) -> None:
    """On the corpus: with it recall is no lower, and precision still at least 0.95."""
    secrets = [secret.text for secret in SECRETS + MISSED]
    caught = sum(bool(find_secrets(text) or scanner(text).leaks) for text in secrets)
    alarms = sum(bool(find_secrets(text) or scanner(text).leaks) for text in LOOK_ALIKES + FALSE_ALARMS)

    assert caught >= sum(bool(find_secrets(text)) for text in secrets)
    assert caught / (caught + alarms) >= 0.95


@pytest.mark.parametrize("before", ["\0", "a\0b ", "\ud800 "])
def test_nothing_hides_behind_a_character(scanner: FarScanner, before: str) -> None:
    """A NUL, which ends a text in C, and what UTF-8 cannot hold do not end the scan."""
    text = f"{before}{THEIRS}"

    assert [THEIRS] == found(text, scanner(text))


def test_a_long_text_is_read_to_its_end(scanner: FarScanner) -> None:
    """A token on the seam between two parts, and one at the end, are found once each."""
    for place in (65_500, 65_536 - 4096, 61_440 + 65_520, 200_000):
        text = " x" * (place // 2) + f" {THEIRS} " + " y" * 1000

        assert [THEIRS] == found(text, scanner(text))


def test_it_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the time is over, what was found until then counts, and the writer is told that not all was read."""
    monkeypatch.setitem(sys.modules, "betterleaks", OneTokenLibrary)
    moments = itertools.chain([0.0, 0.0], itertools.repeat(2.1))
    text = f"{THEIRS} " + " x" * 100_000
    scan = LeakScanner(monotonic=moments.__next__)(text)

    assert [THEIRS] == found(text, scan)
    assert (
        "betterleaks did not check this text: it did not finish in 2 seconds; memfiles' own rules did" == scan.trouble
    )


def test_a_failure_is_told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that fails lets nothing through in silence: a warning for every writer, and one in the log."""
    monkeypatch.setitem(sys.modules, "betterleaks", FailingLibrary)
    scan = LeakScanner()
    with caplog.at_level(logging.WARNING):
        told = [gate(THEIRS, policy="block", scan=scan) for _ in range(2)]

    trouble = "betterleaks did not check this text: it failed with BetterleaksError; memfiles' own rules did"
    assert [Gated(THEIRS, (trouble,))] * 2 == told
    assert [trouble] == [record.getMessage() for record in caplog.records]


def test_what_was_found_decoded_is_its_whole_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that does not stand in the text as it was found is taken to be the line it was found in."""
    monkeypatch.setitem(sys.modules, "betterleaks", DecodingLibrary)
    scan = LeakScanner()

    assert ["two\n"] == found("one\ntwo\nthree", scan("one\ntwo\nthree"))
    assert ["two"] == found("one\ntwo", scan("one\ntwo"))
    assert ["one"] == found("one", scan("one"))


def test_a_forked_child_is_told() -> None:
    """The library hangs in the child of a fork; there it is not called, and the writer is told."""
    program = """
import os
from memfiles.secrets.betterleaks import LeakScanner
LeakScanner()("x")
if os.fork() == 0:
    print(LeakScanner()("x").trouble, flush=True)
    os._exit(0)
os.wait()
"""
    with another_process(program) as other:
        assert "betterleaks did not check this text: it cannot be used in a process forked" in other.hear()


def test_what_another_scanner_finds_is_redacted() -> None:
    """Its findings are merged with ours: taken out whole, allowed by rule or text, and warned of."""
    text = f"a secretword {TOKEN.value}"

    assert "a [redacted:word] [redacted:github-token]" == gate(text, policy="redact", scan=Finding("secretword")).text
    assert Gated("a secretword") == gate("a secretword", policy="block", scan=Finding("secretword"), allow=["word"])
    assert ("looks like it holds a credential: word at byte 2", "why") == (
        gate("a secretword", policy="warn", scan=Finding("secretword", "why")).warnings
    )
    assert Gated("a secretword") == gate("a secretword", policy="off", scan=Finding("secretword", "why"))


def test_where_both_find_something_ours_names_it() -> None:
    """Two findings that meet are one, under the name of the gate's own rule."""
    half = TOKEN.value[:20]

    assert "[redacted:github-token]" == gate(TOKEN.value, policy="redact", scan=Finding(half)).text
    assert "[redacted:github-token]" == gate(f"x{TOKEN.value}"[1:], policy="redact", scan=Finding(TOKEN.value)).text


@pytest.mark.parametrize("policy", ["block", "redact", "warn"])
def test_trouble_is_a_warning(policy: Policy) -> None:
    """Whatever the policy, a clean text passes with the scanner's trouble as a warning."""

    assert Gated("clean", ("why",)) == gate("clean", policy=policy, scan=Finding("secretword", "why"))


def test_it_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A workflow that asks for it does not start with a weaker gate than it declares."""
    monkeypatch.setitem(sys.modules, "betterleaks", None)

    with pytest.raises(InvalidArgument, match=r"not installed here: pip install 'memfiles\[secrets\]'"):
        scanner_called("betterleaks")
    assert scanner_called(None) is None


WORKFLOW = f"""
memory:
  secrets_scanner: betterleaks
  files:
    - {{uid: strict, name: strict}}
    - {{uid: lenient, name: lenient, secrets_allow: [github-token, {THEIRS}]}}
  entries: {{secrets_allow: [password]}}
"""


def test_a_workflow_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its findings refuse a write; a file's own list lets rules and texts through, and no others."""
    monkeypatch.setitem(sys.modules, "betterleaks", OneTokenLibrary)
    (tmp_path / "workflow.yaml").write_text(WORKFLOW)
    with memfiles.open(tmp_path / "workflow.yaml", watch=False) as memory:
        for text in (THEIRS, TOKEN.value):
            with pytest.raises(SecretRefused):
                memory.manager.append("strict", text)
            with pytest.raises(SecretRefused):
                memory.manager.append_many([("lenient", text), ("strict", text)])
            memory.manager.append("lenient", text)
        with pytest.raises(SecretRefused, match="password"):
            memory.manager.replace("lenient", next(secret.text for secret in SECRETS if secret.rule == "password"))

        assert ("", THEIRS + TOKEN.value) == (memory.manager.read("strict"), memory.manager.read("lenient"))


def test_every_write_of_a_file_knows_its_list(tmp_path: Path) -> None:
    """Append, edit and replace of a file let through what it allows; a restore with another list counts at once."""
    lenient = MemoryFile(uid="a", name="a", secrets_allow=("github-token",))
    with MemoryManager(tmp_path / "memory") as manager:
        manager.restore([lenient])
        manager.append("a", "x")
        manager.edit("a", "x", TOKEN.value)
        manager.replace("a", f"again {TOKEN.value}")
        manager.restore([MemoryFile(uid="a", name="a")])
        with pytest.raises(SecretRefused):
            manager.append("a", TOKEN.value)


def test_the_lists_are_declared() -> None:
    """The workflow holds what was declared; nothing is allowed by default."""
    workflow = Workflow.parse(WORKFLOW)

    assert [(), ("github-token", THEIRS)] == [file.secrets_allow for file in workflow.memory.files]
    assert (("password",), ()) == (workflow.memory.entries and workflow.memory.entries.secrets_allow,
                                   EntriesSpec().secrets_allow)  # fmt: skip
