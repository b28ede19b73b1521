"""Every exception contextc raises, in one tree. Whose fault it is decides the branch.

    ContextcError
    ├── InvalidInput                what the caller gave cannot be taken
    │   ├── InvalidMessage          a message breaks a rule; `field` says where in it
    │   ├── InvalidImport           a line of a file cannot be read; `line` says which
    │   ├── InvalidReply            what was given is no reply of that format
    │   ├── InvalidRequest          what was given is no request of any provider; `path` says where
    │   ├── InvalidSetting          a store address, an option, the configuration file
    │   ├── UnknownConversation     there is no conversation of that name
    │   ├── UnknownMessage          the conversation has no such message
    │   ├── UnknownBranch           the conversation has no such branch
    │   ├── UnknownChannel          nobody of that name was shown the conversation
    │   ├── UnknownRequest          a channel has no request of that number
    │   ├── UnknownModel            nothing is known of that model, its window above all
    │   └── ConversationExists      the name is taken
    ├── Conflict                    somebody else was there first
    │   ├── StaleParent             the chain has moved on past the stated parent
    │   ├── KeyReused               the key stands for a message with other content
    │   ├── ConversationBusy        another turn holds the lease
    │   ├── StaleCompile            what was shown has changed since this was compiled
    │   └── LeaseLost               this lease has ended; nothing may be written under it
    ├── ContextOverflow             what must be sent does not fit; every figure is an attribute
    ├── NothingNew                  the model has been shown everything there is
    ├── InternalError               contextc itself is at fault; nothing was sent
    ├── FragmentFailed              a prompt fragment's own renderer raised, or returned no text
    ├── ProviderFailed              a provider did not answer, or refused; `kind` says what helps
    └── StoreError                  the store, its disk or its server
        ├── StoreUnavailable        cannot be reached, or is gone
        ├── StoreBusy               other writers held the lock for too long
        ├── StoreFull               no space left
        ├── StoreReadOnly           may be read, not written
        ├── StoreCorrupt            what is stored does not add up
        └── SchemaTooNew            written by a newer contextc

A message says what happened, to what, and the way out; the figures are attributes too. Whatever raises one of these has
written nothing.
"""

import threading
from typing import Final, Literal, TypeAlias

_NOTHING: Final = object()


def described(error: BaseException) -> str:
    """Return the type and the text of an exception, also where its `__str__` fails."""
    try:
        text = str(error).strip()
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def shortened(text: str, most: int = 200) -> str:
    """Return the text, cut in the middle where it is longer than `most` characters."""
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"


