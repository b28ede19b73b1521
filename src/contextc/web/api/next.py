"""Preview of the next request, also after an edit or a rewind, with its cost."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from contextc.agents import whom
from contextc.agents.made import choice, prompt_of, tools_of
from contextc.compiler.account import provider_of
from contextc.compiler.inspecting import foretold, page
from contextc.compiler.prefix import break_ahead
from contextc.compiler.preview import channels_of, last_budget, last_request, preview
from contextc.errors import InvalidSetting
from contextc.ledger.standing import Channel
from contextc.prompts import Surroundings
from contextc.providers import Provider
from contextc.tools import Tool
from contextc.web.accounts import Loss, NextView, Shape, next_view
from contextc.web.api.requests import MUCH, After, Limit, Number
from contextc.web.channels import channel_at
from contextc.web.desk import Desk
from contextc.web.endpoint import endpoint

UNTOLD = "dynamic prompt fragments are not part of this preview"


class Asked(Struct, frozen=True, forbid_unknown_fields=True):
    """`channel` is an existing channel and `model` a provider and a model; without either, the last channel is used.

    `edit` and `text` preview an edit of that message. `rewind` previews a rewind to that message. `after`, `limit`,
    `only`, `search`, `width` and `parts` select lines, as for a sent request.
    """

    channel: str = ""
    model: str = ""
    edit: Number | None = None
    text: str | None = None
    rewind: Annotated[int, Meta(ge=0, le=MUCH)] | None = None
    after: After = 0
    limit: Limit = 200
    only: Literal["", "shown", "left"] = ""
    search: str = ""
    width: After = 0
    parts: bool = False


@endpoint("GET", "/conversations/{name}/next")
def show_next(desk: Desk, name: str, query: Asked) -> NextView:
    """Return the next request without storing or sending anything."""
    if (query.edit is None) != (query.text is None):
        raise InvalidSetting("edit and text must be given together", fix="Send both: the message and its new text.")
    if query.channel and query.model:
        raise InvalidSetting("channel and model cannot be combined", fix="Send one of them: a channel has a model.")
    provider, before = _whom(desk, name, query.channel, query.model)
    last = last_budget(desk.store, before) if before is not None else None
    words, tools = _first(desk, provider) if before is None else (None, None)
    compiled = preview(
        desk.store,
        provider,
        name,
        agent=before.agent if before is not None else desk.options.agent,
        directory=(before.directory or None) if before is not None else str(desk.options.root),
        system_prompt=words,
        tools=tools,
        output=desk.options.output if before is None else None,
        budget=last.limit if last is not None else desk.options.budget,
        edit=None if query.edit is None else (query.edit, query.text or ""),
        rewind=query.rewind,
    )
    seen = foretold(desk.store, compiled)
    paged = page(seen, after=query.after, limit=query.limit, only=query.only, search=query.search)
    cost = compiled.cost
    loss = Loss(
        cached_lost=cost.cached_tokens_lost,
        cached_kept=cost.cached_tokens_kept,
        signed_lost=cost.signed_reasoning_lost,
        dollars=cost.dollars,
    )
    return next_view(
        seen,
        compiled.formatter.name,
        break_ahead(desk.store, compiled),
        loss=loss,
        is_new=compiled.is_new,
        paged=paged,
        text=Shape(query.width, query.search, query.parts),
        remarks=(UNTOLD,) if before is not None else (),
    )


def _first(desk: Desk, provider: Provider) -> tuple[str, list[Tool]]:
    """Return the system prompt and tools that this server's agent would send to a new channel."""
    options = desk.options
    found = tools_of(choice(provider, options.tools), options.root)
    tools = [each.tool for each in found]
    seen = Surroundings(
        agent=options.agent,
        provider=provider.name,
        model=provider.model.name,
        directory=str(options.root),
        tools=tuple(tools),
    )
    prompt = prompt_of(provider, found, options.system).render(seen)
    return "\n\n".join([each.text for each in prompt.static]), tools


def _whom(desk: Desk, name: str, channel: str, model: str) -> tuple[Provider, Channel | None]:
    """Return the provider, and the existing channel if there is one."""
    if channel:
        before = channel_at(desk.store, name, channel)
        return provider_of(desk.store, before), before
    asked = channels_of(desk.store, name)
    if not model:
        found = last_request(desk.store, name)
        if found is None:
            return whom.find(desk.options.model).provider, None
        return provider_of(desk.store, found[0]), found[0]
    for each in reversed(asked):
        named = model in (each.model, f"{each.provider}:{each.model}")
        if named and each.agent == desk.options.agent and last_budget(desk.store, each) is not None:
            return provider_of(desk.store, each), each
    return whom.find(model).provider, None
