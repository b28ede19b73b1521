"""Random conversations against simulated providers with memory: nothing is lost or duplicated.

A life is a list of steps, each a name and a number that all its choices follow from, so a life that fails is shortened
step by step and told again.
"""

import os
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import pytest

import contextc as cc
from contextc._json import decode, encode
from contextc.compiler import Compiled
from contextc.compiler.arguments import CompileArguments
from contextc.compiler.ledger import get_channel_cache
from contextc.messages import Message
from tests.compiler.consistency_oracle import ConsistencyOracle
from tests.compiler.random_simulation import TOOLS, mark_of
from tests.compiler.simulated_providers import Failure, ProviderDown, SessionGone, SessionProvider
from tests.conftest import often

RUNS = often(9, 300)
LENGTH = 60
PARTS = 6

Step: TypeAlias = tuple[str, int]


def sum_up(messages: Sequence[Message], before: str | None) -> str:
    return "It went on."


class Life(ConsistencyOracle):
    """A world in which requests are made, and all that may go wrong with them does."""

    def compile(self) -> Compiled | None:
        """A request, compiled warm, by all passes, and cold; None where there is no room for it."""
        compiler = self.compilers[self.provider]
        compiler.shortcuts = False
        try:
            whole = self._compile()
        except cc.errors.ContextOverflow:
            self.tell("no room")
            return None
        finally:
            compiler.shortcuts = True
        compiled = self._compile()
        assert (compiled.body, compiled.state) == (whole.body, whole.state), "a shortcut compiled something else"
        assert compiled.manifest.as_json() == whole.manifest.as_json()
        assert decode(compiled.body) == decode(encode(compiled.params))
        get_channel_cache(self.store).clear()
        cold = self._compile()
        assert cold.body == compiled.body, "a cold start compiled something else"
        assert (cold.mode, cold.session_id, cold.revert_to) == (compiled.mode, compiled.session_id, compiled.revert_to)
        return compiled

    def _compile(self) -> Compiled:
        return self.compilers[self.provider].compile(self.current, **self.asked())  # pyright: ignore[reportArgumentType]

    def asked(self) -> CompileArguments:
        static = self.statics[self.agent]
        return {
            "name": self.agent,
            "directory": self.directory,
            "run": self.runs[self.agent],
            "tools": TOOLS,
            "instructions": [
                cc.PromptFragment("identity", f"You are {self.agent}, version {static}." if static else ""),
                cc.PromptFragment("todos", self.dynamic, lifecycle="dynamic"),
            ],
        }

    def compact(self, chance: random.Random) -> None:
        """What is old is summed up."""
        with suppress(cc.errors.ContextOverflow):
            asked = self.asked()
            fragments = asked.pop("instructions")
            done = self.compilers[self.provider].compact(self.current, sum_up, system_prompt=fragments, **asked)  # pyright: ignore[reportArgumentType]
            self.tell("compacted", None if done is None else done.upto)

    def look(self, chance: random.Random) -> None:
        """Compile, and think better of it."""
        if (compiled := self.compile()) is not None:
            self.tell("compiled only", compiled.mode, compiled.manifest.why)

    def request(self, chance: random.Random) -> None:
        self.send(chance)

    def broken(self, chance: random.Random) -> None:
        """The call fails, and we know."""
        self.send(chance, failure=chance.choice(("before", "after")))

    def killed(self, chance: random.Random) -> None:
        """Our process dies on the way: before, during or after the call."""
        self.send(chance, failure=chance.choice(("before", "after", "")), killed=True)

    def lost(self, chance: random.Random) -> None:
        """The provider no longer has the session."""
        self.send(chance, failure="lost")

    def interrupted(self, chance: random.Random) -> None:
        """Something happens between compile and commit."""
        between = chance.choice((self.user, self.user, self.result, self.clear, self.rewind, self.edit, self.redact))
        self.send(chance, between=between)

    def raced(self, chance: random.Random) -> None:
        """Two compile the same, and one is first."""
        other = self.compile()
        if other is not None and other.is_new and self.send(chance):
            with pytest.raises(cc.errors.StaleCompile):
                self.compilers[self.provider].commit(other, cc.assistant("Too late."))

    def reply(self, chance: random.Random) -> list[Message]:
        kind = chance.choice(
            ("text", "text", "text", "calls", "calls", "calls", "both", "both", "own tools", "nothing")
        )
        calls = [
            cc.tool_call(f"call_{next(self.numbers)}", "look", {"at": self.mark("a")})
            for _ in range(chance.choice((1, 1, 2, 3)))
        ]
        if kind == "nothing":
            return []
        if kind == "text":
            return [cc.assistant(self.words(chance))]
        if kind == "own tools" and isinstance(self.ends[self.provider], SessionProvider):
            return [
                cc.assistant(tool_calls=calls),
                *(cc.tool_result(call.id, call.name, self.mark("r")) for call in calls),
                cc.assistant(self.words(chance)),
            ]
        return [cc.assistant(self.words(chance) if kind == "both" else None, tool_calls=calls)]

    def send(
        self,
        chance: random.Random,
        *,
        failure: Failure = "",
        killed: bool = False,
        between: Callable[[random.Random], None] | None = None,
    ) -> bool:
        """One request, with all that may go wrong; whether it was committed."""
        compiled = self.compile()
        if compiled is None:
            return False
        compiler, end = self.compilers[self.provider], self.ends[self.provider]
        if not compiled.is_new:
            with pytest.raises(cc.errors.NothingNew):
                compiler.begin(compiled)
            return False
        self.check_announced(compiled)
        compiler.begin(compiled)
        produced = self.reply(chance)
        self.tell(
            "request", self.provider, self.agent, self.directory, compiled.mode, compiled.manifest.why or "-",
            f"revert {compiled.revert_to}", failure, "killed" if killed else "", [mark_of(each) for each in produced],
        )  # fmt: skip
        try:
            answer = end.send(compiled, produced, failure)
        except (ProviderDown, SessionGone) as error:
            if isinstance(error, SessionGone):
                compiler.abort(compiled, error)
                cc.SessionManager(self.store).invalidate(compiled.channel, "the provider lost the session")
            elif not killed:
                compiler.abort(compiled, error)
            else:
                self.restart()
            return False
        if killed:
            self.restart()
            return False
        if between is not None:
            between(chance)
        try:
            compiler.commit(
                compiled,
                produced=answer.produced,
                session_id=answer.session_id,
                cursor=answer.cursor,
                usage=cc.Usage(input=compiled.budget.input, output=20) if chance.random() < 0.5 else None,
            )
        except cc.errors.StaleCompile:
            assert between is not None, "nothing had happened in between"
            compiler.abort(compiled, "stale")
            self.tell("stale")
            return False
        self.commits += 1
        if isinstance(end, SessionProvider):
            end.acknowledge(answer)
        else:
            end.acknowledge(compiled)
        self.check(compiled, answer, changed=between is not None)
        return True


