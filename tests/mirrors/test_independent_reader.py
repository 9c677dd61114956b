"""What a mirror holds is a working memory directory, for whoever fetches it with a tool of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from memfiles.files.manager import MemoryManager
from memfiles.workflow.workflow import Workflow
from tests.mirrors import servers
from tests.mirrors.servers import ACCESS_KEY, BUCKET, SECRET_KEY
from tests.support.workflows import opened

WORKFLOW = """\
name: desk
memory:
  mirror: {url: "s3://memory/desk?endpoint=%s"}
  files:
    - {uid: notes-1, name: notes, content: "# Notes\\n"}
    - {uid: rules, name: rules, content: "Be kind.\\n"}
"""


@pytest.mark.servers
@pytest.mark.usefixtures("aws_environment", "installed")
def test_a_copied_bucket_is_a_memory_directory(tmp_path: Path) -> None:
    """What two machines mirrored, merges included, is copied by rclone: memfiles starts on it, with the same memory."""
    (tmp_path / "store").mkdir()
    with servers.weed(tmp_path / "store") as url:
        before = contents_after_the_work_of_two(tmp_path, url=url)
        copy_with_rclone(f"{BUCKET}/desk", tmp_path / "copy", url=url)

    with MemoryManager(tmp_path / "copy") as manager:
        report = manager.restore(Workflow.parse(WORKFLOW % url))

        assert ["kept", "kept"] == [row.status for row in report.files]
        assert () == report.orphans
        assert before == {uid: manager.read(uid) for uid in manager.uids()}


def contents_after_the_work_of_two(folder: Path, *, url: str) -> dict[str, str]:
    """Have two machines with a directory each append to one file, and return what both have in the end."""
    with opened(folder / "here", WORKFLOW % url) as here, opened(folder / "there", WORKFLOW % url) as there:
        here.manager.append("notes-1", "- Ada\n")
        there.manager.append("notes-1", "- Bob\n")
        for memory in (here, there, here):
            memory.sync.pull(60)
        contents = {uid: here.manager.read(uid) for uid in here.manager.uids()}
        assert contents == {uid: there.manager.read(uid) for uid in there.manager.uids()}
    assert {"# Notes", "- Ada", "- Bob"} == set(contents["notes-1"].splitlines())
    return contents


def copy_with_rclone(source: str, target: Path, *, url: str) -> None:
    """Fetch a part of the bucket with a program that knows nothing of memfiles."""
    remote = f":s3,provider=Other,endpoint='{url}',access_key_id={ACCESS_KEY},secret_access_key={SECRET_KEY}:"
    command = [servers.tool("rclone"), "--config", "/dev/null", "copy", f"{remote}{source}", str(target)]
    subprocess.run(command, check=True, timeout=180, capture_output=True)
