"""``memfiles sync rekey`` and ``open``, and what the command line says about keys and refused objects."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from memfiles.sync.mirror import Mirror
from mirrors import MirrorKeys
from mirrors.sealed.envelope import is_sealed
from mirrors.urls import open_mirror
from tests.cli.command_line import run
from tests.mirrors import servers
from tests.mirrors.servers import BUCKET, aws_environment  # noqa: F401 (a fixture)
from tests.support.workflows import write_workflow

pytestmark = pytest.mark.usefixtures("installed")
NEW, OLD = secrets.token_hex(32), secrets.token_hex(32)
SIGNED = ', key: "env:DESK_KEY"'
ENCRYPTED = SIGNED + ", encrypt: true"


@pytest.fixture(autouse=True)
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that is the mirror; commands run next to it, with the key in the environment."""
    monkeypatch.setenv("DESK_KEY", NEW)
    (tmp_path / "there").mkdir()
    return tmp_path / "there"


def machine(folder: Path, url: str, settings: str = SIGNED, *, files: int = 2) -> list[str]:
    """A folder with a workflow: the options that make a command run on it."""
    declared = "\n".join(f"    - {{uid: f{number}, name: f{number}, content: 'text'}}" for number in range(files))
    mirror = f'  mirror: {{url: "{url}"{settings}}}'
    write_workflow(folder, f"memory:\n{mirror}\n  files:\n{declared}\nagents: {{desk: {{}}}}\n")
    return ["-w", str(folder / "workflow.yaml")]


