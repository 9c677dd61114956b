"""A signed mirror need not be trusted: whatever its store does to an object, no record changes, and someone is told."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

import pytest

from memfiles import Workflow
from memfiles.errors import MemfilesError, MirrorRefused
from memfiles.memory import keeper_of
from memfiles.sync.pack import FEWEST_RECORDS, INDEX
from memfiles.sync.status import status_on_disk
from mirrors import DirectoryMirror, MemoryMirror
from mirrors.sealed.envelope import is_sealed
from tests.support.workflows import opened, write_workflow
from tests.sync.mirrors_for_tests import CountingMirror
from tests.sync.signed_mirrors import (
    FILES,
    KEYS,
    NEEDLE,
    NEW,
    OLD,
    entries_of,
    forged_body,
    records_in,
    save,
    signed_world,
    workflow,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("desk_key")]


@pytest.mark.parametrize("encrypt", [False, True])
def test_two_machines_work_through_a_sealed_mirror(tmp_path: Path, bucket: Path, encrypt: bool) -> None:
    """They start cold, pull, merge and forget as ever; the bucket holds envelopes, and no text if it is encrypted."""
    settings = f", key: env:DESK_KEY, encrypt: {str(encrypt).lower()}"
    text = workflow(bucket, settings)
    signed_world(tmp_path / "one", bucket, settings)
    with opened(tmp_path / "one", text) as one, opened(tmp_path / "two", text) as two:
        assert {"a", "b", "c"} == set(entries_of(two))
        one.manager.append("notes-1", "- by one\n")
        assert one.sync.flush(60)
        two.manager.append("notes-1", "- by two\n")
        two.sync.pull(60)
        one.sync.pull(60)

        assert (
            f"# Notes\n- {NEEDLE}\n- by one\n- by two\n" == one.manager.read("notes-1") == two.manager.read("notes-1")
        )
        assert {} == one.sync.status().refused == two.sync.status().refused
    bodies = [path.read_bytes() for path in bucket.rglob("*") if path.is_file()]
    assert all(is_sealed(body) for body in bodies if body)
    assert encrypt != any(NEEDLE.encode() in body for body in bodies)
    local, mirrored = records_in(tmp_path / "two" / ".memory"), records_in(bucket)
    assert local == {key: KEYS.open(key, body) for key, body in mirrored.items()}


def test_without_a_key_the_mirror_holds_the_records_themselves(tmp_path: Path, bucket: Path) -> None:
    """Byte for byte."""
    directory = signed_world(tmp_path / "one", bucket, "")

    assert records_in(directory) == records_in(bucket)


@pytest.mark.parametrize("encrypt", ["false", "true"])
def test_a_cold_start_uses_the_pack_and_survives_its_damage(tmp_path: Path, bucket: Path, encrypt: str) -> None:
    """The pack is sealed like a record; a damaged one is told, and costs a request for each record instead."""
    text = workflow(bucket, f", key: env:DESK_KEY, encrypt: {encrypt}")
    count = FEWEST_RECORDS + 10
    with opened(tmp_path / "one", text) as memory:
        save(memory, *[f"key-{number}" for number in range(count)])
        memory.sync.push(120)
    parts = sorted((bucket / ".state/pack").glob("*.part"))
    assert parts and all(is_sealed(path.read_bytes()) for path in (*parts, bucket / INDEX))
    counting = CountingMirror(DirectoryMirror(bucket))
    with opened(tmp_path / "two", text, mirror=counting) as memory:
        assert count == len(entries_of(memory))
    asked = counting.calls["get"]
    body = bytearray(parts[0].read_bytes())
    body[-1] ^= 1
    parts[0].write_bytes(bytes(body))
    with opened(tmp_path / "three", text) as memory:
        assert count == len(entries_of(memory))
        assert [f".state/pack/{parts[0].name}"] == list(memory.sync.status().refused)

    assert asked < 20


def test_a_bucket_that_was_not_signed_is_refused_until_it_is(tmp_path: Path, bucket: Path) -> None:
    """With a key, every unsigned object is named, also those this machine put itself; signing makes all well."""
    signed_world(tmp_path / "one", bucket, "")
    with opened(tmp_path / "two", workflow(bucket, "")) as memory:
        assert {"a", "b", "c"} == set(entries_of(memory))
    unsigned = records_in(bucket)
    with opened(tmp_path / "one", workflow(bucket)) as memory:
        memory.manager.append("notes-1", "- later\n")
        report = memory.sync.pull(60)
        assert set(unsigned) == set(report.refused) == set(report.pending)
    path = tmp_path / "one" / "workflow.yaml"
    done = keeper_of(Workflow.load(path)).rekey()
    assert (len(unsigned), {}, {}) == (done.signed, done.refused, done.failed)
    for name in ("one", "two"):
        with opened(tmp_path / name, workflow(bucket)) as memory:
            report = memory.sync.pull(60)
            assert ({}, ()) == (dict(report.refused), report.pending)
            assert memory.manager.read("notes-1").endswith("- later\n")
            assert {"a", "b", "c"} == set(entries_of(memory))

    assert all(is_sealed(body) for body in records_in(bucket).values())


def test_what_was_slipped_in_is_not_signed_with_the_rest(tmp_path: Path, bucket: Path) -> None:
    """In a signed bucket only what is known here is signed, also after the key was replaced; the rest if accepted."""
    directory = signed_world(tmp_path / "one", bucket, ", key: env:DESK_KEY")
    forged = forged_body(bucket, bucket / "notes-1.json")
    (bucket / "notes-1.json").write_bytes(forged)
    (bucket / "plan-1.json").write_bytes((directory / "plan-1.json").read_bytes())
    path = Workflow.load(tmp_path / "one" / "workflow.yaml")
    first = keeper_of(path).rekey()
    second = keeper_of(path).rekey(accept_unsigned=True)

    assert (1, ["notes-1.json"]) == (first.signed, list(first.refused))
    assert (1, {}) == (second.signed, second.refused)
    assert forged == KEYS.open("notes-1.json", (bucket / "notes-1.json").read_bytes())


def test_nothing_is_signed_while_it_cannot_be_read_whether_the_bucket_was_signed(tmp_path: Path, bucket: Path) -> None:
    """Somebody replaced all of it by records that are not signed: it looked like one that never was."""
    signed_world(tmp_path / "one", bucket, "")
    declared = Workflow.load(write_workflow(tmp_path / "one", workflow(bucket)))
    keeper_of(declared).rekey()
    for key, body in records_in(bucket).items():
        (bucket / key).write_bytes(KEYS.open(key, body).replace(b"notes", b"NOTES"))
    note = tmp_path / "one" / ".memory" / ".state" / "signing"
    body = note.read_bytes()
    note.unlink()
    note.mkdir()
    with pytest.raises(MemfilesError, match="signing"):
        keeper_of(declared).rekey()
    note.rmdir()
    note.write_bytes(body)

    assert not any(map(is_sealed, records_in(bucket).values()))
    assert ["notes-1.json"] == [*keeper_of(declared).rekey().refused]  # the others are as this machine has them


class Killed(BaseException):
    """The process ends here."""


def _killed(done: int, total: int) -> None:
    raise Killed


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("is_killed", [False, True])
def test_another_bucket_is_signed_by_what_is_in_it(
    tmp_path: Path, bucket: Path, is_killed: bool, is_signed: bool
) -> None:
    """Whether the signing of an earlier bucket was finished or killed says nothing of the next one."""
    signed_world(tmp_path / "one", bucket, "")
    first = Workflow.load(write_workflow(tmp_path / "one", workflow(bucket)))
    with suppress(Killed):
        keeper_of(first).rekey(progress=_killed if is_killed else None)
    other = tmp_path / "other"
    other.mkdir()
    (other / "unsigned.json").write_bytes(b"{}")
    if is_signed:
        (other / "notes-1.json").write_bytes(KEYS.seal("notes-1.json", b"{}", encrypt=False))
    report = keeper_of(Workflow.load(write_workflow(tmp_path / "one", workflow(other)))).rekey()

    assert ((0, ["unsigned.json"]) if is_signed else (1, [])) == (report.signed, list(report.refused))


def test_a_key_is_replaced_while_machines_work(tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old, then both, then new alone: no record is pushed again and nothing is refused on the way."""
    monkeypatch.setenv("DESK_KEY", OLD)
    signed_world(tmp_path / "one", bucket, ", key: env:DESK_KEY")
    count = len(records_in(bucket))
    monkeypatch.setenv("DESK_KEY", f"{NEW},{OLD}")
    with opened(tmp_path / "one", workflow(bucket)) as memory:
        memory.manager.append("plan-1", "- by the new key\n")
        assert memory.sync.flush(60)
        done = keeper_of(memory.workflow).rekey()
        memory.manager.append("notes-1", "- after it\n")
        assert memory.sync.flush(60)
    monkeypatch.setenv("DESK_KEY", NEW)
    counting = CountingMirror(DirectoryMirror(bucket))
    with opened(tmp_path / "one", workflow(bucket), mirror=counting) as memory:
        assert {} == memory.sync.pull(60).refused

    assert (count - 1, 1, {}) == (done.resealed, done.current, done.refused)
    assert [] == counting.puts
    assert records_in(tmp_path / "one" / ".memory") == {
        key: KEYS.open(key, body) for key, body in records_in(bucket).items()
    }


