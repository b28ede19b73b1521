"""The ASGI application: the API below `/api/`, the web UI everywhere else."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.types import Receive, Scope, Send

from contextc.store import Store
from contextc.web.address import is_api
from contextc.web.desk import Desk, Options
from contextc.web.guard import Guard
from contextc.web.pages import Pages
from contextc.web.router import Router


def application(store: Store, options: Options | None = None) -> Starlette:
    """Return the application, for any ASGI server. The caller closes the store afterwards."""
    desk = Desk(store, options or Options())
    api, pages = Router(desk), Pages()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        recovering = asyncio.create_task(desk.keep_recovering(), name="recovering turns")
        try:
            yield
        finally:
            recovering.cancel()
            desk.end()
            await desk.running.close()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        """Dispatch a request. Path patterns do not fit all names: a name may contain a line break."""
        found = app.router.not_found if scope["type"] != "http" else api if is_api(scope) else pages
        await found(scope, receive, send)

    app = Starlette(middleware=[Middleware(Guard, options=desk.options)], lifespan=lifespan)
    app.router.default = answer
    app.state.desk = desk
    return app
