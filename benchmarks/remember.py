"""What a model still has of a long session: planted facts that requests contain, or that one search finds.

Usage: python benchmarks/remember.py [SUBJECT …] [--quick] [--install] [--kinds coding,chat] [--steps 100,400]
                                     [--windows 32,200] [--jobs 2] [--json FILE]

A scripted model takes the steps of a session (`planted_sessions.py`) in contextc and in other frameworks. Each runs in
an environment of its own, as in `frameworks/scenario.py`, against a stand-in of OpenAI on loopback that refuses every
input above the window. Each stays within the window by its own means, at 80 % of it where a threshold has to be given.
Facts are rules of people, findings of the agent, and values in results; three shares are those of the three kinds.

*Last* is the share of all facts that the last request contains, *second half* the mean over the requests of the second
half, for the facts until then. *Reachable* adds the facts that one call of the offered search returns, asked with the
words around them. *Kept* is what stands in place of messages: summaries, placeholders, an index, repeated words. The
cache is that of `frameworks/prefix_cache.py`: *summaries cached* is the share of the input of requests for summaries
that it serves. The bill is for input and output of all requests but the searches. Summaries are the same function for
everybody: without content, or extractive (`remember_model.py`).

`--install` makes the environments. A subject that cannot run keeps its row, with the reason.
"""

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple, cast

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
sys.path[:0] = [str(ROOT), str(FOLDER), str(FOLDER / "frameworks")]

from tests.fake_vendors import KEY, FakeVendors  # noqa: E402
from tests.fake_vendors.request_handler import RequestHandler  # noqa: E402
from tests.frameworks import ENVIRONMENTS, FRAMEWORKS  # noqa: E402
from tests.frameworks.__main__ import find_python  # noqa: E402
from tests.package_environments import (  # noqa: E402
    Unavailable,
    make_environment,
    project_requirements,
    resolve,
)

import contextc as cc  # noqa: E402
from contextc.models import cost  # noqa: E402
from frameworks.scenario_steps import Assignment  # noqa: E402
from peers import version  # noqa: E402
from planted_sessions import FACT_KINDS, KINDS, Session, build_session  # noqa: E402
from remember_model import CompactingHandler, Observed, ScriptedModel, Summaries  # noqa: E402
from tables import recall_table  # noqa: E402

TIMEOUT = 3_600
WIDTH = 190
HARNESS = "pydantic_ai_harness"


class Subject(NamedTuple):
    """A way to stay within the window: the environment, the file of a framework, and its variant there."""

    name: str
    environment: str
    framework: str
    variant: str
    package: str
    summarizes: bool = True


SUBJECTS = (
    Subject("contextc", "contextc", "contextc", "openai", "contextc"),
    Subject("contextc, no summaries", "contextc", "contextc", "openai: no summaries", "contextc", False),
    Subject("contextc, no words of people", "contextc", "contextc", "openai: no words of people", "contextc"),
    Subject("contextc, no index", "contextc", "contextc", "openai: no index", "contextc"),
    Subject(
        "contextc, nothing beside summaries", "contextc", "contextc", "openai: nothing beside summaries", "contextc"
    ),
    Subject("contextc, oldest", "contextc", "contextc", "openai: oldest", "contextc", False),
    Subject("LangChain, summarization", "langchain", "langchain", "openai: summarization", "langchain"),
    Subject("LangChain, summarization of all", "langchain", "langchain", "openai: summarization of all", "langchain"),
    Subject("LangChain, context editing", "langchain", "langchain", "openai: context editing", "langchain", False),
    Subject("LangChain, trim_messages", "langchain", "langchain", "openai: trim_messages", "langchain", False),
    Subject("harness, summarizing", HARNESS, "pydantic_ai", "openai: harness summarizing", "pydantic-ai-harness"),
    Subject(
        "harness, summarizing, user messages",
        HARNESS,
        "pydantic_ai",
        "openai: harness summarizing, user messages",
        "pydantic-ai-harness",
    ),
    Subject("harness, tiered", HARNESS, "pydantic_ai", "openai: harness", "pydantic-ai-harness"),
    Subject("harness, tiered, search", HARNESS, "pydantic_ai", "openai: harness, search", "pydantic-ai-harness"),
    Subject("harness, clearing", HARNESS, "pydantic_ai", "openai: harness clearing", "pydantic-ai-harness", False),
    Subject("Strands, summarizing", "strands", "strands", "openai: summarizing, proactive", "strands-agents"),
    Subject("Strands, sliding", "strands", "strands", "openai: sliding window, per_turn", "strands-agents", False),
    Subject("ADK, by tokens", "google_adk", "google_adk", "openai: compaction", "google-adk"),
    Subject("ADK, by interval", "google_adk", "google_adk", "openai: compaction by interval", "google-adk"),
    Subject("ADK, by tokens, memory", "google_adk", "google_adk", "openai: compaction, memory", "google-adk"),
    Subject("OpenAI Agents, compaction", "openai_agents", "openai_agents", "compaction session", "openai-agents"),
    Subject("OpenAI Agents, limit", "openai_agents", "openai_agents", "session limit", "openai-agents", False),
)


