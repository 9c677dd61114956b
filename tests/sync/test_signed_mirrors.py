"""A signed mirror need not be trusted: whatever its store does to an object, no record changes, and someone is told."""

from __future__ import annotations

import json
import random
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from memfiles import Memory, Workflow
from memfiles.errors import MemfilesError, MirrorRefused
from memfiles.memory import keeper_of
from memfiles.sync.mirror import BODY_MAX_BYTES
from memfiles.sync.pack import FEWEST_RECORDS, INDEX
from memfiles.sync.status import status_on_disk
from mirrors import DirectoryMirror, MemoryMirror, MirrorKeys
from mirrors.sealed.envelope import is_sealed
from tests.support.workflows import opened, write_workflow
from tests.sync.mirrors_for_tests import CountingMirror

pytestmark = pytest.mark.slow

NEW, OLD = secrets.token_hex(32), secrets.token_hex(32)
NEEDLE = "Bob-is-on-Pro"
KEYS = MirrorKeys.parse(NEW, source="the test")
FILES = ("notes-1.json", "plan-1.json")
Tampering = Callable[[Path, random.Random], set[str]]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The key is in the environment."""
    monkeypatch.setenv("DESK_KEY", NEW)
    yield


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    """The directory that is the mirror."""
    (tmp_path / "bucket").mkdir()
    return tmp_path / "bucket"


def workflow(bucket: Path, settings: str = ", key: env:DESK_KEY") -> str:
    return f"""
        memory:
          mirror: {{url: "{bucket.as_uri()}"{settings}}}
          files:
            - {{uid: notes-1, name: notes, content: "# Notes\\n"}}
            - {{uid: plan-1, name: plan, content: "# Plan\\n"}}
          entries: {{}}
        agents: {{desk: {{memory: [{{id: notes-1, mode: rw}}, {{id: plan-1, mode: rw}}]}}}}
        """


def save(memory: Memory, *keys: str, content: str = NEEDLE) -> None:
    session = memory.session("desk", ends_run=False)
    for name in keys:
        memory.entries.save(session, name, f"{content} {name}")


def entries_of(memory: Memory) -> dict[str, str]:
    session, cursor = memory.session("desk", ends_run=False), None
    found: dict[str, str] = {}
    while cursor or not found:
        page = memory.entries.list(session, limit=100, cursor=cursor)
        found |= {each.key: each.content for each in page.memories}
        if not (cursor := page.next):
            break
    return found


def records_in(directory: Path) -> dict[str, bytes]:
    """Every record of a memory directory or of a bucket."""
    found = (path for path in directory.rglob("*.json") if ".state" not in path.parts)
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


def signed_world(folder: Path, bucket: Path, settings: str) -> Path:
    """A machine that is equal with its mirror: two files and three entries."""
    with opened(folder, workflow(bucket, settings)) as memory:
        memory.manager.append("notes-1", f"- {NEEDLE}\n")
        save(memory, "a", "b", "c")
        assert memory.sync.flush(60)
    return folder / ".memory"


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


def flip_a_bit(bucket: Path, chance: random.Random) -> set[str]:
    path = _one(bucket, chance)
    body = bytearray(path.read_bytes())
    body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
    return _written(bucket, path, bytes(body))


def truncate(bucket: Path, chance: random.Random) -> set[str]:
    path = _one(bucket, chance)
    return _written(bucket, path, path.read_bytes()[: chance.randrange(path.stat().st_size)])


def lengthen(bucket: Path, chance: random.Random) -> set[str]:
    path = _one(bucket, chance)
    return _written(bucket, path, path.read_bytes() + chance.randbytes(chance.randint(1, 40)))


def swap(bucket: Path, chance: random.Random) -> set[str]:
    one, other = chance.sample(_objects(bucket), 2)
    first, second = one.read_bytes(), other.read_bytes()
    return _written(bucket, one, second) | _written(bucket, other, first)


def replay_elsewhere(bucket: Path, chance: random.Random) -> set[str]:
    one, other = chance.sample(_objects(bucket), 2)
    return _written(bucket, other, one.read_bytes())


def forge(bucket: Path, chance: random.Random) -> set[str]:
    """An unsigned record of the same uid, newer than any: what a mirror without a key would believe."""
    path = _one(bucket, chance)
    return _written(bucket, path, _forged(bucket, path))


def sign_with_another_key(bucket: Path, chance: random.Random) -> set[str]:
    path, keys = _one(bucket, chance), MirrorKeys.parse(OLD, source="a stranger")
    name = str(path.relative_to(bucket))
    return _written(bucket, path, keys.seal(name, _forged(bucket, path), encrypt=chance.random() < 0.5))


def blow_up(bucket: Path, chance: random.Random) -> set[str]:
    path = _one(bucket, chance)
    with path.open("r+b") as file:
        file.truncate(BODY_MAX_BYTES + 1)
    return {str(path.relative_to(bucket))}


def slip_in(bucket: Path, chance: random.Random) -> set[str]:
    """An entry that nobody saved: another's object, copied to a name that only a new entry has."""
    path = next(path for path in _objects(bucket) if "entries" in path.parts)
    new = path.with_name(secrets.token_hex(20) + ".json")
    return _written(bucket, new, path.read_bytes() if chance.random() < 0.5 else _forged(bucket, path))


