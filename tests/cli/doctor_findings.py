"""What ``memfiles doctor`` finds, for the tests of its checks."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command_line import run


def states(check: str) -> list[str]:
    """The states that doctor gives to one check."""
    return [found["state"] for found in run("doctor", "--json").data["checks"] if found["check"] == check]


def amiss(checks: list[dict[str, str]]) -> list[dict[str, str]]:
    """The findings but ok, without the one that a test's folder is in memory."""
    in_memory = {"check": "file system", "state": "warn"}
    return [
        found
        for found in checks
        if found["state"] != "ok" and not (found.items() >= in_memory.items() and found["detail"].startswith("tmpfs "))
    ]


def details(check: str) -> list[tuple[str, str]]:
    """The state and the detail of each finding of one check."""
    return [
        (found["state"], found["detail"]) for found in run("doctor", "--json").data["checks"] if found["check"] == check
    ]


def declare(memory: Path, line: str) -> None:
    """Add a line to the memory of the workflow."""
    workflow = memory.parent / "workflow.yaml"
    workflow.write_text(workflow.read_text().replace("memory:\n", f"memory:\n  {line}\n", 1))
