"""LangGraph's store over a session answers as LangGraph's own does, within what the workflow declares."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import sleep
from typing import Any, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store import base
from langgraph.store.memory import InMemoryStore

import memfiles
from memfiles.adapters.langgraph_store import MemfilesStore
from memfiles.errors import InvalidArgument, LevelDenied, MemfilesError, SecretRefused, SizeExceeded
from memfiles.tools.session import Session
from tests.adapters.exam import TextExam
from tests.adapters.memory_desk import Opening
from tests.support.workflows import opened

WORKFLOW = """\
memory:
  durability: os
  entries: {max_entries: 200, categories: {brief: {ttl: 60s}}}
agents:
  support: {level: INTERNAL}
  sales: {level: INTERNAL}
"""


@pytest.fixture
def memory(open_memory: Opening) -> memfiles.Memory:
    return open_memory(WORKFLOW)


@pytest.fixture
def session(memory: memfiles.Memory) -> Session:
    return memory.session("support", run="monday")


@pytest.fixture
def store(session: Session) -> MemfilesStore:
    return MemfilesStore(session)


class TestLangGraphStore(TextExam):
    module = "memfiles.adapters.langgraph_store"
    vendors = ("langgraph",)
    extra_error = "LangGraph's store needs an extra: pip install 'memfiles[langgraph]'"

    def key_of(self, name: str) -> str:
        return f"langgraph/a/{name}"

    def read(self, session: Session, name: str) -> str | None:
        item = MemfilesStore(session).get(("a",), name)
        return item.value["text"] if item is not None else None

    def write(self, session: Session, name: str, text: str) -> str | None:
        store = MemfilesStore(session)
        try:
            store.put(("a",), name, {"text": text})
        except MemfilesError as error:
            return str(error)
        return None

    async def awrite(self, session: Session, name: str, text: str) -> None:
        await MemfilesStore(session).aput(("a",), name, {"text": text})


class Empty(TypedDict):
    """The state of a graph that has none."""


def shown(item: base.Item | None) -> Any:
    return None if item is None else (item.namespace, item.key, item.value)


LABELS = st.sampled_from(["a", "b", "a/b", "*", "%", "é"])
NAMESPACES = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
KEYS = st.sampled_from(["k", "a", "/x.md", "K"])
VALUES = st.fixed_dictionaries(
    {"n": st.integers(-2, 2), "s": st.sampled_from(["tea", "two\nlines"])}, optional={"d": st.just({"x": [1, None]})}
)
PATHS = st.none() | st.lists(LABELS | st.just("*"), min_size=1, max_size=3).map(tuple)
FILTERS = st.sampled_from(
    [None, {"n": 1}, {"n": {"$gte": 0}}, {"n": {"$ne": 0}, "s": "tea"}, {"d": {"x": [1, None]}}, {"d": None}]
)
STEPS = st.one_of(
    st.tuples(st.just("put"), NAMESPACES, KEYS, VALUES),
    st.tuples(st.just("delete"), NAMESPACES, KEYS),
    st.tuples(st.just("get"), NAMESPACES, KEYS),
    st.tuples(st.just("search"), st.just(()) | NAMESPACES, FILTERS),
)


@given(steps=st.lists(STEPS, max_size=25), prefix=PATHS, suffix=PATHS, depth=st.none() | st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_the_same_operations_have_the_same_answers(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any], prefix: Any, suffix: Any, depth: int | None
) -> None:
    """As those of ``InMemoryStore``; but for the order, and that a namespace is gone with its last item."""
    with opened(tmp_path_factory.mktemp("like"), WORKFLOW) as memory:
        ours, theirs = MemfilesStore(memory.session("support")), InMemoryStore()
        for op, namespace, *rest in steps:
            if op == "search":
                found = [each.search(namespace, filter=rest[0], limit=99) for each in (theirs, ours)]
                assert sorted(map(repr, map(shown, found[0]))) == sorted(map(repr, map(shown, found[1])))
            else:
                expected, got = (getattr(each, op)(namespace, *rest) for each in (theirs, ours))
                assert shown(expected) == shown(got)
        kept = InMemoryStore()
        for item in theirs.search((), limit=999):
            kept.put(item.namespace, item.key, item.value)
        asked: dict[str, Any] = {"prefix": prefix, "suffix": suffix, "max_depth": depth}

        assert kept.list_namespaces(**asked) == ours.list_namespaces(**asked)


def test_what_a_batch_reads_is_from_before_it(store: MemfilesStore) -> None:
    """And of several puts of one item the last counts, with one revision; as in ``InMemoryStore``."""
    ops: list[base.Op] = [
        base.PutOp(("a",), "k", {"n": 1}),
        base.GetOp(("a",), "k"),
        base.PutOp(("a",), "k", {"n": 2}),
        base.PutOp(("a",), "gone", {"n": 3}),
        base.PutOp(("a",), "gone", None),
        base.SearchOp(("a",)),
    ]
    theirs = InMemoryStore()

    assert theirs.batch(ops) == store.batch(ops) == [None, None, None, None, None, []]
    assert shown(theirs.get(("a",), "k")) == shown(store.get(("a",), "k")) == (("a",), "k", {"n": 2})
    assert None is store.get(("a",), "gone")


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (base.PutOp(("a",), "k", {"x": "y" * 65536}), SizeExceeded),
        (base.PutOp(("a",), "k", {"x": object()}), InvalidArgument),
        (base.PutOp(("a" * 300,), "k", {"x": 1}), InvalidArgument),
        (base.PutOp(("a",), "k", {"x": "AKIAQYLPMN5HFIQR7XYA"}), SecretRefused),
        (base.PutOp(("a",), "k", {"x": 1}, ttl=0), InvalidArgument),
        (base.PutOp(("a",), "k", {"x": 1}, ttl=float("nan")), InvalidArgument),
        (base.PutOp(("a",), "k", {"x": 1}, ttl=1e9), InvalidArgument),
        (base.PutOp(("a",), "k", {"x": 1}, ttl="5"), InvalidArgument),  # type: ignore[arg-type]
        (base.SearchOp(("a",), limit=-1), InvalidArgument),
        (base.SearchOp(("a",), offset=1.5), InvalidArgument),  # type: ignore[arg-type]
        (base.ListNamespacesOp(limit="3"), InvalidArgument),  # type: ignore[arg-type]
        (base.ListNamespacesOp((base.MatchCondition("middle", ("a",)),)), InvalidArgument),  # type: ignore[arg-type]
        ("put", InvalidArgument),
    ],
)
def test_a_batch_that_cannot_be_done_changes_nothing(store: MemfilesStore, bad: Any, error: type[Exception]) -> None:
    """Not even what stands before it."""
    store.put(("a",), "old", {"n": 1})
    with pytest.raises(error):
        store.batch([base.PutOp(("a",), "new", {"n": 1}), base.PutOp(("a",), "old", None), bad])

    assert [(("a",), "old", {"n": 1})] == [shown(item) for item in store.search(())]


def expiry_of(session: Session, key: str) -> datetime | None:
    assert session.entries is not None
    found = session.entries.get(session, f"langgraph/a/{key}")
    return datetime.fromisoformat(found.expires_at) if found is not None and found.expires_at else None


def lives(session: Session, key: str) -> float | None:
    """For how many minutes from when it was put, to the tenth; None: for ever."""
    assert session.entries is not None
    expiry, found = expiry_of(session, key), session.entries.get(session, f"langgraph/a/{key}")
    assert found is not None
    made = datetime.fromisoformat(found.updated_at)
    return None if expiry is None else round((expiry - made).total_seconds() / 60, 1)


def test_an_item_may_have_a_time_to_live(session: Session) -> None:
    """In minutes, its own or the store's; None is none, and each put begins anew."""
    plain, timed = MemfilesStore(session), MemfilesStore(session, ttl={"default_ttl": 30})
    assert timed.supports_ttl
    plain.put(("a",), "own", {}, ttl=1.5)
    plain.put(("a",), "none", {})
    timed.put(("a",), "default", {})
    timed.put(("a",), "over", {}, ttl=5)
    timed.put(("a",), "not", {}, ttl=None)
    asyncio.run(timed.aput(("a",), "async", {}))
    timed.put(("a",), "again", {}, ttl=5)
    plain.put(("a",), "again", {})
    expected = {"own": 1.5, "none": None, "default": 30, "over": 5, "not": None, "async": 30, "again": None}

    assert expected == {key: lives(session, key) for key in expected}


