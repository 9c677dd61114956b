"""Several machines, real processes, one bucket behind a bad network: nothing acknowledged is lost or doubled."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.mirrors.faulty_endpoint import FaultyEndpoint
from tests.mirrors.servers import BUCKET, client_of
from tests.sync.sync_machines import Machine, content, record_bytes, write_shared_workflow

pytestmark = pytest.mark.slow

LINES = 500
THIRD = 1 / 3
CONVERGED_WITHIN_SECONDS = 240.0
NAMES = ("alpha", "beta", "gamma")


@pytest.fixture
def prefix() -> str:
    return f"machines-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def place(tmp_path: Path, endpoint: FaultyEndpoint, prefix: str) -> Iterator[tuple[ExitStack, str]]:
    with ExitStack() as ending:
        yield ending, f"s3://{BUCKET}/{prefix}?endpoint={endpoint.url}&region=us-east-1"


def converge(machines: list[Machine]) -> None:
    """Have all of them pull until their records are the same."""
    until = time.monotonic() + CONVERGED_WITHIN_SECONDS
    while time.monotonic() < until:
        for machine in machines:
            machine.begin("pull", timeout=15.0)
        reports = [machine.result() for machine in machines]
        same = len({record_bytes(machine.workflow) for machine in machines}) == 1
        if same and not any(report.get("pending") or "error" in report for report in reports):
            return
    raise AssertionError(f"no two machines agree: {[machine.do('status') for machine in machines]}")


def body_in_bucket(endpoint: FaultyEndpoint, prefix: str) -> bytes:
    """The copy of the shared record, looked at behind the faulty endpoint's back."""
    body: bytes = client_of(endpoint.upstream).get_object(Bucket=BUCKET, Key=f"{prefix}/notes.json")["Body"].read()
    return body


def test_three_machines_append_while_a_third_of_all_calls_fails(
    tmp_path: Path, place: tuple[ExitStack, str], endpoint: FaultyEndpoint, prefix: str
) -> None:
    """Three machines append 500 lines each to one file: every line is in all three copies at the end, once."""
    ending, url = place
    paths = [write_shared_workflow(tmp_path / name, url, pull="1s") for name in NAMES]
    endpoint.hang_seconds, endpoint.rate = 0.3, THIRD
    machines = [ending.enter_context(Machine(path, name)) for path, name in zip(paths, NAMES, strict=True)]
    for machine in machines:
        machine.begin("append", uid="notes", first=0, count=LINES, pause=0.005)
    for machine in machines:
        machine.result()
    converge(machines)
    expected = Counter(["# notes", *(f"- {name} {number}" for name in NAMES for number in range(LINES))])

    assert [expected] * len(NAMES) == [Counter(content(path).splitlines()) for path in paths]
    assert record_bytes(paths[0]) == body_in_bucket(endpoint, prefix)


def test_a_machine_that_is_killed_again_and_again(
    tmp_path: Path, place: tuple[ExitStack, str], endpoint: FaultyEndpoint, prefix: str
) -> None:
    """Killed at any moment while it works and pushes, and started again: in the end the mirror equals the disk."""
    ending, url = place
    path = write_shared_workflow(tmp_path / "only", url)
    acknowledged: list[int] = []
    for number in range(8):
        with Machine(path, "only") as machine:
            machine.begin("append", uid="notes", first=number * 1000, count=900)
            time.sleep(0.15 + 0.11 * number)
            acknowledged += machine.kill()
    with Machine(path, "only") as machine:
        assert machine.do("flush")
        lines = Counter(content(path).splitlines())

        assert {f"- only {number}": 1 for number in acknowledged} == {
            line: lines[line] for line in (f"- only {number}" for number in acknowledged)
        }
        assert 1 == max(lines.values())
        assert record_bytes(path) == body_in_bucket(endpoint, prefix)


@pytest.mark.parametrize("policy", ["local", "remote"])
def test_overlapping_edits(
    tmp_path: Path, place: tuple[ExitStack, str], endpoint: FaultyEndpoint, prefix: str, policy: str
) -> None:
    """Two machines change the same line: the policy picks the winner, and the losing copy is kept with its reason."""
    ending, url = place
    paths = [write_shared_workflow(tmp_path / name, url, on_conflict=policy) for name in ("one", "two")]
    one, two = (ending.enter_context(Machine(path, path.parent.name)) for path in paths)
    one.do("append", uid="notes", first=1, count=1)
    one.do("flush")
    two.do("pull")
    one.do("edit", uid="notes", old="- one 1", new="- changed by one")
    two.do("edit", uid="notes", old="- one 1", new="- changed by two")
    one.do("flush")
    report = two.do("pull")
    one.do("pull")
    kept = [file for file in (tmp_path / "two/.memory/conflicts").iterdir() if "reason" not in file.name]
    winner, loser = ("two", "one") if policy == "local" else ("one", "two")

    assert "conflict" == report["records"]["notes.json"]
    assert [f"# notes\n- changed by {winner}\n"] * 2 == [content(path) for path in paths]
    assert 1 == len(kept)
    assert f"- changed by {loser}" in kept[0].read_text("utf-8")
    assert 1 == len(two.do("status")["conflicts"])
    assert record_bytes(paths[0]) == record_bytes(paths[1]) == body_in_bucket(endpoint, prefix)


def test_edits_of_different_lines_are_both_kept(tmp_path: Path, place: tuple[ExitStack, str]) -> None:
    """Two machines change different lines and append as well: all of it is in both copies."""
    ending, url = place
    paths = [write_shared_workflow(tmp_path / name, url) for name in ("one", "two")]
    one, two = (ending.enter_context(Machine(path, path.parent.name)) for path in paths)
    one.do("append", uid="notes", first=1, count=9)
    one.do("flush")
    two.do("pull")
    one.do("edit", uid="notes", old="- one 2\n", new="- TWO\n")
    two.do("edit", uid="notes", old="- one 7\n", new="- SEVEN\n")
    two.do("append", uid="notes", first=1, count=1)
    one.do("append", uid="notes", first=10, count=1)
    converge([one, two])

    assert {"- TWO", "- SEVEN", "- one 10", "- two 1"} < set(content(paths[0]).splitlines())
    assert content(paths[0]) == content(paths[1])
