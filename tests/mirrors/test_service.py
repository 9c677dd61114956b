"""Requests to the older service: where the key goes, and what ends a request."""

from __future__ import annotations

import itertools
import json
import logging
import traceback
from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from memfiles.errors import InvalidArgument, MirrorRefused, MirrorUnavailable
from mirrors.service import Service, connect
from mirrors.urls import parse_url
from tests.mirrors.older_service import KEY, OlderService, serving


@pytest.fixture
def older() -> Iterator[OlderService]:
    """A service that is told what to answer."""
    with serving(OlderService()) as running:
        yield running


def test_the_key_goes_in_a_header(older: OlderService) -> None:
    """And nowhere else; a path in the URL goes in front."""
    older.answers.append((200, {}, b"[1]"))

    assert [1] == Service(parse_url(f"{older.url}/v1/two%20words/"), key=KEY).ask("GET", "/agents/memory")
    [(method, path, headers)] = older.requests
    assert ("GET", "/v1/two%20words/agents/memory", KEY) == (method, path, headers["agent-key"])


def test_no_key_is_no_header(older: OlderService, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service may need none."""
    monkeypatch.delenv("MEMFILES_AGENT_KEY", raising=False)
    older.answers.append((200, {}, b""))

    assert connect(older.url).ask("GET", "/") is None
    assert "agent-key" not in older.requests[0][2]


def test_the_key_does_not_follow_a_redirect(older: OlderService) -> None:
    """Whoever answers for the service could send it anywhere."""
    with serving(OlderService()) as elsewhere:
        older.answers.append((307, {"Location": elsewhere.url}, b""))
        with pytest.raises(MirrorRefused, match="answered 307"):
            Service(parse_url(older.url), key=KEY).ask("GET", "/agents/memory")

        assert [] == elsewhere.requests


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_says_what_to_use(older: OlderService, status: int) -> None:
    """Once, with the address for the workflow; credentials in it are left out."""
    older.answers.append((status, {"Location": "https://user:pass@other.example:8443/v2/agents/memory?a=1"}, b""))
    with pytest.raises(
        MirrorRefused, match=rf"answered {status}, a redirect; set memory.mirror.url to (\S+)$"
    ) as caught:
        Service(parse_url(older.url), key=KEY).ask("GET", "/agents/memory")

    assert str(caught.value).endswith(" https://other.example:8443/v2")


def test_a_redirect_to_nowhere(older: OlderService) -> None:
    """It is refused as well."""
    older.answers.append((301, {"Location": "/login\x1b"}, b""))
    with pytest.raises(MirrorRefused, match="does not say where to$"):
        Service(parse_url(older.url), key=KEY).ask("GET", "/agents/memory")


@pytest.mark.parametrize("form", [KEY, KEY.upper(), quote(KEY, safe=""), b64encode(KEY.encode()).decode(), KEY[3:14]])
@pytest.mark.parametrize("where", ["message", "type", "status line", "location"])
def test_a_key_that_comes_back_is_hidden(older: OlderService, where: str, form: str) -> None:
    """No eight characters of it are in the error, nor in what caused it."""
    if where == "status line":
        older.lines.append(f"HTTP/9 bad {form}")
    elif where == "location":
        older.answers.append((301, {"Location": f"https://{form.lower()}.example/{form}"}, b""))
    else:
        body = {"message": f"bad {form}" if where == "message" else "", "type": form if where == "type" else ""}
        older.answers.append((403, {}, json.dumps({"error": body}).encode()))
    with pytest.raises(MirrorUnavailable) as caught:
        Service(parse_url(older.url), key=KEY).ask("GET", "/agents/memory")

    told = "".join(traceback.format_exception(caught.value)).lower()
    assert not [form[at : at + 8] for at in range(len(form) - 7) if form[at : at + 8].lower() in told]


@pytest.mark.parametrize("key", ["a\r\nX-Other: 1", "schlüssel", "a\tb"])
def test_a_key_that_is_no_header_is_refused(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it is sent."""
    monkeypatch.setenv("MEMFILES_AGENT_KEY", key)
    with pytest.raises(InvalidArgument, match="MEMFILES_AGENT_KEY"):
        connect("https://host")


@pytest.mark.parametrize(
    ("url", "warnings"),
    [
        ("http://memory.example.org", 1),
        ("https://memory.example.org", 0),
        ("http://localhost:1", 0),
        ("http://[::1]", 0),
    ],
)
def test_a_key_in_the_clear_is_warned_of(
    url: str, warnings: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where others could read it on its way."""
    monkeypatch.setenv("MEMFILES_AGENT_KEY", KEY)
    with caplog.at_level(logging.WARNING, "memfiles.mirror"):
        connect(url)

    assert warnings == len(caplog.messages)
    assert KEY not in caplog.text


def test_a_truncated_answer(older: OlderService) -> None:
    """Its length says that there was more."""
    older.answers.append((200, {"Content-Length": "100"}, b"[]"))
    with pytest.raises(MirrorUnavailable, match="IncompleteRead"):
        Service(parse_url(older.url)).ask("GET", "/agents/memory")


def test_an_answer_that_takes_too_long(older: OlderService) -> None:
    """The deadline is for the whole of it."""
    older.answers.append((200, {}, b"[" + b"1," * 500_000 + b"1]"))
    ticks = itertools.count(step=100)
    with pytest.raises(MirrorUnavailable, match="has not ended"):
        Service(parse_url(older.url), monotonic=lambda: float(next(ticks))).ask("GET", "/agents/memory")


def test_nobody_listens() -> None:
    """The message says who was asked for what."""
    with pytest.raises(MirrorUnavailable, match="GET http://127.0.0.1:9/agents/memory: ConnectionRefusedError"):
        Service(parse_url("http://127.0.0.1:9")).ask("GET", "/agents/memory")


def test_a_url_without_a_host() -> None:
    """It names nobody to ask."""
    with pytest.raises(InvalidArgument, match="needs a host"):
        connect("https:///path")
