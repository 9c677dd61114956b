"""Our own formats: what goes out comes back the same, and what cannot be read is told with its place."""

from __future__ import annotations

import json
import re
from datetime import datetime

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from memfiles.entries.transfer import formats
from memfiles.entries.transfer.document import Document, Parsed, Skipped, as_one, key_problem
from memfiles.errors import InvalidArgument

BAD_KEY = "its key is invalid: use 1 to 255 bytes, not blank and without control characters"

FULL = Document(
    "deploy/prod: steps",
    "# Deploy\n\n---\nkey: not this\n---\r\n  done\n\n",
    id="00000000000000000000000000001e10",
    category="core",
    kind="procedure",
    tags=("ops", "no", "12:30", "a, b", "# x", "日本語", "- y", "true", "1", ""),
    level="INTERNAL",
    created="2026-11-21T09:00:00.000Z",
    updated="2026-11-22T09:00:00.000Z",
    confidence=0.1 + 0.2,
    importance=3,
    pinned=True,
    expires_at="2027-01-01T00:00:00.000Z",
    links=("other: key", "x"),
    successes=2,
    failures=0,
    aliases=("0123456789" * 4, "1e1" + "a" * 29),
)
CONTENTS = [
    "",
    "\n",
    "no newline at the end",
    "\n\nleading and trailing\n\n\n",
    "---\nkey: b\n---\n",
    "---",
    "--- \n",
    "a\r\nb\rc\n",
    "\x00\x01\x1b[31m\x7f\x85\u2028\u2029\ufeff\ufffe\uffff",
    "\ufeff---\n",
    "漢字かな交じり文 😀\n",
    "%TAG ! x\n*alias &anchor !tag\n",
]
HUGE = ("1e999", "1.5E+400", "9" * 101, "0x" + "f" * 100, "0.0e9" + "9" * 30)

without_surrogates = st.characters(exclude_categories=["Cs"])
texts = st.text(without_surrogates, max_size=40)
keys = st.text(without_surrogates, min_size=1, max_size=60).filter(lambda key: key_problem(key) is None)
numbers = st.one_of(st.integers(-(10**12), 10**12), st.floats(allow_nan=False, allow_infinity=False))
times = st.datetimes(min_value=datetime(1000, 1, 1)).map(  # noqa: DTZ001
    lambda at: at.isoformat(timespec="milliseconds") + "Z"
)
maybe = st.none() | texts
ids = st.from_regex(r"(?:[0-9a-f]{32}|[0-9]{40}|[0-9]{15}e[0-9]{16})", fullmatch=True)
documents = st.builds(
    Document,
    key=keys,
    content=texts | st.sampled_from(CONTENTS),
    id=st.none() | ids,
    category=maybe,
    kind=maybe,
    tags=st.lists(texts | st.sampled_from((*FULL.tags, *HUGE)), max_size=4).map(tuple),
    level=maybe,
    created=st.none() | times,
    updated=st.none() | times,
    confidence=st.none() | numbers,
    importance=st.none() | numbers,
    pinned=st.none() | st.booleans(),
    expires_at=st.none() | times,
    links=st.none() | st.lists(texts, max_size=3).map(tuple),
    successes=st.none() | st.integers(0, 10**9),
    failures=st.none() | st.integers(0, 10**9),
    aliases=st.none() | st.lists(ids, max_size=3).map(tuple),
)


@pytest.mark.slow
@given(documents)
def test_markdown_comes_back(document: Document) -> None:
    """Whatever an entry holds, its file is read as the same entry, and nothing is reported."""

    assert Parsed((document,)) == formats.parse_markdown(formats.render_markdown(document), where="x.md")


@pytest.mark.slow
@given(documents)
def test_a_line_comes_back(document: Document) -> None:
    """Whatever an entry holds, its line is one line and read as the same entry."""
    line = formats.render_line(document)

    assert (Parsed((document,)), 1, True) == (
        formats.parse_lines(line, where="x"),
        line.count(b"\n"),
        line.endswith(b"\n"),
    )


@pytest.mark.parametrize("content", CONTENTS, ids=ascii)
def test_the_content_is_the_end_of_the_file(content: str) -> None:
    """The bytes of the content stand in the file as they are, after the frontmatter."""
    written = formats.render_markdown(Document("k", content))

    assert b"---\nkey: k\ntags: []\n---\n" + content.encode() == written
    assert content == formats.parse_markdown(written, where="").documents[0].content


