"""Facts that left the window: does one search find them by the words around them, and does a model answer with them?

    python benchmarks/search.py FILE.jsonl [--window 32]
    python benchmarks/search.py --local 6 [--window 2]

A line of the file is a conversation: its `messages` in OpenAI's chat format. All of them are stored as one long
conversation, which is compiled for a small window. The facts are the identifiers and figures of messages that are not
in the request, if only one message has them. A query has the words before and after a fact, and not the fact itself.

`--local` asks the local model for so many facts of the beginning of a scripted chat that exceeds its window. Every
question is asked in a fork of the chat, four times: in a shorter chat that fits, which shows what this model is able
to; with nothing kept of what left the window; with people's words and the index; and with nothing kept, but with the
answer of a search in front of the question.
"""

import argparse
import asyncio
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import contextc as cc
from contextc.compiler.draft import CompilerOptionArguments
from contextc.compiler.facts_in_texts import find_facts, list_texts
from contextc.compiler.history import render_passages
from planted_sessions import ANIMALS, ENGLISH, FIRST, LAST, SHADES

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


# ── recorded conversations ────────────────────────────────────────────────────────────────────────────────────────────


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


def search_recorded(file: Path, window: int) -> None:
    folder = TemporaryDirectory()
    store = cc.open_store(Path(folder.name) / "recorded.db")
    store.extend(NAME, [*load(file), cc.user("Thank you.")])
    model = cc.provider("openai-chat:gpt-4o", window=window, output=2_000)
    compiler = cc.MessageCompiler(store, model, fetch="always")
    messages, compiled = store.load(NAME), compiler.compile(NAME)
    missing = [*find_missing(messages, compiled.body.decode())]
    chosen = missing[:: max(1, len(missing) // MOST)]
    if not chosen:
        sys.exit(f"{file}: all facts are in the request. Use more conversations, or a smaller window.")
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


# ── the local model ───────────────────────────────────────────────────────────────────────────────────────────────────


SYSTEM_PROMPT = "You are a helpful assistant. Answer in one short sentence."
TYPES: tuple[tuple[str, str, Callable[[random.Random], str]], ...] = (
    (
        "The {t} listens on port {v}.",
        "Which port does the {t} listen on?",
        lambda chance: str(chance.randint(10_240, 65_000)),
    ),
    (
        "The owner of the {t} is {v}.",
        "Who is the owner of the {t}?",
        lambda chance: f"{chance.choice(FIRST)} {chance.choice(LAST)}",
    ),
    (
        "The ticket of the {t} is {v}.",
        "What is the ticket of the {t}?",
        lambda chance: f"OPS-{chance.randint(1_000, 9_999)}",
    ),
    (
        "The files of the {t} are in {v}.",
        "Where are the files of the {t}?",
        lambda chance: f"/srv/{chance.choice(ANIMALS)}/{chance.choice(SHADES)}",
    ),
    (
        "The limit of the {t} is {v}.",
        "What is the limit of the {t}?",
        lambda chance: f"{chance.randint(101, 989)} EUR",
    ),
)
THINGS = ("gateway", "queue", "router", "exporter", "cluster")
SMALL_TALK, LITTLE_TALK = 40, 10
"""Turns of the chat without a fact, after those with one, and in the chat that fits."""
KEPT: CompilerOptionArguments = {"fetch": False}
NOTHING: CompilerOptionArguments = {"fetch": False, "keep_words": 0, "keep_index": 0}


class Asked(NamedTuple):
    value: str
    message: str
    question: str


def plant(count: int, chance: random.Random) -> list[Asked]:
    """Return facts of people's messages."""
    things = [f"{one} {other}" for one in ENGLISH.qualifiers.split() for other in THINGS]
    facts: list[Asked] = []
    for number, thing in enumerate(chance.sample(things, count)):
        sentence, question, make = TYPES[number % len(TYPES)]
        value = make(chance)
        facts.append(Asked(value, sentence.format(t=thing, v=value), question.format(t=thing)))
    return facts


def chat(compiler: cc.MessageCompiler, facts: Sequence[Asked], talks: int) -> None:
    """Store a chat, with a request for every reply: what leaves the window leaves as in a real one."""
    chance = random.Random(2)

    def talk(words: int) -> str:
        return " ".join(chance.choices(ENGLISH.words.split(), k=words)).capitalize() + "."

    turns = [(fact.message, "Noted.") for fact in facts]
    for said, reply in [*turns, *[(talk(14), talk(30)) for _ in range(talks)]]:
        compiler.store.append(NAME, cc.user(said))
        compiled = compiler.compile(NAME, instructions=SYSTEM_PROMPT)
        compiler.begin(compiled)
        compiler.commit(compiled, produced=[cc.assistant(reply)])


def ask_local(count: int, window: int) -> None:
    model, facts = cc.provider("local", window=window, output=100), plant(count, random.Random(1))
    cases: dict[str, CompilerOptionArguments] = {
        "fits": KEPT, "nothing kept": NOTHING, "kept": KEPT, "searched": NOTHING,
    }  # fmt: skip
    print(f"{count} facts{'in the request':>26}{'in the answer':>16}")
    for case, options in cases.items():
        store = cc.open_store("memory:")
        compiler = cc.MessageCompiler(store, model, **options)
        chat(compiler, facts, LITTLE_TALK if case == "fits" else SMALL_TALK)
        agent = cc.AgentExecutor(
            store,
            model,
            instructions=SYSTEM_PROMPT,
            settings={"max_tokens": 40},
            summarize=None,
            **options,
        )
        found = answered = 0
        for number, fact in enumerate(facts):
            name, question = f"question {number}", fact.question
            store.fork(NAME, name)
            if case == "searched":
                question = f"{render_passages(compiler.search_history(NAME, question))}\n\n{question}"
            done = asyncio.run(_ask(agent, name, question))
            found += fact.value in agent.compiler.rebuild(name).decode()
            answered += fact.value in done
        print(f"{case:14}{found:>19}{answered:>16}", flush=True)


async def _ask(agent: cc.AgentExecutor, name: str, question: str) -> str:
    done = await agent.start(name, question).wait()
    return done.message.text if done.message else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--window", type=int, help="in thousands of tokens (default: 32; with --local 2)")
    parser.add_argument("--local", type=int, metavar="FACTS", help="ask the local model for so many facts")
    given = parser.parse_args()
    if given.local:
        ask_local(given.local, (given.window or 2) * 1_000)
    elif given.file:
        search_recorded(given.file, (given.window or 32) * 1_000)
    else:
        parser.error("name a file, or use --local")


if __name__ == "__main__":
    main()
