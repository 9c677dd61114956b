"""The whole numbers that callers pass: revisions, counts, lifetimes, budgets in bytes.

The rule this file guards: a float is no whole number, however round, and neither is True. A record that held one as
its revision could not be read back, and what a comparison lets through need not be what JSON then says.
"""

from __future__ import annotations

from memfiles.errors import InvalidArgument


def check_whole(value: object, *, what: str, least: int | None = None, most: int | None = None) -> int:
    """The number as a plain ``int``, or ``InvalidArgument`` that says what ``what`` must be."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(f"{what} must be a whole number{_range(least, most)}, not {type(value).__name__}")
    if (least is not None and value < least) or (most is not None and value > most):
        raise InvalidArgument(f"{what} must be a whole number{_range(least, most)}")
    return int(value)


def _range(least: int | None, most: int | None) -> str:
    if least is None:
        return ""
    return f", {least} or more" if most is None else f" from {least} to {most}"