def test_a_mirror_is_signed_then_encrypted_then_gets_another_key(
    tmp_path: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command says what it did, and another machine starts from the result."""
    monkeypatch.setenv("DESK_KEY", OLD)
    run("restore", *machine(tmp_path / "one", there.as_uri(), ""))
    said = [run("sync", "rekey", *machine(tmp_path / "one", there.as_uri())).out]
    said.append(run("sync", "rekey", *machine(tmp_path / "one", there.as_uri(), ENCRYPTED)).out)
    monkeypatch.setenv("DESK_KEY", f"{NEW},{OLD}")
    (there / "README.txt").write_text("not ours")
    said.append(run("sync", "rekey", *machine(tmp_path / "one", there.as_uri(), ENCRYPTED)).out)
    monkeypatch.setenv("DESK_KEY", NEW)
    report = run("restore", "--json", *machine(tmp_path / "two", there.as_uri(), ENCRYPTED)).data

    assert [
        "2 signed, 0 sealed anew, 0 as they were\n",
        "0 signed, 2 sealed anew, 0 as they were\n",
        "0 signed, 2 sealed anew, 0 as they were\n",
    ] == said
    assert ["hydrated", "hydrated"] == [file["status"] for file in report["files"]]


def test_what_is_refused_is_told_by_every_command(tmp_path: Path, there: Path) -> None:
    """With its path and what to do, in words and as JSON, and never with the key."""
    here = machine(tmp_path / "one", there.as_uri())
    run("sync", "push", *here)
    (there / "f0.json").write_text("{}")
    pulled, status = run("sync", "pull", *here), run("sync", "status", *here)
    checks = run("doctor", "--json", *here)
    rekeyed = run("sync", "rekey", "--json", *here)
    as_json = [run(*words, "--json", *here) for words in (("sync", "status"), ("sync", "pull"), ("sync", "push"))]
    why = "f0.json: the mirror's object is not signed"

    assert (7, f"warning: refused: {why}") == (pulled.code, pulled.err.partition(";")[0])
    assert f"refused      1 object in the mirror; {why}" in status.out
    assert (7, ["f0.json"], 1) == (rekeyed.code, list(rekeyed.data["refused"]), rekeyed.data["current"])
    assert [["f0.json"]] * 3 == [list(each.data["refused"]) for each in as_json]
    assert (1, {"mirror refused", "mirror copy f0"}) == (
        checks.code,
        {check["check"] for check in checks.data["checks"] if check["state"] == "fail"},
    )
    everything = [pulled, status, checks, rekeyed, *as_json]
    assert [] == [each for each in everything if NEW in each.out + each.err]


def test_a_wrong_key_overwrites_nothing(tmp_path: Path, there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the version in the mirror is known from when the key was right; with that key again, all is pushed."""
    one, two = (machine(tmp_path / name, there.as_uri()) for name in ("one", "two"))
    run("append", "f0", " by one", *one)
    run("sync", "pull", *two)
    sound = (there / "f0.json").read_bytes()
    monkeypatch.setenv("DESK_KEY", OLD)
    written, status = run("append", "f0", " by two", *two), run("sync", "status", "--json", *two)
    pushed, doctor, rekeyed = run("sync", "push", *two), run("doctor", *two), run("sync", "rekey", *two)

    assert sound == (there / "f0.json").read_bytes()
    assert (0, 7, 1, 7) == (written.code, pushed.code, doctor.code, rekeyed.code)
    why = "f0.json: the mirror's object is signed with another key"
    assert [why in said for said in (written.err, pushed.err, doctor.out)] == [True] * 3
    assert (1, ["f0.json"]) == (status.data["pending"], list(status.data["refused"]))
    monkeypatch.setenv("DESK_KEY", NEW)
    assert (0, 0) == (run("sync", "push", *two).code, run("sync", "pull", *one).code)
    assert "text by one by two" == run("read", "f0", *one).out
    assert {} == run("sync", "status", "--json", *two).data["refused"]


@pytest.mark.slow
def test_a_key_that_is_missing_or_weak_is_an_error_that_helps(
    tmp_path: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check warns, doctor fails, a transfer ends with 7; a change is made here all the same."""
    here = machine(tmp_path / "one", there.as_uri())
    for key, why in ((None, "DESK_KEY is not set"), ("", "holds no key"), ("hunter2", "has 7 characters; at least 32")):
        monkeypatch.delenv("DESK_KEY") if key is None else monkeypatch.setenv("DESK_KEY", key)
        checked, doctor = run("check", *here), run("doctor", *here)
        written, pushed = run("append", "f0", "more", *here), run("sync", "push", *here)
        rekeyed, opened = run("sync", "rekey", *here), run("sync", "open", str(there), *here)

        assert (0, 1, 0, 7, 7, 7) == (
            *(checked.code, doctor.code, written.code),
            *(pushed.code, rekeyed.code, opened.code),
        )
        assert why in checked.err and "warning: memory.mirror.key: " in checked.err
        assert [why] * 4 == [why for said in (doctor.out, pushed.err, rekeyed.err, opened.err) if why in said]
        assert [] == list(there.rglob("*.json"))


def test_without_a_declared_key_there_is_nothing_to_do(tmp_path: Path, there: Path) -> None:
    """A usage error, with the line to add."""
    here = machine(tmp_path / "one", there.as_uri(), "")
    for words in (("sync", "rekey"), ("sync", "open", str(there))):
        ran = run(*words, "--json", *here)
        assert (2, True) == (ran.code, "add `key: env:NAME` under memory.mirror" in ran.error["message"])


def test_a_key_in_the_workflow_itself_is_refused_where_it_stands(tmp_path: Path, there: Path) -> None:
    """With line and column, and without repeating it."""
    ran = run("check", *machine(tmp_path / "one", there.as_uri(), f', key: "{NEW}"'))

    assert 1 == ran.code
    assert "workflow.yaml:2:" in ran.err and "memory.mirror.key: write env:NAME" in ran.err
    assert NEW not in ran.out + ran.err


def test_a_copied_bucket_is_opened(tmp_path: Path, there: Path) -> None:
    """The copy becomes a memory directory that works without the mirror."""
    run("append", "f0", " and more", *machine(tmp_path / "one", there.as_uri(), ENCRYPTED))
    (there / "planted.json").write_text("{}")
    here = machine(tmp_path / "two", "file:///nowhere", ENCRYPTED)
    there.rename(tmp_path / "two" / ".memory")
    opened = run("sync", "open", str(tmp_path / "two" / ".memory"), *here)

    assert (7, f"{tmp_path / 'two' / '.memory'}: 2 records opened\n") == (opened.code, opened.out)
    assert "refused: planted.json: the mirror's object is not signed" in opened.err
    assert "text and more" == run("read", "f0", *here).out
    elsewhere = run("sync", "open", f"{tmp_path}/two/.memory.sealed", "--to", f"{tmp_path}/x", "--json", *here)
    assert (2, ["planted.json"]) == (elsewhere.data["current"], list(elsewhere.data["refused"]))


@pytest.fixture(scope="module")
def s3(aws_environment: None) -> Iterator[str]:  # noqa: F811
    """A real S3 server."""
    with servers.moto() as url:
        yield url


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SIGNED, ENCRYPTED], ids=["signed", "encrypted"])
def test_signing_a_bucket_survives_kills(
    tmp_path: Path, s3: str, settings: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed twice while it signs and twice while it replaces the key: nothing is lost, nothing stays unsigned."""
    count = 40
    url = f"s3://{BUCKET}/kills-{uuid.uuid4().hex[:8]}?endpoint={s3}&region=us-east-1"
    bucket = open_mirror(url)
    assert 0 == run("sync", "push", *machine(tmp_path / "one", url, "", files=count)).code
    records = {key: stored.body for key, _ in bucket.list() if (stored := bucket.get(key))}
    for variable, first in ((OLD, OLD), (f"{NEW},{OLD}", NEW)):
        monkeypatch.setenv("DESK_KEY", variable)
        here = machine(tmp_path / "one", url, settings, files=count)
        keys = MirrorKeys.parse(first, source="the test")
        stages = [_sealed_when_killed(here, bucket, keys, after=sorted(records)[number]) for number in (0, count // 3)]
        done = run("sync", "rekey", "--json", *here)
        bodies = {key: stored.body for key, _ in bucket.list() if (stored := bucket.get(key))}

        assert (0, {}, {}) == (done.code, done.data["refused"], done.data["failed"])
        assert any(0 < stage < count for stage in stages), "no kill came in the middle"
        assert records == {key: keys.open(key, body) for key, body in bodies.items()}
        assert all(keys.is_current(body, encrypt=settings == ENCRYPTED) for body in bodies.values())
    monkeypatch.setenv("DESK_KEY", NEW)
    assert {"hydrated"} == {
        file["status"]
        for file in run("restore", "--json", *machine(tmp_path / "two", url, settings, files=count)).data["files"]
    }


def _sealed_when_killed(here: list[str], bucket: Mirror, keys: MirrorKeys, *, after: str) -> int:
    """Kill a process that seals once one object is sealed by this key; how many objects are then."""
    process = subprocess.Popen([sys.executable, "-m", "memfiles", "sync", "rekey", *here], env=dict(os.environ))
    while process.poll() is None and not ((stored := bucket.get(after)) and _is_by(keys, stored.body)):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return sum(_is_by(keys, stored.body) for key, _ in bucket.list() if (stored := bucket.get(key)))


def _is_by(keys: MirrorKeys, body: bytes) -> bool:
    return is_sealed(body) and json.loads(body.partition(b"\n")[0])["key"] == keys.ids[0]
