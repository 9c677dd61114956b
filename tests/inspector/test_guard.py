"""Who may ask the inspector, and what a page may do: asked without a browser, as an attacker would."""

from __future__ import annotations

import asyncio
import http.client
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import pytest

import memfiles
from memfiles import InvalidArgument, Memory, inspector
from memfiles.cli.failures import listening_on
from memfiles.inspector.guard import FORM_MAX
from memfiles.inspector.live import Live
from memfiles.inspector.view import LARGE_MAX, ServerState
from tests.inspector.inspecting import OwnProcess, filled, serving
from tests.support.records import records_in


class Asker:
    """Somebody who was let in: the cookie, the secret path and the secret of the forms."""

    def __init__(self, served: OwnProcess) -> None:
        self.host = served.origin.partition("://")[2]
        self.origin = served.origin
        self.link = served.link.removeprefix(served.origin)
        _, headers, page = self.ask("GET", self.link, {})
        self.set_cookie = headers["set-cookie"]
        self.cookie = self.set_cookie.partition(";")[0]
        self.root = re.findall(r'href="([^"]+)/"', page)[0]
        _, self.headers, self.page = self.ask("GET", f"{self.root}/files/playbook", {"Cookie": self.cookie})
        self.csrf = (re.findall(r'name="csrf" value="([^"]+)"', self.page) or ["unknown"])[0]

    def ask(
        self, method: str, path: str, headers: dict[str, str], body: str | None = None
    ) -> tuple[int, dict[str, str], str]:
        """The answer to one request with these headers and no others of ours."""
        connection = http.client.HTTPConnection(self.host, timeout=60)
        try:
            connection.putrequest(method, path, skip_host="Host" in headers)
            for name, value in headers.items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body.encode() if body is not None else None)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()
        finally:
            connection.close()

    def send(self, path: str, fields: dict[str, str], **headers: str) -> int:
        """The status of a form that is sent as the page would, but for these headers; "" leaves one out."""
        return self.answer(path, fields, **headers)[0]

    def answer(self, path: str, fields: dict[str, str], **headers: str) -> tuple[int, str]:
        """The status and the text of the answer."""
        named = {"Cookie": self.cookie, "Origin": self.origin, "Content-Type": "application/x-www-form-urlencoded"}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {name: value for name, value in named.items() if value}
        status, _, text = self.ask("POST", f"{self.root}{path}", sent, urlencode(fields))
        return status, text


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    with serving(filled(tmp_path_factory.mktemp("guarded"))) as served:
        yield Asker(served)


@pytest.mark.slow
def test_the_link_works_once(asker: Asker) -> None:
    """Afterwards only the cookie lets anybody in; with it, the link leads to the page."""
    assert 401 == asker.ask("GET", asker.link, {})[0]
    assert 401 == asker.ask("GET", "/enter?token=", {})[0]
    assert 401 == asker.ask("HEAD", asker.link, {})[0]
    assert 200 == asker.ask("GET", asker.link, {"Cookie": asker.cookie})[0]


def test_the_cookie_is_kept_from_scripts_other_sites_and_other_ports(asker: Asker) -> None:
    """It is sent to the secret path alone."""
    assert {"httponly", "samesite=strict", f"path={asker.root.lower()}"} <= set(asker.set_cookie.lower().split("; "))
    assert len(asker.root) > 12


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1"}, 403),
        ({"Cookie": ""}, 401),
        ({"Cookie": "memfiles=x"}, 401),
    ],
)
def test_who_may_read(asker: Asker, headers: dict[str, str], status: int) -> None:
    """Only requests to our own name, from our own page or a person's own hand, with the cookie."""
    assert status == asker.ask("GET", f"{asker.root}/", {"Cookie": asker.cookie, **headers})[0]


def test_the_path_is_a_secret(asker: Asker) -> None:
    """Without it there is nothing, whatever else is known."""
    known = {"Cookie": asker.cookie}
    assert 404 == asker.ask("GET", "/guessed/", known)[0]
    assert 404 == asker.ask("GET", "/static/style.css", known)[0]
    assert 401 == asker.ask("GET", f"{asker.root}/static/style.css", {})[0]
    assert 404 == asker.ask("GET", f"{asker.root}/static/../guard.py", known)[0]
    assert 404 == asker.ask("GET", f"{asker.root}/nowhere", known)[0]


@pytest.mark.parametrize(
    ("headers", "csrf", "status"),
    [
        ({}, None, 303),
        ({"Origin": "", "Sec_Fetch_Site": "same-origin"}, None, 303),
        ({}, "", 403),
        ({}, "guessed", 403),
        ({"Origin": "http://evil.example"}, None, 403),
        ({"Origin": "null"}, None, 403),
        ({"Origin": ""}, None, 403),
        ({"Sec_Fetch_Site": "cross-site"}, None, 403),
        ({"Cookie": ""}, None, 401),
        ({"Host": "evil.example"}, None, 403),
        ({"Content_Type": "text/plain"}, None, 405),
    ],
)
def test_who_may_change(asker: Asker, headers: dict[str, str], csrf: str | None, status: int) -> None:
    """Only forms of our own pages; nothing changes otherwise."""
    fields = {"csrf": asker.csrf if csrf is None else csrf, "text": f"- {status} {headers} {csrf}"}
    assert status == asker.send("/files/playbook/append", fields, **headers)
    page = asker.ask("GET", f"{asker.root}/files/playbook", {"Cookie": asker.cookie})[2]
    assert (status == 303) == (f"- {status} {headers} {csrf}".replace("'", "&#39;") in page)


