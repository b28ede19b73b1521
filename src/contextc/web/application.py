"""The ASGI application: the API below `/api/`, the web UI everywhere else."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.types import Receive, Scope, Send

from contextc import telemetry
from contextc.store import Store
from contextc.web.app_state import AppState, ServerOptions
from contextc.web.router import Router
from contextc.web.security import SecurityMiddleware, is_api_request
from contextc.web.static_files import StaticFiles


def create_application(store: Store, options: ServerOptions | None = None) -> Starlette:
    """Return the application, for any ASGI server. The caller closes the store afterwards."""
    app_state = AppState(store, options or ServerOptions())
    api, pages = Router(app_state), StaticFiles()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        recovering = asyncio.create_task(app_state.recover_turns_periodically(), name="recovering turns")
        try:
            yield
        finally:
            recovering.cancel()
            app_state.stop_streams()
            await app_state.turns.close()
            await app_state.close_files(app_state.files.all())

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        """Dispatch a request. Path patterns do not fit all names: a name may contain a line break."""
        found = app.router.not_found if scope["type"] != "http" else api if is_api_request(scope) else pages
        if telemetry.active is None or found is not api:
            await found(scope, receive, send)
            return
        with telemetry.active.continuing(Headers(scope=scope)):  # its turns run in tasks that begin within it
            await found(scope, receive, send)

    app = Starlette(middleware=[Middleware(SecurityMiddleware, options=app_state.options)], lifespan=lifespan)
    app.router.default = answer
    app.state.app_state = app_state
    return app
