"""S3 servers that a test starts and stops: real programs, on loopback, on free ports, each wait bounded.

| server | what it is | conditional requests |
|---|---|---|
| moto | a model of S3, in this process | honoured |
| weed | seaweedfs, a distributed object store | honoured |
| rclone | ``rclone serve s3`` over a folder | ignored, with the answers of a success |
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from mirrors.s3.client import make_client
from mirrors.s3.location import S3Location
from tests.conftest import unavailable

ACCESS_KEY, SECRET_KEY = "tester12345", "tester-secret-12345"
BUCKET = "memory"
_MOTO_ACCOUNT = "123456789012"
_UP_WITHIN = 90.0
_DOWN_WITHIN = 15.0
_STARTS = 3


@pytest.fixture(scope="session", autouse=True)
def aws_environment() -> Iterator[None]:
    """boto3 finds the tester's credentials in the environment, and nothing of this machine's configuration."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield


@contextmanager
def moto() -> Iterator[str]:
    """The URL of a moto server in this process, with the bucket made.

    Requests for objects take turns. Moto checks a condition and puts the object in two steps, so that of two
    simultaneous puts both can succeed, which no S3 service does.
    """
    try:
        from moto.s3.responses import S3Response
        from moto.server import ThreadedMotoServer
    except ImportError:
        unavailable("moto is not installed")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    turn, respond = threading.Lock(), S3Response.key_response

    def respond_in_turn(self: Any, request: Any, full_url: str, headers: Any) -> Any:
        with turn:
            return respond(self, request, full_url, headers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(S3Response, "key_response", respond_in_turn)
        server.start()
        try:
            host, port = server.get_host_and_port()
            _make_bucket(f"http://{host}:{port}")
            yield f"http://{host}:{port}"
        finally:
            server.stop()


@pytest.fixture(scope="session")
def moto_url(aws_environment: None) -> Iterator[str]:
    """A moto server for all tests; each keeps to keys of its own."""
    with moto() as url:
        yield url


def put_into_moto(key: str, body: bytes) -> None:
    """Put an object into the memory of the moto server of this process."""
    from moto.s3.models import s3_backends

    s3_backends[_MOTO_ACCOUNT]["aws"].put_object(BUCKET, key, body)


@contextmanager
def weed(folder: Path) -> Iterator[str]:
    """The URL of a seaweedfs server that keeps its objects in ``folder``, with the bucket made."""
    names = ("s3", "master", "volume", "filer", "webdav", "admin")

    def command(*ports: int) -> list[str]:
        options = [f"-{name}.port={port}" for name, port in zip(names, ports, strict=True)]
        options += ["-admin.ui=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        return [tool("weed"), "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", *options]

    with _running(command, ports=len(names), folder=folder) as url:
        yield url


@contextmanager
def rclone(folder: Path) -> Iterator[str]:
    """The URL of ``rclone serve s3`` over ``folder``, with the bucket made.

    Its directory cache stays on: with ``--dir-cache-time 0s`` 1.75 drowns in timers as soon as there are folders.
    """

    def command(port: int) -> list[str]:
        where = ["--addr", f"127.0.0.1:{port}", "--config", os.devnull, "--auth-key", f"{ACCESS_KEY},{SECRET_KEY}"]
        return [tool("rclone"), "serve", "s3", str(folder), *where]

    with _running(command, ports=1, folder=folder) as url:
        yield url


@cache
def client_of(url: str) -> Any:
    """A client that looks at a server's objects behind the mirror's back."""
    return make_client(S3Location(BUCKET, endpoint=url, region="us-east-1"))


@contextmanager
def _running(command: Callable[..., list[str]], *, ports: int, folder: Path) -> Iterator[str]:
    """A program on ``ports`` free ports, the first of which speaks S3; started again if someone was faster there."""
    log = folder.with_suffix(".log")
    with log.open("wb") as output:
        for _ in range(_STARTS):
            chosen = _free_ports(ports)
            process = subprocess.Popen(command(*chosen), stdout=output, stderr=subprocess.STDOUT, cwd=folder)
            try:
                if not _comes_up(process, url=f"http://127.0.0.1:{chosen[0]}"):
                    continue
                yield f"http://127.0.0.1:{chosen[0]}"
                return
            finally:
                _stop(process)
    raise AssertionError(f"{process.args!r} is not up: {log.read_text()[-2000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_DOWN_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _comes_up(process: subprocess.Popen[bytes], *, url: str) -> bool:
    """Wait until the program takes requests; False if it ended or takes too long."""
    deadline = time.monotonic() + _UP_WITHIN
    while process.poll() is None and time.monotonic() < deadline:
        try:
            _make_bucket(url)
        except (BotoCoreError, ClientError):
            time.sleep(0.05)
        else:
            return process.poll() is None
    return False


def _make_bucket(url: str) -> None:
    """Make the bucket; one that is there was made by an attempt whose answer came too late."""
    patient = Config(connect_timeout=5, read_timeout=30, retries={"total_max_attempts": 1})
    client = boto3.session.Session().client("s3", endpoint_url=url, config=patient)
    try:
        client.create_bucket(Bucket=BUCKET)
    except (client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists):
        pass
    finally:
        client.close()


def tool(name: str) -> str:
    """A program that came with a package of the environment, or one on the PATH."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name) or unavailable(f"{name} is not installed")


def _free_ports(count: int) -> list[int]:
    """Ports between 20000 and 29999 that are free, and so are those 10,000 higher (weed speaks gRPC there)."""
    found: list[int] = []
    for port in random.sample(range(20000, 30000), 500):
        if len(found) < count and _is_free(port) and _is_free(port + 10000):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