def test_what_has_expired_is_gone(store: MemfilesStore, session: Session) -> None:
    """From ``get``, ``search`` and namespaces, without a sweeper."""
    store.put(("a",), "k", {"n": 1}, ttl=0.0005)
    store.put(("b",), "k", {"n": 1}, ttl=10)
    expiry = datetime.now(UTC) + timedelta(minutes=0.0005)
    while datetime.now(UTC) <= expiry:
        sleep(0.001)

    assert (None, [("b",)]) == (store.get(("a",), "k"), store.list_namespaces())
    assert [("b",)] == [item.namespace for item in store.search((), query="1")]


def renewed(session: Session, ttl: base.TTLConfig | None, read: Callable[[MemfilesStore], Any]) -> bool:
    """Whether a read renews an item that will be in half of its time."""
    store = MemfilesStore(session, ttl=ttl)
    store.put(("a",), "k", {"n": 1}, ttl=100)
    assert session.entries is not None
    session.entries.update(session, "langgraph/a/k", ttl=50 * 60)
    before = expiry_of(session, "k")
    read(store)
    return before != expiry_of(session, "k")


def test_a_read_starts_the_time_again(session: Session) -> None:
    """As the call says, or else the store; each way to read does."""
    every: list[Callable[[MemfilesStore], Any]] = [
        lambda store: store.get(("a",), "k"),
        lambda store: store.search(("a",)),
        lambda store: store.search(("a",), query="n", filter={"n": 1}),
        lambda store: asyncio.run(store.aget(("a",), "k")),
        lambda store: asyncio.run(store.asearch(("a",))),
    ]
    never: list[Callable[[MemfilesStore], Any]] = [
        lambda store: store.get(("a",), "k", refresh_ttl=False),
        lambda store: store.search(("a",), refresh_ttl=False),
        lambda store: store.search(("a",), limit=0),
        lambda store: store.list_namespaces(),
    ]
    off: base.TTLConfig = {"refresh_on_read": False}

    assert [True] * 10 == [renewed(session, ttl, read) for read in every for ttl in (None, base.TTLConfig())]
    assert [False] * 5 == [renewed(session, off, read) for read in every]
    assert [False] * 4 == [renewed(session, None, read) for read in never]
    assert renewed(session, off, lambda store: store.get(("a",), "k", refresh_ttl=True))
    assert renewed(session, off, lambda store: store.batch([base.GetOp(("b",), "k"), base.GetOp(("a",), "k")]))


