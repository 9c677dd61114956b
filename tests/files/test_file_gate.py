"""The gate judges the result of a change: what two harmless texts make together, and not what was there before."""

from __future__ import annotations

import json
import logging
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memfiles import MemoryFile, MemoryManager
from memfiles.errors import MemfilesError, SecretRefused
from memfiles.secrets.gate import Policy, find_secrets
from memfiles.storage.home import home_of
from tests.secrets.secret_corpus import SECRETS, Secret
from tests.support import ROOT
from tests.support.stores import place_of

BEFORE = "# Notes\nGr\u00fc\u00dfe\n"
Opener = Callable[[Policy], MemoryManager]


def harmless_splits(secret: Secret) -> list[int]:
    """Where a credential can be cut so that neither part is one."""
    text = secret.text
    at = range(1, len(text))
    return [cut for cut in at if not find_secrets(BEFORE + text[:cut]) and not find_secrets(text[cut:])]


TOKEN = next(secret for secret in SECRETS if secret.rule == "openai-key")


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opener]:
    """Opens the files of one directory under a policy; what was open before is closed."""
    managers: list[MemoryManager] = []

    def opening(policy: Policy) -> MemoryManager:
        for manager in managers:
            manager.close()
        manager = MemoryManager(place_of(tmp_path / ".memory"), secrets=policy)
        manager.restore([MemoryFile(uid="a", name="a", content=BEFORE), MemoryFile(uid="b", name="b")])
        managers.append(manager)
        return manager

    yield opening
    for manager in managers:
        manager.close()


def everywhere(folder: Path) -> bytes:
    """All bytes under a folder."""
    return b"\0".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret.rule)
def test_two_appends_make_no_credential(opened: Opener, secret: Secret) -> None:
    """The second is refused, with the place in the file, and changes nothing."""
    manager = opened("block")
    cut = random.Random(0).choice(harmless_splits(secret))
    manager.append("a", secret.text[:cut])
    place = len((BEFORE + secret.before).encode())
    with pytest.raises(
        SecretRefused, match=rf"together with the text around it \({secret.rule} at byte {place}\)"
    ) as error:
        manager.append("a", secret.text[cut:])

    assert secret.value not in str(error.value)
    assert BEFORE + secret.text[:cut] == manager.read("a")


def test_an_edit_makes_no_credential(opened: Opener) -> None:
    """Whether it puts the missing part in, or takes out what stood in the way, or replaces the whole content."""
    manager = opened("block")
    half = 12
    manager.append("a", f"{TOKEN.value[:half]} ... {TOKEN.value[half:]}\n")
    changes: list[Callable[[], object]] = [
        lambda: manager.edit("a", " ... ", ""),
        lambda: manager.edit("a", " ... " + TOKEN.value[half:], TOKEN.value[half:]),
        lambda: manager.replace("a", f"x {TOKEN.value}\n"),
        lambda: manager.append_many([("b", TOKEN.value[:half]), ("b", TOKEN.value[half:])]),
    ]
    for change in changes:
        with pytest.raises(SecretRefused):
            change()

    assert ["", 2] == [manager.read("b"), manager.card("a").revision]


def test_context_does_not_hide_a_credential(opened: Opener) -> None:
    """A text that is one by itself is refused where the text before it would make it look like a longer word."""
    manager = opened("block")
    manager.append("a", "xyz")
    with pytest.raises(SecretRefused):
        manager.append("a", TOKEN.value)


def test_what_was_there_before_is_not_refused(opened: Opener) -> None:
    """A file that holds a credential can be changed around it, and can lose it bit by bit; a second one is refused."""
    opened("off").append("a", f"{TOKEN.value}\n")
    manager = opened("block")
    manager.append("a", "- more\n")
    manager.edit("a", "# Notes", "# Words")
    manager.edit("a", f"{TOKEN.value}", f"see: {TOKEN.value} !")
    manager.replace("a", manager.read("a").replace("- more", "- less"))
    with pytest.raises(SecretRefused):
        manager.append("a", TOKEN.value)
    manager.edit("a", TOKEN.value[-4:], "")
    manager.edit("a", TOKEN.value[:-4], "it")

    assert "# Words\nGr\u00fc\u00dfe\nsee: it !\n- less\n" == manager.read("a")


def test_an_undo_brings_it_back_with_a_warning(opened: Opener) -> None:
    """It is the person's text, and was stored before."""
    opened("off").append("a", f"{TOKEN.value}\n")
    manager = opened("block")
    manager.edit("a", f"{TOKEN.value}\n", "")
    undone = manager.undo("a")

    assert f"appears to contain a credential: {TOKEN.rule} at byte" in str(undone.warning)
    assert TOKEN.value in manager.read("a") and TOKEN.value not in str(undone)


