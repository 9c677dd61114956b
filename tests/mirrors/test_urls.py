"""Mirrors by URL: every scheme is offered by an entry point, those of memfiles too."""

from __future__ import annotations

from pathlib import Path

import pytest

from memfiles.errors import InvalidArgument
from mirrors import DirectoryMirror, HttpMirror, LazyMirror, open_mirror
from mirrors.urls import GROUP, MirrorUrl, parse_url, schemes


def offer(folder: Path, package: str, **schemes: str) -> None:
    """Install a package that offers mirrors."""
    metadata = folder / f"{package}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{scheme} = {value}\n" for scheme, value in schemes.items()]
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\n{''.join(lines)}")


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("s3://acme/p?region=eu-central-1", LazyMirror),
        ("file:///var/backups/memory", DirectoryMirror),
        ("http://127.0.0.1:9/api", HttpMirror),
        ("https://memory.example.org", HttpMirror),
        ("FILE:///var/backups/memory", DirectoryMirror),
    ],
)
def test_the_schemes_of_memfiles(installed: None, url: str, kind: type) -> None:
    """s3, file, http and https; opening asks nothing of anyone yet."""

    assert isinstance(open_mirror(url), kind)


@pytest.mark.parametrize("url", ["s3://acme?key=hushhush", "file://host/path", "https://"])
def test_a_wrong_url_is_refused_when_it_is_opened(installed: None, url: str) -> None:
    """Not when the first record is to be pushed."""
    with pytest.raises(InvalidArgument):
        open_mirror(url)


def test_a_package_of_someone_else_plugs_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point is all it takes; the function gets the URL as it was written."""
    (tmp_path / "ftp_mirrors.py").write_text("def open_url(url):\n    return ('opened', url)\n")
    offer(tmp_path, "ftp-mirrors", ftp="ftp_mirrors:open_url")
    monkeypatch.syspath_prepend(tmp_path)

    assert ("opened", "ftp://Host/p?x=1") == open_mirror("ftp://Host/p?x=1")  # type: ignore[comparison-overlap]
    assert "ftp" in schemes()


def test_a_package_that_is_installed_meanwhile_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a process that has looked for its scheme before, and found nothing."""
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidArgument, match="no installed package offers mirrors of later://"):
        open_mirror("later://host")
    offer(tmp_path, "later-mirrors", later="builtins:str")

    assert "later://host" == open_mirror("later://host")  # type: ignore[comparison-overlap]


def test_a_package_that_does_not_load_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names what could not be loaded."""
    offer(tmp_path, "broken-mirrors", ftp="no_such_module:open_url", sftp="cannot_start:open_url")
    (tmp_path / "cannot_start.py").write_text("open_url = int('a setting that is not there')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidArgument, match="ftp:// cannot be loaded from no_such_module:open_url"):
        open_mirror("ftp://host")
    with pytest.raises(InvalidArgument, match="sftp:// cannot be loaded from cannot_start:open_url: ValueError"):
        open_mirror("sftp://host")


def test_two_packages_for_one_scheme_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are not sent by whoever happens to be found first."""
    offer(tmp_path, "one", ftp="one:open_url")
    offer(tmp_path, "two", ftp="two:open_url")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidArgument, match="several packages offer mirrors of ftp://: one:open_url, two:open_url"):
        open_mirror("ftp://host")


def test_an_unknown_scheme_lists_the_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is that of what is installed."""
    offer(tmp_path, "ftp-mirrors", ftp="ftp_mirrors:open_url")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidArgument, match="no installed package offers mirrors of gopher://; there are .*ftp://"):
        open_mirror("gopher://host")


@pytest.mark.parametrize("url", ["", "acme/p", "/var/backups", "s3:acme", "://x", "1s://x"])
def test_what_is_no_url(url: str) -> None:
    """It begins with a scheme."""
    with pytest.raises(InvalidArgument, match="a mirror URL begins with one of"):
        open_mirror(url)


def test_a_url_is_taken_apart() -> None:
    """The parts are decoded; the host keeps its case."""
    url = "X-Own://Host:81/a%20b/?name=v%26w&other=1"

    assert MirrorUrl("x-own", "Host", 81, "/a b/", {"name": "v&w", "other": "1"}) == parse_url(
        url, known=["name", "other"]
    )


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("x://h?a=1", "takes no parameter 'a'; there are none"),
        ("x://h?api_key=hush", "takes no parameter 'api_key'; there are none; leave them out"),
        ("x://user:hush@h", "holds credentials"),
        ("x://h:port", "host or port"),
        ("x://[::1", "host or port"),
        ("x://h/a\nb", "cannot be printed"),
        ("x://h#f", "fragment"),
    ],
)
def test_what_a_url_must_not_hold(url: str, complaint: str) -> None:
    """The message says what, and repeats no value."""
    with pytest.raises(InvalidArgument, match=complaint) as caught:
        parse_url(url)

    assert "hush" not in str(caught.value)
