"""A provider's own compaction: what its block stands for is not sent and not counted, and everybody else gets it all.

No recording of a compaction by a threshold exists here. The replies are as the SDKs and the vendors' pages have them.
"""

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.compiler import Compiled
from contextc.linting import lint
from contextc.messages import Usage
from contextc.prompts import PromptFragment
from contextc.store.ledger_schema import EpochReason, LeftOutReason

OPUS, GPT = "anthropic:claude-opus-5-5", "openai:gpt-5.5"
FORMATS = {OPUS: "anthropic", GPT: "openai_responses"}
SUMMARY = "Ann has a boat named Nora. She asked for a new sail."
SEALED = urlsafe_b64encode(b"\x80" + bytes(8 + 16 + 640 + 32)).decode()
"""What OpenAI encrypts is a Fernet token."""
NUMBERS = count(1)
LONG = "All about boats, at length. " * 60


def reply(model: str, text: str, *, compacts: bool = False, calls: bool = False, thinks: bool = False) -> JSONObject:
    """Return a reply as the vendor sends it."""
    number = next(NUMBERS)
    if model == OPUS:
        thought = {"type": "thinking", "thinking": "Well.", "signature": "c2lnbmVk"}
        block = {"type": "compaction", "content": SUMMARY}
        call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "sails"}}
        said = {"type": "text", "text": text}
        content = [*[block] * compacts, *[thought] * thinks, said, *[call] * calls]
        iterations = [{"type": "compaction", "input_tokens": 50_000, "output_tokens": 900}, {"type": "message"}]
        usage = {"input_tokens": 700, "output_tokens": 10, **({"iterations": iterations} if compacts else {})}
        return {
            "id": f"msg_{number}",
            "model": "claude-opus-5-5",
            "content": content,
            "stop_reason": "tool_use" if calls else "end_turn",
            "usage": usage,
        }
    item = {"type": "compaction", "id": f"cmp_{number}", "encrypted_content": SEALED}
    said: JSONObject = {"type": "output_text", "text": text, "annotations": []}
    message: JSONObject = {
        "type": "message",
        "id": f"msg_{number}",
        "role": "assistant",
        "status": "completed",
        "content": [said],
    }
    call = {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": "toolu_1",
        "name": "look",
        "arguments": '{"at": "sails"}',
    }
    return {
        "id": f"resp_{number}",
        "model": "gpt-5.5",
        "status": "completed",
        "output": [*[item] * compacts, message, *[call] * calls],
        "usage": {"input_tokens": 700, "output_tokens": 10},
    }


class Talk:
    """A conversation of three turns; the provider compacts it before the last answer."""

    def __init__(self, model: str, **options: Any) -> None:
        self.model, self.store = model, cc.open_store("memory:")
        self.compiler = cc.MessageCompiler(self.store, model, **options)
        self.arguments: dict[str, Any] = {"instructions": "You know boats."}
        self.turn(f"My boat is named Nora. {LONG}", "Nora, then.", thinks=True)
        self.turn("She needs a sail.", f"A sail. {LONG}", thinks=True)
        self.turn("Which one?", "A jib.", compacts=True, thinks=True)

    def turn(self, text: str, answer: str, **more: Any) -> Compiled:
        self.store.append("demo", cc.user(text))
        return self.step(answer, **more)

    def step(self, answer: str, **more: Any) -> Compiled:
        compiled = self.compile()
        with self.compiler.attempt(compiled) as attempt:
            attempt.commit(reply(self.model, answer, **more))
        assert self.compiler.rebuild("demo") == compiled.body
        return compiled

    def compile(self, conversation: str = "demo", **more: Any) -> Compiled:
        compiled = self.compiler.compile(conversation, **{**self.arguments, **more})
        assert lint(compiled.params, format=FORMATS[self.model]) == []
        return compiled

    def ask(self, text: str = "And the mast?") -> Compiled:
        self.store.append("demo", cc.user(text))
        return self.compile()


def wire(compiled: Compiled) -> list[JSONObject]:
    return compiled.params[compiled.formatter.messages_key]


@pytest.mark.parametrize("model", FORMATS)
def test_what_a_compaction_stands_for_is_neither_sent_nor_counted(model: str) -> None:
    """Guarantee 23.4: the vendor ignores it, so it would only be uploaded, counted, and trimmed too early."""
    talk = Talk(model, keep_words=0, keep_index=0)
    compiled = talk.ask()
    first = wire(compiled)[0]
    assert (first["content"][0] if model == OPUS else first)["type"] == "compaction"
    assert [message.text for message in compiled.messages] == ["A jib.", "And the mast?"]
    assert b"at length" not in compiled.body
    assert compiled.budget.used < 400
    assert compiled.record.why == EpochReason.PROVIDER_COMPACTED == "compacted by the provider"
    assert {each.why for each in compiled.record.left} == {LeftOutReason.PROVIDER_COMPACTED}
    assert len(compiled.record.left) == 5
    left = [line for line in compiled.manifest.lines if not line.shown]
    assert {line.why for line in left} == {"in the provider's compaction"}


