"""What is taken in: with all that was known of it where it came from, and never over what was hidden since."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

from memfiles.entries.budgets import Budget
from memfiles.entries.callers import view_of
from memfiles.entries.drafts import Draft, EntryRules
from memfiles.entries.entries import Entries
from memfiles.entries.reader import entry_at
from memfiles.errors import EntryNotFound, InvalidArgument, SecretRefused
from tests.support.records import SEEDED_AT
from tests.support.saved import Clock, Visitor, entries_in, files_holding

Story = Callable[[Entries], object]
TOKEN = "AKIA" + "ABCDEFGHIJKLMNOP"  # in two parts, so that no scanner takes this file for a leak


def taken_in(entries: Entries, tmp_path: Path, *lines: dict[str, Any]) -> list[str]:
    """Take these lines in; the reasons for which some were not."""
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return [skipped.why for skipped in entries.import_(Visitor(), source).skipped]


def known(entries: Entries, visitor: Visitor) -> dict[str, Any]:
    """All that is known of what is seen, but for its history and what plans did with it."""
    view = view_of(visitor, entries.rules.levels)
    seen = [place.path(each.key) for each in entries.list(visitor).memories for place in view]
    found = [
        entry for path in seen if (entry := entry_at(entries.repository, path)) is not None and entry.retired is None
    ]
    own = {"text", "reorganised"}
    times = {entry.key: (entry.content, entry.created_at, entry.updated_at) for entry in found}
    return {
        "times": times,
        **{e.key: {name: value for name, value in asdict(e).items() if name not in own} for e in found},
    }


@pytest.mark.parametrize("format", ["markdown", "jsonl"])
def test_everything_that_is_known_of_an_entry_goes_out_and_in(tmp_path: Path, clock: Clock, format: Any) -> None:
    """Its ids, its times, its facets, where it came from, of how much use it was, and what it was made of."""
    target, visitor = tmp_path / "out", Visitor(run="evt-1", thread="T=17")
    with entries_in(tmp_path / "one", rules=EntryRules(budget=Budget(max_entries=6)), now=clock) as entries:
        said = Draft("a", "x", ["t"], "core", "procedure", 0.25, 0.75, True, ["b"], 5000, source="notes")
        entries.save_many(visitor, [said])
        entries.update(visitor, "a", outcome="success")
        entries.update(visitor, "a", outcome="failure")
        clock.go_on(60)
        entries.update(visitor, "a", content="y")
        for number in range(4):
            entries.save(visitor, f"day/{number}", f"It came up on day {number}. " * 9, kind="episode")
        entries.apply(visitor, entries.plan(visitor, share=0.4))
        entries.export(visitor, target, format=format)
        before = known(entries, visitor)
    clock.go_on(600)
    with entries_in(tmp_path / "two", now=clock) as entries:
        entries.import_(visitor, target, format=format)
        after = known(entries, visitor)

        assert 3 == len(before)
        assert before == after
        assert (2, 0) == (
            (again := entries.import_(visitor, target, format=format, dry_run=True)).unchanged,
            again.updated,
        )


def test_what_was_hidden_since_stays_hidden(entries: Entries, tmp_path: Path, clock: Clock) -> None:
    """What was written before it was deleted or evicted does not bring it back; what is newer does."""
    entries.save(Visitor(), "gone", "x")
    target = tmp_path / "out.jsonl"
    entries.export(Visitor(), target, format="jsonl")
    clock.go_on(60)
    entries.delete(Visitor(), "gone")
    clock.go_on(60)
    (skipped,) = entries.import_(Visitor(), target).skipped

    assert "it was deleted here at 2026-11-21T09:01:00.000Z" in skipped.why
    assert entries.get(Visitor(), "gone") is None
    assert [] == taken_in(entries, tmp_path, {"key": "gone", "content": "y", "updated": clock()})
    assert entries.get(Visitor(), "gone") is not None


def test_what_expired_before_it_came_is_told(entries: Entries, tmp_path: Path) -> None:
    """Nobody would ever see it."""
    old = "2001-01-01T00:00:00.000Z"
    reasons = taken_in(
        entries,
        tmp_path,
        {"key": "a", "content": "x", "expires_at": old},
        {"key": "b", "content": "x", "category": "daily", "updated": old},
    )

    assert ["it expired at 2001-01-01T00:00:00.000Z", "it expired at 2001-01-04T00:00:00.000Z"] == reasons


@pytest.mark.parametrize(
    "line",
    [
        {"provenance": ["run"]},
        {"provenance": ["colour=blue"]},
        {"provenance": ["run=a", "run=b"]},
        {"provenance": ["ordinal=-1"]},
        {"provenance": ["run=a\nb"]},
        {"provenance": [7]},
        {"made_of": ["x"]},
        {"made_of": ["a" * 40] * 300},
    ],
)
def test_an_origin_that_cannot_be_is_told(entries: Entries, tmp_path: Path, line: dict[str, Any]) -> None:
    """Nothing is stored that could not be read again."""
    (reason,) = taken_in(entries, tmp_path, {"key": "a", "content": "x", **line})

    assert reason.startswith(f"{next(iter(line))} must be a list of")


WAYS: dict[str, Callable[[Entries, str], object]] = {
    "save": lambda entries, category: entries.save(Visitor(), "b", "x", category=category),
    "save_many": lambda entries, category: entries.save_many(Visitor(), [Draft("b", "x", category=category)]),
    "update": lambda entries, category: entries.update(Visitor(), "a", category=category),
    "search": lambda entries, category: entries.search(Visitor(), "x", category=category),
    "list": lambda entries, category: entries.list(Visitor(), category=category),
    "forget": lambda entries, category: entries.forget(Visitor(), category=category),
}


def test_a_url_is_no_place_for_an_export(entries: Entries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be a folder "s3:" here, under the name of a bucket."""
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    for target in ("s3://bucket/all.zip", "https://user:pass@host/all", Path("s3://bucket/all"), "s3:/all"):
        with pytest.raises(InvalidArgument, match=r"is a URL \((s3|https)://\), not a path: export to a") as refused:
            entries.export(Visitor(), target)
        assert "pass" not in str(refused.value)

    assert before == sorted(tmp_path.iterdir())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("category", ["two words", "x" * 65, "../up", "ключ", "a\nb"])
