"""The secrets gate: what it finds, what it lets pass, what it says and never says, and what it costs."""

from __future__ import annotations

import random
import re
import string
import subprocess
import sys
import textwrap
from collections import Counter
from re import _parser  # type: ignore[attr-defined]

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfiles.errors import InvalidArgument, SecretRefused
from memfiles.secrets.gate import Finding, Gated, Policy, find_secrets, gate, judge_change
from memfiles.secrets.rules import REACH, RULES
from tests.secrets.secret_corpus import FALSE_ALARMS, LOOK_ALIKES, MISSED, SECRETS, Secret, checksummed

TOKEN = next(secret for secret in SECRETS if secret.rule == "github-token")
PASSWORD = next(secret for secret in SECRETS if secret.rule == "password")

pieces = st.one_of(
    st.sampled_from([secret.text for secret in SECRETS] + LOOK_ALIKES),
    st.sampled_from(["\n", " ", "- ", "Gr\u00fc\u00dfe \U0001f511 ", "\u0130stanbul ", '"', "'", "=", ": ", "\ud800"]),
)
texts = st.lists(pieces, max_size=6).map("".join)


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret.rule)
def test_a_credential_is_found_whole(secret: Secret) -> None:
    """A credential is found once, under its rule's name, and all of it."""
    found = [(finding.rule, _at(secret.text, finding)) for finding in find_secrets(secret.text)]

    assert [(secret.rule, secret.value)] == found


@pytest.mark.parametrize("text", LOOK_ALIKES, ids=lambda text: re.sub(r"\W+", "-", text)[:40])
def test_a_look_alike_passes(text: str) -> None:
    """Placeholders, references, handles, digests, code and prose are no credentials."""

    assert [] == find_secrets(text)


def test_every_rule_has_an_example() -> None:
    """No rule is in the table without a credential that shows it works."""

    assert {rule.name for rule in RULES} == {secret.rule for secret in SECRETS}


def test_precision_and_recall() -> None:
    """With the known misses and false alarms counted: precision at least 0.95, recall at least 0.90."""
    caught = sum(bool(find_secrets(secret.text)) for secret in SECRETS + MISSED)
    alarms = sum(bool(find_secrets(text)) for text in LOOK_ALIKES + FALSE_ALARMS)

    assert caught / (caught + alarms) >= 0.95
    assert caught / len(SECRETS + MISSED) >= 0.90


@pytest.mark.parametrize("prefix", ["gh" + "p_", "np" + "m_"])
def test_a_wrong_checksum_is_no_token(prefix: str) -> None:
    """A token with one character changed cannot open anything, and passes."""
    token = checksummed(prefix)
    changed = token[:10] + ("B" if token[10] != "B" else "A") + token[11:]

    assert ([(f"{token} {changed}".index(token), 40)], []) == (
        [(finding.offset, finding.length) for finding in find_secrets(f"{token} {changed}")],
        find_secrets(changed),
    )


def test_the_checksum_is_github_s() -> None:
    """The token that GitHub published when it explained the format is taken for one."""
    published = "gh" + "p_" + "zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ" + "0mLq17"

    assert [Finding("github-token", 0, 40)] == find_secrets(published)


def test_offsets_count_bytes() -> None:
    """Offset and length are in UTF-8 bytes, whatever stands before, in between and inside."""
    text = f"Gr\u00fc\u00dfe \U0001f511 \u0130: {TOKEN.value}, \u20ac " + PASSWORD.before + "Sch\u00f6n3r.T\u00e4g!"

    assert [TOKEN.value, "Sch\u00f6n3r.T\u00e4g!"] == [_at(text, finding) for finding in find_secrets(text)]


def test_findings_that_meet_become_one() -> None:
    """A credential inside another's place is found once, by the rule that stands first in the table."""
    text = f"https://bot:{TOKEN.value}@acme.com and token: {TOKEN.value}"

    assert ["github-token", "github-token"] == [finding.rule for finding in find_secrets(text)]


def test_block_names_the_rule_and_place_but_never_the_value() -> None:
    """The refusal says what was seen, where, that nothing was written and what to write instead."""
    with pytest.raises(SecretRefused) as refusal:
        gate(TOKEN.text, policy="block")

    message = str(refusal.value)
    assert (
        f"this text appears to contain a credential (github-token at byte {len(TOKEN.before)}); nothing was written. "
        f"Replace it with a reference such as secret:NAME."
    ) == message
    assert refusal.value.__cause__ is None
    assert TOKEN.value not in repr(refusal.value.args)


def test_a_long_list_of_findings_is_cut() -> None:
    """Five places are named, the rest are counted."""
    with pytest.raises(SecretRefused, match=r"at byte 164 and 3 more\); nothing"):
        gate(" ".join([TOKEN.value] * 8), policy="block")


