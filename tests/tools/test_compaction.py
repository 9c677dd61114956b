"""The turn before a compaction: bounded, redacted, done once, and never in the caller's way."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

import memfiles
from memfiles.tools import compaction
from memfiles.tools.compaction import FlushReport, Saving, flush_before_compaction
from memfiles.tools.results import ToolResult, refused
from memfiles.tools.transcripts import MAX_TRANSCRIPT_BYTES
from tests.secrets.secret_corpus import SECRETS

TOKEN = next(secret.value for secret in SECRETS if secret.rule == "github-token")
ADA = {"name": "memory_save", "arguments": {"key": "ada/plan", "content": "Ada is on Pro."}, "id": "m1"}
BOB = {"name": "memory_save", "arguments": {"key": "bob/plan", "content": "Bob is on Free."}, "id": "m2"}
MESSAGES = [{"role": "user", "content": "Ada moved to Pro"}, {"role": "assistant", "content": "Noted."}]


class SavingSession:
    """A named fake: a session that keeps what is saved and knows a call that was made before."""

    def __init__(self, save: str = "memory_save") -> None:
        self.save = save
        self.saved: dict[str, str] = {}
        self.calls: list[str | None] = []

    def tools(self, dialect: str) -> list[dict[str, Any]]:
        """Three tools in the shape that is asked for."""
        names = [self.save, "memory_search", "append_memory"]
        if dialect == "openai-chat":
            return [{"type": "function", "function": {"name": name}} for name in names]
        return [{"toolSpec": {"name": name}} if dialect == "bedrock" else {"name": name} for name in names]

    def call(self, name: str, arguments: object = None, *, call_id: str | None = None) -> ToolResult:
        """Save under the key; anything without one is refused."""
        sent = json.loads(arguments) if isinstance(arguments, str) else arguments
        if not isinstance(sent, dict) or "key" not in sent:
            return refused("key is missing: pass it", code="invalid_argument")
        self.calls.append(call_id)
        self.saved[sent["key"]] = sent["content"]
        return ToolResult("{}", data={"saved": True, "key": sent["key"]})


class AnsweringModel:
    """A named fake: answers with these calls, and keeps what it was shown."""

    def __init__(self, *calls: Any) -> None:
        self.calls = calls
        self.messages: list[dict[str, str]] = []
        self.tools: list[dict[str, Any]] = []
        self.asked = 0

    def __call__(self, messages: list[dict[str, str]], tools: list[dict[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """The calls it was made with."""
        self.messages, self.tools, self.asked = messages, tools, self.asked + 1
        return self.calls

    @property
    def transcript(self) -> str:
        """What it was shown of the conversation."""
        return self.messages[1]["content"]


class HangingModel:
    """A named fake: never answers until it is told to end."""

    def __init__(self) -> None:
        self.end = threading.Event()

    def __call__(self, messages: list[dict[str, str]], tools: list[dict[str, Any]]) -> None:
        """Waits."""
        self.end.wait(60)


def test_what_the_model_saves_is_saved() -> None:
    """The model sees the conversation once and what it saves is reported by key."""
    session, model = SavingSession(), AnsweringModel(ADA, BOB)

    assert FlushReport(("ada/plan", "bob/plan"), messages=2, size_bytes=40) == flush_before_compaction(
        session, MESSAGES, model
    )
    assert {"ada/plan": "Ada is on Pro.", "bob/plan": "Bob is on Free."} == session.saved
    assert ["system", "user"] == [message["role"] for message in model.messages]
    assert "user: Ada moved to Pro\nassistant: Noted." == model.transcript


@pytest.mark.parametrize("dialect", ["anthropic", "openai", "openai-chat", "bedrock"])
@pytest.mark.parametrize("save", ["memory_save", "memory_store", "memory_create"])
def test_only_the_save_tool_is_offered(dialect: str, save: str) -> None:
    """Whatever the shape and the set of names, the model has one tool, and no other can be used."""
    session = SavingSession(save)
    model = AnsweringModel({**ADA, "name": save}, {"name": "append_memory", "arguments": {}}, "nonsense", None)
    report = flush_before_compaction(session, MESSAGES, model, dialect=dialect)

    assert (1, ("ada/plan",), 3) == (len(model.tools), report.saved, len(report.skipped))
    assert "call 1: only the save tool may be used here" == report.skipped[0]


def test_the_same_messages_save_nothing_twice() -> None:
    """A second flush of the same messages does not even ask; another conversation does."""
    session, model = SavingSession(), AnsweringModel(ADA)
    flush_before_compaction(session, MESSAGES, model)
    again = flush_before_compaction(session, list(MESSAGES), model)

    assert (True, (), 1) == (again.replayed, again.saved, model.asked)
    assert ("ada/plan",) == flush_before_compaction(session, [*MESSAGES, *MESSAGES], model).saved


@dataclass
class PlainSession(SavingSession):
    """A host's own session that cannot be hashed, and is equal to any other of its agent."""

    agent: str

    def __post_init__(self) -> None:
        """As any other."""
        super().__init__()