def test_one_rule_says_what_a_category_can_be(entries: Entries, tmp_path: Path, way: str, category: str) -> None:
    """Wherever it is named."""
    entries.save(Visitor(), "a", "x")

    with pytest.raises(InvalidArgument, match="category"):
        WAYS[way](entries, category)
    assert ["category"] == [
        why[:8] for why in taken_in(entries, tmp_path, {"key": "b", "content": "x", "category": category})
    ]
    assert "x" == getattr(entries.get(Visitor(), "a"), "content", None)


@pytest.mark.parametrize("name", ["key", "category", "tags", "links", "source", "provenance"])
def test_a_credential_is_kept_out_of_every_field(entries: Entries, tmp_path: Path, name: str) -> None:
    """It would stand in names, in the audit log's neighbours and in every mirror."""
    value: Any = [TOKEN] if name in ("tags", "links") else [f"run={TOKEN}"] if name == "provenance" else TOKEN
    said = {"key": "a", "content": "x", name: value}

    if name != "provenance":
        with pytest.raises(SecretRefused):
            entries.save_many(Visitor(), [said])
    if name != "source":
        (reason,) = taken_in(entries, tmp_path, said)
        assert "credential" in reason
        assert TOKEN not in reason
    assert () == entries.list(Visitor()).memories