def is_interrupt(error: BaseException) -> bool:
    """Whether this may be a user's Ctrl-C, which comes up in whatever the main thread runs."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


class ContextcError(Exception):
    """The root of the tree: catch this to catch everything contextc raises.

    `problem` states what is wrong and `fix` what to do about it. The text is `<problem>, got <value>. <fix>`.
    """

    def __init__(self, problem: str = "", *, got: object = _NOTHING, fix: str = "") -> None:
        self.problem = problem if got is _NOTHING else f"{problem}, got {shortened(repr(got))}"
        self.fix = fix
        super().__init__(f"{self.problem}. {fix}" if fix else problem if got is _NOTHING else f"{self.problem}.")


class InvalidInput(ContextcError, ValueError):
    """What the caller gave cannot be taken. Nothing was stored."""


class InvalidMessage(InvalidInput):
    """A message breaks a rule. `field` is the place inside it, such as `parts[1].arguments`."""

    def __init__(
        self,
        problem: str,
        *,
        field: str = "",
        index: int | None = None,
        conversation: str = "",
        got: object = _NOTHING,
        fix: str = "",
    ) -> None:
        place = "".join(
            [
                f"conversation {conversation!r}, " if conversation else "",
                f"messages[{index}], " if index is not None else "",
                field,
            ]
        ).removesuffix(", ")
        super().__init__(f"{place}: {problem}" if place else problem, got=got, fix=fix)
        self.problem = self.problem.removeprefix(f"{place}: ") if place else self.problem
        self.field, self.index, self.conversation = field, index, conversation

    def within(self, conversation: str, index: int | None = None) -> "InvalidMessage":
        """The same error, with the conversation it was meant for."""
        return InvalidMessage(self.problem, field=self.field, index=index, conversation=conversation, fix=self.fix)


class InvalidRequest(InvalidInput):
    """What was given is no request, nor a list of messages. `path` is the place inside it."""

    def __init__(self, problem: str, *, path: str = "", got: object = _NOTHING, fix: str = "") -> None:
        super().__init__(f"{path}: {problem}" if path else problem, got=got, fix=fix)
        self.problem = self.problem.removeprefix(f"{path}: ") if path else self.problem
        self.path = path


class InvalidReply(InvalidInput):
    """What was given is no reply of that format."""

    def __init__(self, format: str, reply: dict[str, object]) -> None:
        self.format, self.reply = format, reply
        error = reply.get("error")
        if error:
            said = f"it is an error ({str(error)[:200]})"
        else:
            said = f"it has {', '.join(f'`{name}`' for name in list(reply)[:6])}" if reply else "it is empty"
        super().__init__(
            f"This is not a reply of {format}: {said}. Give the API's whole reply, to the formatter made for it."
        )


class InvalidImport(InvalidInput):
    """A line of an imported file cannot be read."""

    def __init__(self, problem: str, *, line: int) -> None:
        self.line = line
        super().__init__(f"line {line}: {problem.rstrip('.')}. Nothing was imported.")


class InvalidSetting(InvalidInput):
    """A store address, an option or a line of the configuration cannot be used."""


class UnknownConversation(InvalidInput, LookupError):
    """There is no conversation of that name."""

    def __init__(self, conversation: str) -> None:
        self.conversation = conversation
        super().__init__(
            f"There is no conversation {conversation!r} in this store. `store.conversations()`, or `contextc list`, "
            "shows those there are; the first `append` makes a new one."
        )


class UnknownMessage(InvalidInput, LookupError):
    """The conversation has no such message, or not on the branch that was asked for."""

    def __init__(self, conversation: str, reference: object, *, hint: str = "") -> None:
        self.conversation, self.reference = conversation, reference
        super().__init__(
            f"Conversation {conversation!r} has no message {reference!r}. "
            + (hint or "Name one by its seq, its uid or its id, as `store.load` gives them.")
        )


class UnknownBranch(InvalidInput, LookupError):
    """The conversation has no such branch."""

    def __init__(self, conversation: str, branch: object) -> None:
        self.conversation, self.branch = conversation, branch
        super().__init__(
            f"Conversation {conversation!r} has no branch {branch!r}. `store.branches` lists those it has."
        )


class UnknownChannel(InvalidInput, LookupError):
    """Nobody of that name was shown the conversation."""

    def __init__(self, conversation: str, channel: str) -> None:
        self.conversation, self.channel = conversation, channel
        super().__init__(
            f"Conversation {conversation!r} has no channel {channel!r}. `SessionManager.sessions` lists those it has."
        )


class UnknownRequest(InvalidInput, LookupError):
    """A channel has no request of that number; `last` is the newest it has, 0 where it has none."""

    def __init__(self, conversation: str, channel: object, request: int | None, *, last: int) -> None:
        self.conversation, self.request, self.last = conversation, request, last
        there = f"{channel} has requests 1 to {last} in {conversation!r}."
        none = f"Conversation {conversation!r} has no request for {channel}. Only committed requests are stored."
        super().__init__(there if last else none)


class UnknownModel(InvalidInput, LookupError):
    """Nothing is known of that model. `close` are names that are written alike; `problem` replaces the text."""

    def __init__(self, model: str, *, close: tuple[str, ...] = (), problem: str = "") -> None:
        self.model, self.close = model, close
        alike = f" Names that are known and written alike: {', '.join(close)}." if close else ""
        super().__init__(
            problem
            or f'The window of model {model!r} is not known. Give it: cc.provider("…:{model}", window=128_000, '
            f'output=8_000), or write window = 128_000 below [models."{model}"] in contextc.toml.{alike}'
        )


class ConversationExists(InvalidInput):
    """The name is taken."""

    def __init__(self, conversation: str) -> None:
        self.conversation = conversation
        super().__init__(
            f"There is already a conversation {conversation!r}. Choose another name, or delete the conversation first."
        )


class Conflict(ContextcError):
    """Somebody else was there first. Nothing was stored; look again and decide."""


class StaleParent(Conflict):
    """The chain has moved on past the stated parent."""

    def __init__(self, conversation: str, parent: object, *, tip: str, behind: int) -> None:
        self.conversation, self.parent, self.tip, self.behind = conversation, parent, tip, behind
        super().__init__(
            f"Conversation {conversation!r} has {behind} message(s) after the stated parent {parent!r}; its tip is "
            f"{tip}. Load what came after, then append to the tip, or fork at that parent."
        )


class KeyReused(Conflict):
    """A key names one append for ever, and this one came with other content."""

    def __init__(self, conversation: str, key: str, *, seq: int) -> None:
        self.conversation, self.key, self.seq = conversation, key, seq
        super().__init__(
            f"Key {key!r} of conversation {conversation!r} already stands for message {seq}, whose content is not the "
            "same. Use a new key for a new message."
        )


class ConversationBusy(Conflict):
    """Another turn of the same agent holds the lease."""

    def __init__(self, conversation: str, agent: str, *, number: int, seconds: float) -> None:
        self.conversation, self.agent, self.number, self.seconds = conversation, agent, number, seconds
        super().__init__(
            f"Conversation {conversation!r} is in a turn of agent {agent!r} (lease {number}, {seconds:.0f} s left "
            "unless renewed). Wait for it with `wait=seconds`, or try again later."
        )


class StaleCompile(Conflict):
    """The ledger, or the conversation under it, has moved on since this request was compiled."""

    def __init__(self, conversation: str, channel: object, why: str) -> None:
        self.conversation, self.channel = conversation, channel
        super().__init__(
            f"Conversation {conversation!r}, {channel}: {why} since this request was compiled. Nothing was stored. "
            "Compile again, and decide anew."
        )


class LeaseLost(Conflict):
    """The lease ended before this write, so the write was refused."""

    def __init__(self, conversation: str, agent: str, *, number: int) -> None:
        self.conversation, self.agent, self.number = conversation, agent, number
        super().__init__(
            f"Lease {number} on conversation {conversation!r}, agent {agent!r}, has ended: it was released, or its "
            "holder was silent for too long. Take a new lease, load the conversation again, and decide anew."
        )


class FragmentFailed(ContextcError):
    """A prompt fragment's own renderer raised, which is then the `__cause__`, or returned what is no text."""

    def __init__(self, fragment: str, problem: str) -> None:
        super().__init__(
            f"Prompt fragment {fragment!r}: its renderer {problem}",
            fix="Nothing was rendered. Correct the renderer, or leave the fragment out.",
        )
        self.fragment, self.problem = fragment, problem