@pytest.mark.parametrize(
    ("method", "status"),
    [("HEAD", 200), ("OPTIONS", 403), ("PUT", 403), ("DELETE", 403), ("TRACE", 403), ("QUERY", 403)],
)
def test_other_methods_do_nothing(asker: Asker, method: str, status: int) -> None:
    """But for ``HEAD``, which is a ``GET`` without a text."""
    assert status == asker.ask(method, f"{asker.root}/files/playbook", {"Cookie": asker.cookie})[0]


def test_a_prompt_is_not_kept_over_a_redaction_that_an_append_came_after(tmp_path: Path) -> None:
    """Nobody looked between the two, so only the append is told."""
    path, state, kept = filled(tmp_path), ServerState(), list[int]()

    async def listening(memory: Memory, other: Memory) -> None:
        live = Live(memory, (), state)
        live.start()
        for text in ("", "secret"):
            if text:
                other.manager.redact("playbook", text)
            other.manager.append("playbook", "more\n")
            memory.manager.notice("playbook")
            kept.append(len(state.prompts))
        live.end()

    with memfiles.open(path, watch=False) as memory, memfiles.open(path, watch=False) as other:
        memory.manager.append("playbook", "a secret\n")
        state.keep(state.prompts, "one", "a prompt with a secret")
        with ThreadPoolExecutor() as pool:  # the thread of a test may have the loop of the browser
            pool.submit(asyncio.run, listening(memory, other)).result()

    assert [1, 0] == kept


def test_what_is_kept_between_requests_is_bounded() -> None:
    """The newest prompts and plans stay, however many were looked at."""
    state = ServerState()
    for number in range(10 * LARGE_MAX):
        state.keep(state.prompts, str(number), "text")

    assert [str(number) for number in range(9 * LARGE_MAX, 10 * LARGE_MAX)] == list(state.prompts)


def test_the_pages_ask_the_library() -> None:
    """No module of the inspector imports what writes records, the index or the store."""
    rooms = re.compile(
        r"from memfiles\.(files\.manager|storage\.(?:store|journal|atomic|repository)|index\.(?!text)\w+)"
    )
    found = [path.name for path in Path(inspector.__file__).parent.glob("*.py") if rooms.search(path.read_text())]

    assert [] == found


def test_the_extra_is_named_if_it_is_missing(tmp_path: Path) -> None:
    """With the command that installs it."""
    program = "import sys; sys.modules['jinja2'] = None; from memfiles.cli import run; run()"
    done = subprocess.run([sys.executable, "-c", program, "ui"], cwd=tmp_path, capture_output=True, text=True)

    assert (1, "") == (done.returncode, done.stdout)
    assert "pip install 'memfiles[ui]'" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("is_ignored", [False, True])
def test_a_terminal_that_is_closed_ends_it(tmp_path: Path, is_ignored: bool) -> None:
    """The memory is closed, as after SIGTERM. Under nohup, which has the signal ignored, it goes on."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
    served = OwnProcess(filled(tmp_path))
    signal.signal(signal.SIGHUP, before)
    asker = Asker(served)
    served.process.send_signal(signal.SIGHUP)
    if is_ignored:
        assert 200 == asker.ask("GET", f"{asker.root}/", {"Cookie": asker.cookie})[0]
        served.process.terminate()
    _, said = served.process.communicate(timeout=60)

    assert (0, "") == (served.process.returncode, said)


def test_a_taken_port_is_named() -> None:
    """With what to do."""
    with listening_on(0) as taken, pytest.raises(InvalidArgument, match="choose another with --port"):
        listening_on(taken.getsockname()[1])


def test_a_form_has_a_limit(asker: Asker) -> None:
    """What is larger than any file can be is not read to its end."""
    with pytest.raises(OSError):  # noqa: PT011 - reset, broken or refused, as it comes
        status = asker.send("/files/playbook/append", {"csrf": asker.csrf, "text": "x" * (FORM_MAX + 1)})
        assert 413 == status
        raise OSError


def test_every_answer_is_locked_down(asker: Asker) -> None:
    """Pages, refusals and files: nothing from elsewhere, no frame, no cache, no guessing of types."""
    for path, cookie in ((f"{asker.root}/", asker.cookie), ("/", ""), (f"{asker.root}/static/live.js", asker.cookie)):
        headers = asker.ask("GET", path, {"Cookie": cookie})[1]
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert ("no-store", "nosniff", "DENY") == tuple(
            headers[name] for name in ("cache-control", "x-content-type-options", "x-frame-options")
        )


@pytest.mark.slow
def test_read_only_refuses_every_action(tmp_path: Path) -> None:
    """Whatever form is sent, although every page is shown."""
    from memfiles.inspector.server import PAGES

    with serving(filled(tmp_path), "--read-only") as served:
        asker = Asker(served)
        before = records_in(tmp_path / ".memory")
        actions = [path.replace("{uid}", "playbook") for method, path, _ in PAGES if method == "POST"]
        answers = [asker.answer(path, {"csrf": "unknown", "text": "x"}) for path in actions]

    assert "csrf" not in asker.page
    assert len(actions) > 10
    assert {(403, "nothing was changed: the inspector was started with --read-only\n")} == set(answers)
    assert before == records_in(tmp_path / ".memory")