RESAVED: list[Story] = [
    lambda entries: entries.forget(Visitor(), key="a"),
    lambda entries: entries.save(Visitor(), "a", "new"),
    lambda entries: entries.relocate(Visitor(), {"a": "b"}),
]
RENAMED: list[Story] = [
    lambda entries: entries.relocate(Visitor(), {"a": "b"}),
    lambda entries: entries.save(Visitor(), "a", "new"),
    lambda entries: entries.relocate(Visitor(), {"a": "c"}),
    lambda entries: entries.forget(Visitor(), key="b"),
]
JOINED: list[Story] = [
    lambda entries: entries.delete(Visitor(), "z"),
    lambda entries: entries.relocate(Visitor(), {"a": "z"}),
    lambda entries: entries.forget(Visitor(), key="z"),
    lambda entries: entries.save(Visitor(), "a", "new"),
    lambda entries: entries.relocate(Visitor(), {"a": "b"}),
]


@pytest.mark.parametrize("format", ["markdown", "jsonl"])
@pytest.mark.parametrize("story", [RESAVED, RENAMED, RESAVED[:2], JOINED], ids=["resaved", "renamed", "kept", "joined"])
def test_what_was_forgotten_stays_so_whatever_its_key_is_used_for(
    tmp_path: Path, story: list[Story], format: Any
) -> None:
    """It is known by its ids, and not only by what stands at its key."""
    target = tmp_path / "out"
    with entries_in(tmp_path / "memory") as entries:
        entries.save(Visitor(), "a", "xylophone")
        entries.save(Visitor(), "z", "xylophone")
        entries.export(Visitor(), target, format=format)
        for step in story:
            step(entries)
        before = {found.key: found.content for found in entries.list(Visitor()).memories}
        trial = entries.import_(Visitor(), target, format=format, dry_run=True)
        imported = entries.import_(Visitor(), target, format=format)

        assert before == {found.key: found.content for found in entries.list(Visitor()).memories}
        assert (0, 0) == (imported.added, imported.updated) == (trial.added, trial.updated)
        assert all(skipped.why.startswith("the entry of its key was forgotten at 20") for skipped in imported.skipped)
        assert imported.skipped == trial.skipped != ()
    assert story is not JOINED or [] == files_holding(tmp_path / "memory", "xylophone")


def test_what_was_joined_is_forgotten_by_each_of_its_ids(tmp_path: Path) -> None:
    """An export from after the join names the earlier ids as aliases."""
    with entries_in(tmp_path / "one") as entries:
        for key in ("a", "z"):
            entries.save(Visitor(), key, f"content of {key}")
        ids = [found.id for found in entries.list(Visitor()).memories]
        entries.delete(Visitor(), "z")
        entries.relocate(Visitor(), {"a": "z"})
        entries.export(Visitor(), tmp_path / "out.jsonl", format="jsonl")
    (line,) = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    with entries_in(tmp_path / "two") as entries:
        assert [] == taken_in(entries, tmp_path, {"key": "old", "content": "x", "id": max(ids)})
        entries.forget(Visitor(), key="old")
        (reason,) = taken_in(entries, tmp_path, line)

    assert sorted(ids) == [line["id"], *line["aliases"]]
    assert reason.startswith("the entry of its key was forgotten at")


def test_an_export_of_an_earlier_version_is_read(tmp_path: Path, clock: Clock) -> None:
    """It has no ids: what is there is unchanged by it, and a new entry gets an id of its own."""
    with entries_in(tmp_path / "one", now=clock) as entries:
        entries.save(Visitor(), "a", "x")
        entries.export(Visitor(), tmp_path / "out.jsonl", format="jsonl")
        line = json.loads((tmp_path / "out.jsonl").read_text())
        id = line.pop("id")
        assert [] == taken_in(entries, tmp_path, line)
        assert [(id, 1)] == [(found.id, found.revision) for found in entries.list(Visitor()).memories]
    with entries_in(tmp_path / "two", now=clock) as entries:
        assert [] == taken_in(entries, tmp_path, line)
        (found,) = entries.list(Visitor()).memories
        assert 1 == entries.import_(Visitor(), tmp_path / "out.jsonl").unchanged

        assert found == entries.list(Visitor()).memories[0]
        assert id != found.id


