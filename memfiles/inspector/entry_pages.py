"""The pages of entries: search and lists, one entry with its history, and its changes by a person."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from memfiles.entries.results import Found
from memfiles.inspector.inspected_memory import ViewedSession, acting
from memfiles.inspector.view import PAGE_ROWS, PageView, Route, difference, edited_of, tags_in
from memfiles.records.entry import KINDS
from memfiles.tools.session import Session

ONE = "/entries/one"
LEGS = {
    "words": "words",
    "substring": "part of a word",
    "meaning": "meaning",
    "association": "neighbour of a match",
}
"""What found an entry, for a person."""


class EntryLine(Struct, frozen=True):
    """An entry in a list; ``legs`` say what found it, and ``text`` is its snippet or its beginning."""

    found: Found
    text: str
    legs: tuple[str, ...] = ()
    score: float | None = None


def entries(view: PageView) -> Response:
    """The entries that a session sees: matches of a query, or all that pass the filters, the last changed first."""
    inspected, viewed = view.inspected, view.inspected.viewed(view.asked)
    query, tag = view.chosen("q"), view.chosen("tag", as_sent=True)
    asked: dict[str, Any] = {name: view.chosen(name) for name in ("category", "kind", "since")}
    asked["tags"] = [tag] if tag else []
    lines, more, results = list[EntryLine](), None, None
    with inspected.session(viewed) as session:
        if query is not None:
            results = inspected.memory.entries.search(session, query, max_results=PAGE_ROWS, **asked)
            lines = [EntryLine(it.found, it.snippet, it.legs, it.score) for it in results.matches]
        else:
            page = inspected.memory.entries.list(
                session, order="updated", limit=PAGE_ROWS, cursor=view.chosen("cursor", as_sent=True), **asked
            )
            lines, more = [EntryLine(found, found.content) for found in page.memories], page.next
    known = {"q": query, "tag": tag, **{name: asked[name] for name in ("category", "kind", "since")}}
    filters = {name: value for name, value in known.items() if value}
    return view.render(
        "entries.html",
        viewed=viewed,
        lines=lines,
        query=query,
        results=results,
        filters=filters,
        kinds=KINDS,
        legs=LEGS,
        next=view.url("/entries", **viewed.fields, **filters, cursor=more) if more else None,
    )


def entry(view: PageView) -> Response:
    """One entry: its text, why it is in the prompt or not, and its history."""
    inspected, viewed, key = view.inspected, view.inspected.viewed(view.asked), view.asked.get("key", "")
    base, to = view.number("from"), view.number("to")
    with inspected.session(viewed) as session:
        log = inspected.memory.entries.log(session, key)
        explained = inspected.memory.entries.explain(session, key)
        if to is not None and base is None:
            base = max((it.revision for it in log.changes if it.revision and it.revision < to), default=None)
        compared = difference(partial(inspected.memory.entries.diff, session, key), base, to)
    return view.render(
        "entry.html",
        viewed=viewed,
        own=acting(viewed, level=log.found.level, scope=log.scope),
        log=log,
        found=log.found,
        explained=explained,
        kinds=KINDS,
        **compared,
        url=view.url(ONE, **viewed.fields, key=key),
    )


def edit(view: PageView) -> Response:
    """Change the text and the labels, unless somebody changed the entry since the page was loaded."""
    form = view.form
    given: dict[str, Any] = {"content": form.get("content", ""), "category": view.chosen("category")}
    given |= {"tags": tags_in(form.get("tags", "")), "kind": view.chosen("kind")}

    def changed(session: Session, key: str) -> str:
        found = view.inspected.memory.entries.get(session, key)
        edited = given["content"] if found is None else edited_of(found.content, given["content"])
        given["content"] = edited if found is None or edited != found.content else None  # so that its confidence stays
        saved = view.inspected.memory.entries.update(session, key, **given, expected_revision=view.number("revision"))
        warned = "".join(f" {warning}" for warning in saved.warnings)
        return f"Saved: {key} is revision {saved.revision} now.{warned}"

    return _acted(view, changed)


def pin(view: PageView) -> Response:
    """Pin the entry, so that it comes first in the prompt and is evicted last, or unpin it."""
    pinned = view.form.get("pinned") == "yes"

    def changed(session: Session, key: str) -> str:
        view.inspected.memory.entries.update(session, key, pinned=pinned)
        return f"{key} is pinned now." if pinned else f"{key} is no longer pinned."

    return _acted(view, changed)


def delete(view: PageView) -> Response:
    """Hide the entry; it can be restored."""

    def changed(session: Session, key: str) -> str:
        gone = view.inspected.memory.entries.delete(session, key, expected_revision=view.number("revision"))
        again = f" What {gone.revealed.level} has under this key is visible again." if gone.revealed else ""
        return f"{key} is deleted; restore it from its page or from Deleted.{again}"

    return _acted(view, changed)


def restore(view: PageView) -> Response:
    """Bring a deleted, evicted or expired entry back."""

    def changed(session: Session, key: str) -> str:
        saved = view.inspected.memory.entries.restore(session, key)
        return f"{key} is back, as revision {saved.revision}."

    return _acted(view, changed)


def undo(view: PageView) -> Response:
    """Undo the last change of the text, or go back to a revision, unless the page is out of date."""

    def changed(session: Session, key: str) -> str:
        to, seen = view.number("to_revision"), view.number("revision")
        saved = view.inspected.memory.entries.undo(session, key, to, expected_revision=seen)
        return f"{key} has its earlier text again, as revision {saved.revision}."

    return _acted(view, changed)


def _acted(view: PageView, change: Callable[[Session, str], str]) -> Response:
    """Make a change in a session that may make it, then show the page that the operator came from."""
    inspected, key = view.inspected, view.form.get("key", "")
    seen = {name: view.form.get(f"seen_{name}", view.form.get(name, "")) for name in ViewedSession.__struct_fields__}

    def done() -> str:
        with inspected.session(inspected.viewed(view.form)) as session:
            return change(session, key)

    def again(failed: PageView) -> Response:
        failed.asked = {**failed.asked, **seen}
        return entry(failed)

    return view.act(done, then=view.url(ONE, **seen, key=key), page=again)


ROUTES: tuple[Route, ...] = (
    ("GET", "/entries", entries),
    ("GET", ONE, entry),
    ("POST", "/entries/edit", edit),
    ("POST", "/entries/pin", pin),
    ("POST", "/entries/delete", delete),
    ("POST", "/entries/restore", restore),
    ("POST", "/entries/undo", undo),
)
