"""Every dependency, with what it depends on, has a licence that an Apache-2.0 package may depend on."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageMetadata, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support import ROOT

PERMISSIVE = frozenset(
    {
        *("0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "CNRI-Python", "ISC"),
        *("MIT", "MIT-0", "PSF-2.0", "Python-2.0", "Unlicense", "Zlib"),
    }
)
SPELLED = {
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd license": "BSD",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "python software foundation license": "PSF-2.0",
    "the unlicense (unlicense)": "Unlicense",
}
"""What older metadata says, in lower case, for an identifier."""

UNAVOIDABLE = {
    "certifi": "MPL-2.0: the list of certificate authorities, as data; Anthropic's and OpenAI's SDKs need it",
    "orjson": "MPL-2.0 AND (Apache-2.0 OR MIT): LangGraph's SDK needs it; MPL covers its own files and not ours",
    "psycopg": "LGPL-3.0-only: the driver of the extra postgres; LGPL covers its own files and not ours",
    "psycopg-binary": "LGPL-3.0-only: as psycopg",
}
"""What is not permissive and stays, with the reason. Everything in it belongs to an extra."""


def problems(requirements: Iterable[str]) -> dict[str, str]:
    """The distributions behind these requirements that may not be depended on, each with its licence."""
    return {
        name: licence
        for name, licence in licences(requirements).items()
        if not _is_permissive(licence) and name not in UNAVOIDABLE
    }


def licences(requirements: Iterable[str]) -> dict[str, str]:
    """The licence of each distribution behind these requirements, as installed here; "" if it is unknown."""
    found: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [Requirement(each) for each in requirements]
    while waiting:
        wanted = waiting.pop()
        name, extras = canonicalize_name(wanted.name), frozenset(wanted.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            found[name] = "not installed"
            continue
        found[name] = _licence(installed.metadata)
        waiting += [each for each in map(Requirement, installed.requires or ()) if _applies(each, extras)]
    return found


def _applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    """Whether it counts on this machine, for the extras that are asked for."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in (extras or {""}))


def _licence(metadata: PackageMetadata) -> str:
    if expression := metadata.get_all("License-Expression"):
        return str(expression[0])
    classifiers = [each for each in metadata.get_all("Classifier") or () if each.startswith("License")]
    named = [each.split(" :: ")[-1] for each in classifiers if not each.endswith("OSI Approved")]
    named = named or [str(each) for each in metadata.get_all("License") or ("",)]
    return " AND ".join(SPELLED.get(each.strip().lower(), each.strip()) for each in named)


def _is_permissive(licence: str) -> bool:
    """Whether every part that is joined by AND offers a permissive choice."""
    parts = re.split(r"\s+AND\s+", licence)
    return all(PERMISSIVE & {each.strip("() ") for each in re.split(r"\s+OR\s+", part)} for part in parts)


def declared() -> list[str]:
    """The hard dependencies of the project, and those of its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return [*project["dependencies"], *(each for extra in project["optional-dependencies"].values() for each in extra)]


def test_every_dependency_is_permissive() -> None:
    """Hard dependencies, extras, and what they pull in: no copyleft, and nothing unknown."""

    assert {} == problems(declared())


def test_the_walk_reaches_what_dependencies_depend_on() -> None:
    """It follows requirements of requirements, and a hard dependency needs no exception."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    hard = licences(project["dependencies"])

    assert {"boto3", "botocore", "jmespath", "msgspec", "six"} <= set(hard)
    assert set() == set(hard) & set(UNAVOIDABLE)
    assert {"certifi", "langgraph-sdk", "orjson"} <= set(licences(declared()))


def test_an_exception_is_needed() -> None:
    """Only what is not permissive is excepted, and only as long as something depends on it."""
    found = licences(declared())

    assert sorted(UNAVOIDABLE) == sorted(name for name, licence in found.items() if not _is_permissive(licence))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Distributions with several licences, of which "plugin" pulls in one under the GPL by its extra."""
    described = {
        "copyleft": "License-Expression: GPL-2.0-or-later",
        "classified": "Classifier: License :: OSI Approved :: GNU General Public License v3 (GPLv3)",
        "silent": "Summary: It does not say.",
        "choice": "License-Expression: GPL-2.0-or-later OR MIT",
        "both": "License-Expression: MIT AND (GPL-2.0-only OR LGPL-2.1-only)",
        "plugin": "License: MIT\nProvides-Extra: all\nRequires-Dist: copyleft; extra == 'all'",
        "outer": "License: MIT License\nRequires-Dist: plugin[all]",
        "elsewhere": "License: MIT\nRequires-Dist: copyleft; sys_platform == 'win32'",
    }
    for name, lines in described.items():
        metadata = tmp_path / f"{name}-1.0.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n{lines}\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("requirement", "found"),
    [
        ("copyleft", {"copyleft": "GPL-2.0-or-later"}),
        ("classified>=1", {"classified": "GNU General Public License v3 (GPLv3)"}),
        ("silent", {"silent": ""}),
        ("both", {"both": "MIT AND (GPL-2.0-only OR LGPL-2.1-only)"}),
        ("outer", {"copyleft": "GPL-2.0-or-later"}),
        ("plugin[all]", {"copyleft": "GPL-2.0-or-later"}),
        ("plugin", {}),
        ("choice", {}),
        ("elsewhere", {}),
        ("nowhere", {"nowhere": "not installed"}),
    ],
)
def test_a_licence_that_is_not_permissive_is_found(requirement: str, found: dict[str, str]) -> None:
    """The GPL in any spelling, in a dependency of a dependency, or no licence at all; a choice of MIT is enough."""

    assert found == problems([requirement])
