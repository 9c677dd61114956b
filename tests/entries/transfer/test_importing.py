"""Other programs' memories: what becomes of each file, and that no folder can harm its reader."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from memfiles.entries.transfer import exports, folders, formats
from memfiles.entries.transfer.document import FILE_MAX_BYTES, Document, Parsed, Skipped
from memfiles.entries.transfer.folders import Folder, SourceFile, limit_reports
from memfiles.entries.transfer.formats import FORMATS, Format
from memfiles.entries.transfer.sources import detect, read
from memfiles.errors import InvalidArgument

BAD_KEY = "its key is invalid: use 1 to 255 bytes, not blank and without control characters"


def lay(root: Path, files: dict[str, str]) -> Path:
    """Write these files, with their folders."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, newline="")
    return root


def everything(path: str, is_folder: bool) -> bool:
    return True


def test_a_memory_directory(tmp_path: Path) -> None:
    """Every text file is an entry: its key is the path from ``/memories`` on, its content the text, exactly."""
    lay(tmp_path, {"memories/notes.txt": "a\r\n", "memories/team/prefs.md": "---\nx: 1\n---\n", "memories/.git/x": ""})
    (tmp_path / "memories" / "logo.png").write_bytes(b"\x89PNG\x00")

    expected = Parsed(
        (Document("notes.txt", "a\r\n"), Document("team/prefs.md", "---\nx: 1\n---\n")),
        (
            Skipped(".git", "this is not a part of the memory"),
            Skipped("logo.png", "this is not UTF-8 text: byte 0 cannot be read"),
        ),
    )
    assert expected == read(tmp_path) == read(tmp_path / "memories")


GRAPH = """\
{"type":"entity","name":"Alice","entityType":"person","observations":["Works at Acme","Prefers email"]}
{"type":"entity","name":"Bob","entityType":"person","observations":["Lives in Haifa",null]}
{"type":"entity","name":"Project X"}
{"type":"relation","from":"Alice","to":"Bob","relationType":"manages"}
{"type":"relation","from":"Alice","to":"Project X","relationType":"leads"}
{"type":"relation","from":"Nobody","to":"Bob","relationType":"knows"}
{"type":"relation","from":"Alice","to":"Bob"}
{"type":"entity","name":"Alice","entityType":"person","observations":["Twice"]}
{"type":"entity","name":"Trunc
{"type":"note","text":"unknown"}
{"type":"entity","observations":[]}
{"type":"entity","name":"Odd","observations":"text"}
{"type":"entity","name":"a\\nb","observations":[]}
42
"""


@pytest.mark.parametrize("name", ["memory.jsonl", "memory.json"])
def test_the_memory_server(tmp_path: Path, name: str) -> None:
    """An entity is an entry with an observation a line, then its relations, which are links as well."""
    lay(tmp_path, {name: GRAPH})

    assert Parsed(
        (
            Document("Alice", "Works at Acme\nPrefers email\nmanages: Bob\nleads: Project X", tags=("person",),
                     links=("Bob", "Project X")),
            Document("Bob", "Lives in Haifa", tags=("person",)),
            Document("Project X", ""),
        ),
        (
            Skipped(f"{name}:2", "1 of the observations of this entity are not text; the rest was read"),
            Skipped(f"{name}:7", "a relation needs from, to and relationType, all of them text"),
            Skipped(f"{name}:8", f"an entry with the same key came before it, at {name}:1"),
            Skipped(f"{name}:9:25", "this is not JSON: Unterminated string starting at"),
            Skipped(f"{name}:10", "this is neither an entity nor a relation"),
            Skipped(f"{name}:11", "this entity has no name"),
            Skipped(f"{name}:12", "the observations of an entity must be a list of texts"),
            Skipped(f"{name}:13", BAD_KEY),
            Skipped(f"{name}:14", "this line is not an object"),
            Skipped(f"{name}:6", "this relation starts from no entity in the file"),
        ),
    ) == read(tmp_path / name)  # fmt: skip


def test_the_memory_servers_folder(tmp_path: Path) -> None:
    """The folder with ``memory.jsonl`` is as good as the file."""
    lay(tmp_path, {"memory.jsonl": GRAPH})

    assert read(tmp_path / "memory.jsonl") == read(tmp_path)


