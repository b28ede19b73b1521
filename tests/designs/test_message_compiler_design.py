"""Design document A's behaviour table, diagram and edge cases, with our decision where the document contradicts itself.

The stateful provider is one in facts: it remembers a conversation by itself, a session belongs to a directory, and its
turns have no system channel.
"""

from collections.abc import Sequence

import pytest

import contextc as cc
from contextc._json import JSONObject

STATELESS = cc.provider("openai-chat:gpt-4o")
STATEFUL = cc.provider("openai-chat:gpt-4o", session_resumption=True, directory_bound=True, reverts=True)
FRAGMENTS = (
    cc.PromptFragment("identity", "You are a coder."),
    cc.PromptFragment("project", "The project is a compiler."),
    cc.PromptFragment("todos", "1. [open] add tests", "dynamic"),
    cc.PromptFragment("response", "Your response will be sent to @user.", "dynamic"),
)
STATIC = "You are a coder.\n\nThe project is a compiler."
DYNAMIC = "## Todos\n1. [open] add tests\n\n## Response\nYour response will be sent to @user."
READ = cc.ToolCall(id="c1", name="read_file", arguments={"path": "a.py"})
SentMessage = tuple[str, object]


class Desk:
    """One agent at work: the record, and a compiler made again for each execution, as the document asks."""

    def __init__(self, provider: cc.Provider, fragments: Sequence[cc.PromptFragment] = ()) -> None:
        self.provider, self.fragments = provider, fragments
        self.store = cc.open_store("memory:")

    @property
    def compiler(self) -> cc.MessageCompiler:
        return cc.MessageCompiler(self.store, self.provider)

    def add(self, *log: cc.Message) -> None:
        self.store.extend("demo", log)

    def compile(self, *, directory: str = "/home/project") -> cc.Compiled:
        return self.compiler.compile("demo", instructions=self.fragments, directory=directory)

    def answer(self, compiled: cc.Compiled, *produced: cc.Message, session: str | None = "s1") -> None:
        with self.compiler.attempt(compiled) as attempt:
            attempt.commit(produced=produced, session_id=session if self.provider.session_resumption else None)

    def work(self) -> None:
        """Messages [0] to [4] of the document's diagram: asked, and answered with a tool call in between."""
        self.add(cc.user("Help me build a feature"))
        self.answer(self.compile(), cc.assistant("I'll help with that", tool_calls=[READ]))
        self.add(cc.tool_result("c1", "read_file", "<file contents>"))
        self.answer(self.compile(), cc.assistant("I see the code..."))


HISTORY: list[SentMessage] = [
    ("user", "Help me build a feature"),
    ("system", DYNAMIC),
    ("assistant", "I'll help with that"),
    ("tool", "<file contents>"),
    ("assistant", "I see the code..."),
]


def sent_messages(compiled: cc.Compiled) -> list[SentMessage]:
    messages: list[JSONObject] = compiled.params["messages"]
    return [(message["role"], message["content"]) for message in messages]


# ── the behaviour summary ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_stateless_provider_gets_all_prompts_and_the_full_history() -> None:
    """Design A, table, first line; the copy of the dynamic prompts in the history is current, so there is only one."""
    desk = Desk(STATELESS, FRAGMENTS)
    desk.work()
    desk.add(cc.user("Now add tests"))
    compiled = desk.compile()
    assert (compiled.mode, compiled.session_id) == ("full", None)
    assert sent_messages(compiled) == [("system", STATIC), *HISTORY, ("user", "Now add tests")]


def test_a_stateful_provider_without_a_session_gets_all_prompts_and_the_full_history() -> None:
    """Design A, table, second line; Guarantee 9.4."""
    desk = Desk(STATEFUL, FRAGMENTS)
    desk.add(
        cc.user("Help me build a feature"),
        cc.assistant("I'll help with that", tool_calls=[READ]),
        cc.tool_result("c1", "read_file", "<file contents>"),
        cc.assistant("I see the code..."),
        cc.user("Now add tests"),
    )
    compiled = desk.compile()
    assert (compiled.mode, compiled.session_id) == ("full", None)
    assert sent_messages(compiled) == [
        ("system", STATIC),
        *(each for each in HISTORY if each[0] != "system"),
        ("user", "Now add tests"),
        ("system", DYNAMIC),
    ]


def test_a_stateful_provider_with_a_session_gets_dynamic_prompts_as_user_text_and_the_delta() -> None:
    """Design A, table, third line; Guarantee 9.4."""
    desk = Desk(STATEFUL, FRAGMENTS)
    desk.work()
    desk.add(cc.user("Now add tests"))
    compiled = desk.compile()
    assert (compiled.mode, compiled.session_id) == ("resume", "s1")
    assert sent_messages(compiled) == [("user", "Now add tests"), ("user", f"[System Context]: {DYNAMIC}")]


