"""The examples run as they are, in a copy of their folder, and do what they say."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import unavailable
from tests.support import ROOT
from tests.support.postgres import postgres_server

pytestmark = pytest.mark.slow
EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """A copy of the folder, so that no run leaves a memory behind."""
    return Path(shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns(".memory")))


def output_of(script: Path, *args: str) -> str:
    """What the script prints; it must end well and say nothing on stderr."""
    untraced = os.environ | {"LANGSMITH_TRACING": "false"}
    command = [sys.executable, str(script), *args]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, env=untraced)
    assert (0, "") == (ran.returncode, ran.stderr)
    return ran.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_an_example_is_short(script: Path) -> None:
    """No example is longer than 60 lines."""
    assert len(script.read_text().splitlines()) < 60


def test_declare_files(examples: Path) -> None:
    """The first run seeds the files, the next finds what the first left."""
    first, second = output_of(examples / "declare_files.py"), output_of(examples / "declare_files.py")

    assert ["customer-notes: seeded", "playbook: seeded"] == first.splitlines()[:2]
    assert ["customer-notes: kept", "playbook: kept"] == second.splitlines()[:2]
    assert ["# Customers", "- Bob is on Pro.", "- Bob is on Pro."] == second.splitlines()[-3:]
    assert "refused: the text to replace does not occur in customer-notes" in first


def test_two_workers(examples: Path) -> None:
    """Each worker finds what the other saved just before, and the log has the lines of both in their order."""
    with postgres_server() as server:
        shown = output_of(examples / "two_workers.py", server.url(server.workspace()))

    assert [f"case {number}: {number + 1} cases are known" for number in range(4)] == shown.splitlines()[:4]
    assert ["- ada: 0", "- bob: 1", "- ada: 2", "- bob: 3"] == shown.splitlines()[4:]


def test_recall_a_turn(examples: Path) -> None:
    """What one conversation taught stands before the question of the next."""
    shown = output_of(examples / "recall_a_turn.py")

    assert shown.startswith("saved: customers/ada/plan\nagain: True\n--- user\n## Recalled memory\n")
    assert shown.endswith("| Ada moved to the Pro plan in May.\n--- user\nWhich plan is Ada on?\n")


def test_system_prompt(examples: Path) -> None:
    """The request holds the index card and the tools; the tool's answer is the playbook."""
    shown = output_of(examples / "system_prompt.py")

    assert "- customer-notes (RW, 12B of 16384B)" in shown
    assert '"input_schema"' in shown
    assert '"content": "- Refund a double charge at once.\\n"' in shown


@pytest.mark.usefixtures("installed")
def test_sync_s3(examples: Path) -> None:
    """Both machines' lines are in the bucket, on both machines, and on the one that lost its disk."""
    if importlib.util.find_spec("moto") is None:
        unavailable("moto is not installed")

    shown = output_of(examples / "sync_s3.py").splitlines()

    assert ["both machines have the same: True", "after the loss of a disk: hydrated", "# Customers"] == shown[:3]
    assert {"- Ada is on Pro.", "- Bob is on Free."} == set(shown[3:])


def test_a_missing_server_is_named(examples: Path) -> None:
    """Without moto the example says what to install, and nothing else."""
    (examples / "moto").mkdir()
    (examples / "moto" / "__init__.py").write_text("")

    ran = subprocess.run([sys.executable, str(examples / "sync_s3.py")], capture_output=True, text=True, timeout=180)

    assert (1, "") == (ran.returncode, ran.stdout)
    assert "pip install 'moto[s3,server]'" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_pydantic_ai(examples: Path) -> None:
    """A pydantic-ai agent sees the card, calls the tools, is told what it may not do, and its note is in the file."""
    if importlib.util.find_spec("pydantic_ai") is None:
        unavailable("pydantic-ai-slim is not installed")

    shown = output_of(examples / "pydantic_ai_offline.py").splitlines()

    assert "## Memory files available" == shown[0]
    assert "failed: playbook is read-only here; write to a file marked RW" in shown
    assert ["I have refunded the second charge, Ada.", "# Customers", "- Ada was charged twice; refunded."] == shown[
        -3:
    ]