TOPIC = """\
---
name: api-conventions
description: How errors are returned
metadata:
  type: project
---

Errors are JSON. See [[deploy-steps]] and [[deploy-steps|the steps]].
"""
CLAUDE_CODE = {
    "MEMORY.md": "# Memory\n\n- [API](api.md) - how errors are returned\n- [Old](old.md): old\n",
    "api.md": TOPIC,
    "old.md": "---\ntype: user\ndescription: Fix: use tabs\nname: old\n---\nFix: use tabs, always.\n",
    "plain.md": "just text\n",
    "notes.txt": "not read",
}
API = Document("api-conventions", "How errors are returned\n\nErrors are JSON. See [[deploy-steps]] and "
               "[[deploy-steps|the steps]].", tags=("project",), links=("deploy-steps",))  # fmt: skip


def test_a_claude_code_memory(tmp_path: Path) -> None:
    """A topic is an entry under its name; frontmatter that is no YAML is read line by line; an index is no entry."""
    lay(tmp_path, CLAUDE_CODE)

    assert Parsed(
        (API, Document("old", "Fix: use tabs, always.", tags=("user",)), Document("plain", "just text")),
        (
            Skipped("MEMORY.md", "an index of topic files, which are imported themselves"),
            Skipped("notes.txt", "this is not a part of the memory"),
        ),
    ) == read(tmp_path)


def test_an_index_that_says_more_is_kept(tmp_path: Path) -> None:
    """A ``MEMORY.md`` that holds anything but pointers to files that are there is an entry as it is."""
    text = "- [API](api.md)\n- [Gone](gone.md)\n"
    lay(tmp_path, {"MEMORY.md": text, "api.md": TOPIC})

    assert (Document("MEMORY.md", text), API) == read(tmp_path).documents


def test_claude_codes_own_folder(tmp_path: Path) -> None:
    """Memories of several projects keep their project in the key; sessions and settings are not read."""
    lay(
        tmp_path,
        {
            "CLAUDE.md": "be kind\n",
            "settings.json": "{}",
            "projects/-home-a/memory/api.md": TOPIC,
            "projects/-home-b/memory/api.md": TOPIC,
            "projects/-home-b/2f.jsonl": "{}",
            "plugins/x/README.md": "",
        },
    )
    parsed = read(tmp_path)

    assert ["CLAUDE.md", "-home-a/api-conventions", "-home-b/api-conventions"] == [it.key for it in parsed.documents]
    assert ["plugins", "projects/-home-b/2f.jsonl", "settings.json"] == [it.where for it in parsed.skipped]


def test_a_project_with_claude_code(tmp_path: Path) -> None:
    """In a project's folder only the instructions and rules are read, and nothing of its source is walked."""
    lay(tmp_path, {"CLAUDE.md": "x", ".claude/rules/style.md": "y", ".claude/CLAUDE.md": "z", "README.md": "no",
                   "src/deep/memory/a.md": "no"})  # fmt: skip
    parsed = read(tmp_path)

    assert [("CLAUDE.md", "z"), ("rules/style", "y")] == [(it.key, it.content) for it in parsed.documents]
    assert [("CLAUDE.md", "an entry with the same key came before it, at .claude/CLAUDE.md")] == [
        (it.where, it.why) for it in parsed.skipped if "same key" in it.why
    ]


def test_our_own(tmp_path: Path) -> None:
    """Our folder and our lines are told by themselves, and come back as they went out."""
    documents = tuple(Document(key, f"{key}\n", level="PUBLIC") for key in ("a", "b/c", "d"))
    exported = tmp_path / "out"
    exported.mkdir()
    for document in documents:
        (exported / formats.file_name(document)).write_bytes(formats.render_markdown(document))
    (tmp_path / "out.jsonl").write_bytes(b"".join(map(formats.render_line, documents)))

    assert Parsed(documents) == read(exported) == read(tmp_path / "out.jsonl")
    assert ("markdown", "jsonl", "markdown") == (
        detect(exported), detect(tmp_path / "out.jsonl"), detect(exported / formats.file_name(documents[0])),
    )  # fmt: skip