def test_redact_takes_the_value_out() -> None:
    """The value is replaced, what stands around it stays, and the writer is told."""
    text = f"Gr\u00fc\u00dfe {TOKEN.value} {PASSWORD.text}"

    assert Gated(
        f"Gr\u00fc\u00dfe [redacted:github-token] {PASSWORD.before}[redacted:password]",
        ("redacted an apparent credential: github-token at byte 8, password at byte 65",),
    ) == gate(text, policy="redact")


def test_redact_takes_out_what_redacting_uncovers() -> None:
    """A token glued to another is seen only when the first has gone, and goes too."""
    signature = next(secret for secret in SECRETS if secret.rule == "azure-sas-signature")
    oauth = next(secret for secret in SECRETS if secret.rule == "google-oauth-secret")

    assert f"{signature.before}[redacted:azure-sas-signature][redacted:google-oauth-secret]" == (
        gate(signature.text + oauth.value, policy="redact").text
    )


def test_warn_keeps_the_text() -> None:
    """The text passes as it is, with a warning that names rule and place."""

    assert Gated(TOKEN.text, ("appears to contain a credential: github-token at byte 10",)) == gate(
        TOKEN.text, policy="warn"
    )


def test_off_does_not_look() -> None:
    """The text passes without a word."""

    assert Gated(TOKEN.text) == gate(TOKEN.text, policy="off")


@pytest.mark.parametrize("policy", ["block", "redact", "warn", "off"])
def test_a_clean_text_passes_every_policy(policy: Policy) -> None:
    """Nothing is changed and nothing is said."""

    assert Gated("- Bob is on the Pro plan\n") == gate("- Bob is on the Pro plan\n", policy=policy)


def test_an_unknown_policy_is_refused() -> None:
    """A misspelt policy must not open the gate."""
    with pytest.raises(
        InvalidArgument, match="secrets policy 'blok' is not known; use one of block, redact, warn, off"
    ):
        gate("text", policy="blok")  # type: ignore[arg-type]


@pytest.mark.parametrize("allowed", ["github-token", TOKEN.value])
def test_what_is_allowed_passes(allowed: str) -> None:
    """A rule's name, or the very text of a false alarm, opens the gate for it and for nothing else."""
    with pytest.raises(SecretRefused, match=r"password at byte"):
        gate(f"{TOKEN.text} {PASSWORD.text}", policy="block", allow=[allowed])

    assert Gated(TOKEN.text) == gate(TOKEN.text, policy="block", allow=[allowed])


@given(st.one_of(st.text(), texts))
def test_findings_are_in_order_and_apart(text: str) -> None:
    """Any text at all gives findings that lie inside it, in order and not overlapping."""
    findings = find_secrets(text)
    edges = [edge for finding in findings for edge in (finding.offset, finding.offset + finding.length)]

    assert sorted(edges) == edges
    assert edges == [] or edges[-1] <= len(text.encode("utf-8", "surrogatepass"))
    assert all(finding.length > 0 for finding in findings)


@given(texts)
def test_a_redacted_text_passes_the_gate(text: str) -> None:
    """Taking credentials out leaves none behind, and the placeholder is none itself."""
    redacted = gate(text, policy="redact").text

    assert Gated(redacted) == gate(redacted, policy="block")


HOSTILE_UNITS = """
a|A|A-|a.|0|-|$|(|pass|password|password |password is |password is 1|password=a|password = '|password=,,,,|pw=|-u a:
password for |password in 1: |<password>|--password |secret |secret key |token |token=a.|api_key=a1|api key is |sk-
sk-a1|ghp_|npm_|fm2_|ya29.|ops_eyJ|eyJ|eyJaaaaaaaa.|eyJaaaaaaaa.a|://|://a:|a://a:|a://a:bbbb@|-----|bearer a
-----BEGIN PRIVATE KEY-----|basic a|MTaaaaaa.|1:AA|Q~|-us1|0123456789abcdef-us|?sig=|AccountKey=|xoxb-|\u0130|\U0001f511
""".replace("\n", "|").split("|")[1:-1]
HOSTILE_HEADS = ["", "password=", "token=", "sk-", "https://a:", "eyJ"]


@pytest.mark.slow
def test_a_hostile_text_costs_no_more_than_a_long_one() -> None:
    """Each long text made to trap a pattern takes milliseconds; one that took the square would be ended after 2 s."""
    program = """
        import ast, signal, sys
        from memfiles.secrets.gate import find_secrets

        for unit, head in ast.literal_eval(sys.stdin.read()):
            signal.setitimer(signal.ITIMER_VIRTUAL, 2)  # of this process's own time, however busy the machine is
            find_secrets(head + unit * (32768 // len(unit)))
            find_secrets((head + unit * 60 + "aB1!x ") * (16384 // (60 * len(unit))))
    """
    traps = [(unit, head) for unit in HOSTILE_UNITS for head in HOSTILE_HEADS]
    command = [sys.executable, "-c", textwrap.dedent(program)]
    result = subprocess.run(command, input=ascii(traps), capture_output=True, text=True)

    assert (0, "") == (result.returncode, result.stderr)