def test_pydantic_ai_harness(examples: Path) -> None:
    """What one run of an agent notes, the next one is shown; it is an entry like any other."""
    if importlib.util.find_spec("pydantic_ai_harness") is None:
        unavailable("pydantic-ai-harness is not installed")

    shown = output_of(examples / "pydantic_ai_harness_offline.py").splitlines()

    assert ["Ada is on Pro.", "main/MEMORY.md, revision 1, INTERNAL: - Ada is on Pro."] == shown[-2:]


def test_keep_entries(examples: Path) -> None:
    """Each session finds what its level lets it see, and only that stands in the prompt."""
    shown = output_of(examples / "keep_entries.py")

    assert "INTERNAL ['bob:plan']" in shown
    assert "CONFIDENTIAL ['bob:debt', 'bob:plan']" in shown
    assert "| Bob moved to the Pro plan in May." in shown
    assert "| Bob owes us" not in shown


def test_anthropic_memory(examples: Path) -> None:
    """The vendor's tool runner lists the files, adds a line to one, and is told that the other is read-only."""
    shown = output_of(examples / "anthropic_memory_offline.py")

    assert "12B\t/memories/customer-notes\n" in shown
    assert "playbook is read-only here" in shown
    assert shown.endswith("# Customers\n- Ada is on Pro.\n")


def test_openai_agents(examples: Path) -> None:
    """An agent of the OpenAI Agents SDK sees the card, calls the tools, and is told what it may not do."""
    shown = output_of(examples / "openai_agents_offline.py").splitlines()

    assert ["You answer customers.", "", "## Memory files available"] == shown[:3]
    assert "playbook is read-only here; write to a file marked RW" == shown[-4]
    assert ["I have refunded the second charge, Ada.", "# Customers", "- Ada was charged twice; refunded."] == shown[
        -3:
    ]


def test_anthropic_tools(examples: Path) -> None:
    """The vendor's tool runner calls the session's tools, and an error is marked as one."""
    shown = output_of(examples / "anthropic_tools_offline.py").splitlines()

    assert ["['read_memory', 'append_memory', 'edit_memory']", "False - Refund a double charge at once."] == shown[:2]
    assert "True playbook is read-only here; write to a file marked RW" == shown[3]
    assert ["# Customers", "- Ada was charged twice; refunded."] == shown[4:]


def test_langgraph(examples: Path) -> None:
    """An agent of create_agent has the session's tools and prompt, and is told what the workflow forbids."""
    shown = output_of(examples / "langgraph_offline.py").splitlines()

    assert ["tools: read_memory append_memory edit_memory"] * 3 == [line for line in shown if "tools:" in line]
    assert "error | playbook is read-only here" in "\n".join(shown)
    assert ["Noted, Ada.", "# Customers", "- Ada moved to Pro."] == shown[-3:]


def test_many_users(examples: Path) -> None:
    """Two users at once, of one agent: each is answered from what she said herself."""
    shown = output_of(examples / "many_users.py").splitlines()

    assert ["I am Ada, on Pro.", "I am Bob, on Free."] * 2 == shown


def test_langgraph_store(examples: Path) -> None:
    """What one program's graph put into its store, the next one finds."""
    shown = output_of(examples / "langgraph_store_offline.py").splitlines()

    assert [
        "[('emails', 'ada'), ('emails', 'bob')]",
        "('emails', 'ada') 000 {'text': 'I was charged twice.', 'open': True}",
    ] == shown


def test_deepagents(examples: Path) -> None:
    """A deep agent works on the memory files as on files, within their modes; its other files are no memory."""
    shown = output_of(examples / "deepagents_offline.py").splitlines()

    assert "success | ['/memories/customer-notes', '/memories/playbook']" == shown[0]
    assert "error | playbook is read-only here" in "\n".join(shown)
    assert ["success | Updated file /scratch.md", "# Ada"] == shown[-2:]
