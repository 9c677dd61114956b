"""The image of an index in a store: fresh workers fetch it; it holds nothing erased, and a bad one costs time only."""

from __future__ import annotations

import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from memfiles.entries.entries import Entries
from memfiles.index.database import PATH, IndexUnusable
from memfiles.index.image import PART_BYTES, ImageKeeper, _file, image_format
from memfiles.index.text.languages import made_with
from tests.index.images import epoch, fill, image, keeper_of, packed, remote, replace_image, rewritten
from tests.index.test_store_cache import ANN, entries_at, found
from tests.support.postgres import SCHEMA, PostgresServer
from tests.support.records import wait_until
from tests.support.saved import Visitor

pytestmark = pytest.mark.slow


def test_a_fresh_worker_fetches_it(url: str) -> None:
    """Its index is the one that another worker built; what was changed since is read from the records."""
    with entries_at(url, None) as entries:
        fill(entries)
        entries.save(ANN, "k7", "giraffe")
        entries.delete(ANN, "k8")
        with entries_at(url, None) as fresh:
            answers = found(fresh, "giraffe"), found(fresh, "8"), found(fresh, "7"), found(fresh, "quagmire")
            is_fetched = epoch(entries) == epoch(fresh)

    assert (["k7"], [], [], ["secret"], True) == (*answers, is_fetched)


def test_one_without_entries_enough_is_not_kept(server: PostgresServer, workspace: str, url: str) -> None:
    """A few thousand are built faster than anybody waits for."""
    with entries_at(url, None) as entries:
        entries.save(ANN, "tea", "green")
        assert ["tea"] == found(entries, "green")
        keeper_of(entries).wait()

    assert [] == image(server, workspace)


