"""Traces of the set `check` in which nothing is wrong, though something looks like it."""

from tests.analysis.traces.case_builder import ALL, MARKED, OPENAI, Cases, copied, system, user
from tests.analysis.traces.check.steps import (
    LONGER,
    MINUTE,
    ONE_HOUR,
    SMALLER,
    WIDE,
    blocks,
    steps,
    talk,
    turn,
)
from tests.analysis.traces.simulated_cache import ATTRIBUTION
from tests.analysis.traces.simulated_client import Session
from tests.analysis.traces.wire_formats import Block


def _rewound(session: Session) -> None:
    """The user goes back two turns and asks something else."""
    agent = session.agent()
    talk(agent, 4, size=900)
    del agent.messages[-4:]
    talk(agent, 1, size=200)
    talk(agent, 1, size=200)


def _hour_kept(session: Session) -> None:
    """All entries live for an hour, and pauses are shorter."""
    agent = session.agent(ttl=ONE_HOUR)
    for minutes in (0, 35, 52):
        session.idle(minutes * MINUTE)
        steps(agent, 2)


def _kept_alive(session: Session) -> None:
    """While the user is away, the same request is sent every four minutes, for no answer."""
    agent = session.agent()
    steps(agent, 3)
    for _ in range(4):
        session.idle(4 * MINUTE)
        agent.settings = {"max_tokens": 0}
        agent.send(keep=False)
    agent.settings = {}
    session.idle(3 * MINUTE)
    steps(agent, 2)


def _attribution(session: Session) -> None:
    """The first system block has a value of the client that is another one in each request."""
    agent = session.agent()
    agent.system.insert(0, "")
    for _ in range(5):
        agent.system[0] = f"{ATTRIBUTION} cc_version=2.1.88.{session.rng.randrange(999):x}; cch={session.now:x};"
        steps(agent, 1)


def _free_settings(session: Session) -> None:
    """Settings that are no part of a prefix change with each request."""
    agent = session.agent()
    for count in range(5):
        agent.settings = {
            "anthropic": {"temperature": count / 10, "metadata": {"user_id": f"u{count}"}, "max_tokens": 900 + count},
            "chat": {"temperature": count / 10, "seed": count, "user": f"u{count}", "max_tokens": 700 + count},
            "responses": {"max_output_tokens": 500 + count, "metadata": {"step": str(count)}, "top_p": 0.9},
            "gemini": {"generationConfig": {"temperature": count / 10, "thinkingConfig": {"thinkingBudget": count}}},
            "bedrock": {"inferenceConfig": {"maxTokens": 800 + count, "temperature": count / 10}},
        }[session.wire]
        steps(agent, 1)


def _other_spelling(session: Session) -> None:
    """Bodies are written with other spaces and escapes in turn."""
    agent = session.agent()
    agent.ask("Überprüfe die Größe, please. " + session.writer.prose(500))
    for count in range(5):
        agent.spacing, agent.escape = count % 2 == 0, count % 3 == 0
        steps(agent, 1)


def _many_calls(session: Session) -> None:
    """Answers with eleven calls and eleven results are still within the lookback."""
    agent = session.agent()
    for _ in range(3):
        turn(agent).send(reply="call", calls=11, result=700)
    steps(agent, 1)


def _nearly_too_far(session: Session) -> None:
    """A question with sixteen blocks is still within the lookback."""
    agent = session.agent()
    talk(agent, 3)
    agent.ask(*[session.writer.prose(300) for _ in range(16)]).send()
    talk(agent, 1)


def _two_marks(session: Session) -> None:
    """A question has thirty blocks, and the message before it has a breakpoint too."""
    agent = session.agent(marks={"system", "previous", "tail"})
    steps(agent, 4)
    agent.ask(*[session.writer.prose(200) for _ in range(30)]).send(reply="call")
    steps(agent, 2)


def _passing_reminder(session: Session) -> None:
    """A short reminder stands at the end of each request, and is not kept. The breakpoint is before it."""
    agent = session.agent(marked=-2)
    for count in range(6):
        agent.tail = [user(f"<reminder>Step {count} of 20. Use the plan.</reminder>")]
        steps(agent, 1)


def _string_content(session: Session) -> None:
    """Messages with one text are sent as strings once they are no longer the last."""
    agent = session.agent()
    for _ in range(5):
        agent.ask(size=700)
        body = agent.body()
        for message in body["messages"][:-1]:
            if len(message["content"]) == 1 and message["content"][0].get("type") == "text":
                message["content"] = message["content"][0]["text"]
        agent.send(body=body, size=500)


def _workers(session: Session) -> None:
    """Three workers start together and go on in turns with their parent."""
    main = session.agent()
    steps(main, 2)
    tools = [dict(tool) for tool in main.tools]
    workers = [session.agent(system=["You are a worker.\n" + main.system[0]], tools=tools) for _ in range(3)]
    start = session.now
    for at, worker in enumerate(workers):
        worker.ask(size=400).send("first_request", accept=["parallel_request"], at=start + 30 * at, reply="call")
    session.idle(13)
    for _ in range(2):
        for worker in workers:
            steps(worker, 1)
    steps(main, 2)


def _branches(session: Session) -> None:
    """A conversation is continued in two ways, in turns."""
    one = session.agent()
    talk(one, 3)
    two = session.agent(system=list(one.system), tools=list(one.tools), messages=copied(one.messages))
    for _ in range(2):
        talk(two, 1, size=300)
        talk(one, 1, size=300)


