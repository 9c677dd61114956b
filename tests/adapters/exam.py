"""The exam of all adapters: what an agent's memory does, whichever framework the agent is of.

A framework's test is a subclass: a driver of a few lines, and the tests of what is particular to the framework.
``AdapterExam`` has what holds for all; ``TextExam`` is for frameworks that keep texts of their own in the memory, and
``ToolExam`` for those whose models have the session's own tools.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

import memfiles
from memfiles.adapters.agent_calls import NO_MEMORY
from memfiles.errors import InvalidArgument
from memfiles.tools.session import Session
from tests.adapters.agents_at_work import WORKFLOW, Answer, Call, Held, Script, append, output_of
from tests.support.workflows import opened

SECRET = "AKIAQYLPMN5HFIQR7XYA"


class AdapterExam:
    """For every adapter: texts go in and come out, within the session's level, and nothing is left half-made."""

    module: ClassVar[str]
    vendors: ClassVar[tuple[str, ...]]
    extra_error: ClassVar[str]
    waits_for_calls: ClassVar[bool] = True
    """Whether a cancelled write is over only when its change is made; else the change goes on without its caller."""

    def read(self, session: Session, name: str) -> str | None:
        """The text of a name as the framework gives it, None if there is none."""
        raise NotImplementedError

    def write(self, session: Session, name: str, text: str) -> str | None:
        """Write a text; the words of the refusal, None if there was none."""
        raise NotImplementedError

    async def awrite(self, session: Session, name: str, text: str) -> object:
        """As ``write``, in the asynchronous way of the framework."""
        raise NotImplementedError

    def key_of(self, name: str) -> str:
        """The key of the entry that holds the text of a name."""
        return name

    @pytest.fixture
    def memory(self, tmp_path: Path) -> Iterator[memfiles.Memory]:
        with opened(tmp_path, WORKFLOW) as memory:
            yield memory

    @pytest.fixture
    def session(self, memory: memfiles.Memory) -> Session:
        return memory.session("support", run="monday")

    def test_what_is_written_is_read_and_is_an_entry(self, memory: memfiles.Memory, session: Session) -> None:
        """At the session's level; there is nothing under another name."""
        refusal = self.write(session, "plan", "Ada is on Pro.")
        found = memory.entries.get(session, self.key_of("plan"))

        assert [None, "Ada is on Pro.", None] == [
            refusal,
            self.read(session, "plan"),
            self.read(session, "never"),
        ]
        assert found is not None
        assert ("INTERNAL", True) == (found.level, "Ada is on Pro." in found.content)

    def test_a_credential_is_refused(self, session: Session) -> None:
        """The error names the rule, and never the value; nothing is kept."""
        refusal = self.write(session, "plan", f"key: {SECRET}") or ""

        assert "aws" in refusal.lower()
        assert SECRET not in refusal
        assert None is self.read(session, "plan")

    def test_a_text_above_the_level_is_not_there(self, memory: memfiles.Memory, session: Session) -> None:
        """Nothing shows that it is, and its name can be used."""
        self.write(memory.session("support", level="CONFIDENTIAL"), "plan", "secret")

        assert None is self.read(session, "plan")
        assert None is self.write(session, "plan", "mine")
        assert "mine" == self.read(session, "plan")

    def test_a_text_below_the_level_is_read_and_never_changed(self, memory: memfiles.Memory, session: Session) -> None:
        """The level counts as soon as it is raised."""
        self.write(session, "plan", "internal")
        session.raise_level("CONFIDENTIAL")
        read = self.read(session, "plan")
        self.write(session, "plan", "confidential")

        assert ["internal", "internal"] == [read, self.read(memory.session("support"), "plan")]

    @pytest.mark.slow
    def test_writes_at_once_lose_nothing(self, session: Session) -> None:
        """Twenty in one loop."""
        names = [f"plan{number:02}" for number in range(20)]

        async def all_of_them() -> None:
            await asyncio.gather(*(self.awrite(session, name, name) for name in names))

        asyncio.run(all_of_them())

        assert names == [self.read(session, name) for name in names]

    def test_a_cancelled_write_ends_before_its_caller_goes_on(self, memory: memfiles.Memory, session: Session) -> None:
        """What has begun is carried out, so nothing changes behind a caller that believes it is over."""
        held = Held(memory)

        async def cancelled() -> list[bool]:
            writing = asyncio.create_task(self.awrite(session, "plan", "Ada is on Pro."))
            await asyncio.to_thread(held.wait)
            writing.cancel()
            await asyncio.wait([writing], timeout=0.1 if self.waits_for_calls else 60)
            was_over = writing.done()
            held.go_on.set()
            await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()} | {writing})
            return [was_over, writing.cancelled()]

        assert [not self.waits_for_calls, True] == asyncio.run(cancelled())
        assert "Ada is on Pro." == self.read(session, "plan")

    def test_without_the_extra_the_error_says_which(self) -> None:
        """And nothing of the vendor's is loaded by anything else."""
        program = (
            "import sys, memfiles, memfiles.memory, memfiles.tools.session\n"
            f"print(sorted({set(self.vendors)!r} & set(sys.modules)))\n"
            f"sys.modules.update(dict.fromkeys({self.vendors!r}))\n"
            f"try:\n    import {self.module}\nexcept memfiles.ExtraMissing as error:\n    print(error)"
        )

        assert ["[]", self.extra_error] == output_of(program).splitlines()


