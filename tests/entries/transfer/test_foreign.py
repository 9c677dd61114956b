"""What other programs export: samples made by them or after their documentation, and what is hostile among it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfiles.entries.entries import Entries
from memfiles.entries.transfer import exports
from memfiles.entries.transfer.document import Document, Skipped
from memfiles.entries.transfer.formats import Format
from memfiles.entries.transfer.sources import detect, read
from memfiles.errors import InvalidArgument
from tests.support.records import many_times
from tests.support.saved import Visitor

SAMPLES = Path(__file__).parent / "samples"
ADA_ID, DESK_ID = "cde3cc41-daff-46fb-83ad-51d40d5e3e17", "aaa3495e-9252-46ee-a00d-d5c3cc5ee72c"
FORMATS: dict[str, Format] = {
    "mem0-ada.json": "mem0",
    "basic-memory": "notes",
    "obsidian": "notes",
    "okf": "notes",
    "claude-code": "claude-code",
    "claude-account": "claude",
    "chatgpt": "chatgpt",
}


def keys(path: Path, format: Format | None = None) -> dict[str, Document]:
    return {document.key: document for document in read(path, format=format).documents}


def told(path: Path) -> list[str]:
    return [f"{skipped.where}: {skipped.why}" for skipped in read(path).skipped]


@pytest.mark.parametrize(("sample", "format"), FORMATS.items())
def test_a_sample_is_recognised_taken_once_and_once_only(
    entries: Entries, tmp_path: Path, sample: str, format: Format
) -> None:
    """A dry run counts first and changes nothing; a second import changes nothing; a zip of it is the same."""
    source, who = SAMPLES / sample, Visitor(user="ada")
    tried = entries.import_(who, source, dry_run=True)
    assert (format, 0, 0) == (detect(source), tried.updated, len(entries.list(who).memories))
    first = entries.import_(who, source, take_over=True)
    again = entries.import_(who, source)

    assert (tried.added, 0, tried.skipped) == (first.added, first.unchanged, first.skipped)
    assert (0, 0, first.added, ()) == (again.added, again.updated, again.unchanged, again.others)
    assert sorted(keys(source)) == sorted(each.key for each in entries.list(who, limit=100).memories)
    if source.is_dir():
        zipped = zip_of(tmp_path / "whole.zip", source)
        assert (format, keys(source)) == (detect(zipped), keys(zipped))


def zip_of(target: Path, folder: Path, *, around: str = "Export 2026/") -> Path:
    """A zip archive of a folder, as file managers make it: with the folder around its files."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, around + str(path.relative_to(folder)))
    return target


def test_mem0() -> None:
    """A memory is an entry under its id; its times, owner, categories and metadata come along, the rest is told."""
    found = keys(SAMPLES / "mem0-ada.json")

    assert (
        Document(
            f"mem0/{ADA_ID}",
            "Ada prefers answers in German.",
            tags=("category: preference",),
            agent="support",
            user="ada",
            created="2026-06-23T16:58:07.030Z",
            updated="2026-06-23T16:58:07.030Z",
        )
        == found[f"mem0/{ADA_ID}"]
    )
    assert (None, "ada") == (found[f"mem0/{DESK_ID}"].agent, found[f"mem0/{DESK_ID}"].user)
    assert ["mem0: fields without a place in an entry were left out: hash (3), role (3), run_id (2)"] == told(
        SAMPLES / "mem0-ada.json"
    )
    changed = keys(SAMPLES / "mem0-bob.json").popitem()[1]
    assert ("Bob is on the Team plan.", True) == (changed.content, str(changed.created) < str(changed.updated))


