"""A second scanner: what it adds to the gate's rules, and how a workflow names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from memfiles.entries.drafts import EntryRules
from memfiles.errors import InvalidArgument, SecretRefused
from memfiles.files.manager import MemoryManager
from memfiles.secrets.gate import Gated, Leak, Policy, Scan, Scanner, gate, scanner_called
from memfiles.workflow.specs import EntriesSpec
from memfiles.workflow.workflow import MemoryFile, Workflow
from tests.secrets.secret_corpus import SECRETS
from tests.support.saved import Visitor, entries_in
from tests.support.workflows import opened

TOKEN = next(secret for secret in SECRETS if secret.rule == "github-token")


class WordScanner:
    """A named fake: a scanner that finds one word."""

    def __init__(self, word: str, trouble: str | None = None) -> None:
        self.word, self.trouble = word, trouble

    def __call__(self, text: str) -> Scan:
        at = text.find(self.word)
        return Scan((Leak(at, at + len(self.word), "word"),) if at >= 0 else (), self.trouble)


SCANNER: Scanner = WordScanner("secretword")


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed distribution that registers ``SCANNER`` under the name "words"."""
    metadata = tmp_path / "site" / "words-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.4\nName: words\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[memfiles.scanners]\nwords = tests.secrets.test_scanner:SCANNER\n")
    monkeypatch.syspath_prepend(tmp_path / "site")


def test_what_another_scanner_finds_is_redacted() -> None:
    """Its findings are merged with ours: taken out whole, allowed by rule or text, and warned of."""
    text = f"a secretword {TOKEN.value}"

    assert (
        "a [redacted:word] [redacted:github-token]" == gate(text, policy="redact", scan=WordScanner("secretword")).text
    )
    assert Gated("a secretword") == gate("a secretword", policy="block", scan=SCANNER, allow=["word"])
    assert ("appears to contain a credential: word at byte 2", "why") == (
        gate("a secretword", policy="warn", scan=WordScanner("secretword", "why")).warnings
    )
    assert Gated("a secretword") == gate("a secretword", policy="off", scan=WordScanner("secretword", "why"))


def test_where_both_find_something_ours_names_it() -> None:
    """Two findings that meet are one, under the name of the gate's own rule."""
    half = TOKEN.value[:20]

    assert "[redacted:github-token]" == gate(TOKEN.value, policy="redact", scan=WordScanner(half)).text
    assert "[redacted:github-token]" == gate(f"x{TOKEN.value}"[1:], policy="redact", scan=WordScanner(TOKEN.value)).text


@pytest.mark.parametrize("policy", ["block", "redact", "warn"])
def test_trouble_is_a_warning(policy: Policy) -> None:
    """Whatever the policy, a clean text passes with the scanner's trouble as a warning."""

    assert Gated("clean", ("why",)) == gate("clean", policy=policy, scan=WordScanner("secretword", "why"))


@pytest.mark.usefixtures("registered")
def test_a_name_gives_the_registered_scanner() -> None:
    """A distribution registers its scanner as an entry point; no name, no scanner."""

    assert (SCANNER, None) == (scanner_called("words"), scanner_called(None))


@pytest.mark.usefixtures("registered")
def test_an_unknown_scanner_is_refused() -> None:
    """A workflow does not start with a weaker gate than it declares; the error lists what is registered."""
    with pytest.raises(InvalidArgument, match=r"secrets_scanner 'wrods'.*'memfiles.scanners' \(registered: words\)"):
        scanner_called("wrods")


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    "value", ["no_such_module:scan", "tests.secrets.test_scanner:NOTHING", "cannot_start:scan", "builtins:__name__"]
)
def test_a_scanner_that_cannot_be_loaded_is_refused(tmp_path: Path, value: str) -> None:
    """As where the package lacks one that it needs: the error names it, and does not take it for one of memfiles."""
    [registry] = tmp_path.glob("site/*/entry_points.txt")
    registry.write_text(f"[memfiles.scanners]\nwords = {value}\n")
    (tmp_path / "site" / "cannot_start.py").write_text("scan = {}['a rule that is not there']\n")

    with pytest.raises(InvalidArgument, match=f"secrets_scanner 'words' (cannot be loaded from|at) {value}"):
        scanner_called("words")


WORKFLOW = """
memory:
  secrets_scanner: words
  files:
    - {uid: strict, name: strict}
    - {uid: lenient, name: lenient, secrets_allow: [github-token, secretword]}
  entries: {secrets_allow: [password]}
"""


@pytest.mark.usefixtures("registered")
def test_a_workflow_asks_for_it(tmp_path: Path) -> None:
    """Its findings refuse a write of a file or an entry; a file's own list lets its rules and texts through."""
    with opened(tmp_path, WORKFLOW + "agents: {desk: {}}\n") as memory:
        for text in ("a secretword", TOKEN.value):
            with pytest.raises(SecretRefused):
                memory.manager.append("strict", text)
            with pytest.raises(SecretRefused):
                memory.manager.append_many([("lenient", text), ("strict", text)])
            memory.manager.append("lenient", text)
        with pytest.raises(SecretRefused, match="password"):
            memory.manager.replace("lenient", next(secret.text for secret in SECRETS if secret.rule == "password"))
        with pytest.raises(SecretRefused, match="word at byte 2"):
            memory.entries.save(memory.session("desk"), "key", "a secretword")

        assert ("", "a secretword" + TOKEN.value) == (memory.manager.read("strict"), memory.manager.read("lenient"))


def test_a_manager_takes_the_scanner_itself(tmp_path: Path) -> None:
    """In Python no entry point is needed: ``MemoryManager(scan=...)`` takes the object."""
    with MemoryManager(tmp_path / "memory", scan=SCANNER) as manager:
        manager.restore([MemoryFile(uid="a", name="a")])
        with pytest.raises(SecretRefused, match="word at byte 2"):
            manager.append("a", "a secretword")


def test_the_reason_of_a_forget_is_judged_by_the_rules_of_the_workflow(tmp_path: Path) -> None:
    """It stays in the tombstone, so the scanner and the exceptions count for it, and a redaction counts in its size."""
    strict, lenient = EntryRules(scan=SCANNER), EntryRules(allow=("github-token",))
    redacting = EntryRules(scan=WordScanner("key"), secrets="redact")
    with entries_in(tmp_path, rules=strict) as entries:
        entries.save(Visitor(), "ada", "likes tea")
        with pytest.raises(SecretRefused, match="the reason appears to contain a credential"):
            entries.forget(Visitor(), key="ada", why="a secretword")
    too_long = pytest.raises(InvalidArgument, match=f"the reason has {500 - 3 + len('[redacted:word]')} bytes")
    with entries_in(tmp_path, rules=redacting) as entries, too_long:
        entries.forget(Visitor(), key="ada", why=f"{'x' * 497}key")
    with entries_in(tmp_path, rules=lenient) as entries:
        assert 1 == entries.forget(Visitor(), key="ada", why=f"leaked {TOKEN.value}").count


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

    assert [(), ("github-token", "secretword")] == [file.secrets_allow for file in workflow.memory.files]
    assert (("password",), ()) == (workflow.memory.entries and workflow.memory.entries.secrets_allow,
                                   EntriesSpec().secrets_allow)  # fmt: skip