@dataclass(slots=True)
class SlottedSession:
    """A host's own session that can be neither hashed nor referenced weakly."""

    inner: SavingSession = field(default_factory=SavingSession, compare=False)

    def tools(self, dialect: str) -> list[dict[str, Any]]:
        """Those of the inner session."""
        return self.inner.tools(dialect)

    def call(self, name: str, arguments: object = None, *, call_id: str | None = None) -> ToolResult:
        """A call in the inner session."""
        return self.inner.call(name, arguments, call_id=call_id)


@pytest.mark.parametrize("make", [lambda: PlainSession("support"), SlottedSession])
def test_a_session_of_the_host_may_be_any_object(make: Callable[[], Saving]) -> None:
    """What was flushed is known of each session, also if it is equal to another; all are forgotten with time."""
    session, equal, model = make(), make(), AnsweringModel(ADA)
    reports = [flush_before_compaction(it, MESSAGES, model) for it in (session, session, equal)]
    for _ in range(100):
        flush_before_compaction(make(), MESSAGES, model)

    assert session == equal
    assert [(None, False), (None, True), (None, False)] == [(report.error, report.replayed) for report in reports]
    assert len(compaction._done) < 70


def test_another_process_makes_the_same_calls() -> None:
    """The ids of the calls come from the messages and the arguments, so a record's history knows them for replays."""
    first, second, other = SavingSession(), SavingSession(), SavingSession()
    flush_before_compaction(first, MESSAGES, AnsweringModel(ADA, BOB))
    as_text = {**BOB, "arguments": json.dumps(dict(reversed(BOB["arguments"].items()))), "id": "other"}  # type: ignore[attr-defined]
    flush_before_compaction(second, MESSAGES, AnsweringModel(ADA, as_text))
    flush_before_compaction(other, MESSAGES[:1], AnsweringModel(ADA, BOB))

    assert first.calls == second.calls
    assert 4 == len({*first.calls, *other.calls})
    assert all(call is not None and call.startswith("flush-") and len(call) < 64 for call in first.calls)


def test_no_secret_reaches_the_model() -> None:
    """Credentials are taken out of every part of a message, in whatever shape it is."""
    blocks = [
        {"type": "text", "text": f"my token is {TOKEN}"},
        {"type": "tool_use", "name": "login", "input": {"password": "correct-Horse7battery"}},
        {"type": "tool_result", "content": [{"type": "text", "text": TOKEN}]},
        {"type": "image", "source": {"data": "iVBORw0KGgo"}},
    ]
    calls = [{"id": "c", "function": {"name": "login", "arguments": json.dumps({"token": TOKEN})}}]
    model = AnsweringModel()
    messages = [{"role": "user", "content": blocks}, {"role": "assistant", "content": None, "tool_calls": calls}]
    flush_before_compaction(SavingSession(), messages, model)

    assert 3 == model.transcript.count("[redacted:github-token]")
    assert [False] * 3 == [word in model.transcript for word in (TOKEN, "correct-Horse7battery", "iVBOR")]
    assert "login" in model.transcript


@dataclass
class ObjectMessage:
    """A message as some clients have it."""

    role: str
    content: Any


def test_messages_of_any_shape() -> None:
    """Objects, plain texts, empty and odd messages do no harm."""
    messages = [ObjectMessage("user", "hello"), "bare", {"role": "user", "content": ""}, {}, None, 5, {"x": b"\xff"},
                {"role": "user", "content": ["a", {"text": "b"}, "\ud800"]}]  # fmt: skip
    model = AnsweringModel()
    report = flush_before_compaction(SavingSession(), messages, model)

    assert report.error is None
    assert model.transcript.startswith("user: hello\nmessage: bare\n")
    assert model.transcript.endswith("user: a b ?")


