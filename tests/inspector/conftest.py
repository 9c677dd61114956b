"""One Chromium for all tests, and for each test a page in a profile of its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.inspector.inspecting import Served, Visit, chromium, filled, hosting
from tests.support.stores import STORE

PATIENCE_MS = 60_000  # what another process changes, or another machine, may take long to show on a busy machine


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE_MS)
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workflow of a desk that remembers something, to be copied."""
    return filled(tmp_path_factory.mktemp("desk"))


@pytest.fixture
def workflow(desk: Path, tmp_path: Path) -> Path:
    """A copy of the desk for one test."""
    if STORE in os.environ:
        return filled(tmp_path / "desk")
    return shutil.copytree(desk.parent, tmp_path / "desk") / desk.name


@pytest.fixture
def visit(browser: Browser, workflow: Path) -> Iterator[Visit]:
    """A person at an inspector on that memory."""
    with hosting(workflow) as served, visiting(browser, served) as visit:
        yield visit


@contextmanager
def visiting(browser: Browser, served: Served, **options: Any) -> Iterator[Visit]:
    """A visit in a profile of its own; it must have asked this machine alone, and complained of nothing."""
    context = browser.new_context(**options)
    try:
        context.set_default_timeout(PATIENCE_MS)
        visit = Visit(context.new_page(), served)
        yield visit
        assert ({served.origin.partition("://")[2]}, []) == (visit.asked, visit.complaints)
    finally:
        context.close()