TAMPERINGS: list[Tampering] = [
    *(flip_a_bit, truncate, lengthen, swap, replay_elsewhere, forge, sign_with_another_key, blow_up, slip_in)
]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Machines that are equal with their buckets, by the settings of the mirror: to be copied, never used."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DESK_KEY", NEW)
        worlds = {}
        for settings in (", key: env:DESK_KEY", ", key: env:DESK_KEY, encrypt: true"):
            worlds[settings] = tmp_path_factory.mktemp("world")
            (worlds[settings] / "bucket").mkdir()
            signed_world(worlds[settings] / "one", worlds[settings] / "bucket", settings)
        yield worlds


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("tamper", TAMPERINGS, ids=lambda tamper: tamper.__name__)
def test_a_hostile_bucket_changes_nothing(
    tmp_path: Path, pristine: dict[str, Path], tamper: Tampering, seed: int
) -> None:
    """Any object altered in any way: the records of an equal machine stay, a new machine gets none of it, both tell.

    Red without the check of the MAC, without the object key in it, and without the refusal of unsigned objects.
    """
    chance = random.Random(f"{tamper.__name__} {seed}")
    settings = chance.choice(sorted(pristine))
    shutil.copytree(pristine[settings], tmp_path, dirs_exist_ok=True)
    text = workflow(tmp_path / "bucket", settings)
    genuine = records_in(tmp_path / "one" / ".memory")
    with opened(tmp_path / "one", text) as memory:  # moved to another place, so it looks at everything once
        memory.sync.push(60)
        memory.sync.pull(60)
    touched = tamper(tmp_path / "bucket", chance)
    tampered = records_in(tmp_path / "bucket")
    with opened(tmp_path / "one", text) as memory:
        memory.manager.append("plan-1", "- goes on\n")
        report = memory.sync.pull(60)
        assert touched == set(report.refused) == set(memory.sync.status().refused)
    after = records_in(tmp_path / "one" / ".memory")
    expected = {name: body for name, body in genuine.items() if name != "plan-1.json"}
    assert expected == {name: body for name, body in after.items() if name != "plan-1.json"}
    assert json.loads(after["plan-1.json"])["content"] == "# Plan\n- goes on\n"
    told = status_on_disk(Workflow.load(tmp_path / "one" / "workflow.yaml"))
    assert (touched, "plan-1.json" in touched) == (set(told.refused), bool(told.pending))
    now = records_in(tmp_path / "bucket")
    assert {name: tampered[name] for name in touched} == {name: now[name] for name in touched}, "it was overwritten"
    with opened(tmp_path / "new", text) as memory:
        assert touched == set(memory.sync.pull(60).refused)
        sound = {f"{NEEDLE} {name}" for name in ("a", "b", "c")}
        assert set(entries_of(memory).values()) <= sound
        assert 3 - len([name for name in touched if name in genuine and name not in FILES]) == len(entries_of(memory))
        assert memory.manager.read("notes-1") in (
            "# Notes\n" if "notes-1.json" in touched else f"# Notes\n- {NEEDLE}\n",
        )


def _objects(bucket: Path) -> list[Path]:
    return sorted(bucket / name for name in records_in(bucket))


def _one(bucket: Path, chance: random.Random) -> Path:
    return chance.choice(_objects(bucket))


def _forged(bucket: Path, path: Path) -> bytes:
    record = json.loads(KEYS.open(str(path.relative_to(bucket)), path.read_bytes()))
    return json.dumps(record | {"revision": record["revision"] + 5}).encode()


def _written(bucket: Path, path: Path, body: bytes) -> set[str]:
    path.write_bytes(body)
    return {str(path.relative_to(bucket))}


def test_more_refused_objects_than_prove_a_mirror_down_keep_no_other_back(tmp_path: Path, bucket: Path) -> None:
    """Forty entries are damaged and ten are not: the ten arrive on a new machine."""
    with opened(tmp_path / "one", workflow(bucket)) as memory:
        save(memory, *[f"key-{number}" for number in range(50)])
        assert memory.sync.flush(60)
    objects = [path for path in _objects(bucket) if "entries" in path.parts]
    for path in objects[:40]:
        path.write_bytes(b"damaged")
    with opened(tmp_path / "two", workflow(bucket)) as memory:
        assert (10, 40) == (len(entries_of(memory)), len(memory.sync.status().refused))


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
    forged = _forged(bucket, bucket / "notes-1.json")
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
