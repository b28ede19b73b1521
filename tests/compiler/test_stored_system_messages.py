"""Stored system messages keep their place: they never precede the instructions, nor become part of them."""

import pytest

import contextc as cc
from contextc.compiler import Compiled

SPECS = [
    "openai-chat:gpt-4o",
    "openai:gpt-6.1-terra",
    "anthropic:claude-sonnet-4-5",
    "anthropic:claude-opus-5-5",
    "google:gemini-3-pro",
    "bedrock:anthropic.claude-sonnet-4-5",
    "ollama:llama3",
    "mistral:mistral-large-latest",
    "claude-code:claude-opus-5-5",
    "codex:gpt-6.1-terra",
]


def begun(*messages: cc.Message) -> cc.Store:
    store = cc.open_store("memory:")
    store.extend("demo", list(messages))
    return store


def texts(compiled: Compiled) -> list[str]:
    return [message.text for message in compiled.messages]


@pytest.mark.parametrize("spec", SPECS)
def test_a_system_message_at_the_start_stands_behind_the_instructions(spec: str) -> None:
    """Guarantees 10.3, 11.6. A retrieved text is not to be read before, or as, what the developer wrote."""
    store = begun(cc.system("RETRIEVED"), cc.user("hi"))
    compiled = cc.MessageCompiler(store, spec).compile("demo", instructions="INSTRUCTIONS")
    assert compiled.system_prompt == "INSTRUCTIONS"
    assert "RETRIEVED" in "".join(texts(compiled)).partition("hi")[0], "in its place"
    body = compiled.body.decode()
    assert compiled.formatter.system_among_messages <= (body.index("INSTRUCTIONS") < body.index("RETRIEVED"))
    assert compiled.formatter.rules.lint(compiled.params) == []


@pytest.mark.parametrize("spec", SPECS)
def test_without_instructions_it_takes_their_place(spec: str) -> None:
    """A history that was imported begins with the instructions it was written with."""
    store = begun(cc.system("You are a pirate."), cc.user("hi"))
    compiled = cc.MessageCompiler(store, spec).compile("demo")
    assert (compiled.system_prompt, texts(compiled)) == ("You are a pirate.", ["hi"])


@pytest.mark.parametrize("pinned", [False, True])
def test_it_is_trimmed_like_other_messages_unless_pinned(pinned: bool) -> None:
    """Guarantees 7.2, 7.3. Documents that were retrieved once must not fill the window for good."""
    store = begun(cc.system("RETRIEVED " * 50))
    if pinned:
        store.pin("demo", 1)
    compiler = cc.MessageCompiler(store, cc.provider("anthropic:claude-sonnet-4-5", window=3_000, output=300))
    reasons: set[str] = set()
    for number in range(20):
        store.append("demo", cc.user(f"u{number} " + "word " * 60))
        compiled = compiler.compile("demo", instructions="INSTRUCTIONS")
        reasons.add(compiled.manifest.why)
        compiler.commit(compiled, cc.assistant(f"a{number} " + "word " * 60))
    assert "over budget" in reasons
    assert ("RETRIEVED" in compiler.rebuild("demo").decode()) is pinned


@pytest.mark.parametrize("spec", ["openai-chat:gpt-4o", "openai-session:gpt-6.1-terra"])
def test_instructions_that_come_later_start_one_epoch_with_a_reason(spec: str) -> None:
    """Guarantee 9.3. So does the first request of an older version's channel, which had it in the system prompt."""
    store = begun(cc.system("LEAD"))
    compiler = cc.MessageCompiler(store, spec)
    why: list[str] = []
    for number, prompt in enumerate((None, None, "INSTRUCTIONS", "INSTRUCTIONS", None, None)):
        store.append("demo", cc.user(f"u{number}"))
        compiled = compiler.compile("demo", instructions=prompt)
        assert (compiled.mode == "resume") == (compiler.provider.session_resumption and not compiled.manifest.why)
        compiler.commit(compiled, cc.assistant(f"a{number}"), session_id="s")
        why.append(compiled.manifest.why)
        if compiled.mode == "full":
            assert compiled.body.count(b"LEAD") == 1
    moved = "stored system messages keep their place"
    changed = [] if compiler.provider.session_resumption else ["system prompt changed"]
    assert why[:4] == ["first request", "", moved, ""]
    assert why[4:] == [*changed, ""] or why[4:] == ["", ""]


def test_a_message_manager_keeps_them_in_place() -> None:
    """The system prompt that is formatted is the one that was set, and nothing is in both."""
    manager = cc.MessageManager(cc.AnthropicFormatter(), "INSTRUCTIONS")
    manager.add_message(cc.system("HISTORY"))
    manager.add_user_message("hi")
    assert manager.get_formatted_system_prompt() == "INSTRUCTIONS"
    assert "HISTORY" in str(manager.get_formatted_messages())
    manager.set_system_prompt(None)
    assert manager.get_formatted_system_prompt() == "HISTORY"
    assert "HISTORY" not in str(manager.get_formatted_messages())
    manager.set_system_prompt("INSTRUCTIONS")
    manager.get_formatted_messages()
    manager.add_assistant_message("hello")
    manager.set_system_prompt(None)
    assert ("HISTORY" in str(manager.get_formatted_messages())) != bool(manager.get_formatted_system_prompt())