class ContextOverflow(ContextcError):
    """What must be sent does not fit, and nothing was sent. All figures are tokens."""

    def __init__(
        self,
        *,
        needed: int,
        available: int,
        window: int,
        system: int,
        tools: int,
        reserve: int,
        margin: int,
        pinned: int,
        overhead: int = 0,
    ) -> None:
        self.overhead = overhead
        self.needed, self.available, self.window = needed, available, window
        self.system, self.tools, self.reserve, self.margin, self.pinned = system, tools, reserve, margin, pinned
        pins = f", {pinned:,} of them pinned or summed up" if pinned else ""
        pins += f", {overhead:,} of them counted by the provider beyond what is sent" if overhead else ""
        super().__init__(
            f"The messages that must stay need {needed:,} tokens{pins}, but {available:,} are available: {window:,}, "
            f"less {system:,} for the system prompt, {tools:,} for tools, {reserve:,} for the answer, {margin:,} for "
            "safety. Raise the budget, shorten the system prompt or the new message, give fewer tools, or pin fewer "
            "messages. A message that is too long is left out as soon as another one follows it."
        )


class NothingNew(ContextcError):
    """There is nothing to send: the model has been shown everything, and has answered."""

    def __init__(self, conversation: str, channel: object) -> None:
        self.conversation, self.channel = conversation, channel
        super().__init__(
            f"Conversation {conversation!r} has nothing new for {channel}. Append a message first; to have the last "
            "answer given anew, rewind to the message before it."
        )


