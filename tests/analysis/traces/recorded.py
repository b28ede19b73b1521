"""Traces from recorded sessions of real clients (tests/data/observed), with the usage of the simulated cache.

Bodies are as they were sent. A trace can change them from one request on, or let time pass before a request.
"""

import json
from collections.abc import Callable, Mapping

from tests.analysis.traces.simulated_cache import Use
from tests.analysis.traces.simulated_client import FORMATS, SECOND, UNSET, Agent, Session
from tests.analysis.traces.texts import JSONObject
from tests.analysis.traces.trace import Exchange
from tests.analysis.traces.wire_formats import anthropic_usage, responses_usage
from tests.observation.recorded_sessions import Exchange as RecordedExchange
from tests.observation.recorded_sessions import load as load_recorded

Change = Callable[[JSONObject, int], None]
HOSTS = {"anthropic": "https://api.anthropic.com", "responses": "https://api.openai.com"}
FIRST_TOKEN, DURATION = 15, 50


def replay_session(
    session: Session,
    client: str,
    number: int,
    causes: Mapping[str, str] | None = None,
    idle: Mapping[str, float] | None = None,
    change: Change | None = None,
) -> None:
    """Add the exchanges of one recorded session.

    `causes` are the labels of its main conversation by the number of the request in it. `change` gets each body of the
    main conversation and this number. `idle` are the seconds that pass before a request of the main conversation.
    """
    agents: dict[str, Agent] = {}
    later = count = 0
    for each in load_recorded(client):
        if each.session != number:
            continue
        agent = agents.get(each.conversation)
        if agent is None:
            agent = agents[each.conversation] = session.agent(name=each.conversation, system=[""], tools=[])
        body: JSONObject = json.loads(each.request)
        sent = each.request.encode()
        cause = UNSET
        is_answered = each.status == 200 and "count_tokens" not in each.path
        if each.conversation == "main" and is_answered:
            later += int((idle or {}).get(str(count), 0) * SECOND)
            cause = (causes or {}).get(str(count), UNSET)
            if change is not None:
                before = json.dumps(body)
                change(body, count)
                if json.dumps(body) != before:
                    sent = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
            count += 1
        began = each.time + later
        session.exchanges.append(_exchange(session, agent, each, body, sent, began, cause, is_answered))


def _exchange(
    session: Session, agent: Agent, each: RecordedExchange, body: JSONObject, sent: bytes, began: int, cause: str,
    is_answered: bool,
) -> Exchange:  # fmt: skip
    use, label = Use(0, 0), (None, frozenset[str | None]([None]), 0)
    reply = each.response
    if is_answered:
        model = str(body["model"])
        use = session.cache.send(body, model, began, began + FIRST_TOKEN)
        is_small = each.kind == "side"
        label = agent.check(cause, frozenset([None, "below_minimum"] if is_small else []), use, None, "")
        agent.last = use
        reply = with_usage(session.wire, reply, use)
    return Exchange(
        agent=each.conversation, format=FORMATS[session.wire], url=HOSTS[session.wire] + each.path,
        headers=each.headers, conversation=None, body=sent, reply=reply.encode(), status=each.status, began=began,
        ended=began + DURATION, cause=label[0], accepted=label[1], total=use.total, read=use.read, missed=label[2],
    )  # fmt: skip


def with_usage(wire: str, reply: str, use: Use) -> str:
    """Return a reply, whole or as events, with the usage of the simulated cache."""
    if reply.lstrip().startswith("{"):
        return json.dumps(_with_usage(wire, json.loads(reply), use))
    lines = reply.split("\n")
    for at, line in enumerate(lines):
        if line.startswith("data: {") and '"usage"' in line:
            lines[at] = "data: " + json.dumps(_with_usage(wire, json.loads(line[6:]), use))
    return "\n".join(lines)


def _with_usage(wire: str, event: JSONObject, use: Use) -> JSONObject:
    for holder in (event, event.get("message"), event.get("response")):
        usage = holder.get("usage") if holder else None
        if usage and wire == "anthropic":
            usage.update({**anthropic_usage(use, usage.get("output_tokens", 1))})
        elif usage:
            usage.update({**responses_usage(use, usage.get("output_tokens", 1))})
    return event