@pytest.mark.parametrize("model", FORMATS)
def test_the_requests_after_it_extend_the_one_without_it(model: str) -> None:
    talk = Talk(model)
    first = talk.turn("And the mast?", "Of wood.")
    second = talk.ask("And the keel?")
    assert second.record.why == ""
    assert wire(second)[: len(wire(first))] == wire(first)
    assert talk.compiler.rebuild("demo") == first.body


def test_reasoning_after_the_compaction_is_sent_again() -> None:
    """The vendor's compaction is exempt from its check of signed reasoning; a trim of ours would lose it."""
    compiled = Talk(OPUS).ask()
    blocks = [block["type"] for message in wire(compiled) for block in message["content"]]
    assert blocks[:3] == ["compaction", "thinking", "text"]
    assert blocks.count("thinking") == 1


@pytest.mark.parametrize("model", FORMATS)
def test_words_of_people_and_the_index_come_after_the_compaction(model: str) -> None:
    """What a summary loses stays, but the provider's block must come first, or it is ignored."""
    compiled = Talk(model).ask()
    texts = [message.text for message in compiled.messages]
    assert texts[0] == "A jib."
    assert "My boat is named Nora." in texts[1]


@pytest.mark.parametrize("model", FORMATS)
def test_words_of_people_do_not_reach_the_threshold_again(model: str) -> None:
    """Guarantee 23.4: a share of a window of a million tokens is more than most thresholds.

    Each request would be compacted again, and that costs as much as the whole conversation.
    """
    native = cc.compiler.NativeContext(compact_at=50_000)
    talk = Talk(model, native=native)
    for number in range(12):
        talk.turn(f"Boat {number}. {LONG * 15}", "Seen.")
    talk.turn("And now?", "Well.", compacts=True)
    compiled = talk.ask()
    assert compiled.record.why == EpochReason.PROVIDER_COMPACTED
    assert compiled.budget.used < 50_000


@pytest.mark.parametrize("model", FORMATS)
def test_a_call_in_the_reply_with_the_compaction_keeps_its_result(model: str) -> None:
    talk = Talk(model)
    talk.turn("Look!", "I look.", compacts=True, calls=True)
    talk.store.append("demo", cc.tool_result("toolu_1", "look", "Three sails."))
    messages = talk.compile(tools=[cc.Tool(name="look", description="Looks.", parameters={})]).messages
    assert [message.role for message in messages[:2]] == ["assistant", "tool"]
    assert messages[1].tool_results[0].text == "Three sails."


@pytest.mark.parametrize("model", FORMATS)
def test_only_the_latest_compaction_is_sent(model: str) -> None:
    talk = Talk(model)
    talk.turn("And the mast?", "Of wood.", compacts=True)
    compiled = talk.ask("And the keel?")
    assert compiled.body.count(b'"type":"compaction"') == 1
    assert [message.text for message in compiled.messages if message.role == "assistant"] == ["Of wood."]


def test_a_compaction_that_failed_replaces_nothing() -> None:
    """Without a text, the vendor's block has no effect."""
    talk = Talk(OPUS)
    talk.store.append("demo", cc.user("And the mast?"))
    failed = reply(OPUS, "Of wood.", compacts=True)
    failed["content"][0] = {"type": "compaction", "content": None}
    with talk.compiler.attempt(talk.compile()) as attempt:
        attempt.commit(failed)
    assert talk.ask("And the keel?").record.why == ""


@pytest.mark.parametrize("model", FORMATS)
def test_another_provider_gets_the_whole_conversation(model: str) -> None:
    """Guarantee 23.4: it cannot read the block of this one."""
    talk = Talk(model)
    talk.ask()
    other = cc.MessageCompiler(talk.store, GPT if model == OPUS else OPUS).compile("demo")
    texts = [message.text for message in other.messages]
    assert texts[0].startswith("My boat is named Nora.")
    assert len(texts) == 7
    assert b'"type":"compaction"' not in other.body


@pytest.mark.parametrize("model", FORMATS)
def test_a_rewind_before_the_compaction_sends_the_messages_again(model: str) -> None:
    talk = Talk(model)
    talk.turn("And the mast?", "Of wood.")
    talk.store.fork("demo", "early", at=4)
    talk.store.fork("demo", "late", at=7)
    talk.store.append("early", cc.user("Why?"))
    assert [message.role for message in talk.compile("late").messages][:1] == ["assistant"]
    assert "My boat is named Nora." in talk.compile("early").messages[0].text
    talk.store.rewind("demo", 3)
    compiled = talk.compile()
    assert [message.text[:8] for message in compiled.messages] == ["My boat ", "Nora, th", "She need"]


@pytest.mark.parametrize("model", FORMATS)
def test_a_fragment_before_the_compaction_is_sent_again(model: str) -> None:
    """Its copy is gone, so the model would go on without it."""
    talk = Talk(model)
    talk.arguments["instructions"] = ["You know boats.", PromptFragment("tide", "High tide.", lifecycle="dynamic")]
    talk.turn("And the mast?", "Of wood.")
    talk.turn("And the keel?", "Of lead.", compacts=True)
    compiled = talk.ask("And the rudder?")
    assert compiled.body.count(b"High tide.") == 1