def test_mem0s_platform(tmp_path: Path) -> None:
    """A page of its answers, and a bare list: categories are tags, the date of expiry is kept."""
    item = {"id": "1", "memory": "x", "categories": ["food", "a" * 65, 5], "metadata": {"n": {"deep": 1}},
            "expiration_date": "2027-01-01", "created_at": "2026-01-01T00:00:00-07:00"}  # fmt: skip
    page = {"count": 2, "next": None, "previous": None, "results": [item, {"id": "2"}, 5]}
    (tmp_path / "page.json").write_text(json.dumps(page))
    (tmp_path / "list.json").write_text(json.dumps([item]))
    [found] = keys(tmp_path / "page.json").values()

    assert {"mem0/1": found} == keys(tmp_path / "list.json")
    assert (("food", "5", "n: {'deep': 1}"), "2027-01-01T00:00:00.000Z", "2026-01-01T07:00:00.000Z") == (
        found.tags, found.expires_at, found.updated
    )  # fmt: skip
    assert [
        "page.json:1: 1 of its categories and metadata cannot be tags; the rest was read",
        "page.json:2: this is not a memory: it has no text under memory",
        "page.json:3: this is not a memory: it has no text under memory",
    ] == told(tmp_path / "page.json")


def test_notes() -> None:
    """The path is the key, the text is kept whole, and links go by path, file name, title or alias."""
    assert {
        "people/Ada": (("person", "customer"), ("decisions/Refund policy",)),
        "decisions/Refund policy": ((), ("people/Ada",)),
        "log/2026/Call- Bob & Co": ((), None),
    } == {key: (it.tags, it.links) for key, it in keys(SAMPLES / "basic-memory").items()}
    for key, found in keys(SAMPLES / "basic-memory").items():
        assert (SAMPLES / "basic-memory" / f"{key}.md").read_text() == found.content
    assert {
        "People/Ada Lovelace": (("customer", "vip"), ("Refund policy",)),
        "Refund policy": ((), ("People/Ada Lovelace",)),
    } == {key: (it.tags, it.links) for key, it in keys(SAMPLES / "obsidian").items()}
    assert [".obsidian: this is not a part of the memory", "photo.png: this is not a part of the memory"] == told(
        SAMPLES / "obsidian"
    )
    assert {
        "log": ((), None),
        "tables/customers": (("BigQuery Table",), ("tables/orders",)),
        "tables/orders": (("sales", "orders", "BigQuery Table"), ("tables/customers",)),
    } == {key: (it.tags, it.links) for key, it in keys(SAMPLES / "okf").items()}


def test_notes_that_are_not_recognised_can_be_named(tmp_path: Path) -> None:
    """A folder of plain Markdown is not guessed, nor one in which a note or two lie; whoever means it says so."""
    (tmp_path / "a.md").write_text("plain")
    (tmp_path / "b.md").write_text("---\ntype: Person\n---\nx")
    (tmp_path / "c.md").write_text("---\ntags: [{a: 1}, [x], 7, '" + "t" * 99 + "']\n---\n" + "[[a]] [[A]] [[b|c]]")

    with pytest.raises(InvalidArgument, match="cannot detect .* notes"):
        detect(tmp_path)
    found = keys(tmp_path, "notes")
    assert (("a", "b"), ("7",)) == (found["c"].links, found["c"].tags)
    assert ["c.md: 3 tags and 0 links were left out: an entry takes 32 each"] == [
        f"{it.where}: {it.why}" for it in read(tmp_path, format="notes").skipped
    ]


def test_a_claude_account() -> None:
    """Memories, memory files and what the projects hold are entries; conversations and the account are counted."""
    found = keys(SAMPLES / "claude-account")

    assert {
        "claude/memory": "**Work context**\n\nAda runs the order desk at Acme.",
        "claude/people/Bob Miller.md": "# Bob\n\nPrefers phone calls.\n",
        "claude/projects/Refunds/memory": "**Purpose**\n\nTrack refunds.",
        "claude/projects/Refunds/notes.md": "- 14 days to refund\n",
        "claude/projects/Refunds/instructions": "Answer in German.",
        "claude/projects/Refunds/description": "How refunds are decided",
        "claude/projects/Refunds/policy.md": "Refund within 14 days.\n",
    } == {key: it.content for key, it in found.items()}
    assert ("2026-09-11T08:28:30.000Z", None) == (
        found["claude/people/Bob Miller.md"].updated, found["claude/projects/Refunds/notes.md"].updated
    )  # fmt: skip
    assert [
        "memories/b0000000-0000-4000-8000-000000000001.json:memory_files[2]: this memory file has no path",
        "projects/a0000000-0000-4000-8000-000000000002.json: a project that came with Claude",
        "Claude: 1 conversations, which are not memories",
        "Claude: 1 other records, such as the account's",
    ] == told(SAMPLES / "claude-account")


