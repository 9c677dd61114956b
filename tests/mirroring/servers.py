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
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from conftest import unavailable

from mirrors.s3.client import make_client
from mirrors.s3.location import S3Location

ACCESS_KEY, SECRET_KEY = "tester12345", "tester-secret-12345"
BUCKET = "memory"
_MOTO_ACCOUNT = "123456789012"
_UP_WITHIN = 30.0
_DOWN_WITHIN = 5.0


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
    """The URL of a moto server in this process, with the bucket made."""
    try:
        from moto.server import ThreadedMotoServer
    except ImportError:
        unavailable("moto is not installed")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        _make_bucket(f"http://{host}:{port}")
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def put_into_moto(key: str, body: bytes) -> None:
    """Put an object into the memory of the moto server of this process."""
    from moto.s3.models import s3_backends

    s3_backends[_MOTO_ACCOUNT]["aws"].put_object(BUCKET, key, body)


@contextmanager
def weed(folder: Path) -> Iterator[str]:
    """The URL of a seaweedfs server that keeps its objects in ``folder``, with the bucket made."""
    names = ("s3", "master", "volume", "filer", "webdav", "admin")
    ports = dict(zip(names, _free_ports(len(names)), strict=True))
    options = [f"-{name}.port={port}" for name, port in ports.items()]
    command = [tool("weed"), "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", *options]
    with _running(
        [*command, "-admin.ui=false", "-s3.port.iceberg=0", "-s3.port.lance=0"],
        url=f"http://127.0.0.1:{ports['s3']}",
        folder=folder,
    ) as url:
        yield url


@contextmanager
def rclone(folder: Path) -> Iterator[str]:
    """The URL of ``rclone serve s3`` over ``folder``, with the bucket made.

    Its directory cache stays on: with ``--dir-cache-time 0s`` 1.75 drowns in timers as soon as there are folders.
    """
    (port,) = _free_ports(1)
    command = [tool("rclone"), "serve", "s3", str(folder), "--addr", f"127.0.0.1:{port}", "--config", os.devnull]
    command += ["--auth-key", f"{ACCESS_KEY},{SECRET_KEY}"]
    with _running(command, url=f"http://127.0.0.1:{port}", folder=folder) as url:
        yield url


@cache
def client_of(url: str) -> Any:
    """A client that looks at a server's objects behind the mirror's back."""
    return make_client(S3Location(BUCKET, endpoint=url, region="us-east-1"))


@contextmanager
def _running(command: Sequence[str], *, url: str, folder: Path) -> Iterator[str]:
    log = folder.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=folder)
        try:
            _wait_until_up(process, url=url, log=log)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(_DOWN_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_up(process: subprocess.Popen[bytes], *, url: str, log: Path) -> None:
    deadline = time.monotonic() + _UP_WITHIN
    while True:
        try:
            return _make_bucket(url)
        except (BotoCoreError, ClientError) as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{process.args!r} is not up: {error}\n{log.read_text()[-2000:]}") from error
        time.sleep(0.05)


def _make_bucket(url: str) -> None:
    quick = Config(connect_timeout=1, read_timeout=5, retries={"total_max_attempts": 1})
    client = boto3.session.Session().client("s3", endpoint_url=url, config=quick)
    try:
        client.create_bucket(Bucket=BUCKET)
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
