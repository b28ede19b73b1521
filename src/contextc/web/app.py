"""The whole as one ASGI application: the API below `/api/`, the page everywhere else."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount

from contextc.store import Store
from contextc.web.desk import Desk, Options
from contextc.web.guard import Guard
from contextc.web.pages import Pages
from contextc.web.router import Router


def application(store: Store, options: Options | None = None) -> Starlette:
    """The server's application, for any ASGI server. The store stays the caller's, to be closed after it."""
    desk = Desk(store, options or Options())

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            desk.ending.set()
            await desk.running.close()

    app = Starlette(
        routes=[Mount("/api", Router(desk)), Mount("/", Pages())],
        middleware=[Middleware(Guard, options=desk.options)],
        lifespan=lifespan,
    )
    app.state.desk = desk
    return app
