"""Traces of the half `tune`: messages that were changed, removed or inserted."""

from tests.analysis.traces.case_builder import (
    ALL,
    Cases,
    assistant,
    block_of,
    drop_blocks,
    edited,
    replace_text,
    system,
    user,
)
from tests.analysis.traces.simulated_client import Agent, Session
from tests.analysis.traces.wire_formats import Block

# Messages that were changed


def _with_reminder(agent: Agent) -> None:
    writer = agent.session.writer
    agent.ask(
        f"<system-reminder>\nThe list of tasks is empty. {writer.prose(600)}\n</system-reminder>", writer.question()
    )


def _drop_reminder(agent: Agent, _: int) -> None:
    del agent.messages[0].blocks[0]


def clear_results(agent: Agent, count: int) -> None:
    replace_text(agent, "result", count, "[Old tool result content cleared]")


def _shorten_results(agent: Agent, count: int) -> None:
    block = block_of(agent, "result", count)
    block.text = f"{block.text[:300]}\n[… {len(block.text) - 300} characters removed]"


def _reverse_arguments(agent: Agent, _: int) -> None:
    for message in agent.messages:
        for block in message.blocks:
            block.input = dict(sorted(block.input.items(), reverse=True))


def _wrap_text(agent: Agent, _: int) -> None:
    block = block_of(agent, "text", 1)
    block.text = block.text.replace(". ", ".\n")


def _strip_thinking(agent: Agent, _: int) -> None:
    drop_blocks(agent, "thinking")


def _with_image(agent: Agent) -> None:
    agent.ask()
    agent.messages[0].blocks.append(Block("image", agent.session.writer.image()))


def _omit_image(agent: Agent, _: int) -> None:
    agent.messages[0].blocks[-1] = Block("text", "[image removed to save space]")


# Messages that were removed


def _trimmed(session: Session) -> None:
    """A window that slides: the oldest turn is left out."""
    agent = session.agent()
    for _ in range(5):
        agent.ask(size=2_400).send()
    for _ in range(3):
        del agent.messages[:2]
        agent.ask(size=2_000).send("message_removed")


def _turn_removed(session: Session) -> None:
    """One turn in the middle is left out."""
    agent = session.agent()
    for _ in range(6):
        agent.ask(size=1_800).send()
    del agent.messages[2:4]
    agent.ask().send("message_removed")
    agent.work(3)


def _notice_removed(session: Session) -> None:
    agent = session.agent()
    agent.work(2)
    agent.messages.append(user("Continue.")) if agent.messages[-1].role == "assistant" else None
    agent.messages.append(system(f"Notice: {session.writer.prose(500)}"))
    at = len(agent.messages) - 1
    agent.send()
    agent.work(4)
    del agent.messages[at]
    agent.ask() if agent.messages[-1].role == "assistant" else None
    agent.send("message_removed")
    agent.work(2)


def _last_reminder(session: Session) -> None:
    """A reminder at the end of each request is left out of the next one, and the breakpoint is after it."""
    agent = session.agent()
    agent.ask(size=7_000)
    for count in range(5):
        agent.tail = [user(f"<reminder>Step {count}: {session.writer.prose(200)}</reminder>")]
        maybe = "message_removed" if count else ""
        agent.send(maybe=maybe, accept=["message_changed"] if count else [], reply="call")


# Messages that were inserted


def _insert_first(agent: Agent, _: int) -> None:
    agent.messages.insert(0, user(f"<memory>\n{agent.session.writer.prose(700)}\n</memory>"))


def _insert_pair(agent: Agent, _: int) -> None:
    writer = agent.session.writer
    at = next(
        at for at, each in enumerate(agent.messages) if at and each.role == "user" and each.blocks[0].kind == "text"
    )
    agent.messages[at:at] = [user(writer.question()), assistant(writer.prose(300))]


def _turns(agent: Agent) -> None:
    for _ in range(3):
        agent.ask(size=1_500).send()


def add_cases(cases: Cases) -> None:
    """Add the cases of this topic."""
    add = cases.add
    # Messages that were changed
    add(
        "message_changed-reminder-removed", ALL, edited("message_changed", _drop_reminder, ready=_with_reminder, warm=5)
    )
    add("message_changed-result-cleared", ALL, edited("message_changed", clear_results, warm=9, times=2, after=0))
    add("message_changed-result-shortened", ("anthropic", "chat"), edited("message_changed", _shorten_results, warm=6))
    add("message_changed-arguments", ALL, edited("message_changed", _reverse_arguments, warm=6))
    add(
        "message_changed-thinking-stripped",
        ("anthropic", "bedrock"),
        edited("message_changed", _strip_thinking, warm=6, thinks=True),
        model={"anthropic": "claude-opus-4-8", "bedrock": "us.anthropic.claude-opus-4-8-v1:0"},
    )
    add(
        "message_changed-reasoning-stripped",
        ("responses",),
        edited("message_changed", _strip_thinking, warm=6, thinks=True, accept=["message_removed"]),
    )
    add("message_changed-wrapped", ("bedrock", "responses"), edited("message_changed", _wrap_text, warm=7))
    add("message_changed-image-omitted", ("chat", "gemini"), edited("message_changed", _omit_image, ready=_with_image))
    # Messages that were removed
    add("message_removed-window", ALL, _trimmed)
    add("message_removed-turn", ("anthropic", "responses", "gemini"), _turn_removed)
    add("message_removed-notice", ("anthropic", "chat"), _notice_removed, model={"anthropic": "claude-opus-4-8"})
    add("message_removed-last-reminder", ("bedrock",), _last_reminder)
    # Messages that were inserted
    add("message_inserted-memory", ALL, edited("message_inserted", _insert_first, warm=5))
    add(
        "message_inserted-example",
        ("anthropic", "chat", "gemini"),
        edited("message_inserted", _insert_pair, ready=_turns),
    )
