"""MCP resources: their URIs, and how a client lists and reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, TextResourceContents

from memfiles.errors import InvalidArgument
from memfiles.server.resources import Address, parse_uri
from tests.server.mcp_clients import ERAS, NOTES, Offer, client_of, in_loop, offered

ENTRY = "memory://entries/customers%2FAda%20L"


@pytest.fixture
def offer(tmp_path: Path) -> Iterator[Offer]:
    with offered(tmp_path) as offer:
        yield offer


@given(st.text(min_size=1).filter(lambda text: text.isprintable()))
def test_a_key_comes_back(key: str) -> None:
    """Whatever is in a key, its URI is ASCII and stands for that key."""
    uri = Address("entry", key).uri

    assert (True, Address("entry", key)) == (uri.isascii(), parse_uri(uri))


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        (Address("file", "customer-notes").uri, "memory://files/customer-notes"),
        (Address("entry", "customers/ada").uri, "memory://entries/customers%2Fada"),
        (Address("entry", "50 % of ä?#").uri, "memory://entries/50%20%25%20of%20%C3%A4%3F%23"),
    ],
)
def test_how_a_uri_is_written(uri: str, expected: str) -> None:
    """As a template of RFC 6570 expands: everything but letters, digits and - . _ ~ is encoded."""

    assert expected == uri


@pytest.mark.parametrize("uri", ["", "memory://files/", "memory://file/x", "memory:files/x", "x", "memory://files/%ff"])
def test_what_is_no_address(uri: str) -> None:
    """A URI of another kind is refused."""
    with pytest.raises(InvalidArgument):
        parse_uri(uri)


@pytest.mark.parametrize("era", ERAS)
def test_the_resources_are_what_the_session_sees(offer: Offer, era: str) -> None:
    """Files by name and entries by key, percent-encoded, with their sizes; nothing of a higher level, or of others."""
    offer.session.call("memory_save", {"key": "customers/Ada L", "content": "On Pro."})
    offer.memory.session("sales").call("memory_save", {"key": "theirs", "content": "x"})
    offer.memory.session("support", level="CONFIDENTIAL").call("memory_save", {"key": "higher", "content": "x"})

    async def listed() -> list[tuple[str, str, int | None]]:
        async with client_of(offer, era) as client:
            found = await client.list_resources()
            return [(resource.name, resource.uri, resource.size) for resource in found.resources]

    expected = [("notes", NOTES, 8), ("rules", "memory://files/rules", 11), ("customers/Ada L", ENTRY, 7)]
    assert expected == in_loop(listed)


def test_many_resources_come_by_page(offer: Offer) -> None:
    """Each is listed once, however many pages there are."""
    offer.memory.entries.save_many(offer.session, [{"key": f"{n:03}", "content": "x"} for n in range(230)])

    async def listed() -> list[int]:
        sizes, cursor = [], None
        async with client_of(offer) as client:
            while True:
                page = await client.list_resources(cursor=cursor)
                sizes.append(len({resource.uri for resource in page.resources}))
                if (cursor := page.next_cursor) is None:
                    return sizes

    assert [102, 100, 30] == in_loop(listed)


def test_the_templates(offer: Offer) -> None:
    """A client that knows a name or a key can make its URI."""

    async def listed() -> list[str]:
        async with client_of(offer) as client:
            return [each.uri_template for each in (await client.list_resource_templates()).resource_templates]

    assert ["memory://files/{name}", "memory://entries/{key}"] == in_loop(listed)


@pytest.mark.parametrize("era", ERAS)
def test_a_resource_is_read_exactly(offer: Offer, era: str) -> None:
    """What is read is the text as it is stored."""
    offer.session.call("memory_save", {"key": "customers/Ada L", "content": "On Pro.\r\n"})

    async def read() -> list[str]:
        async with client_of(offer, era) as client:
            found = [(await client.read_resource(uri)).contents for uri in (NOTES, ENTRY)]
            return [part.text for (part,) in found if isinstance(part, TextResourceContents)]

    assert ["# Notes\n", "On Pro.\r\n"] == in_loop(read)


@pytest.mark.parametrize(
    "uri",
    [
        "memory://files/deals",
        "memory://files/nothing",
        "memory://files/..%2Fworkflow.yaml",
        "memory://entries/nothing",
        "memory://entries/%00",
        "memory://entries/%ff",
        "memory://entries/",
        "memory://other/x",
        "file:///etc/passwd",
        "",
    ],
)
@pytest.mark.parametrize("era", ERAS)
def test_what_is_not_there_is_an_error_of_the_protocol(offer: Offer, uri: str, era: str) -> None:
    """Hidden, missing or no URI of ours: the client is told, and is served on."""

    async def read() -> int:
        async with client_of(offer, era) as client:
            with pytest.raises(MCPError) as told:
                await client.read_resource(uri)
            await client.read_resource(NOTES)
            return told.value.error.code

    assert INVALID_PARAMS == in_loop(read)


def test_a_hidden_resource_looks_like_none(offer: Offer) -> None:
    """The error is the same, word for word."""
    offer.memory.session("support", level="CONFIDENTIAL").call("memory_save", {"key": "secret", "content": "x"})

    async def read(uri: str) -> str:
        async with client_of(offer) as client:
            with pytest.raises(MCPError) as told:
                await client.read_resource(uri)
            return str(told.value.error)

    for hidden, none in [("files/deals", "files/never"), ("entries/secret", "entries/never1")]:
        shown = in_loop(lambda: read(f"memory://{hidden}"))  # noqa: B023
        other = in_loop(lambda: read(f"memory://{none}"))  # noqa: B023
        assert shown == other.replace(none.split("/")[1], hidden.split("/")[1])
