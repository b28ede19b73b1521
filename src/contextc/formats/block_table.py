"""The blocks of a wire format as a table. A row gives schema, known fields, decoding, encoding and `extra` of a block.

A row states what a block is on the wire, and which part it is. A field is mapped to an attribute of the part, or only
its type is known. The value of an unmapped field is kept in `extra`, as is a value that encoding the part would not
reproduce. A block without a matching part type becomes a `ProviderBlock`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.formats.base import PartEncoder, append_text, extra_of
from contextc.formats.lint_engine import (
    FieldTypes,
    JSONPath,
    PartKind,
    RuleFinding,
    field_names,
    unknown_field_findings,
)
from contextc.messages import AnyPart, Extra, Media, ProviderBlock, Reasoning, Text, ToolCall, ToolResult

NO_DEFAULT = object()
PART_KINDS: Mapping[type, PartKind] = {
    Text: "text",
    Reasoning: "reasoning",
    ToolCall: "call",
    ToolResult: "result",
    Media: "media",
}


class BlockCodec(PartEncoder):
    """The context of encoding and decoding blocks: provider, model, media bytes, notes. A format derives its own."""

    model: str | None = None
    keeps_unsent = False
    """True if all fields of a block whose part is not sent are kept in `extra`."""

    def __init__(self, provider: str, blobs: Mapping[str, bytes]) -> None:
        super().__init__(provider, blobs)
        self.extra_key = provider
        """The key in `extra` for this provider's data in this format."""

    def create_part(self, part: type[AnyPart], values: dict[str, Any]) -> AnyPart:
        """Return a part with these attributes. A format adds those that are not in the block."""
        return part(**values)

    def extra(self, wire: JSONObject, ours: JSONObject) -> Extra | None:
        """Return what our encoding of a block would not reproduce."""
        return extra_of(wire, ours, self.extra_key)

    def encode_unmapped(self, part: AnyPart) -> JSONObject | None:
        """Return the block of a part that no row encodes; None if it is not sent."""
        raise NotImplementedError


class Field(Struct, frozen=True):
    """A field that is mapped to an attribute of the part.

    `read` takes the value and the codec, `write` the part and the codec; by default the value is used as it is.
    `default` is the attribute's own default value, for which the field is not written. `is_held`: the part holds the
    value as it was read, although it is written in another shape.
    """

    types: type | tuple[type, ...]
    attribute: str
    read: Callable[[JSON, Any], object] | None = None
    write: Callable[[Any, Any], JSON] | None = None
    default: object = NO_DEFAULT
    is_held: Callable[[Any], bool] | None = None


class Block(Struct, frozen=True):
    """A row: the class of the part (None: a `ProviderBlock`), and the fields. A name that ends in `?` is optional.

    `is_sent`: a part is written as this block. `is_own`: only the provider that wrote the part can read it. `decode`
    and `encode` replace the mapping of fields; `decode` returns None for a block that is a `ProviderBlock`.
    """

    part: type[AnyPart] | None
    fields: Mapping[str, Field | type | tuple[type, ...]]
    is_sent: Callable[[Any], object] | None = None
    is_own: bool = False
    decode: Callable[[JSONObject, Any], AnyPart | None] | None = None
    encode: Callable[[Any, Any], JSONObject | None] | None = None


class _Row:
    """A row, prepared: its mapped fields by name, and those whose value may not come back as it was."""

    __slots__ = ("checked", "decode", "encode", "is_own", "is_sent", "kind", "mapped", "names", "part")

    def __init__(self, kind: str, part: type[AnyPart], block: Block, tag: str) -> None:
        self.kind, self.part = kind, part
        self.is_sent, self.is_own, self.decode, self.encode = block.is_sent, block.is_own, block.decode, block.encode
        mapped = {name: field for name, field in block.fields.items() if isinstance(field, Field)}
        self.mapped = [
            (name.removesuffix("?"), field.attribute, field.read, field.write, field.default, not name.endswith("?"))
            for name, field in mapped.items()
        ]
        self.names = frozenset([tag, *(name for name, *_ in self.mapped)])
        self.checked = [
            (name.removesuffix("?"), field)
            for name, field in mapped.items()
            if field.read is not None or field.write is not None or field.default not in (NO_DEFAULT, None)
        ]


