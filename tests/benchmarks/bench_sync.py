"""What a mirror costs those who write and read: a process with a mirror and one without, in turns, in one run."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pytest

import memfiles
from memfiles import Memory
from tests.benchmarks.bare import seconds, show
from tests.mirrors import servers
from tests.mirrors.faulty_endpoint import FaultyEndpoint
from tests.mirrors.servers import BUCKET, aws_environment  # noqa: F401 (a fixture)
from tests.support.workflows import write_workflow
from tests.sync.sync_machines import Machine, write_shared_workflow

MANY = 1000
ROUNDS = 30
EACH = {"append": 40, "read": 2000}  # calls a round
HANG_SECONDS = 10.0
SEALED: dict[str, dict[str, Any]] = {
    "no key": {},
    "signed": {"key": "env:DESK_KEY"},
    "encrypted": {"key": "env:DESK_KEY", "encrypt": True},
}
SEALED_ROUNDS = 5


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
        for machine, times in zip((one, other), taken, strict=True):
            if number % 10 == 0:
                machine.do("touch_all")
            times += machine.do("measure", verb="append", uid="file-0000", times=EACH["append"])
    ours, bare = (quantiles(times, n=100)[98] for times in taken)
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


def open_desk(folder: Path, **mirror: object) -> Memory:
    """The memory of an agent that saves entries, mirrored if there are settings for that."""
    memory: dict[str, Any] = {"entries": {}} | ({"mirror": mirror} if mirror else {})
    return memfiles.open(write_workflow(folder, json.dumps({"memory": memory, "agents": {"desk": {}}})), watch=False)


def test_sealed(tmp_path: Path, ending: ExitStack, endpoint: FaultyEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand entries are pushed and fetched by a new machine: with no key, signed and encrypted, in turns."""
    monkeypatch.setenv("DESK_KEY", secrets.token_hex(32))
    with open_desk(tmp_path / "filled") as memory:
        session = memory.session("desk")
        for number in range(MANY):
            memory.entries.save(session, f"note-{number:04}", f"- The line of note {number}.\n" * 20)
    taken: dict[tuple[str, str], list[float]] = {(verb, kind): [] for kind in SEALED for verb in ("push", "cold start")}
    for turn in range(SEALED_ROUNDS):
        for number, kind in enumerate(sorted(SEALED, key=lambda _: secrets.token_hex(4))):
            url = f"s3://{BUCKET}/sealed-{turn}-{number}?endpoint={endpoint.upstream}&region=us-east-1"
            for verb in ("push", "cold start"):
                folder = tmp_path / f"{verb}-{turn}-{number}"
                if verb == "push":
                    shutil.copytree(tmp_path / "filled", folder)
                opened: list[Memory] = []

                def run() -> None:
                    opened.append(ending.enter_context(open_desk(folder, url=url, **SEALED[kind])))
                    assert opened[0].sync.flush(60)

                taken[verb, kind].append(seconds(run))
                assert MANY == sum(each.entries for each in opened[0].entries.counts())
                opened[0].close()
    for (verb, kind), times in taken.items():
        ratios = [one / bare for one, bare in zip(times, taken[verb, "no key"], strict=True)]
        figure = f"{median(ratios):.2f} times no key ({min(ratios):.2f} to {max(ratios):.2f})"
        show(f"{verb} of {MANY:,} entries, {kind}", f"{median(times):.2f} s: {figure}")