def _titles(session: Session) -> None:
    """Between requests, a small model writes titles, with another prompt."""
    main = session.agent()
    for count in range(3):
        steps(main, 2)
        title = session.agent(
            name=f"title {count}", model=SMALLER[session.wire], system=["Write a title of five words."], tools=[],
            kind="side",
        )  # fmt: skip
        title.ask(session.writer.question()).send()


def _tiny(session: Session) -> None:
    """Requests that no provider caches, and that cost next to nothing."""
    agent = session.agent(tools=[], system=["Answer in one sentence."])
    for _ in range(4):
        agent.ask().send(size=120)


def _retries(session: Session) -> None:
    """Requests fail and are sent again."""
    agent = session.agent()
    for status in (429, 500, 529, 503):
        steps(agent, 1)
        turn(agent).send(fail=status)
        session.idle(20)
    steps(agent, 1)


def _unreported(session: Session) -> None:
    """Nothing changes, and replies have no usage."""
    agent = session.agent(reports=False)
    steps(agent, 6)


def _last_result_cut(session: Session) -> None:
    """The result that was sent last is shortened in the next request: little is lost."""
    agent = session.agent()
    steps(agent, 7)
    block = blocks(agent, "result")[-2]
    block.text = block.text[: len(block.text) - 150] + "\n[cut]"
    steps(agent, 2)


def _twelve_hours(session: Session) -> None:
    """Entries are kept for twelve hours, and five pass."""
    agent = session.agent(settings={"prompt_cache_options": {"mode": "implicit", "ttl": "12h"}})
    steps(agent, 3)
    session.idle(5 * 60 * MINUTE)
    steps(agent, 3)


def _item_ids(session: Session) -> None:
    """Items of earlier answers are sent back with their identifiers and states from some request on."""
    agent = session.agent()
    for count in range(6):
        turn(agent)
        body = agent.body()
        for at, item in enumerate(body["input"]):
            if count > 2 and (item["type"] == "function_call" or item.get("role") == "assistant"):
                item.update({"id": f"it_{at:024x}", "status": "completed"})
        agent.send(body=body, reply="call")


def _thinks(session: Session) -> None:
    """Reasoning is sent back as it was."""
    agent = session.agent(thinks=True)
    steps(agent, 5)
    agent.send()
    steps(agent, 2)


def _mixed_lives(session: Session) -> None:
    """The head lives for an hour, messages for five minutes, and pauses are shorter than that."""
    agent = session.agent(marks={"tools", "system", "tail"}, ttl={"tools": "1h", "system": "1h"})
    for _ in range(3):
        steps(agent, 2)
        session.idle(4 * MINUTE)


def _appended_instructions(session: Session) -> None:
    """Instructions are appended in the conversation instead of a change of the prompt."""
    agent = session.agent()
    for count in range(4):
        steps(agent, 2)
        agent.send()
        agent.messages.append(user(session.writer.question()))
        agent.messages.append(system(f"Mode {count}: {session.writer.prose(200)}"))


def _pictures_from_the_start(session: Session) -> None:
    """All requests have pictures, and more come."""
    agent = session.agent()
    for _ in range(4):
        agent.ask(session.writer.question())
        agent.messages[-1].blocks.append(Block("image", session.writer.image()))
        agent.send(size=500)


def _automatic(session: Session) -> None:
    """The breakpoint is the provider's automatic one."""
    agent = session.agent(marks={"auto"})
    steps(agent, 6)


def add_cases(cases: Cases) -> None:
    """Add the cases of this topic."""
    add = cases.add
    add("hit-rewound", ALL, _rewound)
    add("hit-item-ids", ("responses",), _item_ids, **LONGER)
    add("hit-thinks", ("anthropic", "responses", "gemini", "bedrock"), _thinks, **LONGER)
    add("hit-mixed-lives", MARKED, _mixed_lives, **LONGER)
    add("hit-instructions", ("anthropic", *OPENAI), _appended_instructions, **LONGER)
    add("hit-pictures", ("anthropic", "bedrock", "gemini", "chat"), _pictures_from_the_start)
    add("hit-automatic", ("anthropic",), _automatic, **LONGER)
    add("hit-hour", MARKED, _hour_kept, **LONGER)
    add("hit-kept-alive", ("anthropic",), _kept_alive, **LONGER)
    add("hit-attribution", ("anthropic",), _attribution, **LONGER)
    add("hit-free-settings", ALL, _free_settings, **LONGER)
    add("hit-spelling", ("chat", "anthropic", "gemini"), _other_spelling, **LONGER)
    add("hit-many-calls", MARKED, _many_calls)
    add("hit-nearly-too-far", MARKED, _nearly_too_far)
    add("hit-two-marks", MARKED, _two_marks, **LONGER)
    add("hit-passing-reminder", ("anthropic", "chat", "gemini"), _passing_reminder, **LONGER)
    add("hit-string-content", ("anthropic",), _string_content)
    add("hit-workers", ("anthropic", "responses", "chat"), _workers, **WIDE)
    add("hit-branches", ("chat", "gemini", "bedrock"), _branches)
    add("hit-titles", ("anthropic", "responses"), _titles, **LONGER)
    add("hit-tiny", ALL, _tiny)
    add("hit-retries", ("anthropic", "gemini", *OPENAI), _retries, **LONGER)
    add("hit-no-usage", ("anthropic", "chat", "responses"), _unreported, **LONGER)
    add("hit-last-result", ("chat", "responses"), _last_result_cut, system=16_000, tools=1_200, result=2_000)
    add("hit-twelve-hours", ("responses",), _twelve_hours, model="gpt-5.6-terra", **LONGER)
