"""A cold start of 10,000 records from S3, beside the tools people copy a bucket with, on the same server in one run.

Ours is the whole restore: listed, fetched, checked, durable on the disk and live. Theirs is a copy.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median

import pytest

from memfiles import MemoryFile, MemoryManager
from memfiles.sync.mirror import Answer, Mirror, Stored, get_many
from memfiles.sync.pack import FOLDER, write_pack
from mirrors import S3Mirror
from mirrors.memory import MemoryMirror
from mirrors.s3.bucket import Bucket
from mirrors.s3.client import make_client, make_session
from mirrors.s3.location import S3Location
from tests.benchmarks.bare import seconds, show
from tests.mirrors import servers
from tests.mirrors.servers import ACCESS_KEY, BUCKET, SECRET_KEY, aws_environment, tool

__all__ = ["aws_environment"]  # a fixture of every test here

COUNT = 10_000
ROUNDS = 3
FILES = [
    MemoryFile(uid=f"file-{n}", name=f"file-{n}", description="notes", content="- a line\n" * 160) for n in range(COUNT)
]


class Unpacked(MemoryMirror):
    """A mirror whose pack is not there."""

    def __init__(self, inner: Mirror) -> None:
        super().__init__()
        self.inner = inner

    def list(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        return ((key, version) for key, version in self.inner.list(prefix) if not key.startswith(FOLDER))

    def get(self, key: str) -> Stored | None:
        return self.inner.get(key)

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        return get_many(self.inner, keys)


def mirror_at(url: str, requests: list[str], *, with_obstore: bool = True) -> Mirror:
    """The bucket; the requests that boto3 makes are noted."""
    location = S3Location(BUCKET, endpoint=url, region="us-east-1")
    session = make_session(location)
    client = make_client(location, session=session)
    client.meta.events.register("before-send.s3", lambda request, **_: requests.append(request.url))
    return S3Mirror(Bucket(client, BUCKET), session=session if with_obstore else None)


def s5cmd(url: str, *arguments: str) -> None:
    run([tool("s5cmd"), "--log", "error", "--endpoint-url", url, *arguments])


def rclone(url: str, to: Path) -> None:
    store = ["--s3-provider", "Other", "--s3-env-auth", "--s3-endpoint", url, "--s3-no-head-object"]
    speed = ["--transfers", "64", "--checkers", "64", "--use-server-modtime"]
    command = [tool("rclone"), "copy", f":s3:{BUCKET}", str(to), "--config", os.devnull, "--exclude", ".state/**"]
    run([*command, *store, *speed])


def run(command: list[str]) -> None:
    secrets = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": "us-east-1"}
    subprocess.run(command, check=True, capture_output=True, env=os.environ | secrets)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, aws_environment: None) -> Iterator[str]:  # noqa: F811
    """A seaweedfs server with 10,000 records, and a pack of them."""
    memory = tmp_path_factory.mktemp("filled")
    with MemoryManager(memory, durability="os") as manager:
        manager.restore(FILES)
    with servers.weed(tmp_path_factory.mktemp("weed")) as url:
        s5cmd(url, "cp", f"{memory}/*.json", f"s3://{BUCKET}/")
        mirror = mirror_at(url, [])
        found = get_many(mirror, [key for key, _ in mirror.list()])
        write_pack(mirror, [(key, stored) for key, stored in found if isinstance(stored, Stored)])
        yield url


def test_cold_start(url: str, tmp_path: Path) -> None:
    """With the pack, without it, and beside the others; in turns."""
    requests: list[str] = []

    def start(name: str, mirror: Mirror) -> None:
        manager = MemoryManager(tmp_path / name, mirror)
        report = manager.restore(FILES)
        managers.append(manager)
        assert {"hydrated"} == {row.status for row in report.files}

    managers: list[MemoryManager] = []
    runs: dict[str, Callable[[str], object]] = {
        "with a pack": lambda name: start(name, mirror_at(url, requests)),
        "without, by obstore": lambda name: start(name, Unpacked(mirror_at(url, []))),
        "s5cmd": lambda name: s5cmd(url, "cp", "--exclude", ".state/*", f"s3://{BUCKET}/*", f"{tmp_path}/{name}/"),
        "rclone copy": lambda name: rclone(url, tmp_path / name),
    }
    taken: dict[str, list[float]] = {what: [] for what in runs}
    for turn in range(ROUNDS):
        for number, (what, run_once) in enumerate(runs.items()):
            taken[what].append(seconds(lambda: run_once(f"{turn}-{number}")))
    boto3 = seconds(lambda: start("boto3", Unpacked(mirror_at(url, [], with_obstore=False))))
    for manager in managers:
        manager.close()
    copied = [len(list((tmp_path / f"0-{number}").glob("*.json"))) for number in range(len(runs))]
    assert [COUNT] * len(runs) == copied

    best = min(median(taken["s5cmd"]), median(taken["rclone copy"]))
    for what, goal in zip(runs, ("goal 0.5", "goal 1.0", "", ""), strict=True):
        each = median(taken[what])
        show(f"cold start of 10,000 records, {what}", f"{each:.2f} s: {each / best:.2f} of the faster tool", goal)
    show("cold start of 10,000 records, without, by boto3", f"{boto3:.2f} s: {boto3 / best:.2f} of the faster tool")
    show("requests of a cold start with a pack", str(len(requests) // ROUNDS), "goal 50")
