"""What ten compactions in a row leave of constraints, overrides, entities and open tasks.

Usage: python benchmarks/compaction_cases.py [--cycles 10] [--seeds 5] [--window 32000]

The types of cases and the weights are those of CompactBench 0.1.0 (Apache-2.0), whose package has an engine but no
cases: a *buried constraint* among small talk, an *override* of an earlier decision, *entity confusion* between people
with similar roles, and an *open task*. Each cycle adds small talk and compacts. Then the next request is examined, as
CompactBench examines an answer: an item scores if the request contains it. A decision that was overridden scores if the
new one is there and the old one does not come after it. A person scores if the request has the name and the role in one
sentence. *Summary alone* is the same with nothing but the summary, as in CompactBench's naive baseline.

Summaries are those of `remember_model.py`: without content, or extractive.
"""

import argparse
import random
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER), str(FOLDER / "frameworks")]

import contextc as cc  # noqa: E402
from contextc._json import decode  # noqa: E402
from frameworks.prefix_cache import texts_of  # noqa: E402
from planted_sessions import ANIMALS, ENGLISH, FIRST, SHADES  # noqa: E402
from remember_model import EMPTY, SENTENCE_ENDS, extract  # noqa: E402

SMALL_TALK = 24
"""Turns of small talk in a cycle."""
QUESTION, ANSWER = 1, 12
"""Sentences of a person's message and of the agent's answer."""
FORBIDDEN = (
    "use floats for money",
    "deploy on Fridays",
    "skip code review",
    "retry payments that failed",
    "store passwords in plaintext",
    "disable certificate checks",
)
ROLES = ("approves the budget", "owns the rollout", "reviews the contracts", "answers the auditors")
CONVERSATION = "case"


class Item(NamedTuple):
    weight: float
    holds: Callable[[str], bool]


class Case(NamedTuple):
    """The messages of people, each with the agent's answer, and what must be left of them."""

    said: tuple[tuple[str, str], ...]
    items: tuple[Item, ...]


def _contains(text: str) -> Callable[[str], bool]:
    return lambda request: text.lower() in request.lower()


def _overrides(new: str, old: str) -> Callable[[str], bool]:
    return lambda request: new in request and request.rfind(new) > request.rfind(old)


def _together(name: str, role: str) -> Callable[[str], bool]:
    return lambda request: any(name in each and role in each for each in SENTENCE_ENDS.split(request))


def buried_constraint(chance: random.Random) -> Case:
    rule, code = chance.choice(FORBIDDEN), f"{chance.choice(SHADES)} {chance.choice(ANIMALS)}"
    said = f"Fine so far. One thing before I forget it: never {rule} in the {code} project. Where were we?"
    return Case(
        ((said, "Understood. We were at the second point."),), (Item(3, _contains(rule)), Item(2, _contains(code)))
    )


def override(chance: random.Random) -> Case:
    old, new = chance.sample(ANIMALS, 2)
    port = chance.randint(10_000, 60_000)
    first = f"We go with the {old} library, and the service listens on port {port}."
    second = f"I changed my mind: we go with the {new} library instead. The port stays."
    items = (Item(3, _overrides(f"the {new} library", f"the {old} library")), Item(2, _contains(str(port))))
    return Case(((first, "Noted."), (second, "Noted, I will change it.")), items)


def entity_confusion(chance: random.Random) -> Case:
    people = chance.sample(FIRST, len(ROLES))
    said = tuple((f"{name} {role}.", "Good to know.") for name, role in zip(people, ROLES, strict=True))
    return Case(said, tuple(Item(1, _together(name, role)) for name, role in zip(people, ROLES, strict=True)))


def open_task(chance: random.Random) -> Case:
    number = chance.randint(100, 999)
    first = f"Before we release, ticket OPS-{number} must be closed. It is still open."
    second = "What do you think about the name of the release?"
    answer = f"I decided to call it {chance.choice(SHADES)} {chance.choice(ANIMALS)} {number + 1}."
    items = (Item(2, _contains(f"OPS-{number}")), Item(3, _contains(answer.removeprefix("I decided to call it ")[:-1])))
    return Case(((first, "I keep it in mind."), (second, answer)), items)


CASES: dict[str, Callable[[random.Random], Case]] = {
    "buried constraint": buried_constraint,
    "override": override,
    "entity confusion": entity_confusion,
    "open task": open_task,
}


# ── running ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Scores(NamedTuple):
    shown: list[float]
    alone: list[float]


Summarize = Callable[[Sequence[cc.Message], str | None], str]


def scores(case: Case, summarize: Summarize, cycles: int, seed: str, window: int = 32_000) -> Scores:
    """Return the share of the weights that hold after each cycle: of the next request, and of the summary alone."""
    chance = random.Random(seed)
    shown: list[float] = []
    alone: list[float] = []
    with cc.open_store("memory:") as store:
        compiler = cc.MessageCompiler(store, cc.provider("openai:gpt-5.5", window=window))
        planted = iter(case.said)
        for _ in range(cycles):
            for number in range(SMALL_TALK):
                said = next(planted, None) if number % 3 == 1 else None
                question, answer = said or (_small_talk(chance, QUESTION), _small_talk(chance, ANSWER))
                store.extend(CONVERSATION, [cc.user(question), cc.assistant(answer)])
            store.append(CONVERSATION, cc.user("What should we do next?"))
            done = compiler.compact(CONVERSATION, summarize)
            compiled = compiler.compile(CONVERSATION)
            compiler.begin(compiled)
            compiler.commit(compiled, cc.assistant("We go on as planned."))
            shown.append(_score(case, "\n".join(texts_of(decode(compiled.body)))))
            alone.append(_score(case, done.text if done else ""))
    return Scores(shown, alone)


def _small_talk(chance: random.Random, sentences: int) -> str:
    words = re.split(r"\s+", ENGLISH.words)
    return " ".join([" ".join(chance.choices(words, k=12)) + "." for _ in range(sentences)])


def _score(case: Case, text: str) -> float:
    held = sum([item.weight for item in case.items if item.holds(text)])
    return held / sum([item.weight for item in case.items])


def no_content(messages: Sequence[cc.Message], previous: str | None) -> str:
    return EMPTY


def extractive(messages: Sequence[cc.Message], previous: str | None) -> str:
    return extract([previous or "", *(message.text for message in messages)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--window", type=int, default=32_000)
    options = parser.parse_args()
    table = Table(title=f"Scores after compactions in a row, window {options.window:,}", title_justify="left")
    table.add_column("case", no_wrap=True)
    table.add_column("summary", no_wrap=True)
    for column in ("after 1", f"after {options.cycles}", "mean", "summary alone, mean"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, build in CASES.items():
        for summary, summarize in (("empty", no_content), ("extractive", extractive)):
            runs = [
                scores(
                    build(random.Random(f"{name} {seed}")), summarize, options.cycles, f"{name} {seed}", options.window
                )
                for seed in range(options.seeds)
            ]
            figures = (
                mean([run.shown[0] for run in runs]),
                mean([run.shown[-1] for run in runs]),
                mean([mean(run.shown) for run in runs]),
                mean([mean(run.alone) for run in runs]),
            )
            table.add_row(name, summary, *(f"{figure:.0%}" for figure in figures))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