def test_a_file_that_cannot_be_removed_or_written_costs_time_only(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing of it comes into a search, nor that no thread can be started."""
    caplog.set_level("INFO", logger="memfiles")
    with entries_at(url, None) as entries:
        fill(entries)
        with entries_at(url, tmp_path) as fresh:
            (fresh._index.directory / _file("fetched") / "full").mkdir(parents=True)
            answers = found(fresh, "quagmire"), epoch(entries) == epoch(fresh)
            keeper = keeper_of(fresh)
            keeper.wait()
            keeper.renew()
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", no_thread)
                keeper.begin(fresh._index._at_rest)
            keeper.wait()

    assert (["secret"], False) == answers
    assert "the index is built, as its image in the store cannot be used" in caplog.text


def no_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_what_a_killed_process_left_of_one_is_removed(url: str, tmp_path: Path) -> None:
    """It may have what was forgotten since; something that cannot be removed is no obstacle."""
    with entries_at(url, tmp_path) as entries:
        folder = entries._index.directory
    for name in ("image-1-made.sqlite", "image-1-made.sqlite-journal", "image-2-fetched.sqlite"):
        (folder / name).write_text("left")
    (folder / "image-0" / "full").mkdir(parents=True)
    with entries_at(url, tmp_path) as entries:
        left = [path.name for path in entries._index.directory.iterdir() if path.name.startswith("image")]

    assert (folder, ["image-0"]) == (entries._index.directory, left)


def test_one_that_is_made_is_not_disturbed_by_one_that_is_fetched(
    server: PostgresServer, workspace: str, url: str
) -> None:
    """Another thread that finds the index lost fetches an image, and removes what it wrote itself."""
    with entries_at(url, None) as entries:
        fill(entries)
        keeper, made = keeper_of(entries), entries._index.directory / _file("made")
        keeper.wait()
        keeper._must_fetch = True  # as in a process that found an index there
        made.write_text("half")
        entries._index._maintenance.start_over()
        found(entries, "zebra")

        assert (False, "half") == (keeper._must_fetch, made.read_text())


def test_a_log_of_an_earlier_file_is_not_replayed_over_it(url: str, tmp_path: Path) -> None:
    """A kill may have left one at the place of the index, and SQLite would take its pages for newer ones."""
    with entries_at(url, None) as entries:
        fill(entries)
        with entries_at(url, tmp_path / "cache") as fresh:
            place = fresh._index.directory / PATH
            place.parent.mkdir(exist_ok=True)
            with closing(sqlite3.connect(tmp_path / "other", isolation_level=None)) as other:
                other.executescript("PRAGMA journal_mode = WAL; CREATE TABLE other (x); INSERT INTO other VALUES (1)")
                place.with_name(f"{place.name}-wal").write_bytes((tmp_path / "other-wal").read_bytes())
            answers = found(fresh, "quagmire"), epoch(entries) == epoch(fresh)

    assert (["secret"], True) == answers


def test_a_process_that_closes_makes_none_that_it_has_not_begun(
    server: PostgresServer, workspace: str, url: str
) -> None:
    """A short command does not wait for the copy; the next process takes the turn."""
    with entries_at(url, None) as entries:
        entries.save(ANN, "tea", "green")
        keeper = keeper_of(entries)
        keeper.close()
        keeper.least = 1
        keeper._keep(entries._index._at_rest)
        claimed = remote(entries.repository.store).images.claim(format=1, changed=0, pause=600.0)

    assert (0, []) == (claimed, image(server, workspace))


def test_an_old_one_is_made_again_after_any_change(server: PostgresServer, workspace: str, url: str) -> None:
    """The notes of commits go back a day, so later nobody can tell whether a tenth was changed since."""
    with entries_at(url, None) as entries:
        images = remote(entries.repository.store).images
        images.claim(format=1, changed=1000, pause=0.0)
        images.keep([b"1"], format=1, erased=0)
        claims = []
        for hours, change in ((13, None), (11, "black"), (13, "black"), (11, None)):
            if change is not None:
                entries.save(ANN, "tea", f"{change} {hours}")
            with server.admin() as admin:
                admin.execute(
                    f"UPDATE {SCHEMA}.image SET at = now() - make_interval(hours => %s) WHERE workspace = %s",
                    (hours, workspace),
                )
            claims.append(images.claim(format=1, changed=1000, pause=0.0))

    assert [None, None, 0, None] == claims


def test_what_belongs_to_a_run_is_not_in_it(server: PostgresServer, workspace: str, url: str) -> None:
    """It is gone with its run, while an image stays; a fresh worker reads it from the records."""
    runner = Visitor(run="r1")
    with entries_at(url, None) as entries:
        entries.save(runner, "aside", "wombat", category="conversation")
        fill(entries)
        (part,) = image(server, workspace)
        with entries_at(url, None) as fresh:
            answers = [match.found.key for match in fresh.search(runner, "wombat").matches], epoch(fresh)

    assert b"zebra" in zlib.decompress(part)
    assert b"wombat" not in zlib.decompress(part)
    assert ["aside"] == answers[0]


BAD: dict[str, Callable[[list[bytes], Path], list[bytes]]] = {
    "no SQLite": lambda parts, path: [zlib.compress(b"x" * 5000)],
    "not packed": lambda parts, path: [b"x" * 5000],
    "cut": lambda parts, path: packed(b"".join(map(zlib.decompress, parts))[:-8192]),
    "half a part": lambda parts, path: [parts[0][:-100]],
    "large once unpacked": lambda parts, path: [zlib.compress(bytes(PART_BYTES + 1))],
    "a trigger": lambda parts, path: rewritten(
        parts, path, "CREATE TRIGGER t AFTER UPDATE ON entry BEGIN DELETE FROM entry; END"
    ),
    "a view": lambda parts, path: rewritten(
        parts, path, "DROP TABLE text; CREATE VIEW text AS SELECT load_extension('/tmp/x.so') AS id"
    ),
    "another table": lambda parts, path: rewritten(parts, path, "CREATE TABLE more (x)"),
    "a table less": lambda parts, path: rewritten(parts, path, "DROP TABLE vector"),
    "a note of a process": lambda parts, path: rewritten(parts, path, "INSERT INTO meta VALUES ('complete', 1)"),
    "another format": lambda parts, path: rewritten(parts, path, "PRAGMA user_version = 3"),
    "damaged pages": lambda parts, path: [
        zlib.compress((file := zlib.decompress(parts[0]))[:40960] + b"\xff" * 8192 + file[49152:])
    ],
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_one_is_not_used(
    bad: str,
    server: PostgresServer,
    workspace: str,
    url: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """That is found before anything of it is used; the index is built then, and the answers are right."""
    caplog.set_level("INFO", logger="memfiles")
    with entries_at(url, None) as entries:
        fill(entries)
        replace_image(server, workspace, BAD[bad](image(server, workspace), tmp_path / "image"))
        with entries_at(url, None) as fresh:
            answers = found(fresh, "quagmire"), len(found(fresh, "zebra"))
            is_fetched = epoch(entries) == epoch(fresh)
            left = [path.name for path in fresh._index.directory.iterdir() if path.name.startswith("image")]

    assert (["secret"], 10, False, []) == (*answers, is_fetched, left)
    assert "the index is built, as its image in the store cannot be used" in caplog.text


def test_rows_that_are_not_of_the_records_are_replaced(
    server: PostgresServer, workspace: str, url: str, tmp_path: Path
) -> None:
    """Whatever they say: they count only with the version that the record has."""
    with entries_at(url, None) as entries:
        fill(entries)
        wrong = "UPDATE entry SET inode = 7, key = 'stolen' WHERE key = 'secret'; DELETE FROM entry WHERE key = 'k3'"
        replace_image(server, workspace, rewritten(image(server, workspace), tmp_path / "image", wrong))
        with entries_at(url, None) as fresh:
            answers = found(fresh, "quagmire"), found(fresh, "k3"), epoch(entries) == epoch(fresh)

    assert (["secret"], ["k3"], True) == answers


def test_one_process_makes_it_at_a_time(url: str) -> None:
    """Another one is wanted only when there is none of this format, or much was changed since."""
    with entries_at(url, None) as entries:
        images = remote(entries.repository.store).images
        claims = [images.claim(format=1, changed=2, pause=60.0), images.claim(format=1, changed=2, pause=60.0)]
        images.keep([b"1"], format=1, erased=0)
        claims += [images.claim(format=1, changed=2, pause=0.0), images.claim(format=2, changed=2, pause=0.0)]
        entries.save_many(ANN, [{"key": f"k{number}", "content": "x"} for number in range(3)])
        claims.append(images.claim(format=1, changed=2, pause=0.0))

    assert [0, None, None, 0, 0] == claims


class SlowImages:
    """Images that are on their way until they may go on."""

    def __init__(self) -> None:
        self.is_asked, self.may_go_on = threading.Event(), threading.Event()
        self.told: list[str] = []

    def claim(self, *, format: int, changed: int, pause: float) -> int | None:
        return 0

    def keep(self, parts: Iterable[bytes], *, format: int, erased: int) -> bool:
        self.is_asked.set()
        self.may_go_on.wait(30.0)
        try:
            self.told.append(f"{len(list(parts))} kept")
        except IndexUnusable:
            self.told.append("stopped")
        return True

    def give(self) -> None:
        self.told.append("given")

    def parts(self, *, format: int) -> Iterator[bytes]:
        return iter(())


def rested_keeper_of(entries: Entries) -> ImageKeeper:
    """That of an index with one entry, which has looked for something to do and may look again."""
    entries.save(ANN, "tea", "green")
    found(entries, "green")
    keeper = keeper_of(entries)
    keeper.wait()
    keeper.renew()
    return keeper


def test_a_close_does_not_wait_for_one_that_is_on_its_way(url: str) -> None:
    """It is stopped, unless this process had to build the index."""
    images = SlowImages()
    with entries_at(url, None) as entries:
        keeper = rested_keeper_of(entries)
        keeper.least, keeper._images, keeper._has_built = 1, images, False
        found(entries, "green")
        assert images.is_asked.wait(60.0)
    before = [*images.told]
    images.may_go_on.set()
    keeper.wait()

    assert ([], ["stopped"]) == (before, images.told)


def test_a_process_that_built_the_index_leaves_one_when_it_closes(
    server: PostgresServer, workspace: str, url: str
) -> None:
    """A short one as well: the next worker would have to build the index again."""
    with entries_at(url, None) as entries:
        keeper = rested_keeper_of(entries)
        keeper.least = 1
        found(entries, "green")
        query = f"SELECT count(*) FROM {SCHEMA}.image_state WHERE workspace = %s"
        with server.admin() as admin:
            wait_until(lambda: admin.execute(query, (workspace,)).fetchone() == (1,))  # it was begun

    assert 1 == len(image(server, workspace))


def test_one_of_other_versions_is_not_used(server: PostgresServer, workspace: str, url: str) -> None:
    """Other tables of Unicode or other stemmers may make other words of the same text."""
    with entries_at(url, None) as entries:
        fill(entries)
        with server.admin() as admin:
            other = image_format(made_with("99.0.0")) - image_format(made_with())
            admin.execute(f"UPDATE {SCHEMA}.image SET format = format + %s WHERE workspace = %s", (other, workspace))
        with entries_at(url, None) as fresh:
            is_fetched = epoch(entries) == epoch(fresh)
            assert ["secret"] == found(fresh, "quagmire")

    assert not is_fetched and other
    assert 3 == len({made_with(), made_with("99.0.0"), made_with(stemmer="99")})