def test_a_claude_account_of_the_earlier_layouts(tmp_path: Path) -> None:
    """One list a file, as in February, and one archive a part, as they are downloaded since."""
    account = SAMPLES / "claude-account"
    listed = tmp_path / "listed"
    listed.mkdir()
    for part in ("memories", "projects"):
        items = [json.loads(path.read_text()) for path in sorted((account / part).iterdir())]
        (listed / f"{part}.json").write_text(json.dumps(items))
    parts = tmp_path / "parts"
    parts.mkdir()
    for part in ("memories", "projects"):
        zip_of(parts / f"{part}-000.zip", account / part, around=f"{part}/")

    assert ("claude", keys(account)) == (detect(listed), keys(listed))
    assert ("claude", keys(account)) == (detect(parts), keys(parts))
    assert "claude/memory" in keys(listed / "memories.json")


def test_chatgpt() -> None:
    """The newest instructions and list of memories count, and what was saved since, and nothing that was said."""
    found = keys(SAMPLES / "chatgpt")

    assert {
        "Lives in Lisbon.": "2025-01-01T00:00:00.000Z",
        "Prefers tea:\n- green\n- white": "2025-05-02T00:00:00.000Z",
        "Has a dog called Max.": "2026-05-28T20:26:42.000Z",
    } == {it.content: it.created for key, it in found.items() if key.startswith("chatgpt/memory/")}
    assert ("Preferred name: Ada\nRole: order desk", "Be short.\nNo emoji.") == (
        found["chatgpt/about-user"].content, found["chatgpt/instructions"].content
    )  # fmt: skip
    assert [
        "ChatGPT: 3 conversations, which are not memories",
        "ChatGPT: 1 other records, such as the account's",
        "chatgpt: 1 other files and folders of the export",
    ] == told(SAMPLES / "chatgpt")


@pytest.mark.parametrize("changed", [1, 3])
def test_what_chatgpt_saved_after_its_newest_list(tmp_path: Path, changed: int) -> None:
    """Also in the conversation that has the list, whenever that went on."""
    listed = {"create_time": 1, "content": {"model_set_context": "1. [2026-01-01]. Likes tea."}}
    saved = {"create_time": 2, "recipient": "bio", "content": {"parts": ["Likes dogs."]}}
    talk = {"update_time": changed, "mapping": {"a": {"message": listed}, "b": {"message": saved}}}
    (tmp_path / "conversations.json").write_text(json.dumps([talk]))

    assert ["Likes tea.", "Likes dogs."] == [it.content for it in read(tmp_path / "conversations.json").documents]


def test_chatgpts_list_of_memories(tmp_path: Path) -> None:
    """Where an export has one it is read; what was switched off stays off."""
    memories = [{"content": "Likes tea.", "enabled": True, "updated_at": "2026-01-01T00:00:00Z"}, "Likes dogs.",
                {"content": "Old.", "enabled": False}, {"id": 5}]  # fmt: skip
    (tmp_path / "memory.json").write_text(json.dumps(memories))
    parsed = read(tmp_path / "memory.json", format="chatgpt")

    assert ["Likes tea.", "Likes dogs."] == [it.content for it in parsed.documents]
    assert ["memory.json:3: this memory is switched off", "memory.json:4: this memory has no text"] == [
        f"{it.where}: {it.why}" for it in parsed.skipped
    ]