ID, OTHER = "0" * 31 + "1", "0" * 31 + "2"


@pytest.mark.parametrize(
    "line",
    [
        {"id": 7},
        {"id": ["x"]},
        {"id": ""},
        {"id": "../../../etc/passwd"},
        {"id": ID.replace("0", "A")},
        {"id": ID + "\n"},
        {"id": ID[1:]},
        {"id": "\u0661" * 32},
        {"aliases": ID},
        {"aliases": [7]},
        {"aliases": {"x": 1}},
        {"aliases": [ID, "x" * 32]},
        {"aliases": [f"{number:032x}" for number in range(5000)]},
        {"aliases": [ID] * 65},
    ],
)
def test_an_id_that_cannot_be_is_told(entries: Entries, tmp_path: Path, line: dict[str, Any]) -> None:
    """Nothing is stored that could not be read again, and no path is made of it."""
    reasons = taken_in(entries, tmp_path, {"key": "a", "content": "x", **line}, {"key": "b", "content": "x", "id": ID})
    expected = {
        "id": "id must be the id of an entry: 32 or 40 digits from 0 to f",
        "aliases": "aliases must be a list of at most 64 ids of entries",
    }

    assert [expected[next(iter(line))]] == reasons
    assert [("b", ID)] == [(found.key, found.id) for found in entries.list(Visitor()).memories]


@pytest.mark.parametrize(
    ("line", "ids"),
    [
        ({"id": OTHER, "aliases": [ID]}, (ID, OTHER)),
        ({"id": ID, "aliases": [OTHER, ID, OTHER]}, (ID, OTHER)),
        ({"aliases": [OTHER]}, (OTHER,)),
        ({"id": ID + "0" * 8, "aliases": []}, (ID + "0" * 8,)),
        (
            {"id": ID, "aliases": [f"{number:032x}" for number in range(2, 66)]},
            tuple(f"{n:032x}" for n in range(1, 66)),
        ),
    ],
)
def test_ids_in_any_order_are_kept_as_records_have_them(tmp_path: Path, line: dict[str, Any], ids: object) -> None:
    """A record that is read again has the same ones."""
    with entries_in(tmp_path / "memory") as entries:
        assert [] == taken_in(entries, tmp_path, {"key": "a", "content": "x", **line})
    with entries_in(tmp_path / "memory") as entries:
        (place,) = [place for place in view_of(Visitor(), entries.rules.levels) if place.folder == "support"][:1]

        assert ids == getattr(entry_at(entries.repository, place.path("a")), "ids", None)
        assert not (tmp_path / "memory" / "quarantine").exists()


def test_an_entry_that_is_here_under_another_key_keeps_its_id_alone(entries: Entries, tmp_path: Path) -> None:
    """Also if it is hidden, or in the same file: two entries with one id would be taken for one."""
    entries.save(Visitor(), "a", "x")
    entries.save(Visitor(), "hidden", "x")
    entries.export(Visitor(), tmp_path / "out.jsonl", format="jsonl")
    a, hidden = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    entries.relocate(Visitor(), {"a": "b"})
    entries.delete(Visitor(), "hidden")
    new = {"key": "1", "content": "x", "id": OTHER}
    lines = [a, hidden | {"key": "other"}, new, new | {"key": "2"}, new | {"key": "3", "id": ID, "aliases": [OTHER]}]
    assert [] == taken_in(entries, tmp_path, *lines)
    ids = {found.key: found.id for found in entries.list(Visitor()).memories}

    assert (a["id"], OTHER) == (ids["b"], ids["1"])
    assert {"1", "2", "3", "a", "b", "other"} == ids.keys()
    assert 7 == len({*ids.values(), hidden["id"]})
    assert ID not in ids.values()


