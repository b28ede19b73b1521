"""The whole as one ASGI application: the API below `/api/`, the page everywhere else."""

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
    """The server's application, for any ASGI server. The store stays the caller's, to be closed after it."""
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
        """Whatever is asked for. Patterns of paths would not fit all: a name may have a line's end in it."""
        found = app.router.not_found if scope["type"] != "http" else api if is_api(scope) else pages
        await found(scope, receive, send)

    app = Starlette(middleware=[Middleware(Guard, options=desk.options)], lifespan=lifespan)
    app.router.default = answer
    app.state.desk = desk
    return app
