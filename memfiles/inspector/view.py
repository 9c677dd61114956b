"""A view: one request to the page, and how values are written into a template.

The rule this file guards: everything that comes from memory is escaped, and what nobody would see of it is shown: marks
that turn the direction of writing, and characters without a width, with which a text can hide from its reader.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from memfiles.entries.consolidation.plan import Plan
from memfiles.errors import InvalidArgument, MemfilesError, RevisionUnknown
from memfiles.index.text.tokenizer import spans_of, terms_of
from memfiles.inspector.inspected_memory import InspectedMemory
from memfiles.records.graphemes import as_word, estimate_tokens, harmless
from memfiles.records.record import Actor

PAGE_ROWS = 50
_STATUS = {2: 400, 3: 404, 4: 409, 5: 422, 6: 403, 7: 503}  # by the exit code that the command line would end with
SAID_MAX, LARGE_MAX = 100, 12  # how many sentences, and how many plans and prompts, are kept
_WORD = re.compile(r"[^\W_]+")
_TAG = re.compile(r'\s*"((?:[^"]|"")*)"\s*(?:,|$)|([^,]+)')
_DIFF = {"+": "added", "-": "removed", "@": "place", "\\": "place"}
_DIFF_HEAD = 2  # lines
_KIB = 1024

T = TypeVar("T")
Handler = Callable[["PageView"], Response]
Route = tuple[str, str, Handler]


class ServerState:
    """State that outlives a request: messages to the operator, plans that were shown, and prompts seen before."""

    def __init__(self) -> None:
        self.said: dict[str, str] = {}
        self.plans: dict[str, Plan] = {}
        self.prompts: dict[str, Any] = {}
        self.news_count = 0
        self._turn = threading.Lock()

    def keep(self, on: dict[str, T], key: str, value: T, *, most: int = LARGE_MAX) -> None:
        """Keep a value as the newest; the oldest is dropped if there are more than ``most``."""
        with self._turn:
            on.pop(key, None)
            on[key] = value
            while len(on) > most:
                del on[next(iter(on))]


class PageView:
    """One request. ``asked`` are the fields of its query and form; ``error`` is why an action failed."""

    def __init__(
        self, request: Request, inspected: InspectedMemory, state: ServerState, templates: Environment
    ) -> None:
        self.inspected = inspected
        self.state = state
        self.news_count = state.news_count  # before anything is read: what changes meanwhile is news to the page
        self._request = request
        self._templates = templates
        self._guard = request.app.state.guard
        self.form: dict[str, str] = request.scope.get("state", {}).get("form", {})
        self.asked = {**request.query_params, **self.form}
        self.is_action = request.method == "POST"
        self.error: MemfilesError | None = None

    @property
    def path(self) -> Mapping[str, str]:
        """The parts of the path that have a name in its route."""
        return self._request.path_params

    @property
    def here(self) -> str:
        """The address of the page, to be loaded again."""
        query = urlencode([(name, value) for name, value in self._request.query_params.multi_items() if name != "said"])
        return f"{self._request.url.path}{query and '?'}{query}"

    def url(self, path: str, /, **query: object) -> str:
        """The address of a page of ours; fields that are empty are left out."""
        asked = urlencode({name: value for name, value in query.items() if value not in ("", None)})
        return f"{self._guard.root}{path}{asked and '?'}{asked}"

    def chosen(self, name: str, *, as_sent: bool = False) -> str | None:
        """A field without blanks around it, or as it was sent, as " a" is not "a"; None if it is blank or missing."""
        sent = self.asked.get(name, "")
        return (sent if as_sent else sent.strip()) if sent.strip() else None

    @property
    def user(self) -> str | None:
        """The user in the query or form, byte for byte; None if there is none."""
        return self.asked.get("user") or None

    def typed(self, wanted: str) -> bool:
        """Whether the operator typed this to confirm, as it is or as it is shown."""
        typed = self.form.get("typed", "")
        return bool(typed) and typed.strip() in (wanted.strip(), harmless(wanted).strip(), as_word(wanted))

    @property
    def page(self) -> int:
        """The number of the page that is asked for, from 1."""
        return max(1, self.number("page", 1) or 1)

    def draft(self, name: str, default: object) -> object:
        """The value that the operator sent in a form that failed, or else ``default``."""
        return self.form.get(name, default)

    def number(self, name: str, default: int | None = None) -> int | None:
        """A field that is a whole number; ``InvalidArgument`` for another text."""
        text = self.chosen(name)
        if text is None:
            return default
        if not text.isdecimal() or len(text) > 12:
            raise InvalidArgument(f"{name} must be a whole number")
        return int(text)

    def render(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """The page of a template."""
        said = self.state.said.pop(self.asked.get("said", ""), None)
        known = {"view": self, "inspected": self.inspected, "csrf": self._guard.csrf, "said": said, "error": self.error}
        if self.error is not None:
            status = _STATUS.get(self.error.exit_code, 500)
        return HTMLResponse(self._templates.get_template(template).render({**known, **values}), status)

    def act(self, action: Callable[[], str], *, then: str, page: Handler) -> Response:
        """Carry out an action and go to the address ``then`` with its message; or show the page with the error."""
        try:
            said = action()
        except MemfilesError as error:
            self.error = error
            return page(self)
        self.state.keep(self.state.said, key := secrets.token_urlsafe(6), said, most=SAID_MAX)
        return RedirectResponse(f"{then}{'&' if '?' in then else '?'}{urlencode({'said': key})}", 303)

    def failed(self, error: MemfilesError) -> Response:
        """The page for a request that cannot be answered."""
        self.error = error
        return self.render("message.html")


def templates() -> Environment:
    """The templates, with everything escaped that is not marked as safe."""
    made = Environment(
        loader=PackageLoader("memfiles.inspector"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters.update(
        at=at,
        counted=counted,
        tobytes=lambda text: len(text.encode()),
        diffed=diffed,
        joined=joined,
        listed=listed,
        named=as_word,
        percent=percent,
        plain=harmless,
        size=size,
        tokens=estimate_tokens,
        who=who,
    )
    made.globals.update(marked=marked)
    return made


def at(moment: str) -> Markup:
    """A timestamp as HTML, to the second; the tooltip has the milliseconds."""
    if not moment:
        return Markup("–")
    shown = moment[:19].replace("T", " ")
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(moment, shown)


def size(count: float) -> str:
    """A number of bytes, for a person."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < _KIB or unit == "GiB":
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= _KIB
    raise AssertionError