def test_whose_agent_it_was(entries: Entries, tmp_path: Path) -> None:
    """An import names it, refuses another's until it is told, and asks no more once all is there."""
    who = Visitor()
    for source, others in ((SAMPLES / "mem0-ada.json", ("user ada",)), (SAMPLES / "claude-code", ("agent reviewer",))):
        with pytest.raises(InvalidArgument, match=f"those of {others[0]}: pass take_over=True"):
            entries.import_(who, source)
        assert others == entries.import_(who, source, dry_run=True).others
    assert not entries.list(who).memories
    assert ("agent support", "user ada") == entries.import_(who, SAMPLES / "mem0-ada.json", take_over=True).owners
    assert () == entries.import_(who, SAMPLES / "mem0-ada.json").others


def test_what_a_user_said_is_asked_about_in_any_category(entries: Entries, tmp_path: Path) -> None:
    """Also where all agents would see it."""
    line = {"key": "k", "content": "x", "category": "workspace", "user": "ada", "agent": "other"}
    (tmp_path / "from.jsonl").write_text(json.dumps(line))

    with pytest.raises(InvalidArgument, match="those of user ada: pass take_over=True"):
        entries.import_(Visitor(), tmp_path / "from.jsonl")


@pytest.mark.parametrize("format", ["markdown", "jsonl"])
def test_whose_our_own_exports_were(entries: Entries, tmp_path: Path, format: Any) -> None:
    """Agent and user are in the export; neither another agent nor another user gets it unasked."""
    ada = Visitor(user="ada")
    entries.save(Visitor(), "shared", "by the agent")
    entries.save(Visitor(), "notes", "of the agent")
    entries.save(ada, "notes", "of ada")
    out = tmp_path / "out.jsonl"
    assert 3 == entries.export(ada, out, format=format).count

    assert ("agent support", "user ada") == entries.import_(ada, out, dry_run=True).owners
    assert (0, 0, 3, ()) == unchanged(entries.import_(ada, out))
    for other, named in (
        (Visitor(), "user ada"),
        (Visitor(user="bob"), "user ada"),
        (Visitor("sales"), "agent support"),
    ):
        with pytest.raises(InvalidArgument, match=f"those of .*{named}"):
            entries.import_(other, out)
    sales = Visitor("sales")
    taken = entries.import_(sales, out, take_over=True)
    assert (2, 1) == (taken.added, len(taken.skipped))
    assert "an entry of the same key came before it" in taken.skipped[0].why


def unchanged(imported: Any) -> tuple[Any, ...]:
    return imported.added, imported.updated, imported.unchanged, imported.skipped


def test_what_an_agent_changed_since_stays(entries: Entries, tmp_path: Path) -> None:
    """A note has no time: its next version comes in over the last one, but not over what was written here."""
    who, vault = Visitor(), tmp_path / "vault"
    vault.mkdir()
    for name in ("a", "b"):
        (vault / f"{name}.md").write_text("first")
    entries.import_(who, vault, format="notes")
    entries.update(who, "a", content="by the agent")
    for name in ("a", "b"):
        (vault / f"{name}.md").write_text("second")
    imported = entries.import_(who, vault, format="notes")

    assert {"a": "by the agent", "b": "second"} == {it.key: it.content for it in entries.list(who).memories}
    assert (0, 1, 0) == (imported.added, imported.updated, imported.unchanged)
    assert ["a.md"] == [it.where for it in imported.skipped if "and this says no time" in it.why]


def test_an_import_passes_the_gates(entries: Entries, tmp_path: Path) -> None:
    """Secrets, sizes, blank content and keys: each is told, and the rest comes in."""
    token = "AKIA" + "ABCDEFGHIJKLMNOP"  # in two parts, so that no scanner takes this file for a leak
    vault = tmp_path / "vault"
    vault.mkdir()
    texts = {"good.md": "x", "key.md": f"it is {token}", "big.md": "x" * 70_000, "a\nb.md": "x"}
    for name, text in texts.items():
        (vault / name).write_text(text)
    imported = entries.import_(Visitor(), vault, format="notes")

    assert (["good"], 3) == ([it.key for it in entries.list(Visitor()).memories], len(imported.skipped))
    assert not any(token in skipped.why or "\n" in skipped.where for skipped in imported.skipped)