class BlockTable:
    """The blocks of a format, by their type, which is in the field `tag` or found by `kind_of`.

    `common` are names of fields that every block may have.
    """

    def __init__(
        self,
        blocks: Mapping[str, Block],
        *,
        common: tuple[str, ...] = (),
        tag: str = "type",
        kind_of: Callable[[JSONObject], str | None] | None = None,
    ) -> None:
        self.tag, self._kind_of = tag, kind_of
        self.schemas: dict[str, FieldTypes] = {
            kind: {name: each.types if isinstance(each, Field) else each for name, each in block.fields.items()}
            for kind, block in blocks.items()
        }
        self.field_names = {kind: field_names(fields, tag, *common) for kind, fields in self.schemas.items()}
        self.part_kinds: dict[str, PartKind] = {
            kind: PART_KINDS[block.part] for kind, block in blocks.items() if block.part is not None
        }
        self._rows = {kind: _Row(kind, block.part, block, tag) for kind, block in blocks.items() if block.part}
        self._rows_of_part: dict[type, list[_Row]] = {}
        for row in self._rows.values():
            self._rows_of_part.setdefault(row.part, []).append(row)

    def unknown_fields(self, block: JSONObject, path: JSONPath) -> Iterator[RuleFinding]:
        """Yield the fields that a block of this type does not have. A type that is not in the table may have any."""
        if (names := self.field_names.get(str(block.get(self.tag)))) is not None:
            yield from unknown_field_findings(block, names, path)

    def decode(self, block: JSONObject, codec: BlockCodec) -> AnyPart:
        """Return the part of a block."""
        kind: JSON = block.get(self.tag) if self._kind_of is None else self._kind_of(block)
        row = self._rows.get(kind) if isinstance(kind, str) else None
        if row is None:
            return ProviderBlock(provider=codec.provider, data=block)
        if row.decode is not None:
            if (part := row.decode(block, codec)) is None:
                return ProviderBlock(provider=codec.provider, data=block)
            ours = self.encode(part, codec) or ({} if codec.keeps_unsent else None)
            extra = codec.extra(block, ours) if ours is not None else None
            return replace(part, extra=extra) if extra else part
        values: dict[str, Any] = {"provider": codec.provider, "model": codec.model} if row.is_own else {}
        for name, attribute, read, _, default, is_required in row.mapped:
            value: JSON = block[name] if is_required else block.get(name)
            if value is not None or default is NO_DEFAULT:
                values[attribute] = value if read is None else read(value, codec)
        part = codec.create_part(row.part, values)
        if row.is_sent is not None and not row.is_sent(part):
            return part
        changed = [name for name, field in row.checked if self._is_changed(block.get(name), field, part, codec)]
        if not changed and block.keys() <= row.names:
            return part
        rest: JSONObject = {
            name: value
            for name, value in block.items()
            if value is not None and (name not in row.names or name in changed)
        }
        rest |= {name: None for name in changed if name not in rest}
        return replace(part, extra={codec.extra_key: rest}) if rest else part

    def _is_changed(self, value: JSON, field: Field, part: AnyPart, codec: BlockCodec) -> bool:
        """Return True if encoding the part would not reproduce the value of a field."""
        if field.is_held is not None and field.is_held(part):
            return False
        if field.default is not NO_DEFAULT and getattr(part, field.attribute) == field.default:
            return value is not None
        written: JSON = getattr(part, field.attribute) if field.write is None else field.write(part, codec)
        return written is not value and written != value

    def encode(self, part: AnyPart, codec: BlockCodec) -> JSONObject | None:
        """Return the block of a part, without its `extra`; None if it is not sent."""
        for row in self._rows_of_part.get(type(part), ()):
            if row.is_sent is not None and not row.is_sent(part):
                continue
            if row.is_own and getattr(part, "provider", None) != codec.provider:
                break
            if row.encode is not None:
                return row.encode(part, codec)
            block: JSONObject = {self.tag: row.kind}
            for name, attribute, _, write, default, _ in row.mapped:
                value = getattr(part, attribute)
                if default is NO_DEFAULT or value != default:
                    block[name] = value if write is None else write(part, codec)
            return block
        return codec.encode_unmapped(part)


class BlockDelta(NamedTuple):
    """A delta of a stream: its field, the field of the block that it changes, and how.

    `part` and `attribute` are what the delta is shown as; None if it is not shown.
    """

    field: str
    target: str
    how: Literal["extend", "replace", "append", "merge"] = "extend"
    """`merge` takes all fields of the delta."""
    part: type[Text | Reasoning | ToolCall] | None = None
    attribute: str = "text"


def apply_delta(block: JSONObject, delta: JSONObject, deltas: Mapping[str, BlockDelta]) -> None:
    """Change a block of a streamed reply in place. Deltas of an unknown type are kept in the block."""
    kind: JSON = delta["type"]
    row = deltas.get(kind) if isinstance(kind, str) else None
    if row is None:
        block.setdefault("deltas", []).append(delta)
    elif row.how == "extend":
        append_text(block, row.target, delta[row.field])
    elif row.how == "append":
        block[row.target] = [*(block.get(row.target) or []), delta[row.field]]
    elif row.how == "merge":
        block |= {name: value for name, value in delta.items() if name != "type" and value is not None}
    else:
        block[row.target] = delta[row.field]
