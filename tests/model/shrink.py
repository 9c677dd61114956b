"""Shrinking: the fewest steps of a script that fail in the same way, and then with the least trouble.

Source: A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE 28(2), 2002.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.model.script import Script, Step


def shrink(script: Script, fails: Callable[[Script], bool]) -> Script:
    """The script with as few steps as can be found for which ``fails`` still holds."""
    steps = list(script.steps)
    parts = 2
    while len(steps) >= 2:
        size = max(1, len(steps) // parts)
        for start in range(0, len(steps), size):
            fewer = steps[:start] + steps[start + size :]
            if fewer and fails(script.of(fewer)):
                steps, parts = fewer, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(steps), parts * 2)
    return _plainer(script.of(steps), fails)


def _plainer(script: Script, fails: Callable[[Script], bool]) -> Script:
    """With fewer machines, no trouble of the mirror, no budget: whatever is not needed."""
    for candidate in _candidates(script):
        if candidate != script and fails(candidate):
            return _plainer(candidate, fails)
    return script


def _candidates(script: Script) -> Sequence[Script]:
    found = [replace(script, max_entries=None), replace(script, on_conflict="local")]
    found += [script.of(_without_trouble(script.steps, at)) for at, step in enumerate(script.steps) if step.trouble]
    names = script.machines
    return [*found, *(script.of(_renamed(script.steps, last, one)) for last in names for one in names if one < last)]


def _without_trouble(steps: Sequence[Step], at: int) -> list[Step]:
    return [replace(step, trouble="") if place == at else step for place, step in enumerate(steps)]


def _renamed(steps: Sequence[Step], name: str, to: str) -> list[Step]:
    return [replace(step, machine=to) if step.machine == name else step for step in steps]
