"""Traces of the set `fresh`: messages that were changed, removed or inserted, and compaction."""

from collections.abc import Callable

from tests.analysis.traces.case_builder import ALL, MARKED, Cases, Scenario, assistant, system, user
from tests.analysis.traces.fresh.steps import HOUR, LARGE, MIDDLE, NEWER, blocks_of, loop, ready
from tests.analysis.traces.simulated_client import Agent, Session
from tests.analysis.traces.wire_formats import Block, Message, texts

BY_ITEM = ("chat", "responses")
"""Formats in which a text after a tool result is a message of its own."""

# Messages that were changed


def _moving_reminder(session: Session) -> None:
    """A reminder is put after the newest results, and taken away from the ones before."""
    agent = session.agent()
    is_whole = session.wire in BY_ITEM
    cause = "message_removed" if is_whole else "message_changed"
    loop(agent, 1)
    previous: Message | None = None
    for count in range(6):
        if previous is not None:
            previous.blocks.pop()
        agent.messages[-1].blocks += texts(
            f"<system-reminder>Step {count}. {session.writer.prose(160)}</system-reminder>"
        )
        marked = agent.messages[-1]
        accept = ["message_changed"] if is_whole else []
        loop(agent, 1, maybe=cause if previous is not None else "", accept=accept if previous is not None else [])
        previous = marked


def _task_list(session: Session) -> None:
    """The first message has a list of tasks that is written anew."""
    agent = session.agent()
    writer = session.writer
    tasks = [f"{writer.question()[:70]}" for _ in range(5)]

    def rewrite(done: int) -> str:
        lines = [f"[{'x' if at < done else ' '}] {task}" for at, task in enumerate(tasks)]
        return "<system-reminder>\n" + "\n".join(lines) + "\n</system-reminder>"

    agent.ask(rewrite(0), writer.question())
    loop(agent, 4)
    for done in (1, 2):
        agent.messages[0].blocks[0].text = rewrite(done)
        loop(agent, 1, "message_changed")
        loop(agent, 2)
    agent.messages[0].blocks[0].text = rewrite(4)
    session.idle(6 * 3_600)
    loop(agent, 1, "message_changed", also=["cache_expired"])


def _thinking_per_turn(session: Session) -> None:
    """With each question, a framework takes the reasoning out of the turns before."""
    agent = session.agent(thinks=True)
    accept = ["message_removed"] if session.wire == "responses" else []
    for turn in range(4):
        for message in agent.messages:
            message.blocks = [block for block in message.blocks if block.kind != "thinking"]
        agent.ask()
        agent.send(maybe="message_changed" if turn else "", accept=accept if turn else [], reply="call")
        loop(agent, 3)
        agent.send()


def _signature_refused(session: Session) -> None:
    """A request is refused because of a signature, and sent again without any reasoning."""
    agent = session.agent(thinks=True)
    loop(agent, 6)
    agent.send(fail=400)
    for message in agent.messages:
        message.blocks = [block for block in message.blocks if block.kind != "thinking"]
    agent.send("message_changed", reply="call")
    loop(agent, 2)


def _old_screenshots(session: Session) -> None:
    """Only the last two screenshots are kept; earlier ones become a line of text."""
    agent = session.agent()
    for count in range(7):
        agent.ask(f"Screen {count} after the click. {session.writer.prose(900)}")
        agent.messages[-1].blocks.append(Block("image", session.writer.image()))
        images = [block for block in blocks_of(agent, "image") if not block.name]
        for block in images[:-2]:
            block.kind, block.text = "text", "[screenshot removed]"
        agent.send(maybe="message_changed" if count > 1 else "", size=900)


def _deduplicated(session: Session) -> None:
    """When a file is read again, the earlier result becomes a reference to the later one."""
    agent = session.agent()
    loop(agent, 7)
    results = blocks_of(agent, "result")
    results[1].text = "(this file was read again later; see there)"
    agent.send("message_changed", reply="call")
    loop(agent, 2)


def _all_results_stubbed(session: Session) -> None:
    """All results but the last become short at once. There is no summary."""
    agent = session.agent(ttl=HOUR)
    loop(agent, 9)
    for block in blocks_of(agent, "result")[:-1]:
        block.text = f"[{block.name}: output trimmed to save context]"
    agent.send("message_changed", reply="call")
    loop(agent, 2)


