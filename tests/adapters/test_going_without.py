"""A turn of an agent goes on where its memory refuses."""

from __future__ import annotations

import logging

import pytest

from memfiles.adapters.agent_calls import or_fallback
from memfiles.errors import InvalidArgument


def test_what_can_be_made_is_or_fallback(caplog: pytest.LogCaptureFixture) -> None:
    """And nothing is logged."""

    assert ("prompt", []) == (or_fallback(lambda: "prompt", fallback="none"), caplog.records)


def test_what_is_refused_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """The log says why."""

    def refuse() -> str:
        raise InvalidArgument("this session is closed")

    with caplog.at_level(logging.WARNING, logger="memfiles"):
        instead = or_fallback(refuse, fallback="none")

    assert "none" == instead
    assert ["an agent continues its turn without memory: this session is closed"] == caplog.messages


def test_a_defect_is_no_refusal() -> None:
    """It is not hidden."""
    with pytest.raises(ZeroDivisionError):
        or_fallback(lambda: 1 // 0, fallback=0)
