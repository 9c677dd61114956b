"""See ``memfiles.storage.entry_folders``."""

from __future__ import annotations

from pathlib import Path

from memfiles.records.keys import ENTRIES
from memfiles.storage.atomic import Descriptor
from memfiles.storage.entry_folders import files


def test_a_link_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    """It may lead out of the memory directory."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.json").write_text("{}")
    (tmp_path / ENTRIES).mkdir()
    (tmp_path / ENTRIES / "support").symlink_to(tmp_path / "elsewhere")

    assert [] == list(files(Descriptor.of_directory(tmp_path), "support", []))
