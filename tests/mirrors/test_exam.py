"""Every mirror and every wrapper passes the exam."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memfiles.records.keys import uid_of
from memfiles.storage.home import home_of
from memfiles.sync.mirror import Mirror
from mirrors import (
    DirectoryMirror,
    FaultyMirror,
    HttpMirror,
    LazyMirror,
    MemoryMirror,
    MirrorKeys,
    PrefixedMirror,
    SealedMirror,
)
from mirrors.faulty import HONEST
from mirrors.http import record_of
from mirrors.s3.bucket import Bucket
from mirrors.s3.location import S3Location
from mirrors.s3.mirror import S3Mirror, connect
from mirrors.sealed.mirror import UnsealedMirror
from mirrors.sealed.refusals import NotedMirror
from mirrors.service import Service
from mirrors.testing import Place, Question, questions
from mirrors.urls import parse_url
from tests.mirrors import servers
from tests.mirrors.older_service import KEY, OlderService, serving
from tests.mirrors.repeating import RepeatingMirror
from tests.mirrors.servers import BUCKET

HANDLES = 3
KEYS = MirrorKeys.parse("f3a1c8d29b7e4056f3a9c8d29b7e4056", source="the exam")
_fresh = itertools.count()


@pytest.mark.parametrize("question", questions(), ids=str)
def test_memory(question: Question) -> None:
    """The model the others are compared with."""
    mirror = MemoryMirror()
    question(Place(lambda: mirror))


@pytest.mark.parametrize("question", questions(), ids=str)
def test_directory(question: Question, tmp_path: Path) -> None:
    """A directory keeps every promise, and its files are the objects."""

    def plant(key: str, body: bytes) -> None:
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(body)

    def peek(key: str) -> bytes | None:
        return (tmp_path / key).read_bytes() if (tmp_path / key).exists() else None

    question(Place(lambda: DirectoryMirror(tmp_path), peek=peek, plant=plant))


@pytest.mark.parametrize("question", questions(), ids=str)
def test_prefixed(question: Question) -> None:
    """A part of a mirror is as good as a whole one, whatever lies beside it."""
    whole = MemoryMirror()
    for key in ("a.json", "b/a.json", "b/c.json", "b/cd/a.json", "b/c-.json"):
        whole.put(key, b"not ours")
    question(Place(lambda: PrefixedMirror(whole, "b/c")))


@pytest.mark.parametrize("question", questions(), ids=str)
def test_late(question: Question) -> None:
    """A mirror that is opened late is the mirror."""
    mirror = MemoryMirror()
    question(Place(lambda: LazyMirror(lambda: mirror)))


@pytest.mark.slow
@pytest.mark.parametrize("question", questions(), ids=str)
def test_faulty_but_repeated(question: Question) -> None:
    """With a third of the calls unanswered, asking again keeps every promise."""
    mirror = MemoryMirror()
    seeds = itertools.count()

    def open_one() -> Mirror:
        return RepeatingMirror(FaultyMirror(mirror, seed=next(seeds), faults=HONEST))

    question(Place(open_one))


@pytest.mark.parametrize("encrypt", [False, True], ids=["signed", "encrypted"])
@pytest.mark.parametrize("question", questions(), ids=str)
def test_sealed(question: Question, encrypt: bool) -> None:
    """A sealed mirror keeps every promise, with its bodies in envelopes."""
    inner = MemoryMirror()
    question(_sealed_place(inner, lambda: SealedMirror(inner, KEYS, encrypt=encrypt), encrypt=encrypt))


@pytest.mark.parametrize("question", questions(), ids=str)
def test_noted(question: Question, tmp_path: Path) -> None:
    """A mirror whose refusals are noted, sealed or not, is the mirror."""
    inner = MemoryMirror()
    notes = home_of(tmp_path).notes
    question(_sealed_place(inner, lambda: NotedMirror(SealedMirror(inner, KEYS), notes), encrypt=False))
    plain = MemoryMirror()
    question(Place(lambda: NotedMirror(UnsealedMirror(plain), notes), peek=_body_in(plain), plant=plain.put))


@pytest.mark.parametrize("question", questions(), ids=str)
def test_sealed_s3(question: Question, on_moto: Callable[[], Place]) -> None:
    """Sealed objects in a real S3 server, spoken to over HTTP; encrypted, as what is signed alone is text."""
    place = on_moto()
    assert place.peek is not None and place.plant is not None
    peek, plant = place.peek, place.plant
    question(
        Place(
            lambda: SealedMirror(place.open(), KEYS, encrypt=True),
            peek=lambda key: None if (body := peek(key)) is None else KEYS.open(key, body),
            plant=lambda key, body: plant(key, KEYS.seal(key, body, encrypt=True)),
        )
    )


def _body_in(mirror: Mirror) -> Callable[[str], bytes | None]:
    return lambda key: stored.body if (stored := mirror.get(key)) else None


@pytest.mark.parametrize("encrypt", [False, True], ids=["signed", "encrypted"])
@pytest.mark.parametrize("question", questions(), ids=str)
@pytest.mark.slow
def test_sealed_and_faulty_but_repeated(question: Question, encrypt: bool) -> None:
    """With a third of the calls below unanswered, asking again keeps every promise, as bodies are compared opened."""
    inner, seeds = MemoryMirror(), itertools.count()

    def open_one() -> Mirror:
        faulty = FaultyMirror(inner, seed=next(seeds), faults=HONEST)
        return RepeatingMirror(SealedMirror(faulty, KEYS, encrypt=encrypt))

    question(_sealed_place(inner, open_one, encrypt=encrypt))


def _sealed_place(inner: Mirror, open_one: Callable[[], Mirror], *, encrypt: bool) -> Place:
    """A place whose objects are sealed by another writer who has the key."""

    def peek(key: str) -> bytes | None:
        stored = inner.get(key)
        return KEYS.open(key, stored.body) if stored else None

    return Place(open_one, peek=peek, plant=lambda key, body: inner.put(key, KEYS.seal(key, body, encrypt=encrypt)))


@pytest.mark.parametrize("question", questions(without={"bytes", "deleting", "folders", "racing"}), ids=str)
def test_http(question: Question) -> None:
    """The older service, for records of memory files, without delete and without conditions of its own."""
    with serving(OlderService(creates=True)) as service:

        def body(key: str, text: str) -> bytes:
            uid = uid_of(key) or ""
            _, record = record_of({"id": uid, "label": uid, "content": text}) or ("", b"")
            return record

        def peek(key: str) -> bytes | None:
            found = service.files.get(uid_of(key) or "")
            return body(key, found["content"]) if found else None

        def plant(key: str, record: bytes) -> None:
            service.declare(uid_of(key) or "", json.loads(record)["content"])

        question(Place(lambda: HttpMirror(Service(parse_url(service.url), key=KEY)), body, peek, plant))


@pytest.fixture(scope="module")
def on_moto(moto_url: str) -> Callable[[], Place]:
    """Makes places on a moto server, in whose memory others can put things."""
    return _places_on(moto_url, plant=servers.put_into_moto)


@pytest.mark.parametrize("question", questions(), ids=str)
def test_s3(question: Question, on_moto: Callable[[], Place]) -> None:
    """S3, spoken to over HTTP."""
    question(on_moto())


@pytest.mark.parametrize("question", [each for each in questions() if each.ask.__module__.endswith(".many")], ids=str)
def test_s3_without_obstore(question: Question, moto_url: str) -> None:
    """Where boto3 gets many objects, the questions about that once more."""
    mirror = S3Mirror(Bucket(servers.client_of(moto_url), BUCKET))
    prefixed = PrefixedMirror(mirror, f"exam/{next(_fresh)}")
    question(Place(lambda: prefixed))


@pytest.fixture(scope="module")
def on_weed(tmp_path_factory: pytest.TempPathFactory, aws_environment: None) -> Iterator[Callable[[], Place]]:
    """Makes places on a seaweedfs server."""
    with servers.weed(tmp_path_factory.mktemp("weed")) as url:
        yield _places_on(url)


@pytest.mark.servers
@pytest.mark.parametrize("question", questions(), ids=str)
def test_weed(question: Question, on_weed: Callable[[], Place]) -> None:
    """A distributed object store that lists in an order of its own."""
    question(on_weed())


@pytest.fixture(scope="module")
def on_rclone(tmp_path_factory: pytest.TempPathFactory, aws_environment: None) -> Iterator[Callable[[], Place]]:
    """Makes places on an S3 server that ignores conditions."""
    with servers.rclone(tmp_path_factory.mktemp("rclone")) as url:
        yield _places_on(url, wrapped=RepeatingMirror)


@pytest.mark.servers
@pytest.mark.parametrize("question", questions(without={"racing"}), ids=str)
def test_rclone(question: Question, on_rclone: Callable[[], Place]) -> None:
    """A weak endpoint: every promise but that of one winner among simultaneous writers.

    Asked again, as memfiles does it: for a moment while it writes an object, this server gives it without an ETag.
    """
    question(on_rclone())


def _places_on(
    url: str,
    *,
    plant: Callable[[str, bytes], object] | None = None,
    wrapped: Callable[[Mirror], Mirror] = lambda mirror: mirror,
) -> Callable[[], Place]:
    """Makes places on one S3 server: the same few handles, a prefix each."""
    client = servers.client_of(url)
    put = plant or (lambda key, body: client.put_object(Bucket=BUCKET, Key=key, Body=body))
    handles = [wrapped(connect(S3Location(BUCKET, endpoint=url, region="us-east-1"))) for _ in range(HANDLES)]

    def make() -> Place:
        prefix = f"exam/{next(_fresh)}"
        opened = itertools.cycle([PrefixedMirror(handle, prefix) for handle in handles])

        def peek(key: str) -> bytes | None:
            try:
                body: bytes = client.get_object(Bucket=BUCKET, Key=f"{prefix}/{key}")["Body"].read()
            except client.exceptions.NoSuchKey:
                return None
            return body

        return Place(lambda: next(opened), peek=peek, plant=lambda key, body: put(f"{prefix}/{key}", body))

    return make
