"""Sub-agents of an observed conversation, as a tree."""

from msgspec import Struct

from contextc.inspection.request_timeline import SubAgent, load_sub_agents
from contextc.web.api.timeline import ParentRequestView
from contextc.web.app_state import AppState
from contextc.web.channel_list import channel_id
from contextc.web.endpoint_registry import endpoint

TAG = "sub_agents"


class SubAgentView(Struct, frozen=True, kw_only=True):
    """One conversation of a session. `parent` is the name of the conversation above it, "" for the main one.

    `kind` is main, agent or side, and `agent` the client's own id of a sub-agent. `request` is the request during which
    it began. `began` and `ended` are Unix milliseconds. `failed` is the number of requests without a complete answer.
    Unknown values are null.
    """

    name: str
    title: str
    client: str
    kind: str
    agent: str
    parent: str
    request: ParentRequestView | None
    began: int | None
    ended: int | None
    requests: int
    failed: int
    input: int
    output: int
    cost: float | None


class SubAgentsView(Struct, frozen=True, kw_only=True):
    """The main conversation and its sub-agents, parents first, oldest first."""

    agents: list[SubAgentView]


@endpoint("GET", "/conversations/{name}/sub-agents")
def list_sub_agents(app: AppState, name: str) -> SubAgentsView:
    """List the conversations of the same session: the main one and its sub-agents, with times, requests and cost.

    The list is empty if no other software made the conversation.
    """
    return SubAgentsView(agents=[_view(app, each) for each in load_sub_agents(app.store, name)])


def _view(app: AppState, found: SubAgent) -> SubAgentView:
    above = found.request
    return SubAgentView(
        name=found.name,
        title=app.store.overview(found.name).title,
        client=found.source.client,
        kind=found.source.kind,
        agent=found.source.agent,
        parent=found.parent,
        request=None
        if above is None
        else ParentRequestView(
            conversation=above.conversation, channel=channel_id(above.channel), request=above.request
        ),
        began=found.began,
        ended=found.ended,
        requests=found.requests,
        failed=found.failed,
        input=found.input,
        output=found.output,
        cost=found.cost,
    )