def test_what_stands_beside_our_files(tmp_path: Path) -> None:
    """A file without our frontmatter is reported and does not hide the others."""
    lay(tmp_path, {"a.md": "---\nkey: a\n---\nx", "README.md": "hello", "b.txt": ""})

    assert Parsed(
        (Document("a", "x"),),
        (Skipped("README.md", "it has no key"), Skipped("b.txt", "this is not a part of the memory")),
    ) == read(tmp_path)


def test_the_format_can_be_said(tmp_path: Path) -> None:
    """What a caller says counts over what a path looks like."""
    lay(tmp_path, {"a.md": "---\nkey: a\n---\nx"})

    assert (Document("a.md", "---\nkey: a\n---\nx"),) == read(tmp_path, format="memory-directory").documents
    assert (Document("a", "x"),) == read(tmp_path / "a.md", format="claude-code").documents


@pytest.mark.parametrize(
    ("files", "path"),
    [({"src/x.py": ""}, "."), ({"x.jsonl": "{}"}, "x.jsonl"), ({"x.jsonl": "no"}, "x.jsonl"), ({"x.md": "t"}, "x.md"),
     ({"x": "t"}, "x"), ({"x.md": "t"}, "."), ({}, "."), ({"memory.jsonl": ""}, ".")],
)  # fmt: skip
def test_what_cannot_be_told_is_asked(tmp_path: Path, files: dict[str, str], path: str) -> None:
    """Nothing is guessed: a home folder named by mistake is not read in."""
    lay(tmp_path, files)

    with pytest.raises(InvalidArgument, match="cannot detect the format of .*: name one of markdown, jsonl"):
        read(tmp_path / path)


@pytest.mark.parametrize("format", FORMATS)
def test_nothing_there(tmp_path: Path, format: Format) -> None:
    """A path that is not there, a FIFO and a path that cannot be are clear errors in every format."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    for path in (tmp_path / "none", tmp_path / "pipe.jsonl", "a\0b"):
        with pytest.raises(InvalidArgument):
            read(path, format=format)
        with pytest.raises(InvalidArgument):
            read(path)


def test_an_unknown_format(tmp_path: Path) -> None:
    """A format that is none is refused with the ones there are."""
    with pytest.raises(InvalidArgument, match="the format 'csv' is unknown; use one of markdown, jsonl"):
        read(tmp_path, format="csv")  # type: ignore[arg-type]


def test_nothing_dangerous_is_opened(tmp_path: Path) -> None:
    """Links, FIFOs, files too large and folders too deep are told and not read; the rest is."""
    root = lay(tmp_path / "memories", {"a.txt": "a", "/".join("d" * 20) + "/x": "deep"})
    outside = lay(tmp_path, {"secret.txt": "s"}) / "secret.txt"
    (root / "link.txt").symlink_to(outside)
    (root / "loop").symlink_to(root)
    os.mkfifo(root / "pipe")
    with (root / "sparse").open("wb") as sparse:
        sparse.truncate(8 << 30)
    os.mkdir(os.fsencode(root) + b"/\xff")
    parsed = read(root)

    assert [("a.txt", "a")] == [(it.key, it.content) for it in parsed.documents]
    assert [
        ("/".join("d" * 17), "this is more than 16 folders deep"),
        ("link.txt", "this is a symbolic link, which is not followed"),
        ("loop", "this is a symbolic link, which is not followed"),
        ("pipe", "it is a FIFO, not a regular file"),
        ("sparse", "it has 8589934592 bytes; at most 8388608 are read"),
    ] == [(it.where, it.why) for it in parsed.skipped]


def test_a_name_cannot_forge_a_report(tmp_path: Path) -> None:
    """A line feed or a byte that is no text in a file's name is shown as an escape."""
    root = lay(tmp_path / "memories", {"a\nb": "x"})
    with open(os.fsencode(root) + b"/\xff", "w"):
        pass

    assert [("a\\nb", BAD_KEY), ("\\udcff", "its name is not UTF-8")] == [
        (it.where, it.why) for it in read(root).skipped
    ]


