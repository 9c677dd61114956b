"""Spans: what they say, what they never say, and that they cost nothing without a tracer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from memfiles.entries.callers import SpanOperation, span
from memfiles.errors import EditNoMatch


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """A tracer as a program sets one up, and what it exports."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


def only(exporter: InMemorySpanExporter) -> ReadableSpan:
    """The one span that was exported."""
    (finished,) = exporter.get_finished_spans()
    return finished


@pytest.mark.parametrize("operation", ["search_memory", "create_memory", "update_memory", "delete_memory"])
def test_an_operation_is_a_span(exported: InMemorySpanExporter, operation: SpanOperation) -> None:
    """A span is called after its operation and says which store and record it is about, by the conventions' names."""
    with span(operation, store="support-desk", record="1f", agent="support", conversation="t1", level="INTERNAL"):
        pass
    found = only(exported)

    assert (operation, trace.SpanKind.INTERNAL, "memfiles") == (
        found.name, found.kind, found.instrumentation_scope and found.instrumentation_scope.name,
    )  # fmt: skip
    assert {
        "gen_ai.operation.name": operation,
        "gen_ai.memory.store.id": "support-desk",
        "gen_ai.memory.record.id": "1f",
        "gen_ai.agent.name": "support",
        "gen_ai.conversation.id": "t1",
        "memfiles.level": "INTERNAL",
    } == dict(found.attributes or {})
    assert found.status.is_unset


def test_an_unknown_attribute_is_left_out(exported: InMemorySpanExporter) -> None:
    """A count is a number; what is None is not there."""
    with span("search_memory", store=None, count=3, record=None):
        pass

    assert {"gen_ai.operation.name": "search_memory", "gen_ai.memory.record.count": 3} == dict(
        only(exported).attributes or {}
    )


def test_an_error_is_its_code(exported: InMemorySpanExporter) -> None:
    """An error that passes through marks the span by its code; its message and traceback are never in it."""
    with pytest.raises(EditNoMatch), span("update_memory"):
        raise EditNoMatch("the nearest line is: my secret diary")
    found = only(exported)

    assert ("edit_no_match", trace.StatusCode.ERROR, None, ()) == (
        (found.attributes or {})["error.type"], found.status.status_code, found.status.description, found.events,
    )  # fmt: skip
    assert "diary" not in found.to_json()


def test_a_foreign_error_is_its_type(exported: InMemorySpanExporter) -> None:
    """Any other error is named by its class."""
    with pytest.raises(ZeroDivisionError), span("update_memory"):
        raise ZeroDivisionError("content")

    assert "ZeroDivisionError" == (only(exported).attributes or {})["error.type"]


def test_spans_nest(exported: InMemorySpanExporter) -> None:
    """A span is the child of the program's own, and the parent of what happens within it."""
    with trace.get_tracer("program").start_as_current_span("run"), span("create_memory"), span("search_memory"):
        pass
    inner, outer, run = exported.get_finished_spans()

    assert [outer.context, run.context] == [inner.parent, outer.parent]
    assert not trace.get_current_span().get_span_context().is_valid


def test_an_attribute_without_a_name_is_refused(exported: InMemorySpanExporter) -> None:
    """There is no way to put anything else into a span, content least of all."""
    with pytest.raises(KeyError), span("create_memory", content="x"):
        pass


def test_without_a_tracer_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the API is installed and no tracer is set up, every operation gets the same object that does nothing."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    current = span("create_memory", record="1")
    with current, current:
        pass

    assert {id(current)} == {id(span("create_memory")), id(span("search_memory"))}
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", trace.NoOpTracerProvider())
    assert id(current) == id(span("create_memory"))


def test_the_api_is_not_imported_for_its_own_sake() -> None:
    """In a program that knows nothing of OpenTelemetry, nothing of it is loaded, and errors pass."""
    program = """
import sys
from memfiles.entries.callers import span
with span("create_memory", record="1"): pass
try:
    with span("create_memory"): raise KeyError
except KeyError: print(*[name for name in sys.modules if name.startswith("opentelemetry")], "none")
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "none\n" == run.stdout


def test_a_tracer_that_is_set_up_later_counts(exported: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether there is a tracer is asked anew for every operation."""
    provider = trace.get_tracer_provider()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    with span("create_memory"):
        pass
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    with span("delete_memory"):
        pass

    assert "delete_memory" == only(exported).name