class Case(NamedTuple):
    kind: str
    steps: int
    window: int


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One run. Shares are of rules, findings and results."""

    subject: str
    case: Case
    summaries: Summaries | None
    reason: str = ""
    """Why there are no figures."""
    steps: int = 0
    requests: int = 0
    refused: int = 0
    last: tuple[float, ...] = ()
    second_half: tuple[float, ...] = ()
    reachable: tuple[float, ...] = ()
    answer: int = 0
    """Characters of the largest answer of a search."""
    input: int = 0
    """Mean tokens of a request in the second half."""
    kept: float = 0.0
    kept_most: float = 0.0
    """Mean and largest share of the window, in the second half."""
    cached: float = 0.0
    compactions: int = 0
    compactions_cached: float = 0.0
    dollars: float = 0.0
    failures: tuple[str, ...] = ()
    seconds: float = 0.0
    """Of the whole run; not a figure of the subject, because the stand-in is in it."""


# ── one run ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def run(subject: Subject, case: Case, summaries: Summaries | None, python: str) -> Figures:
    """Run a subject in its own process, against a stand-in of its own."""
    began = perf_counter()
    with planted_run(case, summaries, subject.variant) as (model, desk, assignment):
        failures = play(subject.framework, python, assignment)
    row = figures(subject.name, case, summaries, model, desk, failures)
    return msgspec.structs.replace(row, seconds=perf_counter() - began)


@contextmanager
def planted_run(
    case: Case, summaries: Summaries | None, variant: str
) -> Generator[tuple[ScriptedModel, RequestHandler, Assignment]]:
    """Serve a session: the model, the stand-in, and the assignment of a framework's process."""
    session = build_session(case.kind, case.steps)
    model = ScriptedModel(session, summaries or "empty")
    fakes = FakeVendors(model)
    desk = CompactingHandler(model, faults=None, window=case.window, strict=False, keep=False)
    desk.tally, fakes.desk, fakes.server.desk = model, desk, desk
    with TemporaryDirectory() as folder, fakes:
        file = Path(folder) / "session.json"
        file.write_text(json.dumps(session_input(session, model.prompts)))
        yield model, desk, Assignment(variant, fakes.url(), KEY, 0, case.window, folder, str(file))


def session_input(session: Session, prompts: Sequence[str]) -> dict[str, object]:
    """Return what a framework's process needs of a session."""
    return {
        "instructions": session.instructions,
        "tools": session.tools,
        "results": session.results,
        "prompts": prompts,
    }


def play(framework: str, python: str, assignment: Assignment) -> list[str]:
    """Return the failures of turns, or of the process."""
    command = [python, str(FOLDER / "frameworks" / f"{framework}_agent.py"), json.dumps(assignment._asdict())]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return [f"not finished after {TIMEOUT} s"]
    if done.returncode:
        return [done.stderr.strip()[-500:]]
    return cast(list[str], json.loads(done.stdout.strip().splitlines()[-1])["failures"])


