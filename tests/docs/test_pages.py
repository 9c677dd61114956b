"""The documentation is true: its blocks run, and what it shows of the program is what the program says."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from memfiles.cli.failures import INTERRUPTED, USAGE
from memfiles.cli.program import COMMANDS
from memfiles.errors import MemfilesError
from memfiles.workflow import yaml_source, yaml_text
from tests.cli.command_line import run
from tests.docs import reference
from tests.docs.pages import PAGES, main, rendered, runner_in
from tests.support import ROOT

README, DOCS = ROOT / "README.md", ROOT / "docs"
PROSE = [*PAGES, ROOT / "CHANGELOG.md", *(ROOT / ".github").glob("*.md")]
COMMAND_LINE = (DOCS / "command-line.md").read_text("utf-8")
PYTHON_API = (DOCS / "python-api.md").read_text("utf-8")
MCP = (DOCS / "mcp.md").read_text("utf-8")
SLOW = {
    README,
    DOCS / "python-api.md",
    *(DOCS / "frameworks").glob("*.md"),
}  # they start processes, or import frameworks for seconds


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def marked(page: Path) -> Any:
    return pytest.param(page, marks=[pytest.mark.slow] if page in SLOW else [], id=name_of(page))


@pytest.mark.parametrize("page", [marked(page) for page in PAGES])
@pytest.mark.slow
def test_a_page_is_up_to_date(page: Path, tmp_path: Path) -> None:
    """Each block runs, with the output that the page quotes; ``python -m tests.docs.pages --write`` refreshes it."""
    text = page.read_text("utf-8")
    with runner_in(tmp_path, apart=page == README) as runner:
        assert rendered(text, runner) == text


def test_every_internal_method_exists() -> None:
    """A method that got another name would be documented under that one."""
    internal = [(kind, name) for kind, names in reference.INTERNAL.items() for name in names]

    assert [] == [(kind, name) for kind, name in internal if not hasattr(reference.named(kind), name)]


WRONG = [
    "```python\n1/0\n```",
    "```python\nprint(1)\n```",
    "```json\n{\n```",
    "```py\n(\n```",
    "```py\nfrom memfiles import nothing\n```",
    "```yaml\nmemory: {nothing: 1}\n```",
    "```console\n$ memfiles ls --nothing\n```",
    "<!-- generated: api Nothing -->\n<!-- end -->",
]


@pytest.mark.parametrize("block", WRONG)
def test_a_block_that_does_not_work_is_found(block: str, tmp_path: Path) -> None:
    """A page that shows something wrong cannot be rendered."""
    with runner_in(tmp_path) as runner, pytest.raises(Exception):  # noqa: B017, PT011 - whatever it raises fails the page
        rendered(f"# Title\n\n{block}\n", runner)


def test_writing_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command lists pages whose quotes are out of date, and writes them when it is told to."""
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(6 * 7)\n```\n\n```text\n41\n```\n")

    assert 1 == main([str(page)])
    assert 0 == main(["--write", str(page)])
    assert "```python\nprint(6 * 7)\n```\n\n```text\n42\n```\n" == page.read_text()
    assert 0 == main([str(page)])
    assert [f"out of date: {page}", f"written: {page}"] == capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("page", PROSE, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """A relative link names a file of the repository, and a heading in it."""
    broken = []
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text("utf-8")):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or (anchor and anchor not in anchors_in(found)):
            broken.append(target)

    assert [] == broken


def anchors_in(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PROSE, ids=name_of)
def test_the_commands_it_names(page: Path) -> None:
    """Every command that a page names exists."""
    named = re.findall(r"(?:`|^\$ )memfiles ([a-z]+)", page.read_text("utf-8"), re.MULTILINE)

    assert set() == set(named) - {name for family in COMMANDS.values() for name in family}


def test_the_readme_is_short() -> None:
    """What does not fit on some screens has a page of its own."""

    assert len(README.read_text("utf-8").splitlines()) <= 200


def test_the_index_lists_every_page() -> None:
    """``docs/README.md`` leads to every page; that of the frameworks to each of theirs."""
    listed = {
        (index.parent / target).resolve()
        for index in (DOCS / "README.md", DOCS / "frameworks" / "README.md")
        for target in re.findall(r"\]\(([\w./-]+\.md)\)", index.read_text("utf-8"))
    }

    assert set(DOCS.rglob("*.md")) - {DOCS / "README.md"} <= listed


@pytest.mark.parametrize("page", PROSE, ids=name_of)
def test_the_paths_it_names(page: Path) -> None:
    """Every source file, example or schema that a page names exists."""
    named = re.findall(r"`((?:memfiles|mirrors|examples|schemas|tests)/[\w/.]+\.\w+)`", page.read_text("utf-8"))

    assert [] == [name for name in named if not (ROOT / name).exists()]


def test_the_rooms_of_the_architecture() -> None:
    """The page on architecture lists the rooms in the order of their layers."""
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"][0][
        "layers"
    ]
    rooms = [room for layer in layers for room in layer.split(" | ")]

    assert rooms == re.findall(r"^\| `(\w+)` \|", (DOCS / "architecture.md").read_text("utf-8"), re.MULTILINE)


def test_the_exit_codes() -> None:
    """The table holds every exit code that an error has, and no other but 0 and 1."""
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", COMMAND_LINE, re.MULTILINE)}

    assert {0, 1, USAGE, INTERRUPTED} | {kind.exit_code for kind in MemfilesError.__subclasses__()} == listed


