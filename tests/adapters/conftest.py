"""Runs the tests of an exam once for each way in which a framework runs an agent."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.adapters.exam")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``way`` is one of the ways that the class names."""
    if "way" in metafunc.fixturenames and hasattr(metafunc.cls, "ways"):
        metafunc.parametrize("way", metafunc.cls.ways)