def test_a_put_counts_for_more_than_a_read_of_its_batch(store: MemfilesStore, session: Session) -> None:
    """The read would give it its old time."""
    store.put(("a",), "k", {"n": 1}, ttl=100)
    store.batch([base.GetOp(("a",), "k"), base.PutOp(("a",), "k", {"n": 2})])

    assert None is expiry_of(session, "k")


@pytest.mark.parametrize("bad", [{"default": 5}, {"default_ttl": 0}, {"default_ttl": True}, {"default_ttl": "5"}])
def test_an_unusable_configuration_is_refused(session: Session, bad: Any) -> None:
    """At once, and not by the first put."""
    with pytest.raises(InvalidArgument, match="ttl "):
        MemfilesStore(session, ttl=bad)


def test_items_can_be_of_a_category(session: Session, memory: memfiles.Memory) -> None:
    """Which has a lifetime, a budget, or is shared by all agents."""
    MemfilesStore(session, category="brief").put(("a",), "k", {"n": 1})
    found = memory.entries.get(session, "langgraph/a/k")
    MemfilesStore(session, category="workspace").put(("team",), "k", {"n": 2})
    sales = MemfilesStore(memory.session("sales"))

    assert found is not None
    assert found.expires_at is not None
    assert [(("team",), "k", {"n": 2})] == [shown(item) for item in sales.search(())]