def test_the_limits_of_a_workflow() -> None:
    """The page names those of the loader."""
    limits = f"at most {yaml_source.DEPTH_MAX} levels deep and {yaml_text.SIZE_MAX >> 20} MiB"

    assert limits in (DOCS / "workflow.md").read_text("utf-8")


def test_the_schemes_of_mirrors() -> None:
    """The table of URLs has those that memfiles brings."""
    text = (DOCS / "mirrors.md").read_text("utf-8")

    assert {"s3", "file", "https"} == set(re.findall(r"^\| `(\w+)://", text, re.MULTILINE))


@pytest.mark.parametrize("shell", ["bash_source", "zsh_source", "fish_source"])
def test_shell_completion(shell: str) -> None:
    """The line for shell completion prints a script for that shell."""
    assert f"_MEMFILES_COMPLETE={shell}" in COMMAND_LINE or shell in COMMAND_LINE
    assert "_MEMFILES_COMPLETE" in run(env={"_MEMFILES_COMPLETE": shell}).out


def test_the_python_api_is_complete() -> None:
    """Every public name of memfiles, its adapters and the mirrors is on the page, in a part made from the code."""
    asked = {
        name for words in re.findall(r"<!-- generated: api (.+) -->", PYTHON_API) for name in reference.chosen(words)
    }

    assert sorted(reference.names()) == sorted(asked)
    assert "<!-- generated: errors -->" in PYTHON_API


def test_what_methods_return_is_in_the_python_api() -> None:
    """Whoever reads a signature finds the class of its result on the page; what adapters return is the framework's."""
    page = PYTHON_API.partition("\n## Adapters\n")[0]
    described = set(re.findall(r"^### (\S+)", page, re.MULTILINE))
    signatures = "".join(re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    results = re.findall(r"^\S.* -> (.+)|^\w+: (.+)", signatures, re.MULTILINE)
    returned = set(re.findall(r"\b[A-Z]\w+", str(results)))
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "memfiles").rglob("*.py"))

    assert set() == returned.intersection(re.findall(r"^class (\w+)", sources, re.MULTILINE)) - described


def test_every_adapter_is_in_the_python_api() -> None:
    """A module with the name of a framework is public, and so is what it says to use."""
    folder = ROOT / "memfiles" / "adapters"
    described = {path.stem for path in folder.glob("*.py") if "with needs(" in path.read_text("utf-8")}

    assert described == set(reference.ADAPTERS)


def test_every_command_is_on_the_page_of_commands() -> None:
    """Each family of commands has a part that is made from the program."""
    asked = re.findall(r"<!-- generated: commands (.+) -->", (DOCS / "commands.md").read_text("utf-8"))

    assert list(COMMANDS) == asked


# What the page on MCP has clients start, starts.

SNIPPETS = dict(re.findall(r"in `([^`]+)`:\n\n```json\n(.*?)^```$", MCP, re.M | re.S))
PLACES = {
    "claude_desktop_config.json": "mcpServers",
    ".cursor/mcp.json": "mcpServers",
    ".vscode/mcp.json": "servers",
}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


def blocks(language: str) -> list[str]:
    """The blocks of the page on MCP in that language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", MCP, re.M | re.S)


def started(command: list[str], folder: Path) -> Any:
    """What the server that a client is told to start answers to its first request, on the way out."""
    from tests.server.mcp_clients import environment, workflow_in  # late: it takes a second to import

    assert ["memfiles", "mcp"] == command[:2]
    args = [str(workflow_in(folder)) if arg == "/path/to/workflow.yaml" else arg for arg in command[1:]]
    program = [sys.executable, "-m", "memfiles", *args]
    asked = json.dumps(HELLO) + "\n"
    ran = subprocess.run(program, input=asked, env=environment(), capture_output=True, text=True, timeout=60)
    assert (0, "") == (ran.returncode, ran.stderr)
    return json.loads(ran.stdout)["result"]["serverInfo"]["name"]


def test_there_is_a_snippet_for_each_client() -> None:
    """Each names the file that it is for, and has the outer key that this client knows."""

    assert {place: [*json.loads(text)] for place, text in SNIPPETS.items()} == {
        place: [key] for place, key in PLACES.items()
    }
    assert 4 == len(blocks("json"))
    assert "`.mcp.json` in the folder of a project:" in MCP


@pytest.mark.slow
@pytest.mark.parametrize("text", blocks("json"), ids=["claude-code", "claude-desktop", "cursor", "vs-code"])
def test_what_a_snippet_starts(text: str, tmp_path: Path) -> None:
    """It is JSON, and its command serves the memory over stdio."""
    ((_, servers),) = json.loads(text).items()
    server = servers["memory"]

    assert "stdio" == server.get("type", "stdio")
    assert "memfiles" == started([server["command"], *server["args"]], tmp_path)


@pytest.mark.slow
def test_what_claude_code_is_told_on_the_command_line(tmp_path: Path) -> None:
    """What stands behind the two dashes is the command."""
    line = next(block for block in blocks("sh") if block.startswith("claude"))
    words = shlex.split(line)

    assert ["claude", "mcp", "add", "--transport", "stdio", "memory", "--"] == words[:7]
    assert "memfiles" == started(words[7:], tmp_path)
