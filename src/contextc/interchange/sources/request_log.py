"""Logs of provider requests: one JSON value per line, or a JSON list.

An entry has a request and mostly its reply, in any envelope. Batches of OpenAI and Anthropic have both in two files,
which are imported together. Each request repeats the history before it, so the requests are merged.
"""

from collections.abc import Iterator

from contextc.interchange import log_import
from contextc.interchange.found_conversation import FoundConversation
from contextc.interchange.input_files import FileSample, ImportInput
from contextc.interchange.log_entries import Exchange, parse_exchange

ABOUT = "request logs and batches of OpenAI, Anthropic, Gemini and others, as JSON Lines or a JSON list"


def matches(sample: FileSample) -> bool:
    return any(parse_exchange(value) is not None for value in sample.objects)


def read_conversations(given: ImportInput) -> Iterator[FoundConversation]:
    is_batch = any("custom_id" in value for file in given.files for value in file.sample().objects)
    return log_import.read_conversations(_logged(given), format=given.format, is_batch=is_batch)


def _logged(given: ImportInput) -> Iterator[tuple[str, Exchange | None]]:
    for file in given.files:
        for placed in file.values():
            yield f"{file.name}, {placed.position}", parse_exchange(placed.value)