def test_the_diagram() -> None:
    """Design A, cursor management: "on resume, only messages [5] and [6] are sent". Guarantee 9.1."""
    desk = Desk(STATEFUL, FRAGMENTS[:2])
    desk.work()
    desk.add(cc.user("Now add tests"), cc.system("Supervision: run the linter as well."))
    log = desk.store.load("demo")
    assert [(message.seq - 1, message.role) for message in log] == [
        (0, "user"),
        (1, "assistant"),  # the document counts the call of this message as [2]; here it is a part of it
        (2, "tool"),
        (3, "assistant"),
        (4, "user"),
        (5, "system"),
    ]
    assert sent_messages(desk.compile()) == [
        ("user", "Now add tests"),
        ("system", "Supervision: run the linter as well."),
    ]


def test_the_diagram_message_by_message() -> None:
    """Design A: messages [0] to [6] as the document numbers them, with text and call as messages of their own."""
    desk = Desk(STATEFUL)
    desk.add(cc.user("Help me build a feature"))
    desk.answer(
        desk.compile(),
        cc.assistant("I'll help with that"),
        cc.assistant(tool_calls=[READ]),
        cc.tool_result("c1", "read_file", "<file contents>"),
        cc.assistant("I see the code..."),
    )
    desk.add(cc.user("Now add tests"), cc.system("Injection: supervision correction"))
    assert [message.seq - 1 for message in desk.store.load("demo")] == [0, 1, 2, 3, 4, 5, 6]
    compiled = desk.compile()
    assert sent_messages(compiled) == [("user", "Now add tests"), ("system", "Injection: supervision correction")]
    held = [line.text for line in compiled.manifest.lines[:5]]
    assert held == [
        "Help me build a feature",
        "I'll help with that",
        'calls read_file({"path":"a.py"})',
        "read_file: <file contents>",
        "I see the code...",
    ]


def test_every_turn_has_its_own_copy_of_dynamic_prompts_on_request() -> None:
    """Guarantee 8.3. Design A sends them at every turn. By default a copy that is still current is not repeated."""
    counts: dict[int, list[int]] = {}
    for refresh in (0, 20_000):
        store = cc.open_store("memory:")
        compiler = cc.MessageCompiler(store, STATELESS, refresh=refresh)
        for number in range(3):
            store.append("demo", cc.user(f"question {number}"))
            compiled = compiler.compile("demo", instructions=FRAGMENTS)
            counts.setdefault(refresh, []).append(compiled.body.count(b"add tests"))
            with compiler.attempt(compiled) as attempt:
                attempt.commit(cc.assistant(f"answer {number}"))
    assert counts == {0: [1, 2, 3], 20_000: [1, 1, 1]}


# ── the cursor ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_new_message_is_sent_however_many_there_are(count: int) -> None:
    """The document's cursor loses the first of two, and sends nothing where there is one."""
    desk = Desk(STATEFUL)
    desk.work()
    new = [f"new {number}" for number in range(count)]
    desk.add(*(cc.user(text) for text in new))
    assert sent_messages(desk.compile()) == [("user", text) for text in new]


def test_on_success_exactly_what_was_compiled_is_acknowledged() -> None:
    """Guarantee 9.7: what arrived meanwhile stays outstanding; the document's count at the end would swallow it."""
    desk = Desk(STATEFUL)
    desk.work()
    desk.add(cc.user("Now add tests"))
    compiled = desk.compile()
    desk.add(cc.user("and hurry"))
    desk.answer(compiled, cc.assistant("On it."))
    assert sent_messages(desk.compile()) == [("user", "and hurry")]


def test_on_abort_the_delta_is_sent_again_from_a_known_place() -> None:
    """Design A: keep on abort. Guarantee 9.8: the session is brought back first, as it may have kept the prompt."""
    desk = Desk(STATEFUL)
    desk.work()
    desk.add(cc.user("Now add tests"))
    compiled = desk.compile()
    with pytest.raises(TimeoutError), desk.compiler.attempt(compiled):
        raise TimeoutError
    again = desk.compile()
    assert (again.mode, again.session_id, again.revert_to) == ("resume", "s1", "s1")
    assert sent_messages(again) == [("user", "Now add tests")]


def test_on_abort_a_session_that_cannot_be_brought_back_is_given_up() -> None:
    """Guarantee 9.8: resending may double in a stateful provider; once is better than twice or never."""
    desk = Desk(cc.provider("openai-chat:gpt-4o", session_resumption=True))
    desk.work()
    desk.add(cc.user("Now add tests"))
    compiled = desk.compile()
    desk.compiler.begin(compiled)
    desk.compiler.abort(compiled, "killed")
    again = desk.compile()
    assert (again.mode, again.session_id) == ("full", None)
    assert again.manifest.why == "an earlier prompt may be in the session"
    assert sent_messages(again) == [*(each for each in HISTORY if each[0] != "system"), ("user", "Now add tests")]


