"""URIs of memory files and entries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfiles.errors import InvalidArgument
from memfiles.server.uris import Address, address_of, entry_uri, file_uri


@given(st.text(min_size=1).filter(lambda text: text.isprintable()))
def test_a_key_comes_back(key: str) -> None:
    """Whatever is in a key, its URI is ASCII and stands for that key."""
    uri = entry_uri(key)

    assert (True, Address("entry", key)) == (uri.isascii(), address_of(uri))


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        (file_uri("customer-notes"), "memory://files/customer-notes"),
        (entry_uri("customers/ada"), "memory://entries/customers%2Fada"),
        (entry_uri("50 % of ä?#"), "memory://entries/50%20%25%20of%20%C3%A4%3F%23"),
    ],
)
def test_how_a_uri_is_written(uri: str, expected: str) -> None:
    """As a template of RFC 6570 expands: everything but letters, digits and - . _ ~ is encoded."""

    assert expected == uri


@pytest.mark.parametrize("uri", ["", "memory://files/", "memory://file/x", "memory:files/x", "x", "memory://files/%ff"])
def test_what_is_no_address(uri: str) -> None:
    """A URI of another kind is refused."""
    with pytest.raises(InvalidArgument):
        address_of(uri)
