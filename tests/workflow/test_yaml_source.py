"""The strict subset of YAML: one reading, true positions, bounded work."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memfiles.errors import WorkflowError
from memfiles.workflow.yaml_source import DEPTH_MAX, NODES_MAX, load, parse
from memfiles.workflow.yaml_text import SIZE_MAX

both = pytest.mark.parametrize("fast", [True, False], ids=["libyaml", "python"])

FINITE = st.floats(allow_nan=False, allow_infinity=False)
PIECES = st.sampled_from(
    ["a", "key: ", "- ", "? ", ": ", "[", "]", "{", "}", ", ", "\n", "\n  ", "\t", "'", '"', "\\", "\\ud83d", "#", " #"]
    + [
        "&a ",
        "*a ",
        "!t ",
        "|",
        ">",
        "%TAG ",
        "---",
        "...",
        "\r",
        "\x85",
        "\u2028",
        "\ufeff",
        "é",
        "\0",
        "1_0",
        ".inf",
        "<<: ",
    ]
)


def value(text: str | bytes, *, fast: bool = True) -> Any:
    return parse(text, name="w.yaml", fast=fast).value


def refusal(text: str | bytes, *, fast: bool = True) -> str:
    with pytest.raises(WorkflowError) as caught:
        parse(text, name="w.yaml", fast=fast)
    return str(caught.value)


@both
@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("a: 1\nb:\n  c: 2\n  c: 3\n", "w.yaml:4:3: b.c: this key is already on line 3"),
        ("a: 1\n'a': 2\n", "w.yaml:2:1: a: this key is already on line 1"),
        ("1: a\n'1': b\n", "w.yaml:2:1: 1: this key is already on line 1"),
        ("a: &x [1]\nb: *x\n", "w.yaml:1:4: a: anchors (&)"),
        ("a: [*x]\n", "w.yaml:1:5: a[0]: aliases (*)"),
        ("a: !!str 1\n", "w.yaml:1:4: a: tags (!)"),
        ("a: ! 1\n", "w.yaml:1:4: a: tags (!)"),
        ("a:\n  - !x {}\n", "w.yaml:2:5: a[0]: tags (!)"),
        ("%TAG !e! tag:x,2000:\n---\na: 1\n", "w.yaml:1:1: %TAG is not supported"),
        ("a:\n  <<: {b: 1}\n", "w.yaml:2:3: a: merge keys (<<)"),
        ("a: 1\n---\nb: 2\n", "w.yaml:2:1: a second document"),
        ("? [a]\n: b\n", "w.yaml:1:3: a key must be text"),
        ("? {a: b}\n: c\n", "w.yaml:1:3: a key must be text"),
        ("a: .inf\n", "w.yaml:1:4: a: infinity"),
        ("a: -.INF\n", "w.yaml:1:4: a: infinity"),
        ("a: [.nan]\n", "w.yaml:1:5: a[0]: infinity"),
        ("a: 1e999\n", "w.yaml:1:4: a: this number is too large"),
        ("a: " + "9" * 5000, "w.yaml:1:4: a: a number may have at most"),
        ('a: "\\ud83d"\n', "w.yaml:1:4: a: this is half of a surrogate pair"),
        ("a:\n\tb: 1\n", "w.yaml:2:1: a: invalid YAML"),
        ("a: b: c\n", "w.yaml:1:5: invalid YAML: mapping values"),
        ("a: 'x\n", "w.yaml:2:1: a: invalid YAML"),
        ("a: [1, 2", "w.yaml:1:9: a[2]: invalid YAML"),
        ("- a\nb: c\n", "w.yaml:2:1: [1]: invalid YAML"),
        ("é: ['ö', \"ü\u2028\", &x y]\n", "w.yaml:1:16: é[2]: anchors (&)"),
        ("# \r\na: 1\rb: &x 2", "w.yaml:3:4: b: anchors (&)"),
        ("", "w.yaml:1:1: the document is empty"),
        ("# only a comment\n", "w.yaml:1:1: the document is empty"),
        ("a: \0", "w.yaml:1:4: the character U+0000"),
        ("a: b\nc: \x1b[0m", "w.yaml:2:4: the character U+001B"),
        ("a: \ud800", "w.yaml:1:4: the character U+D800"),
        (b"a: b\nc: \xff", "w.yaml:2:4: this is not UTF-8"),
        ("a: b".encode("utf-16"), "w.yaml:1:1: this is UTF-16"),
    ],
)
def test_refuses_with_the_position(text: str | bytes, start: str, fast: bool) -> None:
    """What is outside of the subset is refused at its line and column, by both parsers."""

    assert refusal(text, fast=fast).startswith(start)


@both
@pytest.mark.parametrize("text", ['a: "\\U99999999"\n', "%YAML 9" + "9" * 5000 + ".1\n---\na: 1\n"])
def test_out_of_range(text: str, fast: bool) -> None:
    """An escape or version out of range is an error of the document, not of the parser."""

    assert refusal(text, fast=fast).startswith("w.yaml:1:")


@both
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[NO, on, 12:30, 0o17, 1_000, ~]", ["NO", "on", "12:30", 15, "1_000", None]),
        ("on: 1\nNO: 2\n", {"on": 1, "NO": 2}),
        ("1: a\ntrue: b\n~: c\n", {"1": "a", "true": "b", "null": "c"}),
        ("'<<': a\n", {"<<": "a"}),
        ("\ufeffa: 1\n", {"a": 1}),
        ("a: |\r\n  x\r\n  y\r\n", {"a": "x\ny\n"}),
        ("a: 'x\u2028y\x85z\ufeff'\n", {"a": "x\u2028y\x85z\ufeff"}),
        ('["\\ud83d\\ude00", "\\\\ud83d"]', ["😀", "\\ud83d"]),
        ("[\\ud83d, '\\ud83d']", ["\\ud83d", "\\ud83d"]),
        ("%YAML 1.2\n---\na: 1\n...\n", {"a": 1}),
        ("[1, [], {}]", [1, [], {}]),
    ],
)
def test_reads(text: str, expected: Any, fast: bool) -> None:
    """Scalars, keys, line ends and escapes mean what YAML 1.2 and JSON say, in both parsers."""

    assert expected == value(text, fast=fast)


@pytest.mark.slow
@both
@given(
    document=st.recursive(
        st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8) | FINITE,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    ),
    indent=st.sampled_from([None, 2, "\t"]),
)
def test_json(document: Any, indent: Any, fast: bool) -> None:
    """A JSON document loads as what it is, whatever its indentation and escapes."""

    assert document == value(json.dumps(document, indent=indent), fast=fast)


@both
def test_json_as_javascript_writes_it(fast: bool) -> None:
    """Raw line separators, escaped slashes, tabs between tokens and pairs of surrogate escapes are JSON."""

    assert {"a/": "x\u2028y", "b": "😀"} == value('\t{"a\\/":\t"x\u2028y",\n\t"b": "\\uD83D\\uDE00"\t}', fast=fast)


@both
@given(text=st.lists(PIECES, max_size=12).map("".join))
def test_any_text(text: str, fast: bool) -> None:
    """Any text gives a document or a ``WorkflowError``, and nothing else."""

    try:
        parse(text, name="w.yaml", fast=fast)
    except WorkflowError as error:
        assert str(error).startswith("w.yaml:")


@given(st.binary(max_size=40) | st.text(max_size=40))
def test_any_bytes(data: bytes | str) -> None:
    """Any bytes and any text, also with lone surrogates, give a document or a ``WorkflowError``."""

    try:
        parse(data, name="w.yaml")
    except WorkflowError as error:
        assert str(error).startswith("w.yaml:")


@given(st.lists(PIECES, max_size=10).map("".join))
def test_parsers_agree(text: str) -> None:
    """Where both parsers accept a text, they read the same values."""

    try:
        fast, slow = value(text, fast=True), value(text, fast=False)
    except WorkflowError:
        return
    assert fast == slow


@both
def test_marks(fast: bool) -> None:
    """Keys, values and collections are found where they stand; what is not there, where it would be held."""

    source = parse("a:\n  - b: [x,\n      yy]\n    c: |\n      t\n", name="w.yaml", fast=fast)
    where: dict[str, tuple[tuple[str | int, ...], bool]] = {
        "list": (("a",), False), "mapping": (("a", 0), False), "key": (("a", 0, "b"), True),
        "value": (("a", 0, "b"), False), "item": (("a", 0, "b", 1), False), "block": (("a", 0, "c"), False),
        "missing": (("a", 0, "zz"), False), "far": (("a", 7, "b", 1), False),
    }  # fmt: skip
    assert {
        "list": (2, 3), "mapping": (2, 5), "key": (2, 5), "value": (2, 8), "item": (3, 7), "block": (4, 8),
        "missing": (2, 5), "far": (2, 3),
    } == {name: source.mark(path, at_key=at_key) for name, (path, at_key) in where.items()}  # fmt: skip


def test_keys_that_are_no_text() -> None:
    """Keys that YAML reads as numbers, truth values or null are told apart from text."""

    assert (("a", "1"), ("true",)) == parse("a: {1: x, b: y}\ntrue: z\n'2': w\n", name="w.yaml").not_text


@pytest.mark.parametrize("opening", ["[", "- ", '{"a":', "{a: [", "a:\n"])
def test_depth(opening: str) -> None:
    """Nesting a hundred thousand deep is an error that names the limit, not a crash, whoever counts the levels."""

    text = "".join(" " * level + opening for level in range(2000)) if opening == "a:\n" else opening * 100_000
    assert f"nested more than {DEPTH_MAX} levels deep" in refusal(text)


def test_depth_allowed() -> None:
    """The deepest nesting allowed is read."""

    assert "x" in str(value("[" * DEPTH_MAX + "x" + "]" * DEPTH_MAX))


@pytest.mark.slow
def test_nodes() -> None:
    """A document of too many values is refused at the first one too many."""

    start = f"w.yaml:1:{2 * NODES_MAX}: [{NODES_MAX - 1}]: more than {NODES_MAX} keys and values"
    assert refusal("[" + "1," * NODES_MAX + "]").startswith(start)


def test_alias_bomb() -> None:
    """A billion laughs ends at the first anchor."""

    bomb = "a: &a [x, x]\n" + "".join(
        f"{new}: &{new} [*{old}, *{old}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert refusal(bomb).startswith("w.yaml:1:4: a: anchors (&)")


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [
        "%TAG !a{0}! x\n",
        "a: b\n...\n%TAG !{0}! x\n",
        "[",
        "? ",
        "#\n",
        "&a ",
        "%YAML 1.1\n",
        "\\",
        "\u2028",
        "k{0}: v\n",
    ],
)
def test_hostile_text_ends_soon(unit: str) -> None:
    """No text of the largest size takes longer than seconds (libyaml compares every %TAG with all before it)."""

    count = SIZE_MAX // len(unit.format(0).encode())
    start = time.process_time()
    with suppress(WorkflowError):
        parse("".join(map(unit.format, range(count))), name="w.yaml")
    assert time.process_time() - start < 20


def test_too_large() -> None:
    """A document over 32 MiB is refused before it is parsed, as text and as bytes."""

    text = "#" * (32 * 1024 * 1024 + 1)
    assert ["w.yaml:1:1: the workflow is 33554433 bytes and the limit is 33554432"] * 2 == [
        refusal(data).partition(";")[0] for data in (text, text.encode())
    ]


def test_load(tmp_path: Path) -> None:
    """A file is read from disk and named in errors as it was named by the caller."""

    path = tmp_path / "w.yaml"
    path.write_text("a: 1\na: 2\n")
    with pytest.raises(WorkflowError, match=rf"^{path}:2:1: a: "):
        load(path)


def test_load_what_is_no_file(tmp_path: Path) -> None:
    """A missing file, a directory, a FIFO, a device, a huge file and a bad name are refused at once."""

    fifo, huge = tmp_path / "fifo", tmp_path / "huge"
    os.mkfifo(fifo)
    with huge.open("wb") as file:
        file.truncate(8 * 1024**3)
    expected = {
        str(tmp_path / "none"): "no such file",
        str(tmp_path): "this is a directory",
        str(fifo): "this is not a regular file",
        "/dev/zero": "this is not a regular file",
        str(huge): "the workflow is 8589934592 bytes",
        str(tmp_path / "a\nb"): "no such file",
        str(huge / "x"): "the file cannot be opened: Not a directory",
        "a\0b": "the file cannot be opened",
    }
    for path, reason in expected.items():
        with pytest.raises(WorkflowError, match=reason) as caught:
            load(path)
        assert 1 == len(str(caught.value).splitlines())
