"""``memfiles doctor`` on a mirror: one that answers, hangs, redirects, or has a copy that cannot be used."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from memfiles.cli.doctor.command import mirror_findings
from memfiles.workflow.workflow import Workflow
from tests.cli.command_line import files_under, run
from tests.cli.doctor_findings import amiss, declare, details, states
from tests.mirrors.faulty_endpoint import Fault, FaultyEndpoint
from tests.mirrors.servers import BUCKET, aws_environment  # noqa: F401 (a fixture of every test here)


@pytest.fixture(autouse=True)
def memory(restored: Path) -> Path:
    """A restored memory directory; commands run where its workflow is."""
    return restored


@pytest.fixture
def mirror(memory: Path, installed: None) -> Path:
    """The directory that the memory is mirrored to; everything is there."""
    path = memory.parent / "mirror"
    path.mkdir()
    declare(memory, f'mirror: {{url: "file://{path}"}}')
    run("restore")
    return path


def test_a_mirror_in_order(mirror: Path) -> None:
    """A mirror that answers and has everything is well, and is left as it was."""
    before = files_under(mirror)

    looked = run("doctor", "--json")

    assert [] == amiss(looked.data["checks"])
    assert {"mirror", "mirror copies", "mirror pending"} <= {found["check"] for found in looked.data["checks"]}
    assert before == files_under(mirror)


def test_a_mirror_that_does_not_answer(mirror: Path) -> None:
    """A mirror that is away is a failure with its reason; what waits for it is a warning."""
    mirror.rename(mirror.with_name("away"))
    run("append", "notes", "one")

    assert (1, ["fail"]) == (run("doctor").code, states("mirror"))
    assert (["warn"], ["warn"]) == (states("mirror pending"), states("mirror last error"))
    assert "memfiles sync push" in run("doctor").out


def test_a_mirror_that_hangs(memory: Path, installed: None) -> None:
    """A mirror that takes a request and never answers is given up after the time for it."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        declare(memory, f'mirror: {{url: "http://127.0.0.1:{deaf.getsockname()[1]}"}}')
        workflow = Workflow.load(memory.parent / "workflow.yaml")
        found = list(mirror_findings(workflow, seconds=0.3))

    assert [("fail", "mirror")] == [(finding.state, finding.check) for finding in found]
    assert "no answer within 0.3 s" in found[0].detail


@pytest.mark.parametrize("fault", ["moved", "moved_for_now"])
def test_an_s3_mirror_that_redirects(memory: Path, installed: None, fault: Fault) -> None:
    """One finding that says which address to use, and nothing else on the terminal."""
    with FaultyEndpoint("http://127.0.0.1:9", always=fault) as endpoint:
        declare(memory, f'mirror: {{url: "s3://{BUCKET}/desk?endpoint={endpoint.url}"}}')

        looked = run("doctor")

        assert (1, "") == (looked.code, looked.err)
        assert 1 == looked.out.count("set endpoint=https://elsewhere.example:9443 in memory.mirror.url")
        assert ["fail"] == states("mirror")


@pytest.fixture
def broken_mirrors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package whose mirrors raise what a mirror never should."""
    site = tmp_path / "site"
    (site / "broken-1.0.dist-info").mkdir(parents=True)
    (site / "broken-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.4\nName: broken\nVersion: 1.0\n")
    (site / "broken-1.0.dist-info" / "entry_points.txt").write_text(
        "[memfiles.mirrors]\nbroken = broken_mirrors:open_url\n"
    )
    (site / "broken_mirrors.py").write_text(
        "class Broken:\n"
        "    def list(self, prefix=''):\n        return {}['gone']\n"
        "    get = put = delete = list\n"
        "def open_url(url):\n    return Broken()\n"
    )
    monkeypatch.syspath_prepend(site)


def test_a_mirror_that_takes_no_entries(memory: Path, installed: None) -> None:
    """Each command that looks at the declaration says so, without asking the mirror."""
    declare(memory, 'mirror: {url: "http://127.0.0.1:9"}')
    without = [run(*command).err for command in (("check",), ("restore",), ("status",))]
    declare(memory, "entries: {}")

    told = "the mirror keeps memory files only: entries stay on this machine"
    assert not [said for said in without if told in said]
    assert [told in run(*command).err for command in (("check",), ("plan",), ("restore",), ("status",))] == [True] * 4
    assert [True] == [told in warning for warning in run("check", "--json").data["warnings"]]
    assert ["warn"] == states("mirror entries")


def test_a_check_that_raises_is_a_failure(memory: Path, broken_mirrors: None) -> None:
    """Whatever it raises: with its kind, without a traceback unless asked, and the checks after it still run."""
    declare(memory, 'mirror: {url: "broken://x"}')

    looked, debugged = run("doctor", "--json"), run("doctor", "--debug")

    assert (1, "") == (looked.code, looked.err)
    assert ["fail"] == states("mirror")
    assert "unexpected KeyError" in details("mirror")[0][1]
    assert "conflicts" in [found["check"] for found in looked.data["checks"]]
    assert (1, True) == (debugged.code, "Traceback" in debugged.err)


@pytest.mark.slow
def test_a_corrupt_copy_in_the_mirror(mirror: Path) -> None:
    """A copy that is no record is a warning by name, and doing what it says mends it."""
    (mirror / "notes-1.json").write_text("[]")

    assert ["warn"] == states("mirror copy notes")
    assert "memfiles sync pull" in run("doctor").out
    assert 0 == run("sync", "pull").code
    assert ([], ["ok"]) == (states("mirror copy notes"), states("mirror copies"))


def test_kept_conflicts(memory: Path) -> None:
    """A copy that lost a merge is a warning with its reason."""
    (memory / "conflicts").mkdir()
    (memory / "conflicts" / "notes-1.json.x.1").write_text("{}")
    (memory / "conflicts" / "notes-1.json.x.1.reason.json").write_text('{"reason": "the local copy won"}')

    assert ["warn"] == states("conflicts")
    assert "conflicts/notes-1.json.x.1: the local copy won" in run("doctor").out
