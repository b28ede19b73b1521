"""Preview of the next request, also after an edit or a rewind, with its cost."""

from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from contextc.analysis.expected_cache import expect_cache
from contextc.app import agent_factory
from contextc.app.agent_factory import build_prompt, build_tools, choose_tools
from contextc.compiler.past_requests import load_channel_provider
from contextc.config import read_settings
from contextc.errors import InvalidSetting
from contextc.inspection.prefix_break import preview_break
from contextc.inspection.preview import find_channels, load_last_budget, load_last_request, preview_request
from contextc.inspection.request_details import preview_request_details
from contextc.prompts import PromptContext
from contextc.providers import Provider
from contextc.store.append_and_load import now_ms
from contextc.store.ledger_schema import Channel
from contextc.tools.spec import Tool
from contextc.web.api.requests import MAX_NUMBER, LinesQuery, Number
from contextc.web.app_state import AppState
from contextc.web.cache_loss_view import CacheLoss, expected_cache_view
from contextc.web.channel_list import find_channel
from contextc.web.endpoint_registry import endpoint
from contextc.web.line_query import query_lines
from contextc.web.request_view import LineTextOptions, NextRequestView, next_request_view

TAG = "next"
DYNAMIC_NOT_INCLUDED = "dynamic prompt fragments are not part of this preview"


class NextQuery(LinesQuery, frozen=True, forbid_unknown_fields=True):
    """`channel` is an existing channel and `model` a provider and a model; without either, the last channel is used.

    `edit` and `text` preview an edit of that message. `rewind` previews a rewind to that message. All other fields
    select lines, as for a sent request.
    """

    channel: str = ""
    model: str = ""
    edit: Number | None = None
    text: str | None = None
    rewind: Annotated[int, Meta(ge=0, le=MAX_NUMBER)] | None = None


@endpoint("GET", "/conversations/{name}/next")
def show_next(app: AppState, name: str, query: NextQuery) -> NextRequestView:
    """Return the next request without storing or sending anything."""
    if (query.edit is None) != (query.text is None):
        raise InvalidSetting("edit and text must be given together", fix="Send both: the message and its new text.")
    if query.channel and query.model:
        raise InvalidSetting("channel and model cannot be combined", fix="Send one of them: a channel has a model.")
    provider, before = _provider_and_channel(app, name, query.channel, query.model)
    last = load_last_budget(app.store, before) if before is not None else None
    system, tools = _first_prompt_and_tools(app, provider) if before is None else (None, None)
    compiled = preview_request(
        app.store,
        provider,
        name,
        agent=before.agent if before is not None else app.options.agent,
        directory=(before.directory or None) if before is not None else str(app.options.root),
        system_prompt=system,
        tools=tools,
        output=app.options.output if before is None else None,
        budget=last.limit if last is not None else app.options.budget,
        edit=None if query.edit is None else (query.edit, query.text or ""),
        rewind=query.rewind,
        policy=app.options.policy or read_settings().parse_policy(),
    )
    expected = expect_cache(app.store, compiled, now_ms())
    seen = replace(preview_request_details(app.store, compiled), expected=expected.usage if expected else None)
    queried = query_lines(seen, query)
    cost = compiled.cost
    loss = CacheLoss(
        cached_lost=cost.cached_tokens_lost,
        cached_kept=cost.cached_tokens_kept,
        signed_lost=cost.signed_reasoning_lost,
        dollars=cost.dollars,
        cache=expected_cache_view(expected),
    )
    return next_request_view(
        seen,
        compiled.formatter.name,
        preview_break(app.store, compiled),
        loss=loss,
        is_new=compiled.is_new,
        page=queried.page,
        selection=queried.selection,
        text_options=LineTextOptions(query.width, query.search, query.parts),
        remarks=(DYNAMIC_NOT_INCLUDED,) if before is not None else (),
    )


def _first_prompt_and_tools(app: AppState, provider: Provider) -> tuple[str, list[Tool]]:
    """Return the system prompt and tools that this server's agent would send to a new channel."""
    options = app.options
    found = build_tools(choose_tools(provider, options.tools), options.root)
    tools = [each.tool for each in found]
    seen = PromptContext(
        agent=options.agent,
        provider=provider.name,
        model=provider.model.name,
        directory=str(options.root),
        tools=tuple(tools),
    )
    prompt = build_prompt(provider, found, options.system).render(seen)
    return "\n\n".join([each.text for each in prompt.static]), tools


def _provider_and_channel(app: AppState, name: str, channel: str, model: str) -> tuple[Provider, Channel | None]:
    """Return the provider, and the existing channel if there is one."""
    if channel:
        before = find_channel(app.store, name, channel)
        return load_channel_provider(app.store, before), before
    asked = find_channels(app.store, name)
    if not model:
        found = load_last_request(app.store, name)
        if found is None:
            return agent_factory.resolve_model(app.options.model).provider, None
        return load_channel_provider(app.store, found[0]), found[0]
    for each in reversed(asked):
        named = model in (each.model, f"{each.provider}:{each.model}")
        if named and each.agent == app.options.agent and load_last_budget(app.store, each) is not None:
            return load_channel_provider(app.store, each), each
    return agent_factory.resolve_model(model).provider, None