def test_markdown_is_written_for_people() -> None:
    """The fields stand in their order, plain where they can be, and what is not set is not there."""
    written = formats.render_markdown(FULL).decode()

    assert written.startswith(
        '---\nkey: "deploy/prod: steps"\nid: "00000000000000000000000000001e10"\ncategory: core\nkind: procedure\n'
        'tags: [ops, no, 12:30, "a, b", "# x", "日本語", "- y", "true", "1", ""]\n'
        "level: INTERNAL\ncreated: 2026-11-21T09:00:00.000Z\nupdated: 2026-11-22T09:00:00.000Z\n"
        "confidence: 0.30000000000000004\nimportance: 3\npinned: true\nexpires_at: 2027-01-01T00:00:00.000Z\n"
        'links: ["other: key", x]\nsuccesses: 2\nfailures: 0\n'
        f'aliases: ["{"0123456789" * 4}", 1e1{"a" * 29}]\n---\n# Deploy\n'
    )
    assert (FULL,) == formats.parse_markdown(written.encode(), where="").documents


@pytest.mark.parametrize("text", HUGE)
def test_a_text_that_looks_like_a_number_no_reader_takes_comes_back(text: str) -> None:
    """As the text that it is."""
    document = Document(text, "x", tags=(text,))

    assert Parsed((document,)) == formats.parse_markdown(formats.render_markdown(document), where="x.md")


@pytest.mark.slow
@given(documents)
def test_other_programs_read_the_frontmatter(document: Document) -> None:
    """A YAML parser that knows nothing of us reads the same key from it."""
    frontmatter = formats.render_markdown(document).decode().split("\n---\n")[0].removeprefix("---\n")

    assert document.key == str(yaml.load(frontmatter, yaml.BaseLoader)["key"])


@pytest.mark.parametrize("render", [formats.render_markdown, formats.render_line])
@pytest.mark.parametrize("document", [Document("k", "\ud800"), Document("k", "", tags=("\ud800",))])
def test_half_a_surrogate_pair_is_refused(render: object, document: Document) -> None:
    """What no file can hold is an error, and no broken file."""
    with pytest.raises(InvalidArgument, match="surrogate"):
        render(document)  # type: ignore[operator]


HARD_KEYS = (
    """
a/b .. . ../x /etc/passwd CON nul com1 LPT9.txt a:PUBLIC % ~ -rf 日本 é e\u0301 A a a-b a_b .hidden a\\b a*?<>| a.
""".split()
    + ["a b", " a", "x" * 255]
)


def test_file_names_are_safe_and_apart() -> None:
    """Every key has a name of its own, also where case does not count, and none that any system gives a meaning."""
    names = [formats.file_name(Document(key, "")) for key in HARD_KEYS]

    assert len(HARD_KEYS) == len({name.casefold() for name in names})
    assert [] == [name for name in names if not re.fullmatch(r"[a-z0-9][a-z0-9-]*-[0-9a-f]{12}\.md", name)]
    assert max(map(len, names)) <= 64


def test_a_file_name_stays() -> None:
    """The name depends on key, level and whether it is the workspace's, and on nothing that an entry may change."""
    name = formats.file_name(Document("deploy/prod", "old", level="INTERNAL", tags=("a",), category="daily"))

    assert "deploy-prod-09ba3f7bf872.md" == name
    assert name == formats.file_name(Document("deploy/prod", "new", level="INTERNAL", category="core"))
    assert name != formats.file_name(Document("deploy/prod", "old", level="PUBLIC"))
    assert name != formats.file_name(Document("deploy/prod", "old", level="INTERNAL", category="workspace"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no frontmatter", Skipped("a.md", "it has no key")),
        ("---\n---\n", Skipped("a.md", "it has no key")),
        ("---\nkey: k\n", Skipped("a.md", "it has no key")),
        ("---\nkey: 5\n---\n", Skipped("a.md", "key must be text")),
        ("---\nkey: k\ntags: x\n---\n", Skipped("a.md", "tags must be a list of texts")),
        ("---\nkey: k\npinned: 1\n---\n", Skipped("a.md", "pinned must be true or false")),
        (
            "---\nkey: k\nsuccesses: -1\n---\n",
            Skipped("a.md", "successes must be a whole number from 0 to 9007199254740991"),
        ),
        ("---\nkey: k\nconfidence: high\n---\n", Skipped("a.md", "confidence must be a number")),
        ("---\nkey: ' '\n---\n", Skipped("a.md", BAD_KEY)),
        ('---\nkey: "a\\nb"\n---\n', Skipped("a.md", BAD_KEY)),
        (f"---\nkey: {'k' * 256}\n---\n", Skipped("a.md", BAD_KEY)),
        ("---\n[a]\n---\n", Skipped("a.md", "its frontmatter is not a mapping")),
        (
            "---\nkey: k\nkey: l\n---\n",
            Skipped(
                "a.md:3:1", "its frontmatter cannot be read: key: this key is already on line 2; keep one of them"
            ),
        ),
        (
            "---\nkey: *x\n---\n",
            Skipped("a.md:2:6", "its frontmatter cannot be read: key: aliases (*) are not supported; "
                                "write the value out"),
        ),
    ],
)  # fmt: skip
def test_a_file_that_is_no_entry(text: str, expected: Skipped) -> None:
    """What is wrong is told with the file's name, and line and column where there are any."""

    assert Parsed(skipped=(expected,)) == formats.parse_markdown(text.encode(), where="a.md")