WEIGHTS = {
    "user": 14, "request": 26, "results": 10, "result": 5, "both_results": 1, "doubled": 1, "other": 3, "system": 3,
    "edit": 2, "rewind": 2, "switch": 1, "fork": 2, "turn_to": 2, "clear": 1, "redact": 1, "pin": 1,
    "change_provider": 6, "change_agent": 2, "change_directory": 1, "change_dynamic": 3, "change_static": 2,
    "change_run": 3, "restarted": 2, "look": 2, "broken": 4, "killed": 4, "lost": 2, "interrupted": 3, "raced": 2,
    "compact": 2,
}  # fmt: skip


def life(seed: int) -> list[Step]:
    chance = random.Random(seed)
    names = chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=LENGTH)
    return [(name, chance.randrange(1 << 30)) for name in names]


def lived(seed: int, steps: Sequence[Step], address: str) -> Life:
    if not address.startswith("memory"):
        for ending in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(address.removeprefix("sqlite:///") + ending)
    world = Life(seed, address)
    try:
        for name, number in steps:
            getattr(world, name)(random.Random(number))
    except BaseException as error:
        error.add_note("\n".join(world.journal))
        raise
    finally:
        world.store.close()
    return world


def shortest(seed: int, steps: list[Step], kind: type[BaseException]) -> list[Step]:
    """The same life with every step left out that it fails without."""
    size = len(steps) // 2
    while size:
        start = 0
        while start < len(steps):
            fewer = steps[:start] + steps[start + size :]
            try:
                lived(seed, fewer, "memory:")
            except kind:
                steps = fewer
            except Exception:
                start += size
            else:
                start += size
        size //= 2
    return steps


def whole_life(seed: int, address: str) -> Life:
    """Run one random conversation; a failing one is minimized."""
    steps = life(seed)
    try:
        return lived(seed, steps, address)
    except Exception as error:
        least = shortest(seed, steps, type(error))
        try:
            lived(seed, least, "memory:")
        except Exception as smaller:
            smaller.add_note(f"seed {seed}, {len(least)} of {len(steps)} steps: {least}")
            raise
        raise


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_lost_and_nothing_is_doubled(part: int, tmp_path: Path) -> None:
    """Guarantees 9.10, 5.4, 3.2: each channel is sent everything that its agent sees, once, in pairs, and every
    fallback is a new session that is announced.
    """
    commits = 0
    for seed in range(part, RUNS, PARTS):
        address = f"sqlite:///{tmp_path}/{seed}.db" if seed % 5 == 0 else "memory:"
        commits += whole_life(seed, address).commits
    assert commits > 3 * RUNS // PARTS
