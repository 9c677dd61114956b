"""A few threads that carry out jobs and keep nobody from leaving."""

from __future__ import annotations

import threading

import pytest

from memfiles.sync.dispatcher import Workers
from tests.support.records import wait_until


def test_jobs_are_carried_out_side_by_side() -> None:
    """Jobs that wait for one another are all begun, up to the limit."""
    workers, meeting = Workers(3, name="test"), threading.Barrier(4)

    def meet() -> None:
        meeting.wait(60)

    for _ in range(3):
        workers.submit(meet)
    meeting.wait(60)
    workers.close()


def test_a_thread_that_is_free_is_used_again() -> None:
    """One job after the other needs one thread."""
    workers, names = Workers(8, name="test"), set()
    for _ in range(5):
        done = threading.Event()

        def job(done: threading.Event = done) -> None:
            names.add(threading.current_thread().name)
            done.set()

        workers.submit(job)
        assert done.wait(60)
        wait_until(lambda: not workers._unfinished)
    workers.close()

    assert {"test-1"} == names


def test_a_job_that_fails_is_logged_and_the_next_is_done(caplog: pytest.LogCaptureFixture) -> None:
    """An error ends neither the thread nor is it swallowed."""
    workers, done = Workers(1, name="test"), threading.Event()

    def fails() -> None:
        raise ValueError("a defect")

    workers.submit(fails)
    workers.submit(done.set)

    assert done.wait(60)
    assert "a defect" in caplog.text
    workers.close()


def test_every_thread_is_a_daemon() -> None:
    """A job that hangs does not keep the program from ending."""
    workers, hanging, is_daemon = Workers(1, name="test"), threading.Event(), []

    def job() -> None:
        is_daemon.append(threading.current_thread().daemon)
        hanging.set()

    workers.submit(job)
    hanging.wait(60)
    workers.close()

    assert [True] == is_daemon
