"""Facts of recorded conversations that left the window: does one search find them by the words around them?

    python benchmarks/search.py FILE.jsonl [--window 32]

A line of the file is a conversation: its `messages` in OpenAI's chat format. All of them are stored as one long
conversation, which is compiled for a small window. The facts are the identifiers and figures of messages that are not
in the request, if only one message has them. A query has the words before and after a fact, and not the fact itself.
"""

import argparse
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import contextc as cc
from contextc.compiler.facts import find_facts, list_texts
from contextc.compiler.search_history import render_passages

NAME = "recorded"
WORD = re.compile(r"[\w@.:/-]+")
WORDS = 6
"""Words of a query on each side of the fact."""
MOST = 400
"""Facts that are searched for: at even distances, if there are more."""


class Missing(NamedTuple):
    """A fact that the request does not contain, and the words around it."""

    value: str
    query: str
    role: str


def load(file: Path) -> Iterator[cc.Message]:
    """Yield the messages of all conversations. Calls get ids of their own."""
    formatter = cc.provider("openai-chat:gpt-4o").formatter
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines()):
        messages: list[Any] = [each for each in json.loads(line)["messages"] if each["role"] != "system"]
        for each in messages:
            for call in each.get("tool_calls") or ():
                call["id"] = f"{number}-{call['id']}"
            if "tool_call_id" in each:
                each["tool_call_id"] = f"{number}-{each['tool_call_id']}"
        yield from formatter.decode_request({"messages": messages}).messages


def find_missing(messages: list[cc.Message], request: str) -> Iterator[Missing]:
    """Yield the facts that only one message has, and that the request does not have."""
    texts = [list_texts(message) for message in messages]
    count = Counter([fact for each in texts for fact in {fact for text in each for fact in find_facts(text)}])
    for message, own in zip(messages, texts, strict=True):
        for text in own:
            for fact in find_facts(text):
                if count[fact] > 1 or fact in request or (at := text.find(fact)) < 0:
                    continue
                before, after = WORD.findall(text[:at])[-WORDS:], WORD.findall(text[at + len(fact) :])[:WORDS]
                if len(before) + len(after) >= WORDS:
                    yield Missing(fact, " ".join([*before, *after]), message.role)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--window", type=int, default=32, help="in thousands of tokens")
    given = parser.parse_args()
    folder = TemporaryDirectory()
    store = cc.open_store(Path(folder.name) / "recorded.db")
    store.extend(NAME, [*load(given.file), cc.user("Thank you.")])
    model = cc.provider("openai-chat:gpt-4o", window=given.window * 1_000, output=2_000)
    compiler = cc.MessageCompiler(store, model, fetch="always")
    messages, compiled = store.load(NAME), compiler.compile(NAME)
    missing = [*find_missing(messages, compiled.body.decode())]
    chosen = missing[:: max(1, len(missing) // MOST)]
    if not chosen:
        parser.exit(1, f"{given.file}: all facts are in the request. Use more conversations, or a smaller window.\n")
    compiler.search_history(NAME, "the first search builds the index")
    found, sizes, seconds = Counter[str](), list[int](), list[float]()
    for fact in chosen:
        began = time.process_time()
        passages = compiler.search_history(NAME, fact.query)
        seconds.append(time.process_time() - began)
        sizes.append(len(render_passages(passages)))
        found[fact.role] += any(fact.value in passage.text for passage in passages)
    asked = Counter([fact.role for fact in chosen])
    total = sum([compiler.counter.count_message(message) for message in messages])
    print(f"{len(messages):,} messages, {total:,} tokens; the request has {compiled.budget.used:,} tokens")
    print(f"{len(missing):,} facts left the window, {len(chosen)} were searched for")
    for role, number in sorted(asked.items()):
        print(f"{role:10} {found[role]:4} of {number:4} found ({found[role] / number:.1%})")
    print(f"answers: {mean(sizes):,.0f} characters on average, at most {max(sizes):,}")
    print(f"CPU of a search: {1_000 * median(seconds):.1f} ms (median), {1_000 * max(seconds):.1f} ms at most")


if __name__ == "__main__":
    main()