@pytest.mark.parametrize("model", FORMATS)
def test_trimming_keeps_the_compaction_first(model: str) -> None:
    """It is all that the model has of the conversation before it."""
    talk = Talk(model)
    for number in range(6):
        talk.turn(f"Question {number}? {LONG}", f"Answer {number}.")
    compiled = talk.ask("The last one?")
    trimmed = talk.compile(max_input_tokens=compiled.budget.input * 2 // 3)
    assert trimmed.record.why == EpochReason.OVER_BUDGET
    assert trimmed.messages[0].text == "A jib."
    assert trimmed.messages[-1].text.endswith("The last one?")
    assert len(trimmed.messages) < len(compiled.messages)


@pytest.mark.parametrize("model", FORMATS)
def test_a_summary_of_ours_stands_for_all_messages(model: str) -> None:
    """It is used on all channels of the agent, and another provider cannot read the block."""
    talk = Talk(model)
    for number in range(4):
        talk.turn(f"Question {number}? {LONG}", f"Answer {number}. {LONG}")
    read: list[str] = []

    def summarize(messages: Sequence[cc.Message], previous: str | None) -> str:
        read.extend(message.text for message in messages)
        return "All about Nora, sails and answers."

    assert talk.compiler.compact("demo", summarize, max_input_tokens=4_000) is not None
    assert read[0].startswith("My boat is named Nora.")
    compiled = talk.ask("The last one?")
    assert compiled.messages[0].text.startswith("<context-summary>")
    assert b'"type":"compaction"' not in compiled.body
    assert compiled.features == frozenset()


@pytest.mark.parametrize("model", FORMATS)
def test_a_request_that_the_provider_compacted_is_no_sample(model: str) -> None:
    """Guarantee 23.5: its input is that of the summary, so the counts of all later requests would be too small."""
    talk = Talk(model)
    assert talk.compiler.explain("demo").record.partial
    compiled = talk.ask()
    before = talk.compiler.factor
    assert compiled.measured_input(Usage(input=700, output=10)) == 700
    with talk.compiler.attempt(compiled) as attempt:
        attempt.commit(reply(model, "Of wood.", compacts=True))
    assert talk.compiler.factor == before
    assert talk.store.load("demo")[-1].usage is not None
    assert compiled.measured_input(talk.store.load("demo")[-1].usage) == 0


def test_a_session_keeps_what_its_provider_compacted() -> None:
    """With `previous_response_id`, the vendor has the items. Full context begins with the block, as elsewhere."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, "openai-session:gpt-5.5")
    for text, more in (("My boat is named Nora.", {}), ("She needs a sail.", {"compacts": True})):
        store.append("demo", cc.user(text))
        with compiler.attempt(compiler.compile("demo")) as attempt:
            attempt.commit(reply(GPT, "Yes.", **more))
    store.append("demo", cc.user("Which one?"))
    resumed = compiler.compile("demo")
    assert (resumed.mode, resumed.record.why) == ("resume", "")
    assert [message.text for message in resumed.messages] == ["Which one?"]
    cc.SessionManager(store).invalidate(resumed.channel, "gone")
    whole = compiler.compile("demo")
    assert whole.mode == "full"
    assert whole.messages[0].text == "Yes."
    assert b'"type":"compaction"' in whole.body


@pytest.mark.parametrize("model", FORMATS)
def test_what_was_appended_before_the_compaction_is_in_the_head_again(model: str) -> None:
    """The messages that added the tool and changed the instructions are gone; without this, both would be."""
    betas = ("mid-conversation-tool-changes-2026-07-01", "inline-tools-2026-09-15") if model == OPUS else ()
    talk = Talk(model)
    look, find = (cc.Tool(name=name, description=name, parameters={}) for name in ("look", "find"))
    talk.store = cc.open_store("memory:")
    talk.compiler = cc.MessageCompiler(talk.store, cc.provider(model, betas=betas))
    talk.arguments["tools"] = [look]
    talk.turn(f"Hello. {LONG}", "Hello.")
    talk.turn("Look at the sail.", "It is white.")
    talk.arguments |= {"tools": [look, find], "instructions": "You know boats. Be brief."}
    appended = talk.turn("Find the mast.", "There it is.")
    assert (appended.record.why, appended.params["tools"][0]["name"]) == ("", "look")
    assert not any(tool["name"] == "find" for tool in appended.params["tools"])
    talk.turn("And the keel?", "Below.", compacts=True)
    compiled = talk.ask()
    assert compiled.record.why == EpochReason.PROVIDER_COMPACTED
    assert [tool["name"] for tool in compiled.params["tools"]][:2] == ["look", "find"]
    assert compiled.system_prompt == "You know boats. Be brief."
    assert not {line.kind for line in compiled.manifest.lines if line.shown} & {"change", "update"}
