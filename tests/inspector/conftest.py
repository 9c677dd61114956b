"""One Chromium for all tests, and for each test a page in a profile of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.inspector.inspecting import Served, Visit, chromium, filled, serving


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workflow of a desk that remembers something, to be copied."""
    return filled(tmp_path_factory.mktemp("desk"))


@pytest.fixture
def workflow(desk: Path, tmp_path: Path) -> Path:
    """A copy of the desk for one test."""
    return shutil.copytree(desk.parent, tmp_path / "desk") / desk.name


@pytest.fixture
def visit(browser: Browser, workflow: Path) -> Iterator[Visit]:
    """A person at an inspector on that memory; it must ask this machine alone, and complain of nothing."""
    with serving(workflow) as served, visiting(browser, served) as visit:
        yield visit
        assert ({served.origin.partition("://")[2]}, []) == (visit.asked, visit.complaints)


class visiting:  # noqa: N801 - a context manager
    """A visit in a profile of its own."""

    def __init__(self, browser: Browser, served: Served, **options: Any) -> None:
        self._made: Callable[[], Any] = lambda: browser.new_context(**options)
        self._served = served

    def __enter__(self) -> Visit:
        self._context = self._made()
        self._context.set_default_timeout(15_000)
        return Visit(self._context.new_page(), self._served)

    def __exit__(self, *_: object) -> None:
        self._context.close()
