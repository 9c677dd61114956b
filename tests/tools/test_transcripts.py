"""A transcript holds no credential, however it was cut, and is made in bounded time of whatever it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfiles.secrets.gate import find_secrets
from memfiles.tools.transcripts import MAX_TRANSCRIPT_BYTES, redacted, transcript_of
from tests.secrets.secret_corpus import SECRETS

TOKEN = next(secret.value for secret in SECRETS if secret.rule == "github-token")
KEY = "".join(
    [
        "-----BEGIN RSA ",
        "PRIVATE KEY-----\n",
        f"MIIEowIBAAKCAQEA{'x9Z' * 16}\n" * 12,
        "-----END RSA ",
        "PRIVATE KEY-----",
    ]
)


def said(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text} for text in texts]


def test_a_token_that_two_messages_share_is_in_neither() -> None:
    """Wherever it was cut."""
    for at in range(1, len(TOKEN)):
        text = transcript_of(said(f"it is {TOKEN[:at]}", f"{TOKEN[at:]} ok?")).text

        assert not any(TOKEN[n : n + 8] in text for n in range(4, len(TOKEN) - 8))
        assert text.endswith(" ok?")


def test_a_key_that_is_spread_over_many_messages_is_in_none() -> None:
    """As a stream may cut it."""
    parts = [KEY[at : at + 90] for at in range(0, len(KEY), 90)]
    text = transcript_of(said("the key:", *parts, "that was it")).text

    assert "x9Zx9Z" not in text
    assert "user: the key:" in text
    assert text.endswith("that was it")


def test_a_key_that_is_cut_between_its_lines_is_in_none() -> None:
    """As one who sends line for line cuts it."""
    assert "x9Zx9Z" not in transcript_of(said(*KEY.splitlines())).text


def test_a_password_that_is_told_in_the_next_message_is_in_none() -> None:
    """What it is stands before it."""
    assert "hunter2" not in transcript_of(said("password:", "hunter2hunter2X9!")).text


def test_a_token_that_two_parts_of_a_message_share_is_in_neither() -> None:
    """A message may have a list of texts."""
    content = [{"type": "text", "text": f"it is {TOKEN[:20]}"}, {"type": "text", "text": f"{TOKEN[20:]} ok"}]

    assert TOKEN[24:] not in transcript_of([{"role": "user", "content": content}]).text


@given(st.lists(st.text(max_size=40), max_size=12))
def test_what_holds_no_credential_stays_as_it_is(parts: list[str]) -> None:
    """Part for part."""
    if not any(map(find_secrets, ("".join(parts), "\n".join(parts), *parts))):
        assert parts == redacted(parts)


def test_the_end_of_a_credential_that_was_cut_is_not_shown() -> None:
    """Of one huge message the end is shown, and nothing of what stands at the cut."""
    text = transcript_of(said("word " * 100_000 + TOKEN + " word" * (MAX_TRANSCRIPT_BYTES // 5 - 2))).text

    assert not any(TOKEN[n : n + 8] in text for n in range(4, len(TOKEN) - 8))
    assert MAX_TRANSCRIPT_BYTES - 100 < len(text.encode()) <= MAX_TRANSCRIPT_BYTES


class Odd:
    """Cannot be read."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __str__(self) -> str:
        raise RuntimeError("no text")


def nested() -> list[Any]:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    return deep


ODD: dict[str, Callable[[], Any]] = {
    "nothing that can be read": Odd,
    "a content that cannot be read": lambda: {"role": "user", "content": Odd()},
    "a nesting without end": lambda: {"content": nested()},
    "nothing": lambda: None,
    "a number": lambda: 7,
    "half of a pair": lambda: "\ud800",
}


@pytest.mark.parametrize("odd", ODD)
def test_a_message_that_cannot_be_read_hides_no_other(odd: str) -> None:
    """Whatever somebody put between the others."""
    text = transcript_of([*said("before"), ODD[odd](), *said("after")]).text

    assert text.startswith("user: before\n")
    assert text.endswith("user: after")


def test_only_the_end_of_what_is_huge_is_looked_at() -> None:
    """Sixty million characters that look like credentials cost no more than the end of them."""
    found = transcript_of(said("key-" + "ab1 " * 15_000_000))

    assert (1, MAX_TRANSCRIPT_BYTES) == (found.messages, len(found.text.encode()))
