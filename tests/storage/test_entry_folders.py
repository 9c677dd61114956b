"""See ``memfiles.storage.entry_folders``."""

from __future__ import annotations

import os
from pathlib import Path

from memfiles.records.keys import ENTRIES
from memfiles.storage.atomic import Descriptor
from memfiles.storage.entry_folders import FolderSum, files, folder_sum


def test_a_link_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    """It may lead out of the memory directory."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.json").write_text("{}")
    (tmp_path / ENTRIES).mkdir()
    (tmp_path / ENTRIES / "support").symlink_to(tmp_path / "elsewhere")

    assert [] == list(files(Descriptor.of_directory(tmp_path), "support", []))


def test_files_that_swap_their_sizes_times_or_names_add_up_to_another_sum(tmp_path: Path) -> None:
    """As after two edits in place by a program that sets times, or two renames; the order of the files is no matter."""
    folder = tmp_path / "entries/support"
    folder.mkdir(parents=True)
    descriptor = Descriptor.of_directory(tmp_path)
    one, other = folder / f"{1:040}.json", folder / f"{2:040}.json"

    def summed(first: bytes, second: bytes, *times: int) -> FolderSum:
        for path, data, time in zip((one, other), (first, second), times, strict=True):
            path.write_bytes(data)
            os.utime(path, ns=(time, time))
        return folder_sum(descriptor, "support")

    before, swapped = summed(b"a", b"bb", 10**18, 10**18 + 5), summed(b"cc", b"d", 10**18 + 5, 10**18)
    again = summed(b"e", b"ff", 10**18, 10**18 + 5)
    os.rename(one, folder / "kept")
    os.rename(other, one)
    os.rename(folder / "kept", other)
    renamed = folder_sum(descriptor, "support")

    assert before == again
    assert 3 == len({before, swapped, renamed})
