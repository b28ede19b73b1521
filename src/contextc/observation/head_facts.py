"""Facts about the head of a request, for comparisons and figures: hashes, tokens, and the names of its tools.

The hashes are those of the compiler, so a request of our own with the same system prompt and tools extends the prefix.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from contextc._json import encode_canonical
from contextc.messages import Message, Text
from contextc.messages.message import AnyPart
from contextc.models.tokens import TokenCounter
from contextc.observation.client_ids import attributions
from contextc.observation.exchange_parser import ObservedInput, decode_head
from contextc.prompts import PromptBuilder, PromptFragment, hash_tools
from contextc.store.ledger_schema import HeadHashes
from contextc.tools.spec import get_tool_name


class HeadFacts(NamedTuple):
    """The facts of one head. `system` and `tools` are tokens."""

    hashes: HeadHashes = HeadHashes()
    system: int = 0
    tools: int = 0
    names: tuple[str, ...] = ()


def hash_head(head: bytes) -> bytes:
    return blake2b(head, digest_size=16).digest()


_known: dict[tuple[bytes, str, str], HeadFacts] = {}
MAX_KNOWN = 256


def read_head(given: ObservedInput, counter: TokenCounter) -> HeadFacts:
    """Return the facts of a head. Most requests have the head of the one before, so the last ones are kept."""
    key = (hash_head(given.head), given.form.name, given.model)
    if key not in _known:
        if len(_known) >= MAX_KNOWN:
            _known.clear()
        _known[key] = _read(given, counter)
    return _known[key]


def _read(given: ObservedInput, counter: TokenCounter) -> HeadFacts:
    request = decode_head(given.form, given.head) if given.head else None
    encoder = f"{given.form.name}/{given.form.encoding_version}"
    if request is None:
        return HeadFacts(HeadHashes(static=_digest(given.head) if given.head else "", encoder=encoder))
    settings = {name: request.settings[name] for name in given.form.prefix_settings if name in request.settings}
    prompt = [*([request.system] if request.system is not None else []), *request.messages]
    tools = given.form.encode_tools(request.tools)
    return HeadFacts(
        HeadHashes(
            static=_hash_prompt(prompt) if prompt else "",
            tools=hash_tools(request.tools) if tools else "",
            settings=_digest(encode_canonical(settings)) if settings else "",
            encoder=encoder,
        ),
        sum([counter.count_system(message.text) for message in prompt]),
        counter.count_tools(tools) + counter.count_settings(request.settings),
        tuple([get_tool_name(tool) for tool in request.tools]),
    )


def _hash_prompt(prompt: Sequence[Message]) -> str:
    """Return the hash of a system prompt. One text has the hash that the compiler gives to the same system prompt.

    Attribution lines of clients do not count.
    """
    counted = [(message.role, [each for each in message.parts if not is_attribution(each)]) for message in prompt]
    parts = [part for _, parts in counted for part in parts]
    if len(parts) == 1 and isinstance(parts[0], Text) and prompt[0].role == "system":
        rendered = PromptBuilder([PromptFragment("system_prompt", parts[0].text)]).render()
        return rendered.static_hash if rendered.static else ""
    return _digest(encode_canonical(counted))


def is_attribution(part: AnyPart) -> bool:
    return isinstance(part, Text) and part.text.startswith(attributions())


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()