def figures(
    subject: str,
    case: Case,
    summaries: Summaries | None,
    model: ScriptedModel,
    desk: RequestHandler,
    failures: Sequence[str] = (),
) -> Figures:
    steps = [each for each in model.requests if each.kind == "step"]
    if not steps:
        return Figures(subject=subject, case=case, summaries=summaries, reason=(*failures, "no request")[0][-200:])
    half = [each for each in steps if each.position >= case.steps // 2] or steps[-1:]
    billed = [each for each in model.requests if each.kind != "question"]
    compactions = [each for each in billed if each.kind == "summary"]
    last, mean_shares, reachable = model.shares([model.last]), model.shares(half), model.reachable()
    return Figures(
        subject=subject,
        case=case,
        summaries=summaries,
        steps=len(model.steps),
        requests=len(billed),
        refused=sum(bool(record.refused) for record in desk.records),
        last=tuple(last.get(kind, 0.0) for kind in FACT_KINDS),
        second_half=tuple(mean_shares.get(kind, 0.0) for kind in FACT_KINDS),
        reachable=tuple(reachable.get(kind, 0.0) for kind in FACT_KINDS),
        answer=max([each.characters for each in model.found], default=0),
        input=round(mean([each.tokens.input for each in half])),
        kept=mean([each.substitutes for each in half]) / case.window,
        kept_most=max([each.substitutes for each in half]) / case.window,
        cached=_cached(billed),
        compactions=len(compactions),
        compactions_cached=_cached(compactions),
        dollars=sum([_dollars(each) for each in billed]),
        failures=tuple(dict.fromkeys(failures)),
    )


def _cached(requests: Sequence[Observed]) -> float:
    whole = sum([each.tokens.input for each in requests])
    return sum([each.tokens.read for each in requests]) / whole if whole else 0.0


def _dollars(request: Observed) -> float:
    used = request.tokens
    usage = cc.Usage(input=used.input, output=used.output, cache_read=used.read, cache_write=used.written)
    return cost(cc.models.model(MODEL), usage) or 0.0


MODEL = "gpt-5.5"


# ── all runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def pythons(names: Sequence[str], *, install: bool) -> dict[str, str | None]:
    """Return the Python of each environment; None if there is none."""
    return {name: _python(name, install=install) for name in dict.fromkeys(names)}


def _python(name: str, *, install: bool) -> str | None:
    if name == "contextc":
        return sys.executable
    made = ENVIRONMENTS / name / "bin" / "python"
    if install:
        try:
            return find_python(name) if name in FRAMEWORKS else _harness_python()
        except Unavailable as reason:
            print(f"{name}: {reason}", file=sys.stderr)
            return None
    return str(made) if made.exists() else None


def _harness_python() -> str:
    packages = ["pydantic-ai-harness", "pydantic-ai-slim[openai,anthropic]"]
    return make_environment(ENVIRONMENTS / HARNESS, resolve([*packages, *project_requirements("tokens", "prices")]))


def planned(
    subjects: Sequence[Subject], cases: Sequence[Case], summaries: Sequence[Summaries]
) -> Iterator[tuple[Subject, Case, Summaries | None]]:
    for case in cases:
        for subject in subjects:
            for each in summaries if subject.summarizes else (None,):
                yield subject, case, each


def run_all(
    subjects: Sequence[Subject],
    cases: Sequence[Case],
    summaries: Sequence[Summaries],
    found: dict[str, str | None],
    console: Console,
    jobs: int = 1,
    file: Path | None = None,
) -> list[Figures]:
    """Run everything that the file does not have yet, and append each row to it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    plan = [*planned(subjects, cases, summaries)]
    order = {each: at for at, each in enumerate(plan)}
    names = {(subject.name, case, each): at for (subject, case, each), at in order.items()}
    saved = (
        [msgspec.json.decode(line, type=Figures) for line in file.read_text().splitlines()]
        if file and file.exists()
        else []
    )
    done = {names[key]: row for row in saved if (key := (row.subject, row.case, row.summaries)) in names}
    with Progress(*columns, console=console, transient=True) as progress, ThreadPoolExecutor(jobs) as pool:
        task = progress.add_task("runs", total=len(plan), completed=len(done))
        futures: dict[Future[Figures], int] = {}
        for subject, case, each in plan:
            at, python = order[subject, case, each], found[subject.environment]
            if at in done:
                continue
            if python is None:
                reason = "not installed; run with --install"
                done[at] = Figures(subject=subject.name, case=case, summaries=each, reason=reason)
                progress.advance(task)
                continue
            futures[pool.submit(run, subject, case, each, python)] = at
        for future in as_completed(futures):
            done[futures[future]] = row = future.result()
            if file:
                with file.open("a") as lines:
                    lines.write(msgspec.json.encode(row).decode() + "\n")
            progress.update(task, advance=1, description=f"{row.subject}, {row.case.kind}, {row.case.steps} steps")
    return [done[at] for at in sorted(done)]


def averaged(rows: Sequence[Figures]) -> list[Figures]:
    """Return one row for each subject and summary: the means over the kinds of sessions."""
    grouped: dict[tuple[str, str | None, int, int], list[Figures]] = {}
    for row in rows:
        grouped.setdefault((row.subject, row.summaries, row.case.steps, row.case.window), []).append(row)
    return [_average(group) for group in grouped.values()]


def _average(rows: Sequence[Figures]) -> Figures:
    first = rows[0]
    ran = [row for row in rows if not row.reason]
    if len(rows) == 1 or not ran:
        return first

    def shares(name: str) -> tuple[float, ...]:
        return tuple(mean(column) for column in zip(*(getattr(row, name) for row in ran), strict=True))

    return Figures(
        subject=first.subject,
        case=first.case._replace(kind="all kinds"),
        summaries=first.summaries,
        steps=round(mean([row.steps for row in ran])),
        requests=round(mean([row.requests for row in ran])),
        refused=sum([row.refused for row in ran]),
        last=shares("last"),
        second_half=shares("second_half"),
        reachable=shares("reachable"),
        answer=max([row.answer for row in ran]),
        input=round(mean([row.input for row in ran])),
        kept=mean([row.kept for row in ran]),
        kept_most=max([row.kept_most for row in ran]),
        cached=mean([row.cached for row in ran]),
        compactions=round(mean([row.compactions for row in ran])),
        compactions_cached=mean([row.compactions_cached for row in ran]),
        dollars=sum([row.dollars for row in ran]),
        failures=tuple(dict.fromkeys(failure for row in ran for failure in row.failures)),
    )


def chosen(given: Sequence[str]) -> list[Subject]:
    """Return the subjects with these names, or whose names begin with them, in the order of the arguments."""
    if not given:
        return [*SUBJECTS]
    names = {each.name: each for each in SUBJECTS}
    found = [names.get(text, [each for each in SUBJECTS if each.name.startswith(text)]) for text in given]
    return [*dict.fromkeys(each for one in found for each in ([one] if isinstance(one, Subject) else one))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subjects", nargs="*", help="their names, or beginnings of them; all by default")
    parser.add_argument("--quick", action="store_true", help="contextc only, one kind, 100 steps, a window of 32k")
    parser.add_argument("--install", action="store_true", help="make the environments of the frameworks")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--steps", default="100,400,1000")
    parser.add_argument("--windows", default="32,200", help="in thousands of tokens")
    parser.add_argument("--summaries", default="empty,extractive")
    parser.add_argument("--each", action="store_true", help="a table for each kind too")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="append a line for each run; runs in it are not repeated"
    )
    options = parser.parse_args()
    console = Console(width=WIDTH)
    if options.quick:
        options.kinds, options.steps, options.windows = "coding", "100", "32"
        options.subjects = options.subjects or ["contextc"]
        options.jobs = max(2, options.jobs)
    subjects = chosen(options.subjects)
    found = pythons([each.environment for each in subjects], install=options.install)
    packages = {each.package: found[each.environment] for each in subjects}
    versions = [
        f"{package} {(python and version(package, python)) or 'not installed'}" for package, python in packages.items()
    ]
    console.print(f"Python {platform.python_version()}, {', '.join(versions)}", highlight=False, soft_wrap=True)
    cases = [
        Case(kind, int(steps), int(window) * 1_000)
        for steps in options.steps.split(",")
        for window in options.windows.split(",")
        for kind in options.kinds.split(",")
    ]
    summaries = cast(list[Summaries], options.summaries.split(","))
    rows = run_all(subjects, cases, summaries, found, console, options.jobs, options.json)
    for steps, window in dict.fromkeys((case.steps, case.window) for case in cases):
        these = [row for row in rows if row.case[1:] == (steps, window)]
        title = f"{steps:,} steps, window {window:,}"
        kinds = dict.fromkeys(row.case.kind for row in these)
        console.print(recall_table(f"{', '.join(kinds)}: {title}", averaged(these)))
        for kind in kinds if options.each and len(kinds) > 1 else ():
            console.print(recall_table(f"{kind}: {title}", [row for row in these if row.case.kind == kind]))
    for row in rows:
        for failure in row.failures[:3]:
            console.print(f"  {row.subject}, {row.case.kind}: {failure[:300]}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
