"""What is left to a provider: compaction at a threshold, and leaving out tool results and thinking.

It is opt-in, brings its own beta flags, and is named in manifests. The settings are checked against the SDKs' types.
"""

from typing import Any

import pytest
from anthropic.types.beta.beta_context_management_config_param import Edit
from openai.types.responses.response_create_params import ContextManagement
from pydantic import TypeAdapter, ValidationError

import contextc as cc
from contextc._json import JSONObject
from contextc.compiler import NativeContext
from contextc.errors import InvalidSetting
from contextc.linting import lint
from tests.compiler.test_provider_compaction import GPT, OPUS, reply
from tests.executor.scripted_provider import run_turn, says
from tests.providers.test_beta_flags import Listening

COMPACTION, EDITING = "compact-2026-01-12", "context-management-2025-06-27"
EVERYTHING = NativeContext(
    compact_at=150_000,
    compact_instructions="Keep names.",
    clear_results_at=100_000,
    clear_at_least=20_000,
    clear_arguments=True,
    keep_results=5,
    keep_results_of=("look",),
    keep_thinking=2,
)
EDITS: list[JSONObject] = [
    {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 2}},
    {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": 100_000},
        "keep": {"type": "tool_uses", "value": 5},
        "clear_at_least": {"type": "input_tokens", "value": 20_000},
        "clear_tool_inputs": True,
        "exclude_tools": ["look"],
    },
    {
        "type": "compact_20260112",
        "trigger": {"type": "input_tokens", "value": 150_000},
        "instructions": "Keep names.",
    },
]


def compiler(model: str, native: NativeContext | None = None) -> cc.MessageCompiler:
    store = cc.open_store("memory:")
    store.append("demo", cc.user("Hello."))
    return cc.MessageCompiler(store, model, native=native)


def test_anthropic_gets_its_edits_and_the_flags_for_them() -> None:
    """Thinking must be the first of them, and without the flags the vendor refuses the field."""
    compiled = compiler(OPUS, EVERYTHING).compile("demo")
    assert compiled.params["context_management"] == {"edits": EDITS}
    assert compiled.headers == {"anthropic-beta": f"{COMPACTION},{EDITING}"}
    assert compiled.provider.flags_of(compiled.features) == (COMPACTION, EDITING)
    assert compiled.record.betas == (COMPACTION, EDITING)
    assert lint(compiled.params, format="anthropic") == []
    TypeAdapter(list[Edit]).validate_python(compiled.params["context_management"]["edits"])
    (remark,) = compiled.record.remarks
    assert remark.startswith(
        "left to the provider: compact_at=150000, compact_instructions=Keep names., clear_results_at"
    )


@pytest.mark.parametrize(
    ("native", "flags"),
    [
        (NativeContext(compact_at=60_000), COMPACTION),
        (NativeContext(clear_results_at=60_000), EDITING),
        (NativeContext(keep_thinking="all"), EDITING),
    ],
    ids=["compaction", "results", "thinking"],
)
def test_only_the_flags_of_what_is_used_are_sent(native: NativeContext, flags: str) -> None:
    assert compiler(OPUS, native).compile("demo").headers == {"anthropic-beta": flags}


@pytest.mark.parametrize("model", [GPT, "openai-session:gpt-5.5", "openai-conversation:gpt-5.5"])
def test_openai_gets_its_threshold_and_the_manifest_says_what_it_lacks(model: str) -> None:
    compiled = compiler(model, EVERYTHING).compile("demo")
    given = compiled.params["context_management"]
    assert given == [{"type": "compaction", "compact_threshold": 150_000}]
    TypeAdapter(list[ContextManagement]).validate_python(given)
    assert compiled.headers == {}
    assert lint(compiled.params, format="openai_responses") == []
    assert compiled.record.remarks == (
        "left to the provider: compact_at=150000",
        f"{model} does not have: compact_instructions, clear_results_at, clear_at_least, clear_arguments, "
        "keep_results, keep_results_of, keep_thinking",
    )


@pytest.mark.parametrize(
    "model", ["gemini:gemini-3-pro", "deepseek:deepseek-v4-pro", "bedrock:anthropic.claude-opus-5-5"]
)
def test_a_provider_without_it_gets_the_usual_request(model: str) -> None:
    """One option for a list of models: those that cannot are trimmed as ever, and the manifest says so."""
    plain, asked = compiler(model).compile("demo"), compiler(model, EVERYTHING).compile("demo")
    assert asked.body == plain.body
    assert [remark.partition(" does not have")[0] for remark in asked.record.remarks] == [model]


