"""Whatever the store of a signed mirror does to an object, no record changes, and someone is told."""

from __future__ import annotations

import json
import random
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memfiles import Workflow
from memfiles.sync.mirror import BODY_MAX_BYTES
from memfiles.sync.status import status_on_disk
from mirrors import MirrorKeys
from tests.support.workflows import opened
from tests.sync.signed_mirrors import (
    FILES,
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


Tampering = Callable[[Path, random.Random], set[str]]


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
    return _written(bucket, path, forged_body(bucket, path))


def sign_with_another_key(bucket: Path, chance: random.Random) -> set[str]:
    path, keys = _one(bucket, chance), MirrorKeys.parse(OLD, source="a stranger")
    name = str(path.relative_to(bucket))
    return _written(bucket, path, keys.seal(name, forged_body(bucket, path), encrypt=chance.random() < 0.5))


def blow_up(bucket: Path, chance: random.Random) -> set[str]:
    path = _one(bucket, chance)
    with path.open("r+b") as file:
        file.truncate(BODY_MAX_BYTES + 1)
    return {str(path.relative_to(bucket))}


def slip_in(bucket: Path, chance: random.Random) -> set[str]:
    """An entry that nobody saved: another's object, copied to a name that only a new entry has."""
    path = next(path for path in _objects(bucket) if "entries" in path.parts)
    new = path.with_name(secrets.token_hex(20) + ".json")
    return _written(bucket, new, path.read_bytes() if chance.random() < 0.5 else forged_body(bucket, path))


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
