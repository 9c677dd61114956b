"""Levels: no read up, no write down, and a session's level never falls."""

from __future__ import annotations

import pytest

from memfiles.errors import InvalidArgument
from memfiles.records.levels import DEFAULT_LEVELS, Levels

LEVELS = Levels()


def test_the_default_levels_are_four_lowest_first() -> None:
    """A workflow may declare others."""

    assert ("PUBLIC", "INTERNAL", "CONFIDENTIAL", "RESTRICTED") == DEFAULT_LEVELS == LEVELS.names
    assert "PUBLIC" == LEVELS.lowest


@pytest.mark.parametrize("session", DEFAULT_LEVELS)
@pytest.mark.parametrize("item", DEFAULT_LEVELS)
def test_a_session_reads_at_or_below_its_level_and_writes_at_it(session: str, item: str) -> None:
    """What it may not write down it could otherwise carry down."""
    position, own = DEFAULT_LEVELS.index(item), DEFAULT_LEVELS.index(session)

    assert (position <= own) == LEVELS.may_read(session=session, item=item)
    assert (position == own) == LEVELS.may_write(session=session, item=item)


@pytest.mark.parametrize("current", DEFAULT_LEVELS)
@pytest.mark.parametrize("to", DEFAULT_LEVELS)
def test_a_level_rises_and_never_falls(current: str, to: str) -> None:
    """What a session has met, it has met."""

    assert DEFAULT_LEVELS[max(DEFAULT_LEVELS.index(current), DEFAULT_LEVELS.index(to))] == LEVELS.raised(current, to)


def test_the_order_is_the_declared_one() -> None:
    """Not the alphabet's."""
    levels = Levels(("LOW", "HIGH", "AVERAGE"))

    assert [0, 1, 2] == [levels.rank(name) for name in ("LOW", "HIGH", "AVERAGE")]
    assert levels.may_read(session="AVERAGE", item="HIGH")


@pytest.mark.parametrize("level", ["", "public", "SECRET", "PUBLIC "])
def test_an_undeclared_level_is_refused(level: str) -> None:
    """The error lists those there are; a typo is never the lowest level."""
    with pytest.raises(InvalidArgument, match="use one of PUBLIC, INTERNAL, CONFIDENTIAL, RESTRICTED"):
        LEVELS.may_read(session=level, item="PUBLIC")
    with pytest.raises(InvalidArgument):
        LEVELS.may_write(session="PUBLIC", item=level)