def test_pages_make_up_the_whole(store: MemfilesStore) -> None:
    """Also beyond what is listed at once, and with a filter."""
    store.batch([base.PutOp(("a",), f"{number:03}", {"odd": number % 2}) for number in range(130)])
    pages = [store.search((), filter={"odd": 1}, limit=20, offset=offset) for offset in range(0, 80, 20)]

    assert [20, 20, 20, 5] == [len(page) for page in pages]
    assert [f"{number:03}" for number in range(1, 130, 2)] == [item.key for page in pages for item in page]


def test_a_filter_finds_paths(store: MemfilesStore) -> None:
    """With and without a query, as LangGraph's stores over SQL do."""
    store.put(("a",), "1", {"meta": {"lang": "de", "at": "2024-05-01"}, "text": "tea"})
    store.put(("a",), "2", {"meta": {"lang": "en", "at": "2024-06-01"}, "text": "tea"})
    store.put(("a",), "3", {"meta.lang": "de", "text": "tea"})
    wanted: list[dict[str, Any]] = [
        {"meta.lang": "de"},
        {"meta.lang": {"$ne": "de"}},
        {"meta.lang": "de", "meta.at": {"$gt": "2024-01-01"}},
        {"meta.lang": "de'; DROP TABLE entry"},
    ]
    found = [[item.key for item in store.search((), filter=each)] for each in wanted]
    ranked = [sorted(item.key for item in store.search((), query="tea", filter=each)) for each in wanted]
    read = asyncio.run(store.asearch((), filter=wanted[0]))

    assert [["1", "3"], ["2"], ["1"], []] == found == ranked
    assert ["1", "3"] == [item.key for item in read]


def test_a_query_brings_the_best_first(store: MemfilesStore) -> None:
    """With a score; what has nothing in common follows with 0, what is not indexed without one."""
    store.put(("a",), "1", {"text": "unlike"}, index=False)
    store.put(("a",), "2", {"text": "bread"})
    store.put(("a",), "3", {"text": "first\nsecond green tea"})
    store.put(("a",), "4", {"text": "tea"}, index=["text"])
    store.put(("b",), "5", {"text": "green green tea"})
    found = store.search(("a",), query="green tea")

    assert ["3", "4", "2", "1"] == [item.key for item in found]
    assert [True, True, False] == [bool(item.score) for item in found[:3]]
    assert [0.0, None] == [item.score for item in found[2:]]
    assert ["3"] == [item.key for item in store.search(("a",), query="second", limit=1)]
    assert ["4"] == [item.key for item in store.search((), query="green tea", filter={"text": "tea"})]


def test_an_item_that_is_put_again_is_indexed_as_that_says(store: MemfilesStore) -> None:
    """Whatever was said of it before."""
    store.put(("a",), "k", {"text": "tea"}, index=False)
    store.put(("a",), "k", {"text": "tea"})

    assert [True] == [bool(item.score) for item in store.search((), query="tea")]


def test_times_are_those_of_the_entry(store: MemfilesStore) -> None:
    """In UTC; when it was first put, and when its content last changed."""
    before = datetime.now(UTC)
    store.put(("a",), "k", {"n": 1})
    first = store.get(("a",), "k")
    store.put(("a",), "k", {"n": 2})
    second = store.get(("a",), "k")

    assert first is not None
    assert second is not None
    assert (first.created_at, UTC) == (second.created_at, second.updated_at.tzinfo)
    assert abs((first.created_at - before).total_seconds()) < 60


def test_what_is_deleted_can_be_restored_by_a_person(store: MemfilesStore, memory: memfiles.Memory) -> None:
    """It is hidden, as what is deleted anywhere else."""
    store.put(("users", "ada"), "prefs", {"n": 1})
    store.delete(("users", "ada"), "prefs")
    store.delete(("users", "ada"), "never")
    memory.entries.restore(memory.session("support"), "langgraph/users/ada/prefs")

    assert {"n": 1} == store.search(("users",))[0].value


