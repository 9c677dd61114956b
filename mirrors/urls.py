"""Mirrors by URL: entry points that open a scheme, and the strict URL parser that they share.

A package offers a scheme with an entry point of the group ``memfiles.mirrors``, named after the scheme. It is a
function that takes the URL and returns a ``Mirror``; it checks the whole URL when called and connects later. The
schemes that come with memfiles are offered in the same way.

The rules this file guards: a URL holds no credentials; and no message repeats a credential, whether it stood in a URL
or a store sends back what a client sent.
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from memfiles.errors import InvalidArgument
from memfiles.sync.mirror import Mirror

GROUP = "memfiles.mirrors"
HIDDEN = "[hidden]"
_INSTEAD = "leave them out: a mirror takes them from the environment or from its vendor's configuration"
_LONGEST = 200  # characters of what a store says
_READ = 4096  # characters of it that are looked at
_PART = 8  # characters of a credential that identify it
_CREDENTIAL = re.compile(r"access|credential|key|pass|secret|sig|token", re.IGNORECASE)


def open_mirror(url: str) -> Mirror:
    """The mirror at ``url``, not connected yet; ``InvalidArgument`` if the URL is wrong."""
    scheme = _scheme_of(url)
    opener = _opener(scheme, tuple(sys.path))
    try:
        function: Callable[[str], Mirror] = opener.load()
    except Exception as error:  # another package's code, which may raise anything
        what = f"mirrors of {scheme}:// cannot be loaded from {opener.value}"
        raise InvalidArgument(f"{what}: {type(error).__name__}: {error}") from error
    return function(url)


def schemes() -> list[str]:
    """The schemes that installed packages offer, sorted."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


@dataclass(frozen=True, slots=True)
class MirrorUrl:
    """The decoded parts of a mirror's URL; ``port`` is None if the URL has none."""

    scheme: str
    host: str
    port: int | None
    path: str
    options: Mapping[str, str]


def parse_url(url: str, *, known: Iterable[str] = ()) -> MirrorUrl:
    """Parse ``url``; ``known`` are the query parameters it may have, each once.

    ``InvalidArgument`` for anything else: another parameter, a user or password, a fragment, an unprintable
    character.
    """
    scheme = _scheme_of(url)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidArgument(f"the host or port of the {scheme}:// mirror URL cannot be read") from None
    if parts.username is not None or parts.password is not None:
        raise InvalidArgument(f"the {scheme}:// mirror URL holds credentials before '@'; {_INSTEAD}")
    if parts.fragment:
        raise InvalidArgument(f"the {scheme}:// mirror URL has a fragment ('#...'); write '#' as %23")
    path = unquote(parts.path)
    if not (url + path).isprintable() or "\ufffd" in path:
        raise InvalidArgument(f"the path of the {scheme}:// mirror URL has a character that cannot be printed")
    return MirrorUrl(scheme, _host(parts), port, path, _options(parts.query, scheme=scheme, known=known))


def shown_answer(text: str, *, sent: Iterable[str] = ()) -> str:
    """The words of a store, for a message: printable, short, and without the credentials that were ``sent`` to it.

    No eight characters of a credential are left, as it is or percent- or base64-encoded, in any case of letters.
    """
    return _without(text, sent)[:_LONGEST]


def cause_of(error: BaseException, *, sent: Iterable[str]) -> BaseException | None:
    """The error, to be kept as the cause of ours; None if it, or a cause of its own, repeats a credential."""
    credentials, found = tuple(sent), error
    while found is not None:
        if HIDDEN in _without(f"{found} {found!r}", credentials):
            return None
        found = found.__cause__ or found.__context__  # type: ignore[assignment]
    return error


def _without(text: str, credentials: Iterable[str]) -> str:
    shown = "".join(letter if letter.isprintable() else " " for letter in " ".join(text[:_READ].split()))
    folded = shown.lower()
    hidden: set[int] = set()
    if len(folded) == len(shown):  # else there are letters that no credential has
        for form in {form.lower() for credential in credentials for form in _forms(credential)}:
            for start in range(max(1, len(form) - _PART + 1)):
                part = form[start : start + _PART]
                hidden.update(at for found in re.finditer(re.escape(part), folded) for at in range(*found.span()))
    kept = ("\0" if at in hidden else letter for at, letter in enumerate(shown))
    return re.sub("\0+", HIDDEN, "".join(kept))


def redirect_of(location: str | None) -> tuple[str, str] | None:
    """The origin and the path that a redirect leads to, without credentials; None if it is not a web address."""
    try:
        parts = urlsplit(location or "")
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return None
    if parts.scheme not in {"http", "https"} or not re.fullmatch(r"[A-Za-z0-9._-]+", parts.hostname or ""):
        return None
    return f"{parts.scheme}://{parts.hostname}{port}", quote(parts.path, safe="/%")


def _forms(credential: str) -> list[str]:
    """A credential as a store may repeat it."""
    encoded = base64.b64encode(credential.encode()).decode().rstrip("=")
    return [credential, quote(credential, safe=""), encoded] if credential else []


def _options(query: str, *, scheme: str, known: Iterable[str]) -> Mapping[str, str]:
    allowed = sorted(known)
    listing = f"known are: {', '.join(allowed)}" if allowed else "there are none"
    options: dict[str, str] = {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True, errors="strict") if query else []
    except ValueError:
        raise InvalidArgument(f"the query of the {scheme}:// mirror URL is not name=value&...; {listing}") from None
    for name, value in pairs:
        if name not in allowed:
            hint = f"; {_INSTEAD}" if _CREDENTIAL.search(name) else ""
            raise InvalidArgument(f"the {scheme}:// mirror URL takes no parameter {ascii(name[:40])}; {listing}{hint}")
        if name in options or not value or not value.isprintable():
            raise InvalidArgument(f"parameter {name} of the {scheme}:// mirror URL must be given once, with a value")
        options[name] = value
    return MappingProxyType(options)


def _scheme_of(url: str) -> str:
    scheme, separator, _ = url.partition("://")
    if not separator or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        raise InvalidArgument(f"a mirror URL begins with one of {_listed()}")
    return scheme.lower()


@cache  # it reads what every package offers, 10 ms where 160 are installed; a failure is not kept
def _opener(scheme: str, path: tuple[str, ...]) -> EntryPoint:
    """The one that packages on this path offer."""
    offers = {entry.value: entry for entry in entry_points(group=GROUP) if entry.name.lower() == scheme}
    if not offers:
        raise InvalidArgument(f"no installed package offers mirrors of {scheme}://; there are {_listed()}")
    if len(offers) > 1:
        raise InvalidArgument(f"several packages offer mirrors of {scheme}://: {', '.join(sorted(offers))}; keep one")
    return next(iter(offers.values()))


def _listed() -> str:
    return ", ".join(f"{scheme}://" for scheme in schemes()) or "none (memfiles is not installed as a package)"


def _host(parts: SplitResult) -> str:
    """The host with its case kept, as bucket names may be case-sensitive."""
    host = parts.hostname or ""
    start = parts.netloc.lower().find(host)
    return parts.netloc[start : start + len(host)]
