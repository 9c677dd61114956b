"""Ids of repeated calls, and a turn of an agent that goes on where its memory refuses."""

from __future__ import annotations

import logging

import pytest

from memfiles.adapters.agent_calls import call_id_in_conversation, or_fallback
from memfiles.errors import InvalidArgument


def test_the_number_is_that_of_the_call_among_those_of_its_id() -> None:
    """Other ids, and what is no id, do not count."""
    others = "call_1", None, "", object()

    assert "call_0" == call_id_in_conversation("call_0", answered=others)
    assert "call_0#3" == call_id_in_conversation("call_0", answered=["call_0", *others, "call_0"])
    assert [None, ""] == [call_id_in_conversation(none, answered=others) for none in (None, "")]


def test_what_can_be_made_is_made(caplog: pytest.LogCaptureFixture) -> None:
    """And nothing is logged."""

    assert ("prompt", []) == (or_fallback(lambda: "prompt", fallback="none"), caplog.records)


def test_what_is_refused_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """The log says why."""

    def refuse() -> str:
        raise InvalidArgument("this session is closed")

    with caplog.at_level(logging.WARNING, logger="memfiles"):
        made = or_fallback(refuse, fallback="none")

    assert "none" == made
    assert ["an agent continues its turn without memory: this session is closed"] == caplog.messages


def test_a_defect_is_no_refusal() -> None:
    """It is not hidden."""
    with pytest.raises(ZeroDivisionError):
        or_fallback(lambda: 1 // 0, fallback=0)