def _at(text: str, finding: Finding) -> str:
    return text.encode("utf-8", "surrogatepass")[finding.offset : finding.offset + finding.length].decode()


def test_no_rule_reaches_farther_than_a_change_looks() -> None:
    """Every pattern has an end within ``REACH``; only a private key's may have none, and its window is that wide."""
    widths = {rule.name: _parser.parse(rule.pattern, re.ASCII).getwidth()[1] for rule in RULES}

    assert {"private-key"} == {name for name, width in widths.items() if width > REACH}


@given(st.lists(pieces, max_size=8).map("".join), st.lists(pieces, max_size=2).map("".join), st.data())
def test_a_change_is_judged_as_by_a_look_at_everything(text: str, new: str, data: st.DataObject) -> None:
    """What a scan of the whole result finds, and the whole text before did not, is found in the window."""
    start = data.draw(st.integers(0, len(text)))
    old = data.draw(st.integers(start, min(len(text), start + 30)))
    after = text[:start] + new + text[old:]
    judged = judge_change(text, after, start=start, end=start + len(new), is_given=False, policy="redact")

    assert bool(new_in(after, known=text)) == bool(judged.warnings)
    assert [] == new_in(judged.text, known=text)


@pytest.mark.parametrize("gap", ["\n", ":\n", " is\n", "\n\n\n", ":\n  \n ", "\n is "])
def test_a_credential_over_two_lines_is_put_together(gap: str) -> None:
    """A name on one line and its value on another, whichever comes last."""
    name, value = "secret access key", "".join(random.Random(1).choices(string.ascii_letters + string.digits, k=40))
    text = f"x\n{name}{gap}{value}"
    for cut in range(2, len(text)):
        for start, new, rest in ((cut, text[cut:], ""), (0, text[:cut], text[cut:])):
            before, after = text[:start] + rest, text
            judged = judge_change(before, after, start=start, end=start + len(new), policy="warn")
            assert bool(judged.warnings) == (bool(find_secrets(after)) and not find_secrets(before)), (cut, new)


def test_a_private_key_is_put_together_line_by_line() -> None:
    """Its header may stand far above the line that makes it one."""
    key = next(secret.value for secret in SECRETS if secret.rule == "private-key")
    lines = key.splitlines(keepends=True)
    text = "x\n" * 5000 + lines[0]
    judged = judge_change(text, text + lines[1], start=len(text), end=len(text + lines[1]), policy="warn")

    assert ("appears to contain a credential: private-key at byte 10000",) == judged.warnings


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("secret", SECRETS, ids=[secret.rule for secret in SECRETS])
def test_redact_leaves_no_part_of_what_comes_in_parts(secret: Secret, count: int) -> None:
    """Each is put to the end of the text, of which an earlier part may have been replaced already."""
    size = len(secret.value) // count
    parts = [secret.value[at * size : (at + 1) * size if at < count - 1 else None] for at in range(count)]
    text = secret.before
    for part in (*parts[:-1], parts[-1] + secret.after):
        text = judge_change(text, text + part, start=len(text), end=len(text + part), policy="redact").text

    assert [] == [part for part in parts if len(part) >= 6 and part in text and not part.islower()]


def test_redact_leaves_no_line_of_a_private_key() -> None:
    """Nor of one whose lines come one by one."""
    key = next(secret.value for secret in SECRETS if secret.rule == "private-key")
    text = "# Notes\n"
    for line in key.splitlines(keepends=True):
        text = judge_change(text, text + line, start=len(text), end=len(text + line), policy="redact").text

    assert [] == [line for line in key.splitlines()[1:-1] if len(line) > 40 and line in text]


def test_what_follows_a_redaction_stays() -> None:
    """Words, punctuation and what has a space before it."""
    for text in ("[redacted:password], please", "[redacted:password] a1B2c3D4", "x:[redacted:connection-string]@db1/x"):
        assert text == judge_change("", text, start=0, end=len(text), policy="redact").text


def new_in(text: str, *, known: str) -> list[str]:
    """The credentials in a text that are neither in the known one, nor what is left of one there."""
    before, now = (Counter(text_of(each, finding) for finding in find_secrets(each)) for each in (known, text))
    more = [value for value, count in now.items() if count > before[value]]
    return [value for value in more if not any(value != longer and value in longer for longer in before)]


def text_of(text: str, finding: Finding) -> str:
    """The credential that was found."""
    return text.encode("utf-8", "surrogatepass")[finding.offset :][: finding.length].decode("utf-8", "surrogatepass")
