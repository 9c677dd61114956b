"""What a mirror costs those who write and read: a process with a mirror and one without, in turns, in one run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles

import pytest

from tests.benchmarks.bare import show
from tests.mirrors import servers
from tests.mirrors.faulty_endpoint import FaultyEndpoint
from tests.mirrors.servers import BUCKET, aws_environment  # noqa: F401 (a fixture)
from tests.sync.sync_machines import Machine, write_shared_workflow

MANY = 1000
ROUNDS = 30
EACH = {"append": 40, "read": 2000}  # calls a round
HANG_SECONDS = 10.0


@pytest.fixture(autouse=True)
def _environment(aws_environment: None) -> None:  # noqa: F811
    """The server's credentials."""


@pytest.fixture
def ending() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def endpoint(tmp_path: Path, ending: ExitStack) -> FaultyEndpoint:
    """A real S3 server on the same cores, behind an endpoint that can hang."""
    (tmp_path / "server").mkdir()
    upstream = ending.enter_context(servers.weed(tmp_path / "server"))
    return ending.enter_context(FaultyEndpoint(upstream, hang_seconds=HANG_SECONDS, faults=("hang",)))


def pair(tmp_path: Path, ending: ExitStack, *, url: str, count: int) -> tuple[Machine, Machine]:
    """A machine with a mirror and one without, each with ``count`` files that are equal with the mirror's."""
    uids = [f"file-{number:04}" for number in range(count)]
    paths = [
        write_shared_workflow(tmp_path / "with", url, uids=uids),
        write_shared_workflow(tmp_path / "without", "", uids=uids),
    ]
    one, other = (ending.enter_context(Machine(path, path.parent.name)) for path in paths)
    assert one.do("flush", timeout=60.0)
    return one, other


def compare(what: str, one: Machine, other: Machine, goal: str) -> None:
    """Append and read in turns on both machines."""
    for verb, times in EACH.items():
        pairs = [
            [median(m.do("measure", verb=verb, uid="file-0000", times=times)) for m in (one, other)]
            for _ in range(ROUNDS)
        ]
        ours, bare = median(a for a, _ in pairs), median(b for _, b in pairs)
        ratio = median(a / b for a, b in pairs)
        show(f"{verb}, {what}", f"{ours * 1e6:.0f} us, without {bare * 1e6:.0f} us: {ratio:.2f} times", goal)


@pytest.mark.parametrize("dirty", [1, MANY])
def test_hanging(tmp_path: Path, ending: ExitStack, endpoint: FaultyEndpoint, dirty: int) -> None:
    """Every call of the mirror hangs for ten seconds, with one record dirty or a thousand."""
    url = f"s3://{BUCKET}/bench?endpoint={endpoint.url}&region=us-east-1"
    one, other = pair(tmp_path, ending, url=url, count=dirty)
    endpoint.rate = 1.0
    for machine in (one, other):
        machine.do("touch_all")
    compare(f"mirror hanging, {dirty} dirty", one, other, "goal 1.1")
    assert one.do("status")["pending"] == dirty


@pytest.mark.parametrize("dirty", [1, MANY])
def test_healthy(tmp_path: Path, ending: ExitStack, endpoint: FaultyEndpoint, dirty: int) -> None:
    """The server takes what is pushed; a thousand records are dirty at the beginning, or the one that is written."""
    url = f"s3://{BUCKET}/bench?endpoint={endpoint.upstream}&region=us-east-1"
    one, other = pair(tmp_path, ending, url=url, count=dirty)
    for machine in (one, other):
        machine.do("touch_all")
    compare(f"mirror healthy, {dirty} dirty", one, other, "goal 1.3")


@pytest.mark.parametrize("rate", [0.5, 1.0])
def test_refusing(tmp_path: Path, ending: ExitStack, endpoint: FaultyEndpoint, rate: float) -> None:
    """Half of the requests, or all, are answered with 503 while 500 records are dirty: the slowest appends."""
    url = f"s3://{BUCKET}/bench?endpoint={endpoint.url}&region=us-east-1"
    one, other = pair(tmp_path, ending, url=url, count=MANY // 2)
    endpoint.faults, endpoint.rate = ("slow_down",), rate
    taken: tuple[list[float], list[float]] = ([], [])
    for number in range(2 * ROUNDS):
        for machine, seconds in zip((one, other), taken, strict=True):
            if number % 10 == 0:
                machine.do("touch_all")
            seconds += machine.do("measure", verb="append", uid="file-0000", times=EACH["append"])
    ours, bare = (quantiles(seconds, n=100)[98] for seconds in taken)
    figure = f"{ours * 1e3:.1f} ms, without {bare * 1e3:.1f} ms: {ours / bare:.2f} times"
    show(f"append at the 99th percentile, {rate:.0%} of requests 503", figure, "goal 1.5")


def test_puts(tmp_path: Path, ending: ExitStack, endpoint: FaultyEndpoint) -> None:
    """A thousand quick appends to one file."""
    url = f"s3://{BUCKET}/bench?endpoint={endpoint.url}&region=us-east-1"
    path = write_shared_workflow(tmp_path / "with", url, uids=["file-0000"])
    machine = ending.enter_context(Machine(path, "with"))
    machine.do("flush")
    endpoint.requests.clear()
    machine.do("append", uid="file-0000", first=0, count=1000)
    machine.do("flush")
    puts = endpoint.methods.count("PUT")
    show("puts of 1,000 quick appends to one file", f"{puts}", "goal 20")