class TextExam(AdapterExam):
    """For adapters whose frameworks keep texts of their own in the memory."""

    needs_entries: ClassVar[bool] = True
    """Whether nothing can be kept where the workflow declares no entries; else there are the declared files."""

    def test_a_closed_session_is_an_error(self, session: Session) -> None:
        """In words, and nothing is written."""
        session.close()

        assert "closed" in (self.write(session, "plan", "x") or "")

    def test_without_entries_the_error_says_what_there_is(self, open_memory: Callable[[str], memfiles.Memory]) -> None:
        """Or what to declare."""
        session = open_memory(WORKFLOW.replace("  entries: {}\n", "")).session("support")
        if self.needs_entries:
            with pytest.raises(InvalidArgument, match="declares none: add "):
                self.write(session, "plan", "x")
        else:
            assert "the files are: notes, playbook" in (self.write(session, "plan", "x") or "")


REFUSED = [
    (append("x", file="playbook"), "read_only"),
    (append("x", file="deals"), "file_not_declared"),
    (append("x" * 1001), "size_exceeded"),
    (Call("append_memory", {"file": "notes"}), "invalid_argument"),
    (Call("memory_save", {"key": "k", "content": "c", "self": 1, "config": 2, "run_manager": 3}), "invalid_argument"),
    (Call("memory_save", {"key": "k", "content": SECRET}), "secret_refused"),
    (Call("memory_delete", {"key": "never"}), "entry_not_found"),
]
UNREADABLE = [
    (Call("append_memory", '{"file": "notes", "content": '), "invalid_argument"),
    (Call("append_memory", "[1]"), "invalid_argument"),
]