def test_a_copy_for_another_agent_or_one_run_is_another_entry(tmp_path: Path) -> None:
    """What one of them does with it would be done to the other's; what all agents share is one entry for all."""
    with entries_in(tmp_path / "one") as entries:
        entries.save(Visitor(), "own", "x")
        entries.save(Visitor(), "shared", "x", category="workspace")
        entries.export(Visitor(), tmp_path / "out.jsonl", format="jsonl")
        ids = {found.key: found.id for found in entries.list(Visitor()).memories}
    with entries_in(tmp_path / "two") as entries:
        entries.import_(Visitor("sales"), tmp_path / "out.jsonl", take_over=True)
        taken_in(entries, tmp_path, {"key": "a", "content": "x", "id": ID})
        run = Visitor(run="evt-1")
        line = {"key": "b", "content": "x", "id": OTHER, "category": "conversation"}
        (tmp_path / "in.jsonl").write_text(json.dumps(line))
        entries.import_(run, tmp_path / "in.jsonl")
        found = {it.key: it.id for who in (Visitor("sales"), run) for it in entries.list(who).memories}

    assert {"own", "shared", "a", "b"} == found.keys()
    assert (ids["shared"], ID) == (found["shared"], found["a"])
    assert {ids["own"], OTHER}.isdisjoint(found.values())


def test_what_is_forgotten_while_it_is_taken_in_is_not_written(tmp_path: Path) -> None:
    """Another process imports the same and forgets it, after this one looked and before it writes."""
    memory, line, ticks = tmp_path / "memory", {"key": "a", "content": "xylophone", "id": ID}, list[str]()

    def clock() -> str:
        if ticks and ticks.pop() == "commit":
            assert [] == taken_in(other, tmp_path, line | {"key": "b"})
            assert ("b",) == other.forget(Visitor(), key="b").keys
        return SEEDED_AT

    with entries_in(memory) as other, entries_in(memory, now=clock) as entries:
        ticks += ["commit", "look"]  # an import asks for the time when it looks, and again when it writes
        with pytest.raises(EntryNotFound, match="'a' was forgotten meanwhile: import again"):
            taken_in(entries, tmp_path, line)
        (reason,) = taken_in(entries, tmp_path, line)

    assert reason.startswith("the entry of its key was forgotten at")
    assert [] == files_holding(memory, "xylophone")


def test_more_ids_than_an_entry_may_have_are_not_joined(tmp_path: Path) -> None:
    """An entry with all the aliases there can be is not made one with another: nobody could read it again."""
    with entries_in(tmp_path / "memory") as entries:
        many = [f"{number:032x}" for number in range(2, 66)]
        taken_in(entries, tmp_path, {"key": "many", "content": "x", "id": ID, "aliases": many})
        entries.save(Visitor(), "a", "y")
        entries.delete(Visitor(), "many")
        with pytest.raises(InvalidArgument, match="more than 64 entries were joined with 'many'"):
            entries.relocate(Visitor(), {"a": "many"})

        assert ["a"] == [found.key for found in entries.list(Visitor()).memories]
    with entries_in(tmp_path / "memory") as entries:
        assert "x" == getattr(entries.restore(Visitor(), "many") and entries.get(Visitor(), "many"), "content", None)


def test_what_has_no_time_of_its_own_comes_in_at_one_time(tmp_path: Path) -> None:
    """A tick of the clock in the middle tells no entries apart: the order of a prompt would depend on it."""
    ticks = count(1)
    with entries_in(tmp_path / "memory", now=lambda: f"2026-11-23T10:00:00.{next(ticks):03}Z") as entries:
        taken_in(entries, tmp_path, *({"key": key, "content": f"{key} opens"} for key in ("bob", "ada", "zoe")))
        times = {found.updated_at for found in entries.list(Visitor()).memories}

    assert 1 == len(times)
