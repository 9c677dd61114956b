"""A start on an empty disk, over the network: whatever S3 answers, every file is there, and the report says how."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from botocore.config import Config

from memfiles.files.manager import MemoryManager
from memfiles.files.restore_report import RestoreReport, Status
from memfiles.files.restorer import Restorer
from memfiles.records.record import encode
from memfiles.storage.home import home_of
from memfiles.sync.mirror import Mirror, Stored
from memfiles.sync.pack import write_pack
from mirrors import PrefixedMirror, S3Mirror
from mirrors.s3.bucket import Bucket
from mirrors.s3.client import make_client, make_session
from mirrors.s3.location import S3Location
from tests.mirrors.faulty_endpoint import Fault, FaultyEndpoint
from tests.mirrors.servers import BUCKET, put_into_moto
from tests.support.records import declared, seeded

COUNT = 60
UIDS = [f"file-{number}" for number in range(COUNT)]
_fresh = itertools.count()


@pytest.fixture
def prefix(moto_url: str) -> str:
    """A part of the bucket with 60 records."""
    prefix = f"cold/{next(_fresh)}"
    for uid in UIDS:
        put_into_moto(f"{prefix}/{uid}.json", encode(seeded("remote", uid=uid)))
    return prefix


def mirror_at(url: str, prefix: str, *, bucket: str = BUCKET, with_obstore: bool = True) -> Mirror:
    location = S3Location(bucket, endpoint=url, region="us-east-1")
    session = make_session(location)
    once = Config(read_timeout=5, retries={"mode": "standard", "total_max_attempts": 1})
    client = make_client(location, config=once, session=session)
    return PrefixedMirror(S3Mirror(Bucket(client, bucket), session=session if with_obstore else None), prefix)


def restored(directory: Path, mirror: Mirror, *, uids: Sequence[str] = UIDS) -> RestoreReport:
    with MemoryManager(directory, mirror, durability="os") as manager:
        return manager.restore([declared(uid, content="seed") for uid in uids])


def statuses(report: RestoreReport) -> set[Status]:
    return {row.status for row in report.files}


@pytest.mark.parametrize("with_obstore", [True, False])
def test_everything_is_fetched(endpoint: FaultyEndpoint, prefix: str, tmp_path: Path, with_obstore: bool) -> None:
    """One list, and a request for each."""
    report = restored(tmp_path, mirror_at(endpoint.url, prefix, with_obstore=with_obstore))

    assert {"hydrated"} == statuses(report)
    assert ["GET"] * (COUNT + 1) == endpoint.methods
    assert encode(seeded("remote", uid="file-7")) == (tmp_path / "file-7.json").read_bytes()


def test_a_pack_makes_it_three_requests(endpoint: FaultyEndpoint, prefix: str, tmp_path: Path) -> None:
    """The list, the index and one part."""
    mirror = mirror_at(endpoint.url, prefix)
    write_pack(mirror, [(key, stored) for key, _ in mirror.list() if (stored := mirror.get(key))])
    endpoint.requests.clear()

    assert {"hydrated"} == statuses(restored(tmp_path, mirror))
    assert ["GET"] * 3 == endpoint.methods


def test_what_changed_after_the_pack_is_fetched(endpoint: FaultyEndpoint, prefix: str, tmp_path: Path) -> None:
    """And nothing else."""
    mirror = mirror_at(endpoint.url, prefix)
    write_pack(mirror, [(key, stored) for key, _ in mirror.list() if (stored := mirror.get(key))])
    newer = encode(seeded("newer", uid="file-7"))
    mirror.put("file-7.json", newer)
    endpoint.requests.clear()
    restored(tmp_path, mirror)

    assert newer == (tmp_path / "file-7.json").read_bytes()
    assert ["GET"] * 4 == endpoint.methods


@pytest.mark.parametrize("fault", ["denied", "slow_down", "reset", "page"])
@pytest.mark.parametrize("count", [3, COUNT])
def test_a_store_that_answers_nothing_useful(
    endpoint: FaultyEndpoint, prefix: str, tmp_path: Path, fault: Fault, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    """403, 503, closed connections, a proxy's page: every file is seeded and marked, with one line in the log."""
    mirror = mirror_at(endpoint.url, prefix)
    endpoint.faults, endpoint.rate = [fault], 1.0
    with caplog.at_level(logging.WARNING):
        report = restored(tmp_path, mirror, uids=UIDS[:count])

    assert {"provisional"} == statuses(report)
    assert 1 == len([text for text in caplog.messages if text.startswith("the mirror gave no answer")])


