"""Traces of the half `report`: requests whose cache hits."""

import json

from tests.analysis.traces.case_builder import ALL, MARKED, Cases, assistant, copied, edited, system, user
from tests.analysis.traces.report.messages import insert_documents
from tests.analysis.traces.report.sizes import MIDDLE, SMALL_MODELS
from tests.analysis.traces.report.system_and_tools import OTHER_MODEL, sort
from tests.analysis.traces.simulated_client import Agent, Session
from tests.analysis.traces.wire_formats import Block

# Requests whose cache hits


def _long_loop(session: Session) -> None:
    agent = session.agent(marks={"tools", "system", "tail"})
    agent.work(12)


def _deep_agents(session: Session) -> None:
    """A sub-agent starts a sub-agent of its own, and all of them take turns."""
    agents = [session.agent()]
    agents[0].work(2)
    for size in (7_000, 4_500):
        agents.append(session.agent(system=[session.writer.prose(size)], tools=session.writer.tools(5, 600)))
        agents[-1].work(1)
    for _ in range(3):
        for agent in agents:
            agent.work(1)


def _warm_questions(session: Session) -> None:
    """Questions at once on a document that a first request has put into the cache."""
    first = session.agent(marked=0)
    document = session.writer.prose(20_000)
    first.messages = [user(document), user("Reply with OK.")]
    start_total = first.send().total
    start = session.now
    for count in range(4):
        agent = session.agent(system=first.system, tools=first.tools, marked=0)
        agent.messages = [user(document), user(session.writer.question())]
        agent.send(None, at=start + 30 * count, potential=start_total - 40)


def _unmarked_tail(session: Session) -> None:
    """Breakpoints are on the last two user messages, and move with each turn."""
    agent = session.agent(marks={"system", "tail", "previous"}, ttl={"system": "1h"})
    agent.work(9)


def _timeouts(session: Session) -> None:
    agent = session.agent()
    agent.work(2)
    agent.ask() if agent.messages[-1].role == "assistant" else None
    agent.send(fail=500)
    agent.send(fail=500)
    agent.send(keep=False)
    agent.send()
    agent.work(2)


def _counted(session: Session) -> None:
    """A client that counts the tokens of each request before it sends it."""
    agent = session.agent()
    for _ in range(4):
        agent.ask()
        url, kept = session.url, agent.last
        session.url = f"{url}/count_tokens"
        count_tokens(agent)
        session.url, agent.last = url, kept
        agent.send()


def count_tokens(agent: Agent) -> None:
    """Add a request for the number of tokens."""
    session = agent.session
    exchange = agent.send(fail=1)
    body = {key: value for key, value in json.loads(exchange.body).items() if key != "max_tokens"}
    count = len(exchange.body) // 4
    session.exchanges[-1] = exchange._replace(
        body=json.dumps(body).encode(), reply=json.dumps({"input_tokens": count}).encode(), status=200
    )


def _plain_strings(session: Session) -> None:
    """Content is sent as a string in one request, and as a block in the next."""
    agent = session.agent(marks={"auto"})
    for count in range(5):
        agent.ask()
        body = agent.body()
        if count % 2:
            for message in body["messages"]:
                if len(message["content"]) == 1 and message["content"][0]["type"] == "text":
                    message["content"] = message["content"][0]["text"]
            body["system"] = body["system"][0]["text"]
        agent.send(body=body)


def _irrelevant_settings(session: Session) -> None:
    agent = session.agent()
    field = {"anthropic": "max_tokens", "chat": "max_completion_tokens", "responses": "max_output_tokens"}[session.wire]
    for count in range(6):
        agent.settings[field] = 1_000 + 500 * count
        agent.settings["metadata"] = (
            {"user_id": f"user-{count}"} if session.wire == "anthropic" else {"run": str(count)}
        )
        agent.work(1)