DEEP = "[" * 100_000
EXPORTS: list[Format] = ["mem0", "chatgpt", "claude"]


@pytest.mark.parametrize("format", EXPORTS)
@pytest.mark.parametrize(
    "text",
    [DEEP, '{"a":' * 100_000, "", "[", "{", "[1,", '[{"mapping": {"a"', "[1 2]", "\x00", "NaN", "9" * 5000, "[]]"],
)
def test_json_that_is_none(tmp_path: Path, text: str, format: Format) -> None:
    """Deep, cut off and mistaken JSON is told in one line, and never an exception."""
    (tmp_path / "x.json").write_text(text)
    parsed = read(tmp_path / "x.json", format=format)

    assert () == parsed.documents
    assert all("\n" not in skipped.why and len(skipped.why) < 200 for skipped in parsed.skipped)
    assert parsed.skipped or text == ""


ANYTHING: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
FIELDS = (
    *("mapping", "message", "content", "content_type", "user_profile", "model_set_context", "metadata", "recipient"),
    *("parts", "create_time", "update_time", "user_context_message_data", "about_user_message", "enabled", "memories"),
    *("conversations_memory", "project_memories", "memory_files", "path", "updated_at", "uuid", "name", "docs"),
    *("prompt_template", "filename", "is_starter_project", "description", "results", "memory", "id", "categories"),
    *("user_id", "agent_id", "expiration_date", "chat_messages", "created_at"),
)
SHAPED: Any = st.recursive(
    ANYTHING | st.sampled_from(["bio", "1. [2025-01-01]. a\n2. b", "```x```", "2026-13-01", "\ud800", "a\nb", "/"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=8),
    max_leaves=25,
)


@many_times
@given(SHAPED, st.sampled_from(EXPORTS))
def test_any_shape_is_read_or_told(tmp_path_factory: pytest.TempPathFactory, value: Any, format: Format) -> None:
    """Wrong types anywhere are no exception, and what is taken can be an entry's key."""
    path = tmp_path_factory.mktemp("any") / "memory.json"
    path.write_text(json.dumps(value))
    for document in read(path, format=format).documents:
        assert document.key.isprintable()
        assert isinstance(document.content, str)


@many_times
@given(st.lists(ANYTHING, max_size=6), st.integers(1, 40), st.sampled_from([None, 1]))
def test_values_come_one_by_one(items: list[Any], chunk: int, indent: int | None) -> None:
    """However the bytes are cut, the items are those of the array."""
    data = json.dumps(items, ensure_ascii=False, indent=indent).encode(errors="replace")
    before, exports._CHUNK = exports._CHUNK, chunk
    try:
        assert json.loads(data) == list(exports.values(data, where="x"))
    finally:
        exports._CHUNK = before


@pytest.mark.slow
def test_a_large_export_is_read_one_conversation_at_a_time(tmp_path: Path) -> None:
    """40 MiB of conversations take a second or two, and only the memories in them are kept."""
    talk = {"message": {"content": {"content_type": "text", "parts": ["x" * 4000]}, "recipient": "all"}}
    told = {"message": {"content": {"model_set_context": "1. [2026-01-01]. Likes tea."}}}
    many = [{"update_time": number + 1, "mapping": {"a": talk, "b": told}} for number in range(10_000)]
    (tmp_path / "conversations.json").write_text(json.dumps(many))
    parsed = read(tmp_path / "conversations.json")

    assert ["Likes tea."] == [it.content for it in parsed.documents]
    assert (Skipped("ChatGPT", "10000 conversations, which are not memories"),) == parsed.skipped