def test_a_bucket_that_is_not_there(endpoint: FaultyEndpoint, prefix: str, tmp_path: Path) -> None:
    """A 404 of the bucket does not look like an absent record, which would be seeded for good."""
    for number, count in enumerate([3, COUNT]):
        mirror = mirror_at(endpoint.url, prefix, bucket="no-such-bucket")
        report = restored(tmp_path / str(number), mirror, uids=UIDS[:count])

        assert {"provisional"} == statuses(report)
        assert "NoSuchBucket" in (report["file-0"].detail or "")


@pytest.mark.parametrize("count", [3, COUNT])
def test_a_store_that_hangs(
    endpoint: FaultyEndpoint, prefix: str, tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits beyond the time that all of it may take."""
    endpoint.faults, endpoint.rate, endpoint.hang_seconds = ["hang"], 1.0, 60.0
    monkeypatch.setattr("memfiles.sync.downloads.DEADLINE_SECONDS", 0.3)
    restorer = Restorer(mirror_at(endpoint.url, prefix), now=lambda: "", lowest_level="PUBLIC")
    report = restorer.plan(home_of(tmp_path / "none"), [declared(uid) for uid in UIDS[:count]])

    assert {"provisional"} == statuses(report)
    assert f"0 of {count} answers came in time" in (report["file-0"].detail or "")


def test_some_bodies_trickle(moto_url: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What arrives in time is used, whatever the others do. A late request of an earlier test must not be counted."""
    monkeypatch.setattr("memfiles.sync.downloads.DEADLINE_SECONDS", 10.0)
    with FaultyEndpoint(moto_url) as endpoint:
        endpoint.script.extend([None, "trickle", "trickle", "trickle"])  # not the list
        mirror = mirror_at(endpoint.url, prefix)
        restorer = Restorer(mirror, now=lambda: "", lowest_level="INTERNAL")
        report = restorer.plan(home_of(tmp_path / "none"), [declared(uid) for uid in UIDS])

    assert [COUNT - 3, 3] == [[row.status for row in report.files].count(each) for each in ("hydrated", "provisional")]
    assert "57 of 60 answers came in time" in " ".join(row.detail or "" for row in report.files)


def test_a_directory_of_all_sorts(endpoint: FaultyEndpoint, prefix: str, tmp_path: Path) -> None:
    """Each file for itself: kept, fetched, seeded, refused, and every one that is not right is named."""
    mirror = mirror_at(endpoint.url, prefix)
    restored(tmp_path, mirror, uids=["file-0", "file-1"])
    (tmp_path / "file-1.json").write_bytes(b"{")
    (tmp_path / "stale.json").write_bytes(encode(seeded("stale", uid="stale")))
    mirror.put("file-2.json", b'{"half a rec')
    mirror.put("file-3.json", encode(seeded("remote", uid="other")))
    mirror.put("file-4.json", encode(seeded("x" * 5000, uid="file-4", cap=4096)))
    report = restored(tmp_path, mirror, uids=[*UIDS, "unknown"])
    found = {uid: (report[uid].status, report[uid].over_cap) for uid in [*UIDS[:6], "unknown"]}

    assert {
        "file-0": ("kept", False),
        "file-1": ("quarantined", False),
        "file-2": ("seeded", False),
        "file-3": ("seeded", False),
        "file-4": ("hydrated", True),
        "file-5": ("hydrated", False),
        "unknown": ("seeded", False),
    } == found
    assert "its content is now hydrated" in (report["file-1"].detail or "")
    assert all("the mirror's copy cannot be used" in (report[uid].detail or "") for uid in ("file-2", "file-3"))
    assert ("stale",) == report.orphans


def test_an_object_beyond_the_limit(endpoint: FaultyEndpoint, prefix: str, tmp_path: Path) -> None:
    """It is not read; its file is seeded, marked and named."""
    endpoint.faults, endpoint.rate = ["huge"], 1.0
    report = restored(tmp_path, mirror_at(endpoint.url, prefix), uids=["file-0"])

    assert "provisional" == report["file-0"].status
    assert "has 70000000000 bytes" in (report["file-0"].detail or "")


def test_a_bucket_with_a_pack_is_still_a_memory_directory(moto_url: str, prefix: str, tmp_path: Path) -> None:
    """Copied file by file, as any sync tool does it, and restored without a mirror."""
    mirror = mirror_at(moto_url, prefix)
    objects: list[tuple[str, Stored]] = [(key, stored) for key, _ in mirror.list() if (stored := mirror.get(key))]
    write_pack(mirror, objects)
    for key, _ in mirror.list():
        stored = mirror.get(key)
        assert stored is not None
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(stored.body)
    with MemoryManager(tmp_path, durability="os") as manager:
        report = manager.restore([declared(uid, content="seed") for uid in UIDS])

        assert {"kept"} == statuses(report)
        assert "remote" == manager.read("file-7")
