"""Prompt page: the exact system prompt, recall block and tools of a session, their sizes, and their changes."""

from __future__ import annotations

import json

from msgspec import Struct
from starlette.responses import Response

from memfiles.inspector.operator_pages import named
from memfiles.inspector.view import PAGE_ROWS, PageView, Route
from memfiles.records.graphemes import estimate_tokens
from memfiles.records.history import diff_between
from memfiles.records.keys import uid_of
from memfiles.storage.events import AuditEvent, RecordChanged, utc_now
from memfiles.tools.dialects import DIALECTS
from memfiles.tools.oversight import AUDITED_MAX
from memfiles.tools.session import Session

LOOKED_AT = 100  # events of an agent, of which at least one is not the operator's


class PromptPart(Struct, frozen=True):
    """A text that the model gets; ``diff`` is how it changed since ``before``, "" if it did not."""

    title: str
    text: str
    diff: str = ""

    @property
    def size_bytes(self) -> int:
        """Its size in UTF-8 bytes."""
        return len(self.text.encode())

    @property
    def tokens(self) -> int:
        """About how many tokens it is."""
        return estimate_tokens(self.text)


class SeenTexts(Struct, frozen=True):
    """The texts as they are now and since when, and as they were before that, if they were looked at then."""

    texts: tuple[str, ...]
    at: str
    before: tuple[str, ...] | None = None
    before_at: str = ""


def prompt(view: PageView) -> Response:
    """The texts that the viewed session would give the model now."""
    inspected, viewed, query = view.inspected, view.inspected.viewed(view.asked), view.chosen("q")
    dialect, known = view.chosen("dialect") or "anthropic", view.state.prompts
    with inspected.session(viewed) as session:
        texts = {"System prompt": session.system_prompt()}
        if query is not None:
            texts["Recall block"] = session.recall(query).text
        texts["Tools"] = json.dumps(session.tools(dialect), indent=2, ensure_ascii=False)
    choice = viewed.query(q=query, dialect=dialect)
    seen = _noted(known.get(choice), tuple(texts.values()))
    view.state.keep(known, choice, seen)
    before = seen.before or seen.texts
    shown = [
        PromptPart(title, text, diff_between(old, text, names=("before", "now")))
        for (title, text), old in zip(texts.items(), before, strict=True)
    ]
    return view.render(
        "prompt.html",
        viewed=viewed,
        query=query or "",
        dialect=dialect,
        dialects=sorted(DIALECTS),
        shown=shown,
        seen=seen,
    )


def _noted(known: SeenTexts | None, texts: tuple[str, ...]) -> SeenTexts:
    """The texts of a choice as last seen, and as they are now."""
    if known is None:
        return SeenTexts(texts, utc_now())
    return known if known.texts == texts else SeenTexts(texts, utc_now(), known.texts, known.at)


def changes(view: PageView) -> Response:
    """The changes since the agent's last call that it can see; a page of its own, as it may read much of the audit."""
    inspected, viewed = view.inspected, view.inspected.viewed(view.asked)
    by_agent = inspected.memory.audit(
        agent=viewed.agent, user=viewed.user or None, level=inspected.ceiling, limit=LOOKED_AT
    )
    last = next((event for event in by_agent.events if event.actor != inspected.operator), None)
    with inspected.session(viewed) as session:
        since = inspected.memory.audit(since=last.at, level=inspected.ceiling, limit=AUDITED_MAX) if last else by_agent
        later = [it for it in since.events if last and it.at > last.at and _is_seen(session, it)]
    shown, count = later[:PAGE_ROWS], len(later)
    return view.render("changes.html", viewed=viewed, last=last, events=shown, count=count, named=named(view))


def _is_seen(session: Session, event: AuditEvent) -> bool:
    """Whether an event changed a record that the session may know of."""
    if event.path is None or event.outcome != "ok":
        return False
    changed = RecordChanged(
        uid_of(event.path) or "", "", 0, event.op, "process", path=event.path, level=event.level or ""
    )
    return session.may_know(changed)


ROUTES: tuple[Route, ...] = (("GET", "/prompt", prompt), ("GET", "/prompt/changes", changes))