class InternalError(ContextcError):
    """A check of contextc on its own work failed. Nothing was sent and nothing was stored."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}. This is a defect in contextc: report it with the manifest of the last request.")


FailureKind: TypeAlias = Literal["transient", "rate", "auth", "quota", "context", "session", "invalid", "abort"]
"""What helps: waiting (`transient`, `rate`), another key (`auth`), money (`quota`), a shorter request (`context`), a
new session (`session`: the provider no longer has the one that was named), another request (`invalid`); `abort`:
nothing, the call was given up."""

WAYS_OUT: dict[str, str] = {
    "transient": "Nothing is wrong with the request; send it again.",
    "rate": "Too much was asked in a short time; wait, then send it again.",
    "auth": "Check the key, and whether it may use this model.",
    "quota": "The account has no credit left; top it up, or use another.",
    "context": "The request is too long for the model; compile it again with a smaller budget.",
    "session": "Send the whole context into a new session: `SessionManager.invalidate`, then compile again.",
    "invalid": "The provider does not take this request; `contextc lint` may say why.",
    "abort": "The call was given up.",
}


class ProviderFailed(ContextcError):
    """A provider did not answer, or refused. `kind` says what helps; `said` is its own sentence, without keys.

    `retry_after` is how many seconds it asked to wait. The foreign exception, where there was one, is the `__cause__`.
    """

    def __init__(
        self,
        provider: str,
        kind: FailureKind,
        said: str = "",
        *,
        status: int | None = None,
        code: str = "",
        retry_after: float | None = None,
        way_out: str = "",
    ) -> None:
        self.kind: FailureKind = kind
        self.provider, self.said, self.way_out = provider, said, way_out
        self.status, self.code, self.retry_after = status, code, retry_after
        what = " ".join([*(["status", str(status)] if status else []), *([code] if code else [])])
        wait = f" It asked to wait {retry_after:g} s." if retry_after is not None else ""
        super().__init__(
            f"{provider} failed ({kind}{': ' if what else ''}{what}){f': {said.rstrip(chr(46))}' if said else ''}."
            f"{wait} {way_out or WAYS_OUT[kind]}"
        )

    @property
    def may_retry(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in ("transient", "rate")


class StoreError(ContextcError):
    """The store, its disk or its server."""


class StoreUnavailable(StoreError):
    """The store cannot be reached, or is gone."""


class StoreBusy(StoreError):
    """Other writers held the lock for longer than this one may wait."""


class StoreFull(StoreError):
    """No space left. What was there is untouched."""


class StoreReadOnly(StoreError):
    """The store may be read, not written."""


class StoreCorrupt(StoreError):
    """What is stored does not add up."""


class SchemaTooNew(StoreError):
    """The store was written by a newer contextc."""

    def __init__(self, store: str, *, found: int, known: int) -> None:
        self.found, self.known = found, known
        super().__init__(
            f"{store} has schema version {found}, and this contextc knows versions up to {known}. Upgrade contextc; "
            "the store was not touched."
        )