def test_the_newest_messages_are_kept() -> None:
    """Of a long conversation the model sees the last 200 messages and 128 KiB, and of one huge message its end."""
    many, long, huge = AnsweringModel(), AnsweringModel(), AnsweringModel()
    flush_before_compaction(SavingSession(), [{"role": "u", "content": str(n)} for n in range(1000)], many)
    report = flush_before_compaction(
        SavingSession(), [{"role": "u", "content": f"{n} " + "é" * 10_000} for n in range(50)], long
    )
    flush_before_compaction(SavingSession(), [{"role": "u", "content": "x" * (1 << 20) + "end"}], huge)

    assert ("u: 800", "u: 999") == (many.transcript.splitlines()[0], many.transcript.splitlines()[-1])
    assert "\nu: 49 é" in long.transcript
    assert MAX_TRANSCRIPT_BYTES - 2 <= report.size_bytes == len(long.transcript.encode()) <= MAX_TRANSCRIPT_BYTES
    assert (MAX_TRANSCRIPT_BYTES, "end") == (len(huge.transcript), huge.transcript[-3:])


def test_at_most_sixteen_saves() -> None:
    """What a model wants to save beyond that is told and not done."""
    session = SavingSession()
    calls = [{"name": "memory_save", "arguments": {"key": str(n), "content": ""}} for n in range(20)]
    report = flush_before_compaction(session, MESSAGES, AnsweringModel(*calls))

    assert (16, ("4 calls over the limit of 16 per flush",)) == (len(report.saved), report.skipped)


def test_a_refused_save_is_told() -> None:
    """A save that the session refuses does not keep the others from being made."""
    bad = {"name": "memory_save", "arguments": {}}
    report = flush_before_compaction(SavingSession(), MESSAGES, AnsweringModel(bad, ADA))

    assert (("ada/plan",), ("call 0: key is missing: pass it",)) == (report.saved, report.skipped)


def test_a_model_that_hangs_is_left_behind() -> None:
    """The caller goes on when the time is over, and may flush the same messages again."""
    session, model = SavingSession(), HangingModel()
    report = flush_before_compaction(session, MESSAGES, model, timeout=1.0)
    model.end.set()

    assert "the model did not answer in time" == report.error
    assert ("ada/plan",) == flush_before_compaction(session, MESSAGES, AnsweringModel(ADA)).saved


def test_the_time_ends_the_saves_as_well() -> None:
    """A model that answers in the last moment gets no saves made after it."""
    report = compaction._carry_out(SavingSession(), [ADA], "d", deadline=0.0)

    assert FlushReport(error="the time limit was reached after 0 of 1 calls") == report


class FailingSession(SavingSession):
    """A session that was closed."""

    def tools(self, dialect: str) -> list[dict[str, Any]]:
        """Fails."""
        raise memfiles.InvalidArgument("this session is closed")


def _fail(messages: object, tools: object) -> None:
    raise ConnectionError("content")


def _odd(messages: object, tools: object) -> Any:
    return 5


def test_the_caller_is_never_failed(caplog: pytest.LogCaptureFixture) -> None:
    """A model that fails or answers nonsense, and a session that fails, are an error in the report and in the log."""
    with caplog.at_level(logging.WARNING):
        errors = [
            flush_before_compaction(SavingSession(), MESSAGES, _fail).error,
            flush_before_compaction(SavingSession(), MESSAGES, _odd).error,
            flush_before_compaction(FailingSession(), MESSAGES, AnsweringModel(ADA)).error,
            flush_before_compaction(SavingSession("save"), MESSAGES, AnsweringModel(ADA)).error,
        ]

    assert [
        "the model failed with ConnectionError",
        "the model failed with TypeError",
        "saving failed with InvalidArgument; the details were logged",
        "no save tool is available here",
    ] == errors
    assert 3 == len(caplog.records)


def test_nothing_to_flush() -> None:
    """A conversation without text asks nobody."""
    model = AnsweringModel(ADA)

    assert (FlushReport(), 0) == (flush_before_compaction(SavingSession(), [], model), model.asked)


def test_the_public_names() -> None:
    """They are had from the package; each tells the model what the occasion is."""
    models = AnsweringModel(), AnsweringModel()
    memfiles.flush_before_compaction(SavingSession(), MESSAGES, models[0])
    memfiles.remember(SavingSession(), MESSAGES, models[1])

    assert ["is about to be shortened.", "may have taught something."] == [
        model.messages[0]["content"].removeprefix("The conversation below ").partition(" With ")[0] for model in models
    ]
    assert models[0].messages[1] == models[1].messages[1]