def _redacted(session: Session) -> None:
    """A filter replaces an address in the whole history, once it knows it."""
    agent = session.agent()
    agent.ask(f"Write to mara@example.org about this. {session.writer.prose(700)}")
    loop(agent, 5)
    agent.messages[0].blocks[0].text = agent.messages[0].blocks[0].text.replace("mara@example.org", "<EMAIL_1>")
    agent.send("message_changed", reply="call")
    loop(agent, 2)


def _clock_in_question(session: Session) -> None:
    """The first question begins with the time, which is made anew in each request, without reported usage."""
    agent = session.agent(reports=False)
    question = session.writer.question() + session.writer.prose(500)
    agent.ask(question)
    for count in range(5):
        agent.messages[0].blocks[0].text = f"[{session.now}] {question}"
        loop(agent, 1, maybe="message_changed" if count else "")


# Messages that were removed


def _keeps_first(session: Session) -> None:
    """The first question is kept, the turns after it are dropped one by one."""
    agent = session.agent()
    for _ in range(6):
        agent.ask(size=2_600).send(size=700)
    for _ in range(3):
        del agent.messages[1:3]
        agent.ask(size=2_600).send("message_removed", size=700)


def _too_long(session: Session) -> None:
    """A request is refused as too long; the client drops the oldest half and sends it again."""
    agent = session.agent()
    for _ in range(8):
        agent.ask(size=2_800).send(size=500)
    agent.ask(size=900)
    agent.send(fail=413)
    del agent.messages[:8]
    agent.send("message_removed")
    agent.ask().send()


def _documents_per_question(session: Session) -> None:
    """Documents are put before the last question only, and are gone in the next request."""
    agent = session.agent()
    agent.ask(size=6_000).send(size=900)
    for count in range(5):
        question = user(session.writer.question())
        documents = user(f"<documents>\n{session.writer.prose(7_000)}\n</documents>")
        agent.messages += [documents, question]
        agent.send(maybe="message_removed" if count else "", size=1_500)
        del agent.messages[-3]


def _failed_calls(session: Session) -> None:
    """Calls that failed are taken out of the history later, each with its result."""
    agent = session.agent()
    loop(agent, 9)
    at = [at for at, message in enumerate(agent.messages) if message.blocks[-1].kind == "call"][1]
    del agent.messages[at : at + 2]
    agent.send("message_removed", reply="call")
    loop(agent, 2)


def _notice_for_one_turn(session: Session) -> None:
    """An instruction in the middle of the conversation is only sent while a mode is on."""
    agent = session.agent()
    agent.ask(size=1_000)
    agent.messages.append(system(f"Careful mode is on. {session.writer.prose(600)}"))
    notice = agent.messages[-1]
    loop(agent, 5)
    agent.messages = [message for message in agent.messages if message is not notice]
    agent.send("message_removed", reply="call")
    loop(agent, 1)


# Messages that were inserted


def _summary_of_yesterday(session: Session) -> None:
    """A summary of another session is put first, and everything else stays."""
    agent = session.agent()
    loop(agent, 6)
    agent.messages.insert(0, user(f"Summary of yesterday's session:\n{session.writer.prose(2_500)}"))
    agent.send("message_inserted", reply="call")
    loop(agent, 2)


def _examples(session: Session) -> None:
    """Examples are put between the first turn and the second one."""
    agent = session.agent()
    for _ in range(5):
        agent.ask(size=2_300).send(size=600)
    writer = session.writer
    agent.messages[2:2] = [user(writer.question()), assistant(writer.prose(250))]
    agent.ask().send("message_inserted")
    agent.ask().send()


def _late_instruction(session: Session) -> None:
    """A file of instructions is found late, and inserted behind the first question."""
    agent = session.agent()
    agent.ask(size=600)
    loop(agent, 6)
    agent.messages.insert(1, system(f"Instructions of this folder: {session.writer.prose(800)}"))
    agent.send("message_inserted", reply="call")
    loop(agent, 2)


# Compaction


