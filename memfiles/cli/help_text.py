"""What stands in a command's help beside its docstring."""

from __future__ import annotations

_AS_IT_IS = "\b\n"  # click's mark for a paragraph that must not be wrapped


def example(*lines: str) -> str:
    """The end of a command's help: how one uses it."""
    return _AS_IT_IS + "\n".join(["Example:", *(f"  {line}" for line in lines)])
