"""Information on the server: version, store, default model, and known providers."""

from typing import Literal

from msgspec import Struct

import contextc
from contextc.app.agent_factory import LOCAL_CLIENT, choose_tools, resolve_model
from contextc.config import mask_secrets, read_settings
from contextc.errors import ContextcError
from contextc.formats.registry import format_names
from contextc.providers.availability import ProviderStatus, list_providers
from contextc.web.app_state import AppState
from contextc.web.endpoint_registry import endpoint

TAG = "info"


class ServerInfo(Struct, frozen=True, kw_only=True):
    """`model` is the default model. `remark` is why it was selected, or why it cannot be used.

    `root` is the working directory of tools.
    """

    version: str
    store: str
    agent: str
    model: str
    remark: str
    root: str
    tools: Literal["all", "read", "none"]
    providers: list[ProviderStatus]
    formats: list[str]


@endpoint("GET", "/info")
def info(app: AppState) -> ServerInfo:
    """Return information on the server and its providers. It never contains keys."""
    options = app.options
    model = options.model or read_settings().model.value or LOCAL_CLIENT
    try:
        choice = resolve_model(options.model)
        remark, tools = choice.remark, choose_tools(choice.provider, options.tools)
    except ContextcError as error:
        remark, tools = str(error), options.tools or "none"
    return ServerInfo(
        version=str(contextc.__version__),
        store=mask_secrets(app.store.address),
        agent=options.agent,
        model=model,
        remark=remark,
        root=str(options.root.expanduser().resolve()),
        tools=tools,
        providers=list_providers(),
        formats=[*format_names()],
    )
