"""What a mirror holds is a working memory directory, for whoever fetches it with a tool of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from memfiles.manager import MemoryManager
from memfiles.workflow import MemoryFile
from mirroring import servers
from mirroring.servers import ACCESS_KEY, BUCKET, SECRET_KEY
from mirrors.s3.location import S3Location
from mirrors.s3.mirror import connect

FILES = (MemoryFile(uid="notes-1", name="notes"), MemoryFile(uid="rules", name="rules", content="Be kind.\n"))


@pytest.mark.servers
def test_a_copied_bucket_is_a_memory_directory(tmp_path: Path, aws_environment: None) -> None:
    """Records put through the mirror, copied by rclone: memfiles starts on the copy, with the same memory."""
    here, there, store = tmp_path / "here", tmp_path / "there", tmp_path / "store"
    store.mkdir()
    with MemoryManager(here) as manager:
        manager.restore(FILES)
        manager.append("notes-1", "- Bob is on Pro\n")
        before = [manager.read(file.uid) for file in FILES]
    with servers.weed(store) as url:
        mirror = connect(S3Location(BUCKET, "desk", endpoint=url))
        for record in here.glob("*.json"):
            mirror.put(record.name, record.read_bytes())
        remote = f":s3,provider=Other,endpoint='{url}',access_key_id={ACCESS_KEY},secret_access_key={SECRET_KEY}:"
        command = [servers.tool("rclone"), "--config", "/dev/null", "copy", f"{remote}{BUCKET}/desk", str(there)]
        subprocess.run(command, check=True, timeout=60, capture_output=True)
    with MemoryManager(there) as manager:
        report = manager.restore(FILES)

        assert ["kept", "kept"] == [row.status for row in report.files]
        assert before == [manager.read(file.uid) for file in FILES]
