"""Exceptions of contextc, in one tree. The branch shows the cause.

    ContextcError
    ├── InvalidInput                the caller's input is invalid
    │   ├── InvalidMessage          a message breaks a rule; `field` is the place in it
    │   ├── InvalidImport           a line of a file cannot be read; `line` is its number
    │   ├── InvalidReply            the value is not a reply of that format
    │   ├── InvalidRequest          the value is not a request of any provider; `path` is the place in it
    │   ├── InvalidSetting          a store address, an option or the configuration file is invalid
    │   ├── UnknownConversation     the conversation does not exist
    │   ├── UnknownMessage          the conversation has no such message
    │   ├── UnknownBranch           the conversation has no such branch
    │   ├── UnknownChannel          the conversation has no such channel
    │   ├── UnknownRequest          the channel has no request of that number
    │   ├── UnknownApproval         no approval has this id
    │   ├── UnknownRule             no rule for approvals has this id
    │   ├── UnknownModel            facts about the model are missing, most often its context window
    │   └── ConversationExists      the name is taken
    ├── Conflict                    another writer was faster
    │   ├── StaleParent             messages follow the stated parent
    │   ├── KeyReused               the key belongs to a message with other content
    │   ├── ConversationBusy        another turn holds the lease
    │   ├── AlreadyAnswered         the approval has an answer, or its turn has ended
    │   ├── TurnWaits               the turn waits for approvals, none of which is answered
    │   ├── StaleCompile            the ledger or the conversation changed since compile()
    │   └── LeaseLost               the lease has ended; writes under it are refused
    ├── ContextOverflow             the required messages do not fit; each figure is an attribute
    ├── NothingNew                  the model has seen and answered every message
    ├── InvalidOutput               an agent's run has no answer of the requested type
    ├── InternalError               a defect in contextc; nothing was sent
    ├── FragmentFailed              the renderer of a prompt fragment raised, or did not return text
    ├── ProviderFailed              a provider did not answer, or refused; `kind` shows what helps
    └── StoreError                  the store, its disk or its server
        ├── StoreUnavailable        the store cannot be reached
        ├── StoreBusy               other writers held the lock for too long
        ├── StoreFull               no space left
        ├── StoreReadOnly           the store cannot be written
        ├── StoreCorrupt            stored data is damaged or inconsistent
        └── SchemaTooNew            written by a newer contextc

A message states the problem and one fix. Figures are attributes. An operation that raises one has written nothing.
"""

import threading
import time
from typing import Final, Literal, TypeAlias

_NOTHING: Final = object()


def describe_error(error: BaseException) -> str:
    """Return the type and the text of an exception, also where its `__str__` fails."""
    try:
        text = str(error).strip()
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def shorten(text: str, limit: int = 200) -> str:
    """Return the text, cut in the middle where it is longer than `limit` characters."""
    return text if len(text) <= limit else f"{text[: limit // 2]} … {text[-limit // 2 :]}"


def is_interrupt(error: BaseException) -> bool:
    """Return True if this may be a user's Ctrl-C, which Python raises in the main thread."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


class ContextcError(Exception):
    """Base class of all exceptions that contextc raises.

    `problem` states what is wrong and `fix` what to do about it. The text is `<problem>, got <value>. <fix>`.

    `case` identifies the problem where one class covers several, and `detail` the thing that `fix` is about. With them,
    a user interface can replace `fix` by its own advice. Both are "" where the class alone is enough.
    """

    def __init__(
        self, problem: str = "", *, got: object = _NOTHING, fix: str = "", case: str = "", detail: str = ""
    ) -> None:
        self.problem = problem if got is _NOTHING else f"{problem}, got {shorten(repr(got))}"
        self.fix, self.case, self.detail = fix, case, detail
        super().__init__(f"{self.problem}. {fix}" if fix else problem if got is _NOTHING else f"{self.problem}.")

    def __reduce__(self) -> tuple[object, ...]:
        """Restore a pickled or copied error from its text and its attributes, not from arguments of `__init__`."""
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[ContextcError], args: tuple[object, ...], attributes: dict[str, object]) -> ContextcError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class InvalidInput(ContextcError, ValueError):
    """The caller's input is invalid. Nothing was stored."""