@pytest.mark.parametrize("model", [OPUS, GPT])
def test_without_the_option_nothing_is_left_to_a_provider(model: str) -> None:
    """Guarantee 23.4."""
    compiled = compiler(model).compile("demo")
    assert "context_management" not in compiled.params
    assert compiled.headers == {}
    assert compiled.record.remarks == ()


def test_settings_of_the_caller_go_first() -> None:
    settings: JSONObject = {"context_management": {"edits": [EDITS[0]]}}
    compiled = compiler(OPUS, NativeContext(compact_at=60_000)).compile("demo", settings=settings)
    assert compiled.params["context_management"] == {"edits": [EDITS[0]]}
    assert compiled.headers == {}


def test_switching_it_on_keeps_the_prefix_and_off_keeps_the_flag_of_the_block() -> None:
    """The block of a compaction is part of the beta feature, so later requests need its flag, too."""
    talk = compiler(OPUS)
    for text, native in (("A.", None), ("B.", NativeContext(compact_at=60_000)), ("C.", None), ("D.", None)):
        talk.store.append("demo", cc.user(text))
        talk = cc.MessageCompiler(talk.store, OPUS, native=native)
        compiled = talk.compile("demo")
        assert bool(compiled.record.why) == (text in ("A.", "C."))
        assert compiled.headers == ({} if text == "A." else {"anthropic-beta": COMPACTION})
        with talk.attempt(compiled) as attempt:
            attempt.commit(reply(OPUS, "Yes.", compacts=text == "B."))


def test_the_manifest_says_what_the_provider_left_out_of_a_request() -> None:
    """Our own count does not see it, so nobody else would."""
    talk = compiler(OPUS, NativeContext(clear_results_at=60_000))
    compiled = talk.compile("demo")
    edits: list[JSONObject] = [
        {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 8, "cleared_input_tokens": 50_000},
        {"type": "clear_thinking_20251015", "cleared_thinking_turns": 3, "cleared_input_tokens": 15_000},
    ]
    with talk.attempt(compiled) as attempt:
        attempt.commit({**reply(OPUS, "Yes."), "context_management": {"applied_edits": edits}})
    record = talk.explain("demo").record
    assert record.remarks[1:] == (
        "the provider cleared the results of 8 calls, 50,000 tokens",
        "the provider cleared the thinking of 3 replies, 15,000 tokens",
    )
    assert record.partial, "a request that the provider shortened corrects no counts"


def test_an_agent_takes_it_with_the_options_of_its_compiler() -> None:
    script = Listening(says("Hello."))
    options = cc.CompilerOptions(native=NativeContext(compact_at=100_000))
    executor = cc.AgentExecutor(cc.open_store("memory:"), OPUS, compiler=options, endpoint=script, triggers=())
    run_turn(executor)
    assert script.headers == [{"anthropic-beta": COMPACTION}]
    assert [edit["type"] for edit in script.requests[0]["context_management"]["edits"]] == ["compact_20260112"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"compact_at": 0}, "compact_at must be an integer, got 0"),
        ({"keep_thinking": "some"}, "keep_thinking must be an integer, got 'some'"),
        ({"keep_results": 3}, "keep_results has no effect without clear_results_at"),
        ({"compact_instructions": "Be brief."}, "compact_instructions has no effect without compact_at"),
    ],
)
def test_an_invalid_field_is_refused_where_it_is_written(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidSetting, match=problem):
        NativeContext(**fields)


def test_a_threshold_that_the_vendor_refuses_is_refused_before() -> None:
    with pytest.raises(InvalidSetting, match="anthropic compacts at 50,000 tokens or more, got compact_at=20000"):
        compiler(OPUS, NativeContext(compact_at=20_000))
    assert compiler(GPT, NativeContext(compact_at=20_000)).compile("demo").features == {"compaction"}


def test_the_sdk_knows_the_fields() -> None:
    """Otherwise these tests would accept any name."""
    with pytest.raises(ValidationError):
        TypeAdapter(list[Edit]).validate_python([{"type": "compact_20991231"}])
