"""The stores that the tests of mirrors share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.mirrors.faulty_endpoint import FaultyEndpoint
from tests.mirrors.servers import aws_environment, moto_url  # noqa: F401 (fixtures of every test here)


@pytest.fixture(scope="session")
def one_endpoint(moto_url: str) -> Iterator[FaultyEndpoint]:  # noqa: F811
    """An endpoint in front of moto, for all tests: a client takes a tenth of a second to make."""
    with FaultyEndpoint(moto_url) as faulty:
        yield faulty


@pytest.fixture
def endpoint(one_endpoint: FaultyEndpoint) -> FaultyEndpoint:
    """An endpoint in front of moto that misbehaves as this test tells it."""
    one_endpoint.behave()
    return one_endpoint