class InvalidMessage(InvalidInput):
    """A message breaks a rule. `field` is the place in it, such as `parts[1].arguments`."""

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
        named = f"conversation {conversation!r}, " if conversation else ""
        place = f"{named}{f'messages[{index}], ' if index is not None else ''}{field}".removesuffix(", ")
        super().__init__(f"{place}: {problem}" if place else problem, got=got, fix=fix)
        self.problem = self.problem.removeprefix(f"{place}: ") if place else self.problem
        self.field, self.index, self.conversation = field, index, conversation

    def within(self, conversation: str, index: int | None = None) -> "InvalidMessage":
        """Return the same error with the conversation and the index of the message."""
        return InvalidMessage(self.problem, field=self.field, index=index, conversation=conversation, fix=self.fix)


class InvalidRequest(InvalidInput):
    """The value is neither a request nor a list of messages. `path` is the place in it."""

    def __init__(self, problem: str, *, path: str = "", got: object = _NOTHING, fix: str = "") -> None:
        super().__init__(f"{path}: {problem}" if path else problem, got=got, fix=fix)
        self.problem = self.problem.removeprefix(f"{path}: ") if path else self.problem
        self.path = path


REPLY_FIELDS = {
    "choices": ("openai_chat", "openai-chat:…"),
    "candidates": ("gemini", "gemini:…"),
    "stopReason": ("bedrock", "bedrock:…"),
    "stop_reason": ("anthropic", "anthropic:…"),
    "output": ("openai_responses", "openai:…"),
}
"""A field that replies of a format have, the format, and the names of its models. The first one in a reply counts.

Other formats have some of these fields too, such as Mistral's, so the errors of those formats make no guess.
"""


class InvalidReply(InvalidInput):
    """The value is not a reply of that format."""

    def __init__(self, format: str, reply: dict[str, object]) -> None:
        self.format, self.reply = format, reply
        content = f"it has {', '.join(f'`{name}`' for name in list(reply)[:6])}" if reply else "it is empty"
        if error := reply.get("error"):
            content = f"it is an error ({str(error)[:200]})"
        fix = "Pass the whole reply of the API, to the formatter of its format."
        other, models = next((REPLY_FIELDS[name] for name in REPLY_FIELDS if name in reply), (format, ""))
        if other != format and any(format == known for known, _ in REPLY_FIELDS.values()):
            fix += f" It looks like a reply of {other}: its models are named '{models}'."
        super().__init__(f"This is not a reply of {format}: {content}", fix=fix)


class InvalidImport(InvalidInput):
    """A line of an imported file cannot be read."""

    def __init__(self, problem: str, *, line: int, fix: str = "", case: str = "") -> None:
        self.line = line
        super().__init__(f"line {line}: {problem.rstrip('.')}", fix=f"{fix} Nothing was imported.".lstrip(), case=case)


class InvalidSetting(InvalidInput):
    """A store address, an option or a setting of the configuration is invalid."""


class UnknownConversation(InvalidInput, LookupError):
    """The conversation does not exist. `close` are similar names, where a user interface has looked for them."""

    def __init__(self, conversation: str) -> None:
        self.conversation = conversation
        self.close: tuple[str, ...] = ()
        super().__init__(
            f"Conversation {conversation!r} not found",
            fix="Call `store.conversations()` to list the names, or `store.append()` to create it.",
        )


class UnknownMessage(InvalidInput, LookupError):
    """The conversation has no such message, or not on the requested branch."""

    def __init__(self, conversation: str, reference: object, *, hint: str = "") -> None:
        self.conversation, self.reference = conversation, reference
        fix, case = (hint, "hint") if hint else ("Pass a seq, uid or id that `store.load()` returns.", "")
        super().__init__(f"Conversation {conversation!r} has no message {reference!r}", fix=fix, case=case)