class ToolExam(AdapterExam):
    """For adapters that give a model the session's tools, and most of them its prompt, at every turn."""

    ways: ClassVar[tuple[str, ...]]
    """In how many ways an agent can be run, the asynchronous one first."""
    marks_errors: ClassVar[bool] = True
    has_call_ids: ClassVar[bool] = True
    has_prompt: ClassVar[bool] = True
    keeps_order: ClassVar[bool] = True
    takes_text: ClassVar[bool] = False
    """Whether the arguments of a call may be any text."""
    follows_level: ClassVar[bool] = True
    repeats_ids: ClassVar[bool] = True
    """Whether the framework makes a second call of one id in a run."""

    async def arun(self, session: Session, script: Script, way: str) -> list[Answer]:
        """Run an agent with a model that plays the script; what the model was answered."""
        raise NotImplementedError

    def run(self, session: Session, script: Script, way: str | None = None) -> list[Answer]:
        """As ``arun``, to its end."""
        return asyncio.run(self.arun(session, script, way or self.ways[0]))

    def read(self, session: Session, name: str) -> str | None:
        (answer,) = self.run(session, Script([Call("memory_get", {"key": name})]))
        content: str | None = json.loads(answer.text).get("content")
        return content

    def write(self, session: Session, name: str, text: str) -> str | None:
        (answer,) = self.run(session, Script([Call("memory_save", {"key": name, "content": text})]))
        return None if '"saved":true' in answer.text else answer.text

    async def awrite(self, session: Session, name: str, text: str) -> object:
        return await self.arun(session, Script([Call("memory_save", {"key": name, "content": text})]), self.ways[0])

    def expect_errors(self, answers: Sequence[Answer]) -> None:
        """All of these are marked as errors, where the framework has a mark."""
        assert {True if self.marks_errors else None} == {answer.is_error for answer in answers}

    def test_the_model_is_offered_the_session_s_tools(self, session: Session, way: str) -> None:
        """By name, in their order; and it is shown the prompt."""
        script = Script()
        self.run(session, script, way)

        assert [[tool.name for tool in session.definitions()]] == script.offered
        assert not self.has_prompt or script.prompts[0].endswith(session.system_prompt())

    def test_a_call_is_answered_in_the_words_of_the_session(self, session: Session, tmp_path: Path, way: str) -> None:
        """And the history says who made it, in which run, and by which call where the framework tells."""
        calls = [append("- Ada is on Pro.\n", id="call_of_ada"), Call("read_memory", {"file": "notes"})]
        answers = self.run(session, Script(*([call] for call in calls)), way)
        by = session.manager.log("u-notes")[0].by
        with opened(tmp_path / "twin", WORKFLOW) as memory:
            twin = memory.session("support")
            expected = [twin.call(call.name, call.arguments).text for call in calls]

        assert expected == [answer.text for answer in answers]
        assert "- Ada is on Pro.\n" == answers[1].text == session.manager.read("u-notes")
        assert {False if self.marks_errors else None} == {answer.is_error for answer in answers}
        assert ("support", "monday", "call_of_ada" if self.has_call_ids else None) == (by.agent, by.session, by.call)

    def test_a_refused_call_is_an_error_that_says_why(self, session: Session, way: str) -> None:
        """However often it is made; the run goes on, and nothing is changed."""
        refused = REFUSED + (UNREADABLE if self.takes_text else [])
        expected = [session.call(call.name, call.arguments) for call, _ in refused]
        assert [code for _, code in refused] == [result.code for result in expected]
        for _ in range(2):
            answers = self.run(session, Script(*([call] for call, _ in refused)), way)

            assert [result.text for result in expected] == [answer.text for answer in answers]
            self.expect_errors(answers)
        assert "" == session.manager.read("u-notes")

    def test_calls_of_one_turn_are_all_carried_out(self, session: Session, way: str) -> None:
        """None is lost; in the order of the model, where the framework does not run them side by side."""
        lines = [f"- {number:02}\n" for number in range(20)]
        answers = self.run(session, Script([append(line) for line in lines]), way)
        written = session.manager.read("u-notes").splitlines(keepends=True)

        assert 20 == len(answers)
        assert lines == (written if self.keeps_order else sorted(written))

    def test_a_repeated_call_changes_nothing(self, session: Session, way: str) -> None:
        """A run that was lost and is begun again from the same answer of the model adds nothing twice."""
        call = append("- a\n", id="call_7")
        first, second = (self.run(session, Script([call]), way)[0].text for _ in range(2))
        written = session.manager.read("u-notes")
        expected = session.call(call.name, call.arguments, call_id="call_7")

        assert ("- a\n" if self.has_call_ids else "- a\n- a\n") == written
        if self.has_call_ids:
            assert (expected.text, True) == (second, (expected.data or {})["replayed"])
            assert second.endswith(first)

    def test_an_id_that_a_model_uses_again_is_another_call(self, session: Session, way: str) -> None:
        """Some servers of models count their ids from the beginning at every answer."""
        call = append("- a\n", id="c")
        self.run(session, Script([call], [call]), way)
        ids = [change.by.call for change in session.manager.log("u-notes")[-2::-1]]

        expected = ["c", "c#2"] if self.has_call_ids else [None, None]
        assert expected[: 2 if self.repeats_ids else 1] == ids
        assert "- a\n" * len(ids) == session.manager.read("u-notes")

    def test_a_raised_level_counts_at_the_next_call(self, session: Session, way: str) -> None:
        """A tool that was offered can be called, and the session judges what it may do; then it is withdrawn."""

        def raised() -> list[Call]:
            session.raise_level("RESTRICTED")
            return [append("x"), Call("read_memory", {"file": "deals"})]

        script = Script(raised)
        refused, read = self.run(session, script, way)

        expected = session.call("append_memory", {"file": "notes", "content": "x"})
        assert ("level_denied", expected.text) == (expected.code, refused.text)
        self.expect_errors([refused])
        assert ("- secret deal\n", "") == (read.text, session.manager.read("u-notes"))
        if self.follows_level:
            assert [True, False] == ["append_memory" in names for names in script.offered]
            assert [False, True] == ["- deals (R, 14B): Deals." in prompt for prompt in script.prompts]

    def test_tools_come_with_the_level(self, memory: memfiles.Memory, way: str) -> None:
        """An agent that can use no file at first can, once its level allows it."""
        session = memory.session("late")

        def raised() -> list[Call]:
            session.raise_level("CONFIDENTIAL")
            return [Call("memory_list", {})]

        script = Script(raised, [append("- another\n", file="deals")])
        if self.follows_level:
            self.run(session, script, way)

            assert [False, True, True] == ["append_memory" in names for names in script.offered]
            assert "- secret deal\n- another\n" == memory.manager.read("u-deals")

    def test_the_prompt_is_rendered_for_every_turn(self, session: Session, way: str) -> None:
        """What one turn wrote stands in the prompt of the next."""
        script = Script([append("- Ada\n")])
        self.run(session, script, way)

        assert not self.has_prompt or [True, False] == ["(RW, 0B of 1000B)" in prompt for prompt in script.prompts]
        assert not self.has_prompt or "notes (RW, 6B of 1000B)" in script.prompts[1]

    def test_an_agent_whose_session_is_closed_goes_on_without_memory(
        self, session: Session, way: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A call is refused in words, the model is told that there is no memory, and the log says why."""

        def closed() -> list[Call]:
            session.close()
            return [Call("memory_list", {})]

        script = Script(closed)
        with caplog.at_level(logging.WARNING, logger="memfiles"):
            (answer,) = self.run(session, script, way)

        assert session.call("memory_list").text == answer.text
        self.expect_errors([answer])
        if self.has_prompt:
            assert script.prompts[1].endswith(NO_MEMORY)
            assert "an agent continues its turn without memory: " in caplog.text
