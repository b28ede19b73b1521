"""Traces of the set `check`: changed, removed and inserted messages, and compaction."""

from collections.abc import Callable

from tests.analysis.traces.case_builder import ALL, MARKED, Cases, Scenario, assistant, user
from tests.analysis.traces.check.steps import (
    LONGER,
    MINUTE,
    NIGHT,
    RECENT,
    SMALLER,
    WIDE,
    blocks,
    steps,
    talk,
    turn,
)
from tests.analysis.traces.simulated_client import Agent, Session
from tests.analysis.traces.wire_formats import Block, Message

# Changed


def _new_call_ids(session: Session) -> None:
    """A resumed session gets new identifiers for its calls."""
    agent = session.agent()
    steps(agent, 6)
    session.idle(95)
    names: dict[str, str] = {}
    for block in (*blocks(agent, "call"), *blocks(agent, "result")):
        block.id = names.setdefault(block.id, session.writer.identifier("call_"))
    agent.send("message_changed", reply="call")
    steps(agent, 2)


def _key_order(session: Session) -> None:
    """The arguments of calls come back from a database with their keys sorted."""
    agent = session.agent()
    steps(agent, 6)
    for block in blocks(agent, "call"):
        block.input = dict(sorted(block.input.items()))
    agent.send("message_changed", reply="call")
    steps(agent, 1)


def _results_cleared(session: Session) -> None:
    """With each question, results older than the last three are replaced by a placeholder."""
    agent = session.agent()
    steps(agent, 4)
    for _ in range(3):
        agent.send()
        agent.ask()
        cleared = False
        for block in blocks(agent, "result")[:-3]:
            cleared = cleared or not block.text.startswith("[Old")
            block.text = "[Old tool result content cleared]"
        agent.send(maybe="message_changed" if cleared else "", reply="call")
        steps(agent, 3)


def _new_picture_bytes(session: Session) -> None:
    """A picture at the start is encoded again in another size when the session is loaded."""
    agent = session.agent()
    agent.ask("Describe this first.")
    agent.messages[-1].blocks.append(Block("image", session.writer.image()))
    agent.send(size=400)
    talk(agent, 4)
    blocks(agent, "image")[0].text = session.writer.image(700)
    talk(agent, 1, cause="message_changed")
    talk(agent, 2)


def _progress_note(session: Session) -> None:
    """A note of the progress is kept in the first message, behind the task, and rewritten while tools run."""
    agent = session.agent()
    agent.ask(session.writer.prose(1_500), "Progress: 0 %")
    steps(agent, 5)
    for percent in (35, 60):
        agent.messages[0].blocks[1].text = f"Progress: {percent} %"
        agent.send("message_changed", reply="call")
        steps(agent, 2)