class UnknownBranch(InvalidInput, LookupError):
    """The conversation has no such branch."""

    def __init__(self, conversation: str, branch: object) -> None:
        self.conversation, self.branch = conversation, branch
        super().__init__(
            f"Conversation {conversation!r} has no branch {branch!r}",
            fix="Call `store.branches()` to list its branches.",
        )


class UnknownChannel(InvalidInput, LookupError):
    """The conversation has no such channel."""

    def __init__(self, conversation: str, channel: str) -> None:
        self.conversation, self.channel = conversation, channel
        super().__init__(
            f"Conversation {conversation!r} has no channel {channel!r}",
            fix="The field `channels` of its timeline (`GET …/timeline`) has the ids.",
        )


class UnknownRequest(InvalidInput, LookupError):
    """The channel has no request of that number. `last` is the number of its newest request, 0 if it has none."""

    def __init__(self, conversation: str, channel: object, request: int | None, *, last: int) -> None:
        self.conversation, self.request, self.last = conversation, request, last
        if last:
            problem = f"Conversation {conversation!r} has no request {request} for {channel}"
            super().__init__(problem, fix=f"It has requests 1 to {last}.")
        else:
            problem = f"Conversation {conversation!r} has no request for {channel}"
            super().__init__(problem, fix="Only committed requests are stored.")


class UnknownApproval(InvalidInput, LookupError):
    """No approval has this id."""

    def __init__(self, id: str) -> None:
        super().__init__(f"No approval {id!r} in this store", fix="List the pending ones with store.approvals().")


class UnknownRule(InvalidInput, LookupError):
    """No rule for approvals has this id."""

    def __init__(self, id: str) -> None:
        super().__init__(
            f"No rule for approvals {id!r} in this store", fix="List them with store.approval_rules(ended=True)."
        )


class UnknownModel(InvalidInput, LookupError):
    """Facts about the model are missing. `close` are known names with a similar spelling.

    `problem` and `fix` replace the text.
    """

    def __init__(
        self,
        model: str,
        *,
        close: tuple[str, ...] = (),
        problem: str = "",
        fix: str = "",
        case: str = "",
        detail: str = "",
    ) -> None:
        self.model, self.close = model, close
        similar = f" Similar known names: {', '.join(close)}" if close else ""
        super().__init__(
            problem or f"The context window of model {model!r} is not known{'.' if similar else ''}{similar}",
            fix=fix
            or f'Pass it: cc.provider("…:{model}", window=128_000, output=8_000), or set window = 128_000 below '
            f'[models."{model}"] in contextc.toml.',
            case=case,
            detail=detail,
        )


class ConversationExists(InvalidInput):
    """A conversation of that name already exists."""

    def __init__(self, conversation: str) -> None:
        self.conversation = conversation
        super().__init__(
            f"Conversation {conversation!r} already exists",
            fix="Choose another name, or delete the conversation first.",
        )


class Conflict(ContextcError):
    """Another writer was faster. Nothing was stored. Load the current state and retry."""


class StaleParent(Conflict):
    """Other messages already follow the stated parent."""

    def __init__(self, conversation: str, parent: object, *, tip: str, behind: int) -> None:
        self.conversation, self.parent, self.tip, self.behind = conversation, parent, tip, behind
        super().__init__(
            f"Conversation {conversation!r} has {behind} message(s) after the stated parent {parent!r}; the tip is "
            f"{tip}",
            fix="Load the newer messages, then append to the tip, or fork at that parent.",
        )


class KeyReused(Conflict):
    """The key already belongs to a message with other content. A key identifies one append permanently."""

    def __init__(self, conversation: str, key: str, *, seq: int) -> None:
        self.conversation, self.key, self.seq = conversation, key, seq
        super().__init__(
            f"Key {key!r} of conversation {conversation!r} already belongs to message {seq}, which has other content",
            fix="Use a new key for a new message.",
        )