@pytest.mark.directory("only files can be changed by hand")
def test_a_hand_edit_is_warned_of(opened: Opener, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Once, by name, rule and place."""
    manager = opened("block")
    manager.append("a", TOKEN.value[:12])
    path = tmp_path / ".memory" / "a.json"
    record = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**record, "content": record["content"] + TOKEN.value[12:]}), "utf-8")
    with caplog.at_level(logging.WARNING, "memfiles"):
        manager.notice("a")
        manager.notice("a")
        manager.append("a", "\n- more\n")

    told = [message for message in caplog.messages if "credential" in message]
    assert [f"a: a change by hand appears to contain a credential: {TOKEN.rule} at byte {len(BEFORE.encode())}"] == told


@pytest.mark.parametrize("cut", [4, 12, 19])
@pytest.mark.parametrize("op", ["append", "edit", "append_many"])
def test_redact_takes_out_the_earlier_part_too(opened: Opener, tmp_path: Path, op: str, cut: int) -> None:
    """From content, history and every file under the directory; the other lines stay, and a replay is recognised."""
    manager = opened("redact")
    first, second = TOKEN.value[:cut], TOKEN.value[cut:]
    manager.append("a", "- one\n")
    manager.append("a", f"- two\n{first}" + ("| after\n" if op == "edit" else ""))
    if op == "append":
        receipts = [manager.append("a", f"{second}\n- three\n", call_id="call-1") for _ in range(2)]
    elif op == "edit":
        receipts = [manager.edit("a", "| after\n", f"{second}\n- three\n", call_id="call-1") for _ in range(2)]
    else:
        receipts = manager.append_many([("a", second), ("a", "\n- three\n")])

    assert f"{BEFORE}- one\n- two\n[redacted:{TOKEN.rule}]\n- three\n" == manager.read("a")
    assert f"redacted an apparent credential: {TOKEN.rule} at byte" in str(receipts[0].warning)
    assert op == "append_many" or receipts[1].replayed
    kept = everywhere(tmp_path)
    manager.close()
    for part in (first, second):
        assert part.encode() not in kept + everywhere(tmp_path)
    manager = opened("off")
    for revision in range(1, manager.card("a").revision):
        try:
            manager.undo("a", to_revision=revision)
        except MemfilesError:
            continue  # the history does not go back so far
        assert first not in manager.read("a") and second not in manager.read("a")


KILLED = """
import os, sys
from memfiles import MemoryFile, MemoryManager
from memfiles.files import manager as module
module.erase = lambda _, lost, __: os._exit(9) if lost else 0  # the record lost it, and nothing else was done
manager = MemoryManager(sys.argv[1], secrets="redact")
manager.restore([MemoryFile(uid="a", name="a"), MemoryFile(uid="b", name="b")])
manager.append("a", sys.argv[3]) if sys.argv[2] == "append" else manager.append_many([("a", sys.argv[3]), ("b", "-")])
"""


@pytest.mark.parametrize("op", ["append", "append_many"])
def test_the_next_start_takes_out_what_a_killed_process_did_not(opened: Opener, tmp_path: Path, op: str) -> None:
    """The earlier part of the credential, from kept copies and the ledger of the mirror, as after a ``redact``."""
    manager, (first, second) = opened("redact"), (TOKEN.value[:12], TOKEN.value[12:])
    manager.append("a", f"- one\n{first}")
    found, place = manager.records.find("a.json"), place_of(tmp_path / ".memory")
    assert found is not None and first.encode() in found[0]
    home_of(place).kept.keep("a.json", found[0], reason="test", at="2026-11-22T00:00:00.000Z", folder="quarantine")
    manager.close()
    killed = subprocess.run([sys.executable, "-c", KILLED, str(place), op, second], cwd=ROOT, check=False)
    manager = opened("redact")

    assert (9, f"{BEFORE}- one\n[redacted:{TOKEN.rule}]") == (killed.returncode, manager.read("a"))
    assert [] == home_of(place).kept.listing()
    assert first.encode() not in everywhere(tmp_path)


def test_redact_takes_a_whole_credential_out_before_it_is_stored(opened: Opener, tmp_path: Path) -> None:
    """The history of the rest stays as it is, and so does that of other files."""
    manager = opened("redact")
    manager.append("a", f"- {TOKEN.value}\n")
    manager.replace("b", f"- {TOKEN.value}\n")

    assert [f"{BEFORE}- [redacted:{TOKEN.rule}]\n", f"- [redacted:{TOKEN.rule}]\n"] == [
        manager.read("a"),
        manager.read("b"),
    ]
    assert BEFORE == (manager.undo("a"), manager.read("a"))[1]
    assert TOKEN.value.encode() not in everywhere(tmp_path)


def test_warn_lets_it_pass(opened: Opener) -> None:
    """With the place in the file."""
    manager = opened("warn")
    manager.append("a", TOKEN.value[:12])
    receipt = manager.append("a", TOKEN.value[12:])

    assert f"appears to contain a credential: {TOKEN.rule} at byte {len(BEFORE.encode())}" == receipt.warning
