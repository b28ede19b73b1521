"""The table of blocks: what one row gives for decoding, encoding, `extra` and unknown fields."""

from typing import Any

import pytest

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats.anthropic.codec import BLOCKS, AnthropicCodec
from contextc.formats.base import merge_extra
from contextc.formats.block_table import Block, BlockCodec, BlockDelta, BlockTable, Field, apply_delta
from contextc.messages import AnyPart, ProviderBlock, Reasoning, Text, ToolCall, ToolResult


class Codec(BlockCodec):
    def encode_unmapped(self, part: AnyPart) -> JSONObject | None:
        return None


def _read_number(value: JSON, codec: BlockCodec) -> str:
    return str(value)


def _write_number(part: Text, codec: BlockCodec) -> JSON:
    return int(part.text)


def _is_redacted(part: Reasoning) -> bool:
    return part.data is not None


TABLE = BlockTable(
    {
        "text": Block(Text, {"text": Field(str, "text"), "note?": str}),
        "number": Block(Text, {"value": Field((int, str), "text", read=_read_number, write=_write_number)}),
        "hidden": Block(Reasoning, {"data": Field(str, "data")}, is_sent=_is_redacted, is_own=True),
        "thought": Block(
            Reasoning, {"text": Field(str, "text"), "seal?": Field(str, "signature", default=None)}, is_own=True
        ),
        "upload": Block(None, {"file": str}),
    },
    common=("mark",),
)


def decoded(block: JSONObject, table: BlockTable = TABLE) -> AnyPart:
    return table.decode(block, Codec("here", {}))


@pytest.mark.parametrize(
    ("block", "part"),
    [
        ({"type": "text", "text": "a"}, Text("a")),
        ({"type": "text", "text": "a", "note": None}, Text("a")),
        ({"type": "text", "text": "a", "note": "n", "x": 1}, Text("a", extra={"here": {"note": "n", "x": 1}})),
        ({"type": "number", "value": 5}, Text("5")),
        ({"type": "number", "value": "5"}, Text("5", extra={"here": {"value": "5"}})),
        ({"type": "thought", "text": "t", "seal": "s"}, Reasoning(text="t", signature="s", provider="here")),
        ({"type": "upload", "file": "f"}, ProviderBlock(provider="here", data={"type": "upload", "file": "f"})),
        ({"type": "new"}, ProviderBlock(provider="here", data={"type": "new"})),
        ({"type": ["text"]}, ProviderBlock(provider="here", data={"type": ["text"]})),
    ],
)
def test_block_becomes_the_part_of_its_row_and_other_fields_are_kept(block: JSONObject, part: AnyPart) -> None:
    """A value that encoding the part reproduces is not kept twice; all others are kept in `extra`."""
    assert decoded(block) == part


def test_required_field_must_be_there() -> None:
    """The base class of formats reports the missing name as an invalid request."""
    with pytest.raises(KeyError, match="text"):
        decoded({"type": "text"})


def test_part_is_written_as_the_first_row_that_takes_it() -> None:
    codec = Codec("here", {})
    hidden = Reasoning(data="d", provider="here")
    assert TABLE.encode(hidden, codec) == {"type": "hidden", "data": "d"}
    assert TABLE.encode(Reasoning(text="t", provider="here"), codec) == {"type": "thought", "text": "t"}
    assert TABLE.encode(Reasoning(data="d", provider="there"), codec) is None


def test_fields_that_no_row_names_are_unknown() -> None:
    known: JSONObject = {"type": "text", "text": "a", "note": "n", "mark": 1, "empty": None}
    assert list(TABLE.unknown_fields(known, ())) == []
    assert [finding.path for finding in TABLE.unknown_fields({**known, "x": 1}, ("at",))] == [("at", "x")]
    assert list(TABLE.unknown_fields({"type": "new", "x": 1}, ())) == []


def test_delta_of_unknown_type_is_kept_in_its_block() -> None:
    block: JSONObject = {"type": "text"}
    rows = {"more": BlockDelta("piece", "text"), "seal": BlockDelta("seal", "seal", "replace")}
    for delta in ({"type": "more", "piece": "a"}, {"type": "more", "piece": "b"}, {"type": "seal", "seal": "s"}):
        apply_delta(block, delta, rows)
    apply_delta(block, {"type": "later", "x": 1}, rows)
    assert block == {"type": "text", "text": "ab", "seal": "s", "deltas": [{"type": "later", "x": 1}]}


SAMPLES: dict[type | tuple[type, ...], Any] = {str: "c2lnbmVk", dict: {}, list: [], bool: True, object: 1}


@pytest.mark.parametrize("kind", BLOCKS.schemas)
def test_every_block_of_anthropic_is_written_as_it_was_read(kind: str) -> None:
    """Whatever fields a row states, decoding and encoding a block with all of them changes nothing."""
    types = {name.removesuffix("?"): kinds for name, kinds in BLOCKS.schemas[kind].items()}
    block: JSONObject = {"type": kind}
    block |= {name: SAMPLES[kinds[0] if isinstance(kinds, tuple) else kinds] for name, kinds in types.items()}
    if kind in ("image", "document"):
        block["source"] = {"type": "url", "url": "https://example.org/a.png"}
    codec = AnthropicCodec("anthropic")
    for given in (block, {**block, "new_field": [1]}):
        part = BLOCKS.decode(given, codec)
        ours = BLOCKS.encode(part, codec)
        assert ours is not None
        assert merge_extra(ours, part.extra, "anthropic") == given
        assert codec.blocks([part]) == [given]


@pytest.mark.parametrize(
    "part",
    [
        cc.Text("a"),
        ToolCall(id="a", name="look", arguments={"at": 1}),
        ToolResult(call_id="a", name="look", content="1"),
    ],
)
def test_short_way_of_encoding_gives_what_the_table_gives(part: AnyPart) -> None:
    """The most common parts are encoded without the table, because a history has thousands of them."""
    codec = AnthropicCodec("anthropic")
    assert codec.blocks([part]) == [BLOCKS.encode(part, codec)]