def test_the_cursor_does_not_move_before_the_stream_has_completed() -> None:
    """Design A, implementation notes; Guarantee 9.7: compile and begin move nothing."""
    desk = Desk(STATEFUL)
    desk.work()
    desk.add(cc.user("Now add tests"))
    compiled = desk.compile()
    assert sent_messages(desk.compile()) == sent_messages(compiled)
    desk.compiler.begin(compiled)
    assert sent_messages(desk.compile()) == sent_messages(compiled)


# ── edge cases ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_another_working_directory_has_no_session() -> None:
    """Design A, session mismatch; Guarantee 9.5. Back in the first one, its session goes on."""
    desk = Desk(STATEFUL, FRAGMENTS)
    desk.work()
    desk.add(cc.user("Now add tests"))
    elsewhere = desk.compile(directory="/home/other")
    assert (elsewhere.mode, elsewhere.session_id) == ("full", None)
    assert sent_messages(elsewhere)[0] == ("system", STATIC)
    assert desk.compile().mode == "resume"


def test_a_cursor_that_no_longer_holds_means_full_context_and_a_new_session() -> None:
    """Design A, cursor invalidation; Guarantee 9.6: full history never goes into an existing session."""
    desk = Desk(STATEFUL, FRAGMENTS)
    desk.work()
    desk.store.edit("demo", 1, cc.user("Help me build another feature"))
    compiled = desk.compile()
    assert (compiled.mode, compiled.session_id) == ("full", None)
    assert compiled.manifest.why == "edited or branched away"
    assert sent_messages(compiled) == [
        ("system", STATIC),
        ("user", "Help me build another feature"),
        ("system", DYNAMIC),
    ]


def test_a_session_that_was_declared_lost_is_not_used_and_the_manifest_gives_the_reason() -> None:
    """Design A, reset on session invalidation; Guarantees 9.5, 9.6."""
    desk = Desk(STATEFUL, FRAGMENTS)
    desk.work()
    desk.add(cc.user("Now add tests"))
    cc.SessionManager(desk.store).invalidate(desk.compile().channel, "expired")
    compiled = desk.compile()
    assert (compiled.mode, compiled.session_id, compiled.manifest.why) == ("full", None, "expired")
    assert sent_messages(compiled)[0] == ("system", STATIC)


def test_injections_between_two_turns_appear_in_the_delta() -> None:
    """Design A, injections: supervision, a nudge, a delegation's result are log entries. Guarantee 8.4."""
    desk = Desk(STATEFUL)
    desk.work()
    desk.add(
        cc.system("Nudge: keep it short.", audience="assistant"),
        cc.assistant("The tests are green.", author="tester", recipients=("assistant",)),
        cc.user("Now add tests"),
    )
    assert sent_messages(desk.compile()) == [
        ("system", "Nudge: keep it short."),
        ("user", "[@tester] The tests are green."),
        ("user", "Now add tests"),
    ]


def test_a_delta_holds_the_result_whose_call_the_session_made() -> None:
    """Design A, tool consistency; Guarantee 5.4: the cut respects pairs, and the call itself is not sent again."""
    desk = Desk(STATEFUL)
    desk.add(cc.user("Help me build a feature"))
    desk.answer(desk.compile(), cc.assistant("Let me look.", tool_calls=[READ]))
    desk.add(cc.tool_result("c1", "read_file", "<file contents>"))
    compiled = desk.compile()
    assert compiled.params["messages"] == [
        {"role": "tool", "tool_call_id": "c1", "content": "<file contents>"}
    ]  # fmt: skip


def test_with_nothing_new_there_is_nothing_to_send() -> None:
    """Guarantee 9.9: an empty delta is never sent."""
    desk = Desk(STATEFUL)
    desk.work()
    compiled = desk.compile()
    assert not compiled.is_new
    with pytest.raises(cc.errors.NothingNew):
        desk.compiler.begin(compiled)


def test_static_prompts_do_change_and_a_session_that_ignores_that_is_reported() -> None:
    """Guarantee 9.3: "static prompts never change" does not hold."""
    changed = [cc.PromptFragment("identity", "You are a tester."), *FRAGMENTS[1:]]
    desk = Desk(STATEFUL, FRAGMENTS)
    desk.work()
    desk.add(cc.user("Now add tests"))
    desk.fragments = changed
    compiled = desk.compile()
    assert (compiled.mode, compiled.session_id, compiled.manifest.why) == ("full", None, "system prompt changed")


def test_no_content_is_sent_twice() -> None:
    """Design A, the problem statement: what a session was sent over many turns is the history, once."""
    desk = Desk(STATEFUL, FRAGMENTS[:2])
    session: list[SentMessage] = []
    for number in range(5):
        desk.add(cc.user(f"question {number}"))
        compiled = desk.compile()
        session += sent_messages(compiled)
        desk.answer(compiled, cc.assistant(f"answer {number}"))
    assert session == [("system", STATIC), *(("user", f"question {number}") for number in range(5))]
