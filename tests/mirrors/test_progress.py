"""CountingMirror tells how far a call for many objects is, and changes nothing else."""

from __future__ import annotations

from mirrors import CountingMirror, MemoryMirror


def test_it_tells_how_far_it_is() -> None:
    """After each object, how many there are and how many there will be; other calls tell nothing."""
    told: list[tuple[int, int]] = []
    inner = MemoryMirror()
    mirror = CountingMirror(inner, lambda done, total: told.append((done, total)))
    version = mirror.put("a.json", b"1")
    before = (mirror.get("a.json"), list(mirror.list()), list(told))

    answers = dict(mirror.get_many(["a.json", "b.json"]))
    mirror.delete("a.json")

    assert (inner.get("a.json"), [("a.json", version)], []) == (None, before[1], before[2])
    assert {"a.json": before[0], "b.json": None} == answers
    assert [(1, 2), (2, 2)] == told
