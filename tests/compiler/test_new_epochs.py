"""Content that a new epoch omits: media, signed reasoning and redacted messages."""

import pytest
from msgspec.structs import replace

import contextc as cc
from contextc.messages import Message
from tests.compiler.recorded_replay import begins_with, blocks
from tests.compiler.sized_conversations import CLAUDE, append_and_commit, compiler_for, filler_text, texts


def picture(name: str) -> Message:
    return cc.user([name, cc.Media(data=name.encode() * 20, mime_type="image/png")])


def test_a_new_epoch_keeps_the_bytes_of_the_latest_media_only() -> None:
    """Guarantee 2.6: of two by default; within an epoch nothing that was shown is taken back."""
    compiler = compiler_for(window=40_000)
    for name in ("one", "two", "three", "four"):
        compiled = append_and_commit(compiler, picture(name))
    assert texts(compiled).count('"type":"image"') == 4
    compiled = compiler.compile("c", instructions="Another prompt.", retry=True)
    assert compiled.manifest.why == "system prompt changed"
    assert texts(compiled).count('"type":"image"') == 2
    shown = [line for line in compiled.manifest.lines if line.role == "user"]
    assert [line.why for line in shown] == ["media described", "media described", "", ""]


@pytest.mark.parametrize("keep", [0, 1, 3])
def test_how_many_media_a_new_epoch_keeps_is_a_setting(keep: int) -> None:
    """Guarantee 2.6"""
    compiler = compiler_for(window=40_000, options={"keep_media": keep})
    for name in ("one", "two", "three", "four"):
        append_and_commit(compiler, picture(name))
    compiled = compiler.compile("c", instructions="Another prompt.", retry=True)
    assert texts(compiled).count('"type":"image"') == keep


def thought(text: str, name: str) -> Message:
    return cc.assistant(
        text, reasoning=cc.Reasoning(text=f"thinking {name}", signature=f"sig{name}", provider="anthropic")
    )


def thinking_compiler(binds: bool) -> cc.MessageCompiler:
    provider = cc.provider(CLAUDE, window=3_000, output=500, binds_reasoning=binds)
    return cc.MessageCompiler(cc.open_store("memory:"), provider)


@pytest.mark.parametrize("binds", [True, False])
def test_signed_reasoning_goes_with_a_cut_where_the_model_binds_it_to_its_prefix(binds: bool) -> None:
    """Guarantee 9.3; pi#9391: after a cut the kept tail carries signatures bound to the old prefix."""
    compiler = thinking_compiler(binds)
    index = 0
    compiler.store.append("c", cc.user("The first question."))
    while (compiled := compiler.compile("c")).manifest.why != "over budget":
        compiler.begin(compiled)
        compiler.commit(compiled, thought(filler_text(100), f"<{index}>"))
        index += 1
        compiler.store.append("c", cc.user(filler_text(100, f"question {index}.")))
    replies = [message for message in compiled.params["messages"] if message["role"] == "assistant"]
    assert len(replies) > 2
    assert texts(compiled).count('"type":"thinking"') == (0 if binds else len(replies))
    assert compiled.record.signed_lost == (len(replies) if binds else 0)
    compiler.begin(compiled)
    compiler.commit(compiled, thought("New.", "<new>"))
    compiler.store.append("c", cc.user("And?"))
    after = compiler.compile("c")
    assert "sig<new>" in texts(after)  # said in this epoch, after what it is bound to
    assert not cc.lint(after.params, format="anthropic")


def test_signed_reasoning_before_a_rewind_point_stays() -> None:
    """Guarantees 9.3, 3.5: everything before it is as it was."""
    compiler = thinking_compiler(True)
    for index in range(4):
        compiler.store.append("c", cc.user(f"Question {index}."))
        compiled = compiler.compile("c")
        compiler.begin(compiled)
        compiler.commit(compiled, thought(f"Answer {index}.", f"<{index}>"))
    compiler.store.rewind("c", 4)
    compiler.store.append("c", cc.user("Another question."))
    compiled = compiler.compile("c")
    assert compiled.manifest.why == "edited or branched away"
    assert "sig<0>" in texts(compiled)
    assert "sig<1>" in texts(compiled)
    assert "sig<2>" not in texts(compiled)
    assert begins_with(blocks(compiled.params), blocks(compiler.compile("c", dry_run=True, rewind=4).params))


def test_a_redacted_message_is_reported_and_its_texts_are_gone() -> None:
    """Guarantee 2.8: the manifest of every later request reports it."""
    compiler = compiler_for()
    append_and_commit(compiler, cc.user("My number is 4711."))
    append_and_commit(compiler, cc.user("And so on."))
    compiler.store.redact("c", 1)
    for _ in range(2):
        compiled = append_and_commit(compiler, cc.user("What now?"))
        assert "4711" not in texts(compiled)
        assert any("[removed]" in line.text or line.why == "redacted" for line in compiled.manifest.lines)
    assert replace(compiler.store.load("c")[0], time=0).redacted
