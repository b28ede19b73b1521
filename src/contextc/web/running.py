"""The turns that run in this process: who runs them, how to stop them, what they wait for.

A turn runs by itself, whoever watches it. What a tool needs a person for waits here as a question, for as long as its
turn runs, and the first answer counts. Nothing of a turn is kept here once it is over: the store has it.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Generator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from contextc._json import JSONObject, canonical
from contextc.agents.deeds import described
from contextc.agents.whom import find
from contextc.compiler.compaction import Compaction
from contextc.errors import ContextcError
from contextc.executor import Turn
from contextc.executor.door import Given, as_message
from contextc.executor.threads import durable
from contextc.executor.tools import Answer, Questions
from contextc.executor.watching import hub
from contextc.messages import ToolCall
from contextc.store import Store
from contextc.store.places import head
from contextc.store.turns import Queued, QueueKind, last_steps
from contextc.web.lines import Lines, Make
from contextc.web.problems import Refused

log = logging.getLogger(__name__)
MOST = 1_000
"""Turns that may run at once."""
LAST_MODELS = 10_000
PATIENCE = 10.0
"""Seconds that turns get to come to their end when the server stops."""
GRACE = 5.0
"""Seconds that a turn which is attended runs on when nobody follows it any more."""
WORD = 3_600.0
"""Seconds that such a turn waits for the word of a person who has left."""
RECORDED = "replay"
NOTHING = "There is nothing to answer: nobody has said anything since the last answer, and nothing waits."
ENDING = "The server is ending."
STOPPED = "It was stopped before it had begun. Nothing of it was stored."
LATE, CHANGED = "UnknownApproval", "ApprovalChanged"
"""The kinds of refusal that an answer meets which comes too late, or which is about something else."""
NOT_PENDING = "No pending approval {!r}: already answered, or the turn has ended."
OTHERWISE = (
    "Approval {!r}: the hash does not match what would run now, got {!r}. Load the conversation again, and answer with "
    "the hash of what it shows."
)
ELSEWHERE = "Turn {turn} of conversation {name!r} runs in another process ({process}). Stop or answer it there."


class Approval(Struct, frozen=True, kw_only=True):
    """A call that waits for a person's word: what it would do, in words and line by line.

    `id` is this approval's own, and unguessable; `call` is the model's name of the call, which it may use again.
    `hash` is of the name, the arguments, `what` and `lines`: of exactly what is shown.
    """

    id: str
    call: str
    name: str
    arguments: JSONObject
    what: str
    lines: list[str]
    hash: str


class Question:
    """A call that somebody is asked about. `answer` is what they say."""

    def __init__(self, approval: str, call: ToolCall) -> None:
        self.approval, self.call = approval, call
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()


class Asker(Questions):
    """Asks about the calls of one conversation: questions are open until they are answered or their turn has ended."""

    def __init__(self, questions: dict[str, dict[str, Question]], conversation: str) -> None:
        self._questions, self._conversation = questions, conversation

    @contextmanager
    def asked(self, approval: str, call: ToolCall) -> Generator[Awaitable[Answer]]:
        question = Question(approval, call)
        self._questions.setdefault(self._conversation, {})[approval] = question
        try:
            yield question.answer
        finally:
            left = self._questions[self._conversation]
            del left[approval]
            if not left:
                del self._questions[self._conversation]


class Begun(Struct, frozen=True):
    """A turn that runs; its events come after number `after`. `attended` says that it ends if nobody follows it."""

    turn: Turn
    after: int
    attended: bool = False


class Asked:
    """A turn that was asked for, from then on until it has ended, and those that followed it. It can be stopped at any
    time, also while its line is being opened.
    """

    def __init__(self, conversation: str) -> None:
        self.conversation = conversation
        self.turn: Turn | None = None
        self.is_stopped = False

    @property
    def is_over(self) -> bool:
        return self.turn is not None and self.turn.done

    def stop(self) -> None:
        self.is_stopped = True
        if self.turn is not None:
            self.turn.cancel()


class Running:
    def __init__(self, store: Store, make: Make, *, agent: str, model: str | None, root: Path) -> None:
        self.store, self.agent, self.model, self.root = store, agent, model or "", root
        self.lines = Lines(make)
        self._turns: dict[str, Begun] = {}
        self._followers: dict[str, int] = {}
        self._questions: dict[str, dict[str, Question]] = {}
        self._asked: dict[asyncio.Task[None], Asked] = {}
        self._models: OrderedDict[str, str] = OrderedDict()
        self._closing = False

    # ── turns ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def turns(self) -> list[str]:
        """The conversations in which a turn runs here."""
        return list(self._turns)

    def turn(self, conversation: str) -> Begun | None:
        """The turn that runs here, if one does."""
        begun = self._turns.get(conversation)
        return begun if begun is not None and not begun.turn.done else None

    async def start(
        self,
        conversation: str,
        given: Given = None,
        *,
        model: str | None = None,
        resume: bool = False,
        attended: bool = False,
    ) -> Begun:
        """Begin a turn, and return when it has begun. What keeps it from beginning is raised."""
        if self._closing or len(self._asked) >= MOST:
            raise Refused(503, ENDING if self._closing else "The server is at work on too much.", "Overloaded")
        begun: asyncio.Future[Begun] = asyncio.get_running_loop().create_future()
        asked = Asked(conversation)
        task = asyncio.get_running_loop().create_task(
            self._run(asked, given, model, resume, attended, begun), name=f"the turn of {conversation}"
        )
        self._asked[task] = asked
        task.add_done_callback(self._asked.pop)
        return await asyncio.shield(begun)

    async def _run(
        self,
        asked: Asked,
        given: Given,
        model: str | None,
        resume: bool,
        attended: bool,
        begun: "asyncio.Future[Begun]",
    ) -> None:
        """One turn, and those that follow it, from beginning to end."""
        conversation = asked.conversation
        try:
            spec = await self._spec(conversation, model)
            async with self.lines.use(spec) as shared:
                self._refuse_if_stopped(asked)
                executor = shared.asking(Asker(self._questions, conversation))
                turn = executor.resume(conversation) if resume else executor.start(conversation, given)
                asked.turn = turn
                first = await turn.begun()
                if not first:
                    self._refuse_if_stopped(asked)
                    raise Refused(409, NOTHING, "NothingNew")
                self._turns[conversation] = found = Begun(turn, first - 1, attended)
                self.remember(conversation, spec)
                _answer(begun, found)
                await turn.wait()
        except (Exception, asyncio.CancelledError) as error:
            if begun.done():
                raise
            begun.set_exception(error if isinstance(error, Exception) else Refused(503, ENDING, "Overloaded"))
            begun.exception()  # who asked may have left
        finally:
            if (found := self._turns.get(conversation)) is not None and found.turn is asked.turn:
                del self._turns[conversation]

    def _refuse_if_stopped(self, asked: Asked) -> None:
        if asked.is_stopped:
            status, why, kind = (503, ENDING, "Overloaded") if self._closing else (409, STOPPED, "Cancelled")
            raise Refused(status, why, kind)

    async def check(self, conversation: str, model: str | None) -> None:
        """Raise what would keep a turn from beginning because of whom it asks."""
        async with self.lines.use(await self._spec(conversation, model)):
            pass

    def cancel(self, conversation: str) -> bool:
        """Stop what runs here, or is about to; False where nothing does. What was said so far stays."""
        found = [asked for asked in self._asked.values() if asked.conversation == conversation and not asked.is_over]
        for asked in found:
            asked.stop()
        return bool(found)

    async def displace(self, conversation: str) -> None:
        """Stop a turn that a page began, because it, or another one, begins the next; come back when it has ended."""
        begun = self.turn(conversation)
        if begun is not None and begun.attended:
            begun.turn.cancel()
            await begun.turn.wait()

    @contextmanager
    def following(self, begun: Begun) -> Generator[None]:
        """Somebody follows a turn. One that is attended is stopped when all have left it, and nobody comes back.

        So a page that is closed, or whose reader says stop, ends what it began; one that is loaded again goes on.
        """
        conversation = begun.turn.conversation
        self._followers[conversation] = self._followers.get(conversation, 0) + 1
        try:
            yield
        finally:
            self._followers[conversation] -= 1
            if not self._followers[conversation]:
                del self._followers[conversation]
            if begun.attended and not begun.turn.done:
                asyncio.get_running_loop().call_later(GRACE, self._look_after, begun, WORD)

    def _look_after(self, begun: Begun, patience: float) -> None:
        """Stop a turn that nobody follows. One that has asked for a person's word waits for it, if not for ever."""
        conversation = begun.turn.conversation
        if conversation in self._followers or begun.turn.done:
            return
        if conversation in self._questions and patience:
            asyncio.get_running_loop().call_later(patience, self._look_after, begun, 0.0)
        else:
            begun.turn.cancel()

    async def queue(self, conversation: str, text: str, kind: QueueKind) -> Queued:
        """Have input wait, to steer the turn that runs or to follow it. Raises `UnknownConversation`."""
        message = as_message(text, self.agent)

        def work() -> Queued:
            self.store.conversation(conversation)
            return self.store.enqueue(conversation, message, kind=kind, agent=self.agent)

        queued = await durable(work)
        hub(self.store).look(conversation)
        return queued

    async def compact(self, conversation: str, model: str | None = None) -> Compaction | None:
        """Have what is old summed up now; None where there is nothing to sum up. Raises `UnknownConversation`."""
        await durable(self.store.conversation, conversation)
        async with self.lines.use(await self._spec(conversation, model)) as executor:
            return await executor.compact(conversation)

    # ── what they wait for ────────────────────────────────────────────────────────────────────────────────────────────

    def approvals(self, conversation: str) -> list[Approval]:
        """What waits for a person's word. It reads files: not for the event loop."""
        questions = list(self._questions.get(conversation, {}).values())
        return [self._shown(question) for question in questions if not question.answer.done()]

    def _shown(self, question: Question) -> Approval:
        call = question.call
        what, lines = described(call, self.root)
        digest = sha256(canonical([call.name, call.arguments, what, lines])).hexdigest()
        return Approval(
            id=question.approval,
            call=call.id,
            name=call.name,
            arguments=call.arguments,
            what=what,
            lines=lines,
            hash=digest,
        )

    async def answer_shown(self, conversation: str, id: str, hash: str, approve: bool, why: str = "") -> None:
        """Say yes or no to what was shown; refused where the call would do something else by now."""
        shown = await durable(self._shown, self._question(conversation, id))
        if shown.hash != hash:
            raise Refused(409, OTHERWISE.format(id, hash[:100]), CHANGED)
        self.answer(conversation, id, approve, why)

    def answer(self, conversation: str, id: str, approve: bool, why: str = "") -> None:
        """Say yes or no to a call, with the reason, which the model is told."""
        self._question(conversation, id).answer.set_result(approve or why or False)

    def is_pending(self, conversation: str, id: str) -> bool:
        question = self._questions.get(conversation, {}).get(id)
        return question is not None and not question.answer.done()

    def _question(self, conversation: str, id: str) -> Question:
        if not self.is_pending(conversation, id):
            raise Refused(409, NOT_PENDING.format(id), LATE)
        return self._questions[conversation][id]

    # ── models ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _spec(self, conversation: str, wanted: str | None) -> str:
        """Whom to ask: who is named, else who was asked last in this conversation, else the server's."""
        known = (wanted or "").strip() or self._models.get(conversation)
        return known or await durable(self._stored_model, conversation) or self.model

    def _stored_model(self, conversation: str) -> str:
        """Who was asked last, as the store has it; recordings are not told by their name."""
        with suppress(ContextcError):
            found = self.store.read(lambda tx: last_steps(tx, [head(tx, conversation).conversation]))
            for step in found.values():
                if step.provider != RECORDED:
                    spec = f"{step.provider}:{step.model}"
                    find(spec)  # that there still is such a one
                    return spec
        return ""

    def remember(self, conversation: str, spec: str) -> None:
        self._models[conversation] = spec
        self._models.move_to_end(conversation)
        if len(self._models) > LAST_MODELS:
            self._models.popitem(last=False)

    async def close(self) -> None:
        """Bring every turn to its end, and close the lines."""
        self._closing = True
        for asked in self._asked.values():
            asked.stop()
        if self._asked:
            _, late = await asyncio.wait(set(self._asked), timeout=PATIENCE)
            for task in late:
                log.warning("%s did not end in time", task.get_name())
                task.cancel()
        await self.lines.close()


def _answer(begun: "asyncio.Future[Begun]", value: Begun) -> None:
    if not begun.done():
        begun.set_result(value)