def _undone(session: Session) -> None:
    """The user takes back the last two turns and asks something else."""
    agent = session.agent()
    for _ in range(3):
        agent.ask(size=1_500).send()
    kept = copied(agent.messages)
    agent.ask(size=700).send()
    agent.ask(size=700).send()
    agent.messages = kept
    agent.ask(size=400).send(None)
    agent.ask().send()


def _same_company(session: Session) -> None:
    """Conversations of several users share tools and system prompt."""
    first = session.agent()
    first.work(2)
    others = [session.agent(system=first.system, tools=first.tools) for _ in range(3)]
    for _ in range(2):
        for agent in others:
            agent.work(1)


def _photo(session: Session) -> None:
    agent = session.agent()
    agent.work(4)
    for _ in range(2):
        agent.ask() if agent.messages[-1].role == "assistant" else None
        agent.messages[-1].blocks.append(Block("image", session.writer.image()))
        agent.send()
    agent.work(1)


def _images_from_the_start(session: Session) -> None:
    agent = session.agent()
    for _ in range(5):
        agent.ask()
        agent.messages[-1].blocks.append(Block("image", session.writer.image()))
        agent.send()


def _explicit_choice(session: Session) -> None:
    """The default of a setting is sent in some requests."""
    agent = session.agent()
    for count in range(6):
        agent.settings["tool_choice"] = {"type": "auto"} if count % 2 else None
        agent.work(1)


def _mid_system(session: Session) -> None:
    """Instructions are appended as system messages, and stay."""
    agent = session.agent()
    for count in range(5):
        agent.ask(size=300)
        agent.messages.append(system(f"Budget: {90_000 - 700 * count} tokens left."))
        agent.send()


def _late_change(session: Session) -> None:
    """Only the last, short messages are changed: too little to matter."""
    agent = session.agent()
    agent.work(4)
    agent.ask("A short question.").send(size=120) if agent.messages[-1].role == "assistant" else agent.send(size=120)
    agent.messages[-1] = assistant(agent.messages[-1].blocks[0].text + " Done.")
    agent.ask("Another one.").send(None)
    agent.work(1)


def _other(agent: Agent, _: int) -> None:
    agent.model = OTHER_MODEL[agent.session.wire]


def add_cases(cases: Cases) -> None:
    """Add the cases of this topic."""
    add = cases.add
    add("clean-long-loop", ALL, _long_loop, model=SMALL_MODELS, **MIDDLE)
    add("clean-loop-no-ids", ("chat", "gemini", "anthropic"), _long_loop, ids="none")
    add("clean-deep-agents", ("anthropic", "responses", "bedrock"), _deep_agents)
    add("clean-warm-questions", ("anthropic", "chat"), _warm_questions, ids="explicit")
    add("clean-rolling-marks", MARKED, _unmarked_tail, **MIDDLE)
    add("clean-timeouts", ("responses", "bedrock"), _timeouts)
    add("clean-counted", ("anthropic",), _counted)
    add("clean-strings", ("anthropic",), _plain_strings)
    add("clean-irrelevant-settings", ("anthropic", "chat", "responses"), _irrelevant_settings)
    add("clean-undone", ("chat", "bedrock"), _undone)
    add("clean-same-company", ("anthropic", "bedrock", "responses"), _same_company, ids="explicit")
    add("clean-photo", ("responses", "gemini"), _photo)
    add("clean-images", MARKED, _images_from_the_start)
    add("clean-default-setting", ("anthropic",), _explicit_choice)
    add("clean-appended-system", ("anthropic", "chat"), _mid_system, model={"anthropic": "claude-opus-5"})
    add("clean-late-change", ("chat", "gemini"), _late_change, **MIDDLE)
    add(
        "clean-no-usage", ("responses", "anthropic"), edited(None, lambda _agent, _count: None, reports=False), **MIDDLE
    )
    add("tools_reordered-no-usage", ("gemini",), edited("tools_reordered", sort, reports=False), **MIDDLE)
    add("message_inserted-no-usage", ("chat",), edited("message_inserted", insert_documents, reports=False, warm=6))
    add("model_changed-no-usage", ("responses",), edited("model_changed", _other, reports=False))
