"""Runs the tests of an exam once for each way in which a framework runs an agent."""

from __future__ import annotations

import pytest

from memfiles.tools.session import Session
from tests.adapters.memory_desk import ENTRIES, FILES, Opening

pytest.register_assert_rewrite("tests.adapters.exam")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``way`` is one of the ways that the class names."""
    if "way" in metafunc.fixturenames and hasattr(metafunc.cls, "ways"):
        metafunc.parametrize("way", metafunc.cls.ways)


@pytest.fixture
def files_alone(open_memory: Opening) -> Session:
    """A session of a workflow that declares memory files alone."""
    return open_memory(FILES).session("support", run="monday")


@pytest.fixture
def with_entries(open_memory: Opening) -> Session:
    """A session of a workflow that declares the same files, and entries."""
    return open_memory(ENTRIES).session("support", run="monday")