def test_two_machines_replace_a_key_step_by_step(tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each edits a line of its own, the late one before it has the key of the step: nothing is lost or conflicts."""
    text, both = workflow(bucket), f"{NEW},{OLD}"
    steps = [(OLD, OLD), (f"{OLD},{NEW}", OLD), (both, f"{OLD},{NEW}"), (both, both), (NEW, both), (NEW, NEW)]
    for number, (key, late_key) in enumerate(steps):
        monkeypatch.delenv("DESK_KEY")
        with opened(tmp_path / "late", text) as memory:
            content = memory.manager.read("notes-1")
            memory.manager.edit("notes-1", content, content.partition("\nlate")[0].rstrip() + f"\n\nlate {number}\n")
        monkeypatch.setenv("DESK_KEY", key)
        with opened(tmp_path / "one", text) as memory:
            content = memory.manager.read("notes-1")
            memory.manager.edit("notes-1", content.splitlines()[0], f"# one {number}")
            assert memory.sync.flush(60)
            if number == 3:
                assert {} == keeper_of(memory.workflow).rekey().refused
        monkeypatch.setenv("DESK_KEY", late_key)
        with opened(tmp_path / "late", text) as memory:
            assert memory.sync.flush(60)
            assert ((), {}) == (memory.sync.status().conflicts, memory.sync.status().refused)
            assert f"# one {number}\n\nlate {number}\n" == memory.manager.read("notes-1")
        monkeypatch.setenv("DESK_KEY", key)
        with opened(tmp_path / "one", text) as memory:
            assert {} == memory.sync.pull(60).refused
            assert f"# one {number}\n\nlate {number}\n" == memory.manager.read("notes-1")


def test_only_a_key_that_was_taken_away_costs_a_read(
    tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One read before a put, and once; with the keys of the last time, in another order or one more, none."""
    third = secrets.token_hex(32)
    steps = {f"{OLD},{NEW}": 0, f"{NEW},{OLD}": 0, f"{OLD},{NEW},{third}": 0, f"{third},{OLD}": 1, f"{OLD},{third}": 0}
    monkeypatch.setenv("DESK_KEY", OLD)
    signed_world(tmp_path / "one", bucket, ", key: env:DESK_KEY")
    reads = []
    for keys in steps:
        monkeypatch.setenv("DESK_KEY", keys)
        with opened(
            tmp_path / "one", workflow(bucket), mirror=(counting := CountingMirror(DirectoryMirror(bucket)))
        ) as memory:
            memory.manager.append("notes-1", "- more\n")
            assert memory.sync.flush(60)
        assert ["notes-1.json"] == counting.puts
        reads.append(counting.calls["get"])

    assert [*steps.values()] == reads


def test_a_machine_without_the_key_leaves_sealed_objects_alone(tmp_path: Path, bucket: Path) -> None:
    """It is told, and goes on with what it has; what it had from before is not put over them."""
    signed_world(tmp_path / "one", bucket, ", key: env:DESK_KEY")
    sealed = records_in(bucket)
    with opened(tmp_path / "two", workflow(bucket, "")) as memory:
        memory.manager.append("notes-1", "- here\n")
        report = memory.sync.pull(60)
        assert set(sealed) == set(report.refused)
        assert "set memory.mirror.key" in report.refused["notes-1.json"]
        assert "# Notes\n- here\n" == memory.manager.read("notes-1")

    assert sealed == records_in(bucket)


def test_a_missing_key_costs_nothing_but_the_mirror(
    tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory works, nothing is put unsigned, the reason is told; with the key again, everything is pushed."""
    monkeypatch.delenv("DESK_KEY")
    with opened(tmp_path / "one", workflow(bucket)) as memory:
        memory.manager.append("notes-1", "- here\n")
        assert not memory.sync.flush(3600)  # gives up at once: asking again does not help
        status = memory.sync.status()
        assert (2, True) == (status.pending, "DESK_KEY is not set" in (status.last_error or ""))
        with pytest.raises(MirrorRefused, match="DESK_KEY is not set"):
            keeper_of(memory.workflow).rekey()
        assert "memory.mirror.key: the environment variable DESK_KEY is not set" in (
            keeper_of(memory.workflow).problem or ""
        )
    assert {} == records_in(bucket)
    monkeypatch.setenv("DESK_KEY", NEW)
    with opened(tmp_path / "one", workflow(bucket)) as memory:
        assert memory.sync.flush(60)
        assert keeper_of(memory.workflow).problem is None
    assert set(FILES) == set(records_in(bucket))


def test_a_damaged_object_that_is_deleted_or_put_back_is_well_again(tmp_path: Path, bucket: Path) -> None:
    """What was deleted is pushed again; what is genuine again is no longer named."""
    signed_world(tmp_path / "one", bucket, ", key: env:DESK_KEY")
    genuine = (bucket / "plan-1.json").read_bytes()
    with opened(tmp_path / "one", workflow(bucket)) as memory:
        for name in FILES:
            (bucket / name).write_bytes(b"damaged")
        assert set(FILES) == set(memory.sync.pull(60).refused)
        (bucket / "notes-1.json").unlink()
        (bucket / "plan-1.json").write_bytes(genuine)
        report = memory.sync.pull(60)

    assert ({}, ()) == (dict(report.refused), report.pending)
    assert all(is_sealed((bucket / name).read_bytes()) for name in FILES)
    assert {} == status_on_disk(Workflow.load(tmp_path / "one" / "workflow.yaml")).refused


def test_the_key_is_nowhere(tmp_path: Path, bucket: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Not in a record, the ledger, the audit, the bucket, a log, a status or a report."""
    with opened(tmp_path / "one", workflow(bucket)) as memory:
        memory.manager.append("notes-1", "- here\n")
        (bucket / "plan-1.json").write_bytes(b"damaged")
        shown = [
            str(memory.sync.pull(60).to_dict()),
            str(memory.status()),
            str(memory.workflow),
            repr(vars(memory.sync)),
        ]
        shown += [str(keeper_of(memory.workflow).rekey().to_dict()), caplog.text]
    held = [path for path in tmp_path.rglob("*") if path.is_file() and NEW.encode() in path.read_bytes()]

    assert ([], []) == (held, [text for text in shown if NEW in text])


def test_a_program_s_own_mirror_is_sealed_too(tmp_path: Path, bucket: Path) -> None:
    """The declared key counts for a mirror that is given to ``open``."""
    inner = MemoryMirror()
    with opened(tmp_path / "one", workflow(bucket), mirror=inner) as memory:
        assert memory.sync.flush(60)
    stored = inner.get("notes-1.json")

    assert stored is not None and is_sealed(stored.body)


def test_a_redaction_holds_after_the_key_was_replaced(
    tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that was away since before it has only the new key: it loses the text, and keeps its change."""
    monkeypatch.setenv("DESK_KEY", OLD)
    for name in ("one", "away"):
        with opened(tmp_path / name, workflow(bucket)) as memory:
            if name == "one":
                memory.manager.append("notes-1", f"- {NEEDLE}\n")
            assert memory.sync.flush(60)
    monkeypatch.delenv("DESK_KEY")
    with opened(tmp_path / "away", workflow(bucket)) as memory:
        memory.manager.edit("notes-1", NEEDLE, f"{NEEDLE}, as of May")
    monkeypatch.setenv("DESK_KEY", f"{NEW},{OLD}")
    with opened(tmp_path / "one", workflow(bucket)) as memory:
        memory.manager.redact("notes-1", NEEDLE)
        assert memory.sync.flush(60)
        keeper_of(memory.workflow).rekey()
    monkeypatch.setenv("DESK_KEY", NEW)
    for name in ("away", "one"):
        with opened(tmp_path / name, workflow(bucket)) as memory:
            assert {} == memory.sync.pull(60).refused
            assert "# Notes\n- [redacted], as of May\n" == memory.manager.read("notes-1")

    held = [path for path in tmp_path.rglob("*") if path.is_file() and NEEDLE.encode() in path.read_bytes()]
    assert [] == held
