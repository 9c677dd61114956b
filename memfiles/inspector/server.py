"""The server of the inspector: all pages as one application, on loopback alone, until it is interrupted."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from importlib.resources import files
from mimetypes import guess_type

import uvicorn
from jinja2 import Environment
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as HttpRoute

from memfiles.errors import MemfilesError
from memfiles.inspector import entry_pages, entry_sets, file_pages, operator_pages, overview, prompt_page
from memfiles.inspector.guard import Guard
from memfiles.inspector.inspected_memory import InspectedMemory
from memfiles.inspector.live import Live
from memfiles.inspector.view import Handler, PageView, Route, ServerState, templates
from memfiles.memory import Memory
from memfiles.records import late_logger as _log

STATIC = {it.name: it.read_bytes() for it in (files("memfiles.inspector") / "static").iterdir()}  # also from an archive
PAGES: tuple[Route, ...] = (
    *overview.ROUTES,
    *file_pages.ROUTES,
    *entry_pages.ROUTES,
    *entry_sets.ROUTES,
    *operator_pages.ROUTES,
    *prompt_page.ROUTES,
)
_SHUTDOWN_SECONDS = 2


class Inspector:
    """The page on one memory, to be served at a socket; ``link`` opens it, once."""

    def __init__(
        self,
        memory: Memory,
        *,
        listening: socket.socket,
        operator: str,
        ceiling: str | None = None,
        read_only: bool = False,
    ) -> None:
        """``operator`` is who acts, and ``ceiling`` the highest level that is shown."""
        self._listening = listening
        inspected = InspectedMemory(memory, operator=operator, ceiling=ceiling, read_only=read_only)
        state = ServerState()
        self._live = Live(memory, inspected.levels, state)
        inner = _site(inspected, self._live, state)
        self._guard = Guard(inner, port=listening.getsockname()[1], read_only=read_only)
        inner.state.guard = self._guard
        self.link = self._guard.link

    def serve(self) -> None:
        """Serve until a ``KeyboardInterrupt``."""
        config = uvicorn.Config(
            self._guard,
            http="h11",
            log_config=None,
            access_log=False,
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        )
        self._server = _StreamsFirst(config, self._live)
        self._server.run(sockets=[self._listening])

    def end(self) -> None:
        """Let ``serve`` return soon; any thread may ask for it."""
        self._server.should_exit = True


class _StreamsFirst(uvicorn.Server):
    """Ends the streams before a shutdown waits for them; only a subclass learns of it in time."""

    def __init__(self, config: uvicorn.Config, live: Live) -> None:
        super().__init__(config)
        self._live = live

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._live.start()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._live.end()
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # a request that is cut off now is no error
        await super().shutdown(sockets)


def _site(inspected: InspectedMemory, live: Live, state: ServerState) -> Starlette:
    """The application behind the guard; its own ``state.guard`` has the secret path that comes before every route."""
    env = templates()
    routes = [HttpRoute(f"/{{root}}{path}", _endpoint(page, inspected, state, env), methods=[method])
              for method, path, page in PAGES]  # fmt: skip

    async def news(request: Request) -> Response:
        return live.response(request.query_params.get("since", ""))

    async def lost(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        return PageView(request, inspected, state, env).render("message.html", status=status)

    own = [HttpRoute("/{root}/live", news), HttpRoute("/{root}/static/{name}", _static)]
    return Starlette(routes=[*routes, *own], exception_handlers={HTTPException: lost})


async def _static(request: Request) -> Response:
    """A file that pages refer to."""
    name = request.path_params["name"]
    if name not in STATIC:
        raise HTTPException(404)
    return Response(STATIC[name], media_type=guess_type(name)[0])


def _endpoint(
    page: Handler, inspected: InspectedMemory, state: ServerState, env: Environment
) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        view = PageView(request, inspected, state, env)
        try:
            return page(view)
        except MemfilesError as error:
            return view.failed(error)
        except Exception:
            _log.exception("the page %s failed", request.url.path.partition("/")[2].partition("/")[2])
            return view.failed(MemfilesError("an internal error; the details were logged"))

    return answer
