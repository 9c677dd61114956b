"""Runs the documentation: every block of a page is carried out, and its output written where the page quotes it.

The tests compare a page with ``rendered(page)``; ``python -m tests.docs.pages --write [PAGE...]`` writes the difference
into the pages. A page's blocks run in order in one folder of its own. By the language of the fence:

- ``console``: the lines after ``$`` are run by the shell; the rest is their output, stdout and stderr together.
- ``python``: run as a program; a ``text`` block right after it is its output.
- ``yaml``: must be a valid workflow. ``json``, ``toml``: must parse.
- ``py``: an excerpt. Its syntax and its imports of memfiles and mirrors are checked.
- ``sh``, ``text`` and others: not run.

``<!-- file: NAME -->`` before a block writes it to NAME in the folder. What stands from ``<!-- generated: WHAT -->`` to
``<!-- end -->`` is made from the code by ``tests.docs.reference``.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from memfiles import Workflow
from memfiles.cli.failures import USAGE
from memfiles.cli.program import program
from tests.docs import reference
from tests.support import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHOWN_FOLDER = "/home/ada/desk"
"""What a page shows in place of the folder that its blocks run in."""

_BLOCK = re.compile(
    r"(?:^<!-- file: (?P<file>\S+) -->\n)?^```(?P<kind>\w+)\n(?P<body>.*?)^```$"
    r"|^<!-- generated: (?P<what>[^\n]+) -->\n(?P<made>.*?)^<!-- end -->$",
    re.MULTILINE | re.DOTALL,
)
_UNSTABLE = [
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"), "2026-11-21T09:00:00.000Z"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d{9}Z\.[0-9a-f]{6}"), "2026-11-21T090000000Z.0f1e2d"),
    (re.compile(r"plan-[0-9a-f]{12}"), "plan-0123456789ab"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "0123456789abcdef0123456789abcdef"),
    (re.compile(r'"lag_seconds": [0-9.]+'), '"lag_seconds": 0.0'),
]
"""What differs from run to run, and what a page shows in its place."""

_SHELL = frozenset("();<>|&")


@dataclass
class Runner:
    """Carries out the blocks of one page in ``folder``.

    Commands of memfiles and programs that import nothing else run in this process, which takes milliseconds instead of
    half a second each; with ``apart``, everything runs in processes of its own, as a reader would run it.
    """

    folder: Path
    apart: bool = False

    def console(self, body: str) -> str:
        """The block with the output that its commands have now."""
        commands = [line.removeprefix("$ ") for line in body.splitlines() if line.startswith("$ ")]
        return "".join(f"$ {command}\n" + self._output_of_command(self.hidden(command)) for command in commands)

    def python(self, body: str) -> str:
        """The output of a program."""
        body = self.hidden(body)
        if self.apart or _imported(ast.parse(body)) - {"memfiles", "mirrors"} - sys.stdlib_module_names:
            return self._shown(self._output_of_process(sys.executable, "-c", body))
        printed = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(printed):
            exec(compile(body, "<page>", "exec"), {"__name__": "__main__"})
        return self._shown(printed.getvalue())

    def _output_of_command(self, command: str) -> str:
        words = list(shlex.shlex(command, posix=True, punctuation_chars=True))
        if self.apart or words[0] != "memfiles" or any(set(word) <= _SHELL for word in words):
            return self._shown(self._output_of_process("sh", "-c", command))
        with contextlib.chdir(self.folder):
            plain = {"NO_COLOR": None, "FORCE_COLOR": None, "MEMFILES_DEBUG": None, "COLUMNS": "80"}
            ran = CliRunner(env=plain).invoke(program, shlex.split(command)[1:])
        if ran.exit_code == USAGE:  # no page means to show that an option does not exist
            raise AssertionError(f"{command}: {ran.output}")
        return self._shown(ran.output)

    def _output_of_process(self, *command: str) -> str:
        ran = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
        )
        return ran.stdout.decode()

    def _environment(self) -> dict[str, str]:
        """One in which ``memfiles`` is the command line of this interpreter."""
        script = self.folder.parent / "bin" / "memfiles"
        if not script.exists():
            script.parent.mkdir(exist_ok=True)
            script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m memfiles "$@"\n')
            script.chmod(0o755)
        path = f"{script.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        own = {"PATH": path, "COLUMNS": "80", "PYTHONPATH": str(ROOT), "LANGSMITH_TRACING": "false"}
        return {key: value for key, value in os.environ.items() if "COLOR" not in key} | own

    def hidden(self, text: str) -> str:
        """What the page says, with the folder that it runs in."""
        return text.replace(SHOWN_FOLDER, str(self.folder))

    def _shown(self, output: str) -> str:
        output = output.replace(str(self.folder), SHOWN_FOLDER)
        for pattern, instead in _UNSTABLE:
            output = pattern.sub(instead, output)
        return output


def rendered(text: str, runner: Runner) -> str:
    """The page with every output as it is now; raises for a block that does not work."""
    parts, position, printed = [], 0, ""
    for block in _BLOCK.finditer(text):
        between = text[position : block.start()]
        if printed and (between.strip() or block["kind"] != "text"):
            raise AssertionError(f"this is printed and not shown: {printed}")
        parts.append(between)
        position = block.end()
        if block["what"] is not None:
            parts.append(f"<!-- generated: {block['what']} -->\n{reference.made(block['what'])}<!-- end -->")
            continue
        body, printed = _carried_out(block, runner, after=printed)
        parts.append(block[0][: block.start("body") - block.start()] + body + "```")
    if printed:
        raise AssertionError(f"this is printed and not shown: {printed}")
    return "".join([*parts, text[position:]])


def _carried_out(block: re.Match[str], runner: Runner, *, after: str) -> tuple[str, str]:
    """The body of the block as it must be, and what it prints for the next block; ``after``: what the last one did."""
    kind, body = block["kind"], block["body"]
    if block["file"]:
        target = runner.folder / block["file"]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(runner.hidden(body))
    if kind == "text" and after:
        return after, ""
    if kind == "console":
        return runner.console(body), ""
    if kind == "python":
        return body, runner.python(body)
    _check(kind, body)
    return body, ""


def _check(kind: str, body: str) -> None:
    if kind == "yaml":
        Workflow.parse(body)
    if kind == "json":
        json.loads(body)
    if kind == "toml":
        tomllib.loads(body)
    if kind == "py":
        tree = compile(body, "<page>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        _check_imports(tree)


def _check_imports(tree: ast.AST) -> None:
    """Names that an excerpt imports from our packages must exist."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in {"memfiles", "mirrors"}:
            module = importlib.import_module(str(node.module))
            assert [] == [alias.name for alias in node.names if not hasattr(module, alias.name)]


def _imported(tree: ast.AST) -> set[str]:
    """The top-level packages that a program imports, and those that its adapters stand for."""
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {name if name.startswith("memfiles.adapters") else name.partition(".")[0] for name in names}


@contextlib.contextmanager
def runner_in(folder: Path, *, apart: bool = False) -> Iterator[Runner]:
    """A runner in a new folder below ``folder``."""
    (folder / "desk").mkdir()
    yield Runner((folder / "desk").resolve(), apart)


def main(arguments: list[str]) -> int:
    """List the pages that are out of date, or write them anew; 1 if any was or is."""
    write = "--write" in arguments
    chosen = [Path(each).resolve() for each in arguments if not each.startswith("-")] or PAGES
    changed = False
    for page in chosen:
        text = page.read_text("utf-8")
        with tempfile.TemporaryDirectory() as folder, runner_in(Path(folder)) as runner:
            new = rendered(text, runner)
        if new != text:
            changed = True
            print(f"{'written' if write else 'out of date'}: {page}")
            if write:
                page.write_text(new, "utf-8")
    return int(changed and not write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