class ConversationBusy(Conflict):
    """Another turn of the same agent holds the lease."""

    def __init__(self, conversation: str, agent: str, *, number: int, seconds: float) -> None:
        self.conversation, self.agent, self.number, self.seconds = conversation, agent, number, seconds
        super().__init__(
            f"Conversation {conversation!r} is in a turn of agent {agent!r} (lease {number}, {seconds:.0f} s left "
            "unless renewed)",
            fix="Pass `wait=None` to wait for its end, or give the executors different names of `run` to run both.",
        )


class AlreadyAnswered(Conflict):
    """The approval has an answer already, or its turn has ended. The first answer counts."""

    def __init__(self, id: str, *, answer: str, who: str, answered: int) -> None:
        self.id, self.answer, self.who, self.answered = id, answer, who, answered
        what = "its turn ended" if answer == "withdrawn" else f"it was {answer}{f' by {who}' if who else ''}"
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(answered / 1000))
        super().__init__(f"Approval {id!r} is not pending: {what} at {when}", fix="The first answer counts.")


class TurnWaits(Conflict):
    """The turn waits for approvals, none of which is answered."""

    def __init__(self, conversation: str, agent: str, *, turn: int, approvals: tuple[str, ...], tools: str) -> None:
        self.conversation, self.agent, self.turn, self.approvals = conversation, agent, turn, approvals
        super().__init__(
            f"Conversation {conversation!r}: turn {turn} of agent {agent!r} waits for approval of {tools}",
            fix="Answer with store.answer_approval(id, allow), or end the turn with store.cancel_turn(conversation).",
        )


class StaleCompile(Conflict):
    """The ledger, or its conversation, changed since this request was compiled."""

    def __init__(self, conversation: str, channel: object, change: str) -> None:
        self.conversation, self.channel = conversation, channel
        super().__init__(
            f"Conversation {conversation!r}, {channel}: {change} since compile(). Nothing was stored",
            fix="Recompile and retry.",
        )


class LeaseLost(Conflict):
    """The lease ended before this write, so the write was refused."""

    def __init__(self, conversation: str, agent: str, *, number: int) -> None:
        self.conversation, self.agent, self.number = conversation, agent, number
        super().__init__(
            f"Conversation {conversation!r}, agent {agent!r}: expected the current lease, got lease {number}, which "
            "was released or taken over, or whose conversation was deleted",
            fix="Nothing was written. Acquire a new lease, load the conversation again, and retry.",
        )


class FragmentFailed(ContextcError):
    """The renderer of a prompt fragment raised an exception, which is the `__cause__`, or did not return text."""

    def __init__(self, fragment: str, problem: str) -> None:
        super().__init__(
            f"Prompt fragment {fragment!r}: its renderer {problem}",
            fix="Nothing was rendered. Correct the renderer, or leave the fragment out.",
        )
        self.fragment, self.problem = fragment, problem


class ContextOverflow(ContextcError):
    """The required messages do not fit, and nothing was sent. All figures are tokens."""

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
        pins = f", {pinned:,} of them pinned or in summaries" if pinned else ""
        pins += f", {overhead:,} of them counted by the provider in addition to the text sent" if overhead else ""
        super().__init__(
            f"The required messages need {needed:,} tokens{pins}, but {available:,} are available: {window:,}, "
            f"less {system:,} for the system prompt, {tools:,} for tools, {reserve:,} for the answer, {margin:,} for "
            "safety",
            fix="Raise `max_input_tokens` (of a MessageManager: `max_tokens`), shorten the system prompt or the new"
            " message, pass fewer tools, or pin fewer messages. A message that is too long is left out as soon as"
            " another message follows it.",
        )


class NothingNew(ContextcError):
    """There is nothing to send: the model has seen and answered every message."""

    def __init__(self, conversation: str, channel: object) -> None:
        self.conversation, self.channel = conversation, channel
        super().__init__(
            f"Conversation {conversation!r} has nothing new for {channel}",
            fix="Append a message first. To regenerate the last answer, rewind to the message before it.",
        )


