"""YAML text before parsing: bounded, decoded and checked; and the YAML 1.2 values of plain scalars.

The rule this file guards: the parser gets nothing that can hang it or exhaust it, and nothing that two parsers read
differently. Every replacement swaps one character for one, so that positions stay correct.
"""

from __future__ import annotations

import codecs
import json
import math
import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice

from msgspec import Struct

from memfiles.errors import WorkflowError, reason_of
from memfiles.records import late_pattern
from memfiles.workflow.problems import LineColumn, Problem, printable, workflow_error

Scalar = str | int | float | bool | None
_WORDS: dict[str, Scalar] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_STARTS_NUMBER = frozenset("+-.0123456789")
_BASES = {"0o": 8, "0x": 16}
_INT = late_pattern(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = late_pattern(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE = late_pattern(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_DIGITS_MAX = 100


def plain_value(text: str) -> Scalar:
    """The value of a plain (unquoted) scalar; a number that JSON cannot hold is a ``ValueError``."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _STARTS_NUMBER:
        return text
    if _INT.fullmatch(text):
        if len(text) > _DIGITS_MAX:
            raise ValueError(f"a number may have at most {_DIGITS_MAX} digits; put it in quotes if it is text")
        return int(text[2:], _BASES[text[:2]]) if text[:2] in _BASES else int(text)
    if _FLOAT.fullmatch(text):
        if math.isinf(value := float(text)):
            raise ValueError("this number is too large; put it in quotes if it is text")
        return value
    if _NOT_FINITE.fullmatch(text):
        raise ValueError("infinity and not-a-number are not allowed here; use a number, or put the text in quotes")
    return text


SIZE_MAX = 32 * 1024 * 1024
"""Bytes of a workflow: in the older shape a file of 8 MiB may be declared, and escaped in JSON it has 24 MiB."""

_FORBIDDEN = late_pattern(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
_ALLOWED = bytes([0x09, 0x0A, 0x0D, *range(0x20, 0x7F)])  # of ASCII: looking for others is faster than an expression
# libyaml compares each %TAG with all earlier ones, in C and holding the GIL: 4 MiB of them take minutes.
_TAG_DIRECTIVE = late_pattern(r"(?<![^\r\n])%TAG\b")
_LINE_BREAK = late_pattern(r"\r\n?|\n")
_ESCAPE = late_pattern(r"\\(u[dD][89a-fA-F][0-9a-fA-F]{2}|.)", re.DOTALL)
_UTF16_OR_32 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)

# The first three are line breaks in YAML 1.1, which PyYAML parses; the last is skipped at the start of a line. In YAML
# 1.2 # and in JSON, whose writers leave them unescaped, they are ordinary characters.
_MISREAD = "\x85\u2028\u2029\ufeff"


class YamlText(Struct, frozen=True):
    """Text that is safe for a YAML parser, and the way back from the parser's scalars to the original."""

    text: str
    stand_ins: Mapping[int, str] = {}
    escape: str = ""
    """The stand-in for the backslash of a ``\\ud83d`` escape; "" without such an escape."""

    def original(self, scalar: str, *, double_quoted: bool) -> str:
        """The original scalar; a lone surrogate stays one."""
        if not self.stand_ins:
            return scalar
        if double_quoted and self.escape:  # a JSON writer escapes the halves of a surrogate pair one by one: join them
            halves = re.sub(f"{self.escape}u([0-9a-fA-F]{{4}})", lambda match: chr(int(match[1], 16)), scalar)
            scalar = halves.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return scalar.translate(self.stand_ins)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a regular file of at most ``SIZE_MAX`` bytes; never waits on a FIFO or a device."""
    name = os.fsdecode(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _refused(name, "no such file; `memfiles init` creates one") from None
    except (OSError, ValueError) as error:
        raise _refused(name, f"the file cannot be opened: {reason_of(error)}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise _refused(name, f"this is {kind}; name a workflow file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(SIZE_MAX + 1)
    except OSError as error:
        raise _refused(name, f"the file cannot be read: {reason_of(error)}") from error
    finally:
        os.close(descriptor)
    if len(data) > SIZE_MAX:
        raise _too_large(name, max(status.st_size, len(data)))  # the size may not be known beforehand (/proc)
    return data


def checked_text(data: bytes | str, *, source: str) -> YamlText:
    """The document's text, ready to parse; ``WorkflowError`` says where it is not text."""
    text = data if isinstance(data, str) else _decoded(data, source=source)
    text = text.removeprefix("\ufeff")
    _check_characters(text, source=source)
    if len(text.encode()) > SIZE_MAX:
        raise _too_large(source, len(text.encode()))
    return _protected(_without_json_tabs(text), source=source)


def mark_after(text: str) -> LineColumn:
    """The position after the last character."""
    breaks = list(_LINE_BREAK.finditer(text))
    return len(breaks) + 1, len(text) - (breaks[-1].end() if breaks else 0) + 1


def _check_characters(text: str, *, source: str) -> None:
    forbidden = None if text.isascii() and not text.encode().translate(None, _ALLOWED) else _FORBIDDEN.search(text)
    if forbidden:
        what = f"the character U+{ord(forbidden[0]):04X} is not allowed in a workflow; remove it"
        raise _at(source, mark_after(text[: forbidden.start()]), what)
    directive = _TAG_DIRECTIVE.search(text) if "%TAG" in text else None
    if directive:
        raise _at(source, mark_after(text[: directive.start()]), "%TAG is not supported; remove it")


def _decoded(data: bytes, *, source: str) -> str:
    if len(data) > SIZE_MAX:
        raise _too_large(source, len(data))
    if data.startswith(_UTF16_OR_32):
        raise _at(source, (1, 1), "this is UTF-16 or UTF-32; save it as UTF-8")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8").removeprefix("\ufeff")
        raise _at(source, mark_after(before), "this is not UTF-8; save the file as UTF-8") from None


def _without_json_tabs(text: str) -> str:
    """JSON with its tabs replaced by spaces.

    A YAML parser refuses some of those tabs. In valid JSON, texts hold no unescaped tab, so all tabs are between
    tokens.
    """
    if "\t" not in text or not text.lstrip().startswith(("{", "[")):
        return text
    with suppress(ValueError, RecursionError):
        json.loads(text)
        return text.replace("\t", " ")
    return text


def _protected(text: str, *, source: str) -> YamlText:
    """Replace characters that PyYAML would misread by characters that do not occur in the text."""
    found = [char for char in _MISREAD if char in text]
    surrogates = "\\ud" in text or "\\uD" in text
    if not found and not surrogates:
        return YamlText(text)
    unused = list(islice((char for char in map(chr, range(0xF0000, 0x110000)) if char not in text), len(found) + 1))
    if len(unused) <= len(found):
        raise _refused(source, "the text uses every private-use character of Unicode; remove some")
    escape = unused.pop() if surrogates else ""
    if escape:
        text = _ESCAPE.sub(lambda match: escape + match[1] if len(match[1]) > 1 else match[0], text)
    swapped = text.translate(dict(zip(map(ord, found), unused, strict=False)))
    stand_ins = dict(zip(map(ord, unused), found, strict=False)) | ({ord(escape): "\\"} if escape else {})
    return YamlText(swapped, stand_ins, escape)


def _too_large(source: str, size: int) -> WorkflowError:
    what = f"the workflow is {size} bytes and the limit is {SIZE_MAX}; shorten the initial contents"
    return _at(source, (1, 1), what)


def _refused(source: str, what: str) -> WorkflowError:
    return WorkflowError(f"{printable(source)}: {what}")


def _at(source: str, mark: LineColumn, what: str) -> WorkflowError:
    return workflow_error(source, [(mark, Problem((), what))])