def percent(share: float) -> str:
    """A share of 1, for a person."""
    return f"{share:.0%}" if share >= 0.01 or not share else "<1%"


def counted(number: int, one: str, several: str | None = None) -> str:
    """A number with its noun."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def joined(names: Sequence[str]) -> str:
    """Names in a row, or a dash."""
    return ", ".join(map(harmless, names)) or "–"


def listed(tags: Sequence[str]) -> str:
    """Tags with commas between them, as ``tags_in`` reads them: one with a comma or outer blanks is in quotes."""
    is_odd = {tag: tag != tag.strip() or "," in tag or '"' in tag for tag in tags}
    return ", ".join('"' + tag.replace('"', '""') + '"' if is_odd[tag] else tag for tag in tags)


def tags_in(text: str) -> list[str]:
    """The tags that a field of a form lists."""
    groups = (match.groups() for match in _TAG.finditer(text))
    found = [plain.strip() if quoted is None else quoted.replace('""', '"') for quoted, plain in groups]
    return [tag for tag in found if tag.strip()]


def pager(view: PageView, path: str, *, is_more: bool, **query: object) -> dict[str, Any]:
    """The addresses of the next and the previous page of a list, if there are any."""
    later = view.url(path, **query, page=view.page + 1) if is_more else None
    return {"later": later, "earlier": view.url(path, **query, page=view.page - 1) if view.page > 1 else None}


def rows_before(view: PageView) -> int:
    """How many rows come before the page that is asked for."""
    return (view.page - 1) * PAGE_ROWS


def difference(diff: Callable[[int, int], str], base: int | None, to: int | None) -> dict[str, Any]:
    """The values of a template that compares two revisions; ``problem`` says why it cannot."""
    text, problem = "", None
    if base is not None and to is not None:
        try:
            text = diff(base, to)
        except RevisionUnknown as error:
            problem = str(error)
    return {"base": base, "to": to, "diff": text, "problem": problem}


def edited_of(before: str, sent: str) -> str:
    """The text that a form changed ``before`` to: browsers send every line end as a line feed, and no null byte."""
    shown = before.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    if sent == shown:
        return before
    return sent.replace("\n", "\r\n") if 0 < shown.count("\n") == before.count("\r\n") else sent


def who(by: Actor | Any) -> str:
    """The author of a change: the human or program, the agent or surface it acted as, the run and the call."""
    run = getattr(by, "session", None) or getattr(by, "run", None)
    name = by.agent or run
    known = [f"{by.actor} as {name}" if by.actor and name and by.actor != name else by.actor or name]
    known += [f"run {run}" if by.agent and run else None, f"call {by.call}" if by.call else None]
    return harmless(", ".join(part for part in known if part)) or "–"


def diffed(text: str) -> list[tuple[str, str]]:
    """The lines of a unified diff after its head, each with its class."""
    lines = text.removesuffix("\n").split("\n")[_DIFF_HEAD:] if text else []
    return [(_DIFF.get(line[:1], "same"), harmless(line)) for line in lines]


def marked(text: str, query: str | None) -> Markup:
    """The text as HTML, with the words of a query marked."""
    wanted = {word for term in terms_of(query) for form in term.stems for word in form} if query else set[str]()
    shown, end = Markup(), 0
    for begin, stem in spans_of(text) if wanted else ():
        word = _WORD.match(text, begin)
        if stem in wanted and word is not None:
            shown += escape(harmless(text[end:begin])) + Markup("<mark>{}</mark>").format(harmless(word[0]))
            end = word.end()
    if not end and query and (begin := text.lower().find(query.lower())) >= 0:  # inside a word
        end = begin + len(query)
        shown = escape(harmless(text[:begin])) + Markup("<mark>{}</mark>").format(harmless(text[begin:end]))
    return shown + escape(harmless(text[end:]))