def _late_edit_and_pause(session: Session) -> None:
    """A result in the middle is shortened, and a night passes."""
    agent = session.agent()
    steps(agent, 8)
    results = blocks(agent, "result")
    results[len(results) // 2].text = results[len(results) // 2].text[:300] + "\n[truncated]"
    session.idle(NIGHT)
    agent.send("message_changed", also=["cache_expired"], accept=["cache_expired"], reply="call")
    steps(agent, 2)


def _file_contents_refreshed(session: Session) -> None:
    """Files in the chat stand before the history, and are sent with their new contents after each edit."""
    agent = session.agent()
    file = session.writer.prose(3_000)
    agent.messages = [user(f"These are the files:\n{file}"), assistant("Ok, I will use these files.")]
    talk(agent, 3)
    for count in range(3):
        agent.messages[0].blocks[0].text = f"These are the files:\n{file[: 900 * count + 500]}!{file[900 * count :]}"
        talk(agent, 1, cause="message_changed")


# Removed


def _window(session: Session) -> None:
    """Only the last four turns are sent."""
    agent = session.agent()
    talk(agent, 4, size=2_500)
    for _ in range(4):
        del agent.messages[:2]
        talk(agent, 1, size=2_500, cause="message_removed")


def _hidden_notes(session: Session) -> None:
    """Notes for the model are taken out, all at once, when the user hides them."""
    agent = session.agent()
    notes: list[Message] = []
    for count in range(5):
        if count % 2 == 0:
            notes.append(user(f"<note>{session.writer.prose(500)}</note>"))
            agent.messages.append(notes[-1])
        talk(agent, 1, size=2_000)
    agent.messages = [message for message in agent.messages if not any(message is note for note in notes[1:])]
    talk(agent, 1, cause="message_removed", accept=["message_changed"])
    talk(agent, 1)


def _early_turn_deleted(session: Session) -> None:
    """The user deletes a question and its answer near the start."""
    agent = session.agent()
    talk(agent, 7, size=2_200)
    del agent.messages[2:4]
    talk(agent, 1, cause="message_removed")
    talk(agent, 2)


def _exploration_dropped(session: Session) -> None:
    """A detour of several calls is taken out, and the work goes on from what was known before."""
    agent = session.agent()
    steps(agent, 3)
    start = len(agent.messages)
    steps(agent, 2)
    end = len(agent.messages)
    steps(agent, 5)
    del agent.messages[start:end]
    agent.send("message_removed", reply="call")
    steps(agent, 2)


# Inserted


def _recalled(session: Session) -> None:
    """What a memory recalls is put before the conversation, once it has something; later it recalls something else."""
    agent = session.agent()
    talk(agent, 5)
    agent.messages.insert(0, user(f"<memories>\n{session.writer.prose(900)}\n</memories>"))
    talk(agent, 1, cause="message_inserted")
    talk(agent, 1)
    agent.messages[0].blocks[0].text = f"<memories>\n{session.writer.prose(800)}\n</memories>"
    talk(agent, 1, cause="message_changed")


def _late_report(session: Session) -> None:
    """A background job reports late; its report is put where it was started."""
    agent = session.agent()
    steps(agent, 3)
    place = len(agent.messages)
    steps(agent, 5)
    agent.messages.insert(place, user(f"[background job 3] {session.writer.prose(700)}"))
    agent.send("message_inserted", reply="call")
    steps(agent, 2)


def _two_inserted(session: Session) -> None:
    """A question and its answer from another window are merged into the history by their time."""
    agent = session.agent()
    talk(agent, 6, size=2_300)
    agent.messages[4:4] = [user(session.writer.question()), assistant(session.writer.prose(300))]
    talk(agent, 1, cause="message_inserted")
    talk(agent, 1)


# Compaction


def _compacts(
    make: Callable[[Agent, str], list[Message]], *, size: int = 8_500, prepare: Callable[[Agent], None] | None = None,
    accept: tuple[str, ...] = (), also: tuple[str, ...] = (),
) -> Scenario:  # fmt: skip
    def run(session: Session) -> None:
        agent = session.agent()
        steps(agent, 8)
        turn(agent)
        agent.messages = make(agent, session.writer.prose(size))
        if prepare is not None:
            prepare(agent)
        agent.send("compacted", accept=accept, also=also, reply="call")
        steps(agent, 3)

    return run


def _handoff(agent: Agent, summary: str) -> list[Message]:
    asked = [m for m in agent.messages if m.role == "user" and all(b.kind == "text" for b in m.blocks)]
    text = "Another language model started to solve this problem and produced a summary of its thinking process."
    return [*asked, user(f"{text} Build on the work that has already been done.\n\n{summary}")]


def _first_and_last(agent: Agent, summary: str) -> list[Message]:
    """Keep the first message and the last call with its result around a summary."""
    return [agent.messages[0], assistant(f"<SUMMARY>\n{summary}\n</SUMMARY>"), user("Continue."), *agent.messages[-2:]]


def _spoke_previously(agent: Agent, summary: str) -> list[Message]:
    text = f"I spoke to you previously about a number of things.\n{summary}"
    return [user(text), assistant("Ok."), user(agent.session.writer.question())]


def _continued(_: Agent, summary: str) -> list[Message]:
    text = "This session is being continued from a previous conversation that ran out of context."
    return [user(f"{text} The conversation is summarized below:\n{summary}"), user("Please continue.")]


def _use_smaller(agent: Agent) -> None:
    agent.model = SMALLER[agent.session.wire]


def _pause(agent: Agent) -> None:
    agent.session.idle(50 * MINUTE)


def add_cases(cases: Cases) -> None:
    """Add the cases of this topic."""
    add = cases.add
    add("message_changed-call-ids", ("chat", "anthropic", "responses"), _new_call_ids, **LONGER)
    add("message_changed-key-order", ("anthropic", "bedrock", "gemini"), _key_order, **LONGER)
    add("message_changed-cleared", ("anthropic", "chat", "bedrock"), _results_cleared, **WIDE)
    add("message_changed-picture", ("gemini", "responses", "anthropic"), _new_picture_bytes)
    add("message_changed-progress", ("anthropic", "bedrock"), _progress_note, **LONGER)
    add("message_changed-late-edit", ("anthropic", "responses", "gemini"), _late_edit_and_pause, **LONGER)
    add("message_changed-files", ("chat", "anthropic"), _file_contents_refreshed, ids="none")
    add("message_removed-window", ALL, _window)
    add("message_removed-notes", ("anthropic", "chat"), _hidden_notes)
    add("message_removed-early-turn", ("gemini", "responses", "anthropic"), _early_turn_deleted, model=RECENT)
    add("message_removed-detour", ("bedrock", "chat", "anthropic"), _exploration_dropped, **LONGER)
    add("message_inserted-recalled", ("anthropic", "chat", "gemini"), _recalled)
    add("message_inserted-report", ("responses", "anthropic", "bedrock"), _late_report, **LONGER)
    add("message_inserted-merged", ("chat", "bedrock", "gemini"), _two_inserted)
    add("compacted-handoff", ("responses", "chat"), _compacts(_handoff), **LONGER)
    add("compacted-first-and-last", ("anthropic", "bedrock", "gemini"), _compacts(_first_and_last), **LONGER)
    add("compacted-previously", ("chat", "gemini"), _compacts(_spoke_previously, size=10_000), **LONGER)
    add(
        "compacted-smaller-model", ("anthropic", "gemini"),
        _compacts(_continued, prepare=_use_smaller, accept=("model_changed",), also=("model_changed",)), **LONGER,
    )  # fmt: skip
    add("compacted-pause", MARKED, _compacts(_continued, prepare=_pause, also=("cache_expired",)), **LONGER)