def test_a_folder_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More files than the bound end the reading with an error, so that nothing is imported by half."""
    lay(tmp_path, {f"{number}.txt": "" for number in range(4)})
    monkeypatch.setattr(folders, "FILES_MAX", 3)

    with pytest.raises(InvalidArgument, match="more than 3 files"):
        list(limit_reports(Folder(str(tmp_path)).files(everything, most=FILE_MAX_BYTES), most=99))


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("jsonl", "1\n" * 4),
        ("jsonl", "\n" * 4),
        ("memory-server", '{"type": "entity", "name": "n"}\n' * 4),
        ("mem0", "[1, 2, 3, 4]"),
        ("mem0", '{"results": [1, 2, 3, 4]}'),
        ("claude", "[[], [], [], []]"),
        ("claude", '[{"uuid": "u", "docs": [1, 2, 3, 4], "prompt_template": "x"}]'),
        ("claude", '[{"memory_files": [1, 2, 3, 4]}]'),
        ("chatgpt", "[{}, {}, {}, {}]"),
    ],
)
def test_a_file_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Format, text: str
) -> None:
    """Lines and values are counted, as a short one costs as much as a long one: an archive of 1 MB can hold 10^8."""
    source = tmp_path / "all.json"
    source.write_text(text)
    monkeypatch.setattr("memfiles.entries.transfer.document.ITEMS_MAX", 3)

    with pytest.raises(InvalidArgument, match="more than 3 lines or values"):
        read(source, format=format)


def test_memories_of_mem0_are_numbered(tmp_path: Path) -> None:
    """A report says which one of a file it is, also where the file is one array."""
    (tmp_path / "all.json").write_text('[{"id": "1", "memory": "x"}, {"id": "2"}, {"id": "3"}]')

    assert ["all.json:2", "all.json:3"] == [it.where for it in read(tmp_path / "all.json", format="mem0").skipped]


def test_a_value_that_is_too_large_is_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of lists take twenty times the memory of their text; the report says why, and the rest is not read."""
    monkeypatch.setattr(exports, "_VALUE_MAX", 1 << 20)
    (tmp_path / "all.json").write_text('[{"id": "1", "memory": "first"}, [' + "[]," * 1_400_000 + "[]]]")
    found = read(tmp_path / "all.json", format="mem0")

    assert (["first"], ["it cannot be read: one value has more than 1048576 characters"]) == (
        [it.content for it in found.documents],
        [it.why for it in found.skipped],
    )


def test_a_line_that_is_too_long_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are read."""
    monkeypatch.setattr(formats, "FILE_MAX_BYTES", 99)
    (tmp_path / "all.jsonl").write_text("[" * 200 + '\n{"key": "k", "content": "c"}\n')
    found = read(tmp_path / "all.jsonl", format="jsonl")

    assert (["k"], ["this line has 201 bytes; at most 99 are read"]) == (
        [it.key for it in found.documents],
        [it.why for it in found.skipped],
    )


def test_many_reports_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no part of a memory is told up to a bound, and counted beyond it."""
    lay(tmp_path, {f"{number}.bin": "" for number in range(5)})
    monkeypatch.setattr(folders, "_REPORTED_MAX", 2)

    assert [
        Skipped("0.bin", "this is not a part of the memory"),
        Skipped("1.bin", "this is not a part of the memory"),
        Skipped(".", "and 3 more that are not a part of the memory"),
    ] == list(limit_reports(Folder(str(tmp_path)).files(lambda path, is_folder: False, most=FILE_MAX_BYTES), most=99))


def test_the_root_may_be_reached_through_a_link(tmp_path: Path) -> None:
    """The folder that a person names may be a link; what is below it may not."""
    lay(tmp_path, {"real/a": "x"})
    (tmp_path / "link").symlink_to(tmp_path / "real")

    assert [SourceFile("a", b"x")] == list(Folder(str(tmp_path / "link")).files(everything, most=FILE_MAX_BYTES))


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    """Reading a folder, and giving it up half way, leaves no file open."""
    lay(tmp_path, {f"memories/{number}/a": "x" for number in range(9)})
    gc.collect()  # what earlier tests left in cycles would be closed while this one counts
    before = len(os.listdir("/proc/self/fd"))
    read(tmp_path)
    next(iter(Folder(str(tmp_path)).files(everything, most=FILE_MAX_BYTES)))

    assert before == len(os.listdir("/proc/self/fd"))


def test_the_formats_are_those_that_are_read() -> None:
    """The list that an error shows is the list that is read."""

    assert ("markdown", "jsonl", "memory-directory", "memory-server", "claude-code", "notes", "mem0", "chatgpt",
            "claude") == formats.FORMATS  # fmt: skip
