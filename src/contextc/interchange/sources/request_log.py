"""Logs of provider requests: one JSON value per line, or a JSON list.

An entry has a request and mostly its reply, in any envelope. Batches of OpenAI and Anthropic have both in two files,
which are imported together.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from contextc.interchange.input_files import FileSample, ImportInput
from contextc.interchange.log_import import LoggedExchange, parse_exchange

ABOUT = "request logs and batches of OpenAI, Anthropic, Gemini and others, as JSON Lines or a JSON list"


def matches(sample: FileSample) -> bool:
    return any(parse_exchange(value) is not None for value in sample.objects)


def read_log(given: ImportInput) -> Iterator[tuple[str, LoggedExchange | None]]:
    is_batch = any("custom_id" in value for file in given.files for value in file.sample().objects)
    for file in given.files:
        for placed in file.values():
            found = parse_exchange(placed.value)
            if is_batch and found is not None and not found.conversation:
                found = replace(found, conversation=found.id)  # each of a batch is a conversation
            yield f"{file.name}, {placed.position}", found
