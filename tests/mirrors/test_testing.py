"""The exam finds a mirror that breaks a promise, and its questions say what is wrong."""

from __future__ import annotations

import pytest

from memfiles.sync.mirror import ANY, Condition
from mirrors import MemoryMirror
from mirrors.testing import Place, questions
from tests.mirrors.broken import BROKEN, Bulk, LastWriterWins, Passing


def failed(kind: type[Passing]) -> list[str]:
    """The questions that a kind of mirror fails, each asked of a new one."""
    wrong = []
    for question in questions():
        inner = MemoryMirror()
        try:
            question(Place(lambda inner=inner: kind(inner)))  # type: ignore[misc]
        except Exception:
            wrong.append(str(question))
    return wrong


@pytest.mark.parametrize("kind", [Passing, Bulk], ids=lambda kind: kind.__name__)
def test_a_mirror_that_keeps_its_promises_passes(kind: type[Passing]) -> None:
    """A wrapper that changes nothing fails nothing, with a power more or without."""

    assert [] == failed(kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_promise_is_found(kind: type[Passing]) -> None:
    """At least one question fails, and not all of them: the exam tells what is wrong."""

    assert 0 < len(failed(kind)) < len(questions())


def test_a_wrong_answer_is_explained() -> None:
    """The message names the promise and both values, shortened."""
    mirror = LastWriterWins(MemoryMirror())
    (question,) = [each for each in questions() if str(each) == "a_first_put_is_refused_after_another"]

    with pytest.raises(AssertionError, match=r"^a second first put: expected MirrorConflict, got '[0-9a-f]{64}'$"):
        question(Place(lambda: mirror))


def test_questions_can_be_left_out_by_what_they_need() -> None:
    """A mirror that cannot delete is not asked to."""
    everything, some = set(map(str, questions())), set(map(str, questions(without={"deleting"})))

    assert {
        "what_is_deleted_is_gone_for_everyone",
        "a_delete_may_be_repeated",
        "a_delete_of_another_version_is_refused",
    } == (everything - some)


def test_every_question_says_what_it_asks() -> None:
    """Its docstring is a sentence."""

    assert [] == [str(question) for question in questions() if not (question.ask.__doc__ or "").endswith(".")]


def test_the_exam_looks_behind_the_mirrors_back() -> None:
    """What is put must be in the store as others see it, not only come back."""

    class Scrambled(Passing):
        def put(self, key: str, body: bytes, *, when: Condition = ANY) -> str:
            return self.inner.put(key, body, when=when)

    store: dict[str, bytes] = {}
    mirror = Scrambled(MemoryMirror())
    (question,) = [each for each in questions() if str(each) == "what_is_put_is_there_for_everyone"]

    with pytest.raises(AssertionError, match="the store holds the same bytes under the same key"):
        question(Place(lambda: mirror, peek=store.get))