def test_levels_hold(store: MemfilesStore, session: Session, memory: memfiles.Memory) -> None:
    """An item of a higher level is not there; one of a lower level is read, and not deleted."""
    store.put(("a",), "low", {"n": 1})
    session.raise_level("CONFIDENTIAL")
    store.put(("a",), "high", {"n": 2})
    below = MemfilesStore(memory.session("support"))

    assert ["low"] == [item.key for item in below.search((), query="n")]
    assert [("a",)] == below.list_namespaces()
    assert None is below.get(("a",), "high")
    assert ["high", "low"] == [item.key for item in store.search(())]
    with pytest.raises(LevelDenied, match="item 'low' is at level INTERNAL and this session is at CONFIDENTIAL"):
        store.batch([base.PutOp(("a",), "new", {"n": 3}), base.PutOp(("a",), "low", None)])
    assert None is store.get(("a",), "new")


def test_other_entries_are_no_items(store: MemfilesStore, session: Session) -> None:
    """And what an agent makes of an item with its tools is shown as text."""
    session.call("memory_save", {"key": "users/ada", "content": "Ada is on Pro."})
    session.call("memory_save", {"key": "langgraph/users/bob", "content": "Bob is on Free."})
    session.call("memory_save", {"key": "langgraph/%", "content": "no item is called so"})

    assert [(("users",), "bob", {"content": "Bob is on Free."})] == [shown(item) for item in store.search(())]
    assert [("users",)] == store.list_namespaces()


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**70])
def test_a_limit_may_be_any_number(store: MemfilesStore, number: int) -> None:
    """As in LangGraph's own store, also one beyond what fits in 64 bits."""
    theirs = InMemoryStore()
    for each in (theirs, store):
        each.put(("a",), "1", {"n": 1})
    found = [
        (len(each.search((), limit=number)), each.list_namespaces(limit=number), each.search((), offset=number))
        for each in (theirs, store)
    ]

    assert [(1, [("a",)], [])] * 2 == found


def test_the_budget_of_the_agent_holds(
    store: MemfilesStore, memory: memfiles.Memory, caplog: pytest.LogCaptureFixture
) -> None:
    """What is over it is evicted with the put, never silently, and can be restored."""
    store.batch([base.PutOp(("a",), f"{number:03}", {"n": number}) for number in range(200)])
    store.put(("a",), "one more", {"n": 200})

    assert 200 == len(store.search((), limit=999))
    assert store.get(("a",), "one more") is not None
    assert ["evicted to keep the budget of support: entries, 1"] == caplog.messages
    assert 1 == len(memory.audit(op="evict").events)


def test_the_asynchronous_half_does_the_same(store: MemfilesStore) -> None:
    """Many at once, each in a worker thread."""

    async def used() -> list[Any]:
        await asyncio.gather(*(store.aput(("a",), str(number), {"n": number}) for number in range(20)))
        await store.adelete(("a",), "3")
        return [len(await store.asearch((), limit=99)), await store.aget(("a",), "3"), await store.alist_namespaces()]

    assert [19, None, [("a",)]] == asyncio.run(used())


def test_a_graph_keeps_what_its_nodes_put(store: MemfilesStore) -> None:
    """``compile(store=...)`` hands it to every node, in threads."""

    def remember(number: int) -> Callable[..., Empty]:
        def node(state: Empty, runtime: Runtime[None]) -> Empty:
            assert runtime.store is not None
            runtime.store.put(("nodes",), str(number), {"n": number})
            return Empty()

        return node

    graph = StateGraph(Empty)
    for number in range(4):
        graph.add_node(f"node{number}", remember(number))
        graph.add_edge(START, f"node{number}")
        graph.add_edge(f"node{number}", END)
    graph.compile(store=store).invoke(Empty())

    assert ["0", "1", "2", "3"] == [item.key for item in store.search(("nodes",))]