def test_bytes_that_are_no_text() -> None:
    """A file that is not UTF-8 is reported."""

    assert (Skipped("a.md", "this is not UTF-8 text: byte 4 cannot be read"),) == (
        formats.parse_markdown(b"---\n\xff", where="a.md").skipped
    )


def test_a_file_from_another_editor() -> None:
    """A byte order mark, blanks and carriage returns around the frontmatter do not hide it; fields may be empty."""
    text = "\ufeff--- \r\n# ours\r\nkey: k\r\ncategory:\r\nmood: good\r\n---\t\r\nbody\r\n"

    assert Parsed(
        (Document("k", "body\r\n"),),
        (Skipped("a.md", "the field 'mood' is unknown; the rest was read"),),
    ) == formats.parse_markdown(text.encode(), where="a.md")


def test_frontmatter_may_end_the_file() -> None:
    """A last line ``---`` without a line feed closes the frontmatter."""

    assert (Document("k", ""),) == formats.parse_markdown(b"---\nkey: k\n---", where="").documents


def test_bad_lines_are_reported_with_their_number() -> None:
    """Every bad line is told, and the lines around it are read."""
    lines = [
        json.dumps({"key": "a", "content": "1"}),
        "{",
        "",
        '{"key": "b"}',
        '{"key": "b", "content": 1}',
        "[]",
        '{"key": "b", "key": "c", "content": ""}',
        '{"key": "b", "content": "", "confidence": NaN}',
        '{"key": "b", "content": "\\ud800"}',
        '{"key": "b", "content": "", "confidence": 1e999}',
        '{"key": "huge", "content": "", "confidence": 1%s}' % ("0" * 400),
        '{"key": "b", "content": "", "successes": true}',
        '{"key": "b", "content": "", "x": %s}' % ("[" * 100_000 + "]" * 100_000),
        json.dumps({"key": "a", "content": "2"}),
        json.dumps({"key": "z", "content": "\u2028"}, ensure_ascii=False),
    ]
    data = b"\xef\xbb\xbf" + "\n".join(lines).encode() + b"\r\n\xff\n"

    assert Parsed(
        (Document("a", "1"), Document("huge", "", confidence=10**400), Document("z", "\u2028")),
        (
            Skipped("m.jsonl:2:2", "this is not JSON: Expecting property name enclosed in double quotes"),
            Skipped("m.jsonl:4", "it has no content"),
            Skipped("m.jsonl:5", "content must be text"),
            Skipped("m.jsonl:6", "this line is not an object"),
            Skipped("m.jsonl:7", "it has the same field twice"),
            Skipped("m.jsonl:8", "NaN is not a JSON number"),
            Skipped("m.jsonl:9", "it holds half of a surrogate pair, which is not a character"),
            Skipped("m.jsonl:10", "confidence must be a number"),
            Skipped("m.jsonl:12", "successes must be a whole number from 0 to 9007199254740991"),
            Skipped("m.jsonl:13", "it is nested too deeply"),
            Skipped("m.jsonl:14", "an entry with the same key came before it, at m.jsonl:1"),
            Skipped("m.jsonl:16", "this line is not UTF-8"),
        ),
    ) == formats.parse_lines(data, where="m.jsonl")


def test_one_key_at_two_levels_is_two_entries() -> None:
    """Level and workspace tell entries of one key apart; everything else does not."""
    same = [Document("k", "1", level="A"), Document("k", "2", level="B"), Document("k", "3", category="workspace")]
    again = Document("k", "4", level="A", tags=("t",), where="there")

    assert Parsed(tuple(same), (Skipped("there", "an entry with the same key came before it, at "),)) == (
        as_one([Parsed((*same, again))])
    )


def test_no_message_repeats_a_value() -> None:
    """What stands in a file may be a secret, so a report names places, fields and reasons only."""
    secret = "hunter2hunter2"
    files = [f"---\nkey: {secret}\n{secret}\n---\n", f"---\nkey: [{secret}]\n---\n", f"---\nkey: '{secret}\n---\n"]
    reports = [formats.parse_markdown(text.encode(), where="a").skipped for text in files]
    reports += [formats.parse_lines(f'{{"key": "{secret}"'.encode(), where="a").skipped]

    assert [1, 1, 1, 1] == list(map(len, reports))
    assert secret not in str(reports)