class InvalidOutput(ContextcError):
    """The run of an agent has no answer of the requested type. `text` is its last answer, `finish` why it ended."""

    def __init__(self, conversation: str, problem: str, *, finish: str, text: str) -> None:
        self.conversation, self.finish, self.text = conversation, finish, text
        fix, case = "Use `text`, or a simpler output_type.", ""
        if finish not in ("stop", "length"):
            fix, case = "The run ended before an answer: check `finish`, and raise the limit that ended it.", "limit"
        super().__init__(f"Conversation {conversation!r}: {problem}", fix=fix, case=case)


class InternalError(ContextcError):
    """An internal check of contextc failed. Nothing was sent and nothing was stored."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem, fix="This is a defect in contextc: report it with the manifest of the last request.")


FailureKind: TypeAlias = Literal["transient", "rate", "auth", "quota", "context", "session", "invalid", "abort"]
"""Kinds of failure, by what helps: waiting (`transient`, `rate`), another key (`auth`), credit (`quota`), a shorter
request (`context`), a new session (`session`: the named one is gone), another request (`invalid`), none (`abort`)."""

DEFAULT_FIXES: dict[str, str] = {
    "transient": "The request is valid. Retry it.",
    "rate": "Too many requests in a short time. Wait, then retry.",
    "auth": "Check the key, and its access to this model.",
    "quota": "The account has no credit left. Add credit, or use another account.",
    "context": "The request is too long for the model. Compile it again with a smaller max_input_tokens.",
    "session": "The session no longer exists. Call `SessionManager.invalidate()`, then recompile.",
    "invalid": "The provider rejects this request. Check it with `contextc.lint()`.",
    "abort": "The call was aborted.",
}
"""The fix for each kind of failure, unless the error has its own."""


class ProviderFailed(ContextcError):
    """A provider did not answer, or refused. `kind` shows what helps. `said` is its own error text, without keys.

    `retry_after` is its wait in seconds, `request_id` its id of the call. The original exception is the `__cause__`.
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
        case: str = "",
        detail: str = "",
    ) -> None:
        if kind not in DEFAULT_FIXES:
            raise InvalidSetting(
                f"ProviderFailed: unknown kind {kind!r}", fix=f"Pass one of {', '.join(DEFAULT_FIXES)}."
            )
        self.kind: FailureKind = kind
        self.provider, self.said, self.way_out, self.request_id = provider, said, way_out, ""
        self.status, self.code, self.retry_after = status, code, retry_after
        what = " ".join([*(["status", str(status)] if status else []), *([code] if code else [])])
        text = f": {said.rstrip('.')}" if said else ""
        wait = f". It requested a wait of {retry_after:g} s" if retry_after is not None else ""
        super().__init__(
            f"{provider} failed ({kind}{': ' if what else ''}{what}){text}{wait}",
            fix=way_out or DEFAULT_FIXES[kind],
            case=case,
            detail=detail,
        )

    @property
    def may_retry(self) -> bool:
        """True if the same request may succeed later."""
        return self.kind in ("transient", "rate")


class StoreError(ContextcError):
    """An error of the store, its disk or its server."""


class StoreUnavailable(StoreError):
    """The store cannot be reached."""


class StoreBusy(StoreError):
    """Other writers held the lock for longer than the busy timeout."""


class StoreFull(StoreError):
    """No space left. Existing data is unchanged."""


class StoreReadOnly(StoreError):
    """The store can be read, but not written."""


class StoreCorrupt(StoreError):
    """Stored data is damaged or inconsistent."""


class SchemaTooNew(StoreError):
    """The store was written by a newer contextc."""

    def __init__(self, store: str, *, found: int, known: int) -> None:
        self.found, self.known = found, known
        super().__init__(
            f"{store} has schema version {found}, but this contextc supports versions up to {known}",
            fix="Upgrade contextc. The store was not changed.",
        )