def _compacted(
    make: Callable[[Agent, str], list[Message]], *, idle: float = 0, times: int = 1, size: int = 8_000
) -> Scenario:
    def run(session: Session) -> None:
        agent = session.agent()
        for _ in range(times):
            loop(agent, 7)
            ready(agent)
            agent.messages = make(agent, session.writer.prose(size))
            session.idle(idle)
            agent.send("compacted", also=["cache_expired"] if idle else [], reply="call")
        loop(agent, 3)

    return run


def _snapshot(_: Agent, summary: str) -> list[Message]:
    return [
        user(f"<state_snapshot>\n<overall_goal>{summary}</overall_goal>\n</state_snapshot>"),
        assistant("Got it. Thanks for the additional context!"),
        user("Continue with the next step."),
    ]


def _to_date(agent: Agent, summary: str) -> list[Message]:
    start = max(at for at, each in enumerate(agent.messages[:-2]) if each.role == "assistant")
    return [user(f"Here is a summary of the conversation to date:\n\n{summary}"), *agent.messages[start:]]


def _continued(_: Agent, summary: str) -> list[Message]:
    text = (
        "This session is being continued from a previous conversation that ran out of context. The summary below "
        f"covers the earlier portion of the conversation.\n\nAnalysis:\n{summary}\n\nContinue without asking."
    )
    return [user(text)]


def _encrypted(agent: Agent, summary: str) -> list[Message]:
    item = {"type": "compaction", "encrypted_content": agent.session.writer.signature(len(summary) // 2)}
    asked = [message for message in agent.messages if message.blocks[0].kind == "text" and message.role == "user"]
    return [*asked[:1], Message("assistant", [Block("native", native=item)]), user("Go on.")]


def add_cases(cases: Cases) -> None:
    """Add the cases of this topic."""
    add = cases.add
    add("message_changed-moving-reminder", ALL, _moving_reminder, **MIDDLE)
    add("message_changed-task-list", ("anthropic", "responses", "bedrock"), _task_list, **MIDDLE)
    add(
        "message_changed-thinking-per-turn",
        ("anthropic", "bedrock", "gemini", "responses"),
        _thinking_per_turn,
        model=NEWER,
        **MIDDLE,
    )
    add("message_changed-signature-refused", MARKED, _signature_refused, model=NEWER, **MIDDLE)
    add("message_changed-screenshots", ("anthropic", "responses", "gemini", "chat"), _old_screenshots)
    add("message_changed-deduplicated", ("chat", "gemini", "bedrock"), _deduplicated, **LARGE)
    add("message_changed-stubbed", ("anthropic", "responses"), _all_results_stubbed, **MIDDLE)
    add("message_changed-redacted", ("chat", "anthropic"), _redacted, ids="none", **MIDDLE)
    add("message_changed-time-no-usage", ("chat", "gemini"), _clock_in_question, **MIDDLE)
    add("message_removed-keeps-first", ALL, _keeps_first)
    add("message_removed-too-long", ("chat", "gemini", "anthropic"), _too_long, model=NEWER)
    add("message_removed-documents", ("anthropic", "bedrock", "chat"), _documents_per_question)
    add("message_removed-failed-calls", ("responses", "anthropic", "bedrock"), _failed_calls, **MIDDLE)
    add("message_removed-notice", ("anthropic", "responses", "chat"), _notice_for_one_turn, model=NEWER, **MIDDLE)
    add("message_inserted-yesterday", ALL, _summary_of_yesterday, **MIDDLE)
    add("message_inserted-examples", ("anthropic", "responses", "bedrock"), _examples)
    add("message_inserted-instruction", ("chat", "responses", "anthropic"), _late_instruction, model=NEWER, **MIDDLE)
    add("compacted-snapshot", ("gemini", "chat"), _compacted(_snapshot, times=2), **MIDDLE)
    add("compacted-to-date", ("chat", "bedrock", "anthropic"), _compacted(_to_date, size=12_000), **LARGE)
    add("compacted-continued", ("anthropic", "bedrock"), _compacted(_continued, times=2), **MIDDLE)
    add("compacted-night", ("anthropic", "responses", "gemini"), _compacted(_continued, idle=13 * 3_600), **MIDDLE)
    add("compacted-encrypted", ("responses",), _compacted(_encrypted, size=11_000), model="gpt-5.6-sol", **MIDDLE)
