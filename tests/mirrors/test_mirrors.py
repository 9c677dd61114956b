"""The public face of ``mirrors``: every name can be had, and loads no more than it needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import mirrors

HEAVY = {"boto3", "botocore", "pytest", "urllib3"}


def loaded_by(statement: str) -> set[str]:
    """The heavy libraries that a fresh interpreter has loaded after ``statement``."""
    program = f"{statement}\nimport sys\nprint(*set(sys.modules) & {HEAVY!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=180)
    return set(done.stdout.split())


@pytest.mark.parametrize("name", mirrors.__all__)
def test_every_name_can_be_used(name: str) -> None:
    """What is listed is there, in order, and ``dir`` shows it."""

    assert getattr(mirrors, name) is not None
    assert name in dir(mirrors)
    assert sorted(set(mirrors.__all__)) == mirrors.__all__


def test_another_name_is_an_attribute_error() -> None:
    """As in any module; a type checker finds it, too, or the comment here would be an error of its own."""
    with pytest.raises(AttributeError, match="module 'mirrors' has no attribute 'nothing'"):
        _ = mirrors.nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "libraries"),
    [
        ("HttpMirror", set()),
        ("LazyMirror", set()),
        ("open_mirror", set()),
        ("testing", set()),
        ("DirectoryMirror", set()),
        ("S3Mirror", {"boto3", "botocore", "urllib3"}),
    ],
)
def test_a_mirror_loads_what_it_needs(name: str, libraries: set[str]) -> None:
    """A program pays for the store that it has; the exam needs no test framework."""
    statement = "import mirrors.testing" if name == "testing" else f"from mirrors import {name}"

    assert libraries == loaded_by(statement)
