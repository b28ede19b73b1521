"""Approvals of tool calls as rows, as functions over a transaction.

An approval belongs to one call of one reply. It is pending until it is answered, until it expires, or until its turn
ends. The first answer counts. An answer locks the conversation first, as every other writer does.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSONObject, as_object, fix_surrogates_in_json
from contextc.errors import AlreadyAnswered, InvalidInput, StoreCorrupt, UnknownApproval
from contextc.events import ApprovalAnswered
from contextc.messages import Message
from contextc.store import agent_calls
from contextc.store.approval_rules import (
    BY_RULE,
    Always,
    ApprovalRule,
    delete_rules_of,
    find_rule,
    format_time,
    insert_rule,
    load_rules_by_id,
    make_rule,
)
from contextc.store.message_log import agent_of, decode_row, find_tip, load_tip, now_ms
from contextc.store.transaction_engine import Row, Transaction, log_warning
from contextc.store.turn_queue import defer_continuation
from contextc.store.turn_records import TurnRecord, append_events, load_last_turn, load_turns_by_number
from contextc.tools.questions import Question, QuestionAnswer, check_answer

ApprovalState: TypeAlias = Literal["pending", "allowed", "denied", "withdrawn"]
EXPIRED = "time-out"
"""The value of `who` if no answer came in time, so that the default answer counts."""


class Approval(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An approval of a tool call. Its `id` cannot be guessed; `call` is the model's id of the call, which it may reuse.

    `seq` and `index` are the reply and the position of the call in it. `seq` is 0 if a provider that runs tools itself
    asked in the middle of its reply. `expires` is 0 if the approval never expires; otherwise `default_allows` and
    `default_reason` are the answer from then on. `started` is True once the answer was applied to the call.

    With `client`, the client that sent the input runs the tool itself. Its answer has the `result`, and `failed` is
    True if the tool failed there.

    With `question`, the call has begun, and the server of its tool asks that. `answer` has the values that were given,
    by the key of each form, until the call has them; `cancelled` is True if the person only closed the question.

    `rule` is the id of the rule that answered, if one did. `target` is the tool that the call runs, if `name` is a tool
    that runs others, and `speaker` the agent that has taken the turn over, if any.
    """

    id: str
    conversation: str = ""
    agent: str
    turn: int
    step: int = 0
    seq: int = 0
    index: int = 0
    call: str
    name: str
    arguments: JSONObject = {}
    asked: int = 0
    expires: int = 0
    default_allows: bool = False
    default_reason: str = ""
    state: ApprovalState = "pending"
    answered: int = 0
    reason: str = ""
    who: str = ""
    started: bool = False
    client: bool = False
    result: str = ""
    failed: bool = False
    question: Question | None = None
    answer: dict[str, JSONObject] = {}
    cancelled: bool = False
    rule: str = ""
    target: str = ""
    speaker: str = ""

    @property
    def ruled_tool(self) -> str:
        """The tool that a rule is about."""
        return self.target or self.name

    @property
    def ruled_arguments(self) -> JSONObject:
        """The arguments that a rule is about."""
        return as_object(self.arguments.get("arguments")) if self.target else self.arguments

    @property
    def ruled_agent(self) -> str:
        """The agent that a rule is about."""
        return self.speaker or agent_of(self.agent)

    def question_answer(self) -> QuestionAnswer | None:
        """Return the answer to a question, as its tool gets it. A question that expired was closed."""
        if self.question is None or self.state == "pending":
            return None
        action = "accept" if self.state == "allowed" else "cancel" if self.cancelled else "decline"
        return QuestionAnswer(question=self.question, action=action, content=self.answer)


_approval_from_json = msgspec.json.Decoder(Approval).decode
SELECT = "SELECT a.body, c.name FROM main.approval a JOIN main.conversation c ON c.number = a.conversation"


def insert_approvals(tx: Transaction, conversation: int, approvals: Sequence[Approval]) -> None:
    tx.run_many(
        "INSERT INTO main.approval (id, conversation, turn, expires, answered, unused, body)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (each.id, conversation, each.turn, each.expires, each.answered, int(not each.started), _encode(each))
            for each in approvals
        ],
    )


def load_turn_approvals(tx: Transaction, conversation: int, turn: int) -> list[Approval]:
    """Return all approvals of a turn, in the order in which they were requested."""
    return _decoded(tx.rows(f"{SELECT} WHERE a.conversation = ? AND a.turn = ? ORDER BY a.number", conversation, turn))


def load_asking(tx: Transaction, conversation: int, turn: int) -> frozenset[str]:
    """Return the ids of the calls of a turn that have begun, and wait for the answer to a question."""
    asked = load_turn_approvals(tx, conversation, turn)
    return frozenset(
        [each.call for each in asked if each.question is not None and each.state != "withdrawn" and not each.started]
    )


def load_pending(tx: Transaction, conversation: str | None = None) -> list[Approval]:
    """Return the pending approvals of one conversation, or of the whole store, oldest first. Some may be expired.

    Those of a conversation include those of the agents that it waits for. Unreadable ones are logged and left out of
    the list of the whole store.
    """
    which, values = "", list[int]()
    if conversation is not None:
        here = find_tip(tx, conversation, False)
        values = agent_calls.list_with_called(tx, here.conversation) if here is not None else []
        which = f" AND a.conversation IN ({', '.join('?' for _ in values) or 'NULL'})"
    rows = tx.rows(f"{SELECT} WHERE a.unused = 1 AND a.answered = 0{which} ORDER BY a.number", *values)
    return _decoded(rows) if conversation is not None else _decoded_readable(rows)


def load_waiting_names(tx: Transaction) -> frozenset[str]:
    """Return the names of all conversations with a pending approval, and of those that wait for these."""
    rows = tx.rows(
        "SELECT DISTINCT c.name FROM main.approval a JOIN main.conversation c ON c.number = a.conversation"
        " WHERE a.unused = 1 AND a.answered = 0"
    )
    return agent_calls.list_with_callers(tx, [name for (name,) in rows])


def load_answered_turns(tx: Transaction) -> list[tuple[str, str, int]]:
    """Return the turns that wait although no approval of theirs is pending: conversation, agent and turn.

    A turn of an agent that was called as a tool goes on with that of its outermost caller.
    """
    rows = tx.rows(
        "SELECT conversation, turn, min(answered) FROM main.approval WHERE unused = 1 GROUP BY conversation, turn"
    )
    found: dict[tuple[str, str, int], None] = {}
    for conversation, number in dict.fromkeys(
        [
            *[(conversation, number) for conversation, number, first in rows if first],
            *[(each.parent, each.turn) for each in agent_calls.load_all_open_calls(tx)],
        ]
    ):
        try:
            turn = load_turns_by_number(tx, conversation, [number]).get(number)
            if turn is None or turn.state != "waiting" or not may_continue(tx, conversation, turn):
                continue
            conversation, agent = agent_calls.find_outermost_caller(tx, conversation, turn.agent)
            turn = load_last_turn(tx, conversation, agent)
        except StoreCorrupt as error:
            log_warning(f"turn {number} of conversation {conversation} is left out: {error}")
            continue
        name = tx.row("SELECT name FROM main.conversation WHERE number = ?", conversation)
        if name is not None and turn is not None and turn.state == "waiting":
            found[name[0], turn.agent, turn.number] = None
    return [*found]


def may_continue(tx: Transaction, conversation: int, turn: TurnRecord) -> bool:
    """Return True if a waiting turn has something to do: an answer to apply, or an agent that it called has."""
    asked = load_turn_approvals(tx, conversation, turn.number)
    if any(each.state in ("allowed", "denied") and not each.started for each in asked):
        return True
    called = agent_calls.load_open_calls(tx, conversation, turn.number)
    if not called:
        return not any(each.state == "pending" for each in asked)
    for each in called:
        last = agent_calls.load_called_turn(tx, each)
        if last is None or last.state != "waiting" or may_continue(tx, each.conversation, last):
            return True
    return False


def has_expired(tx: Transaction, conversation: str | None = None) -> bool:
    """Return True if a pending approval has expired, and its default answer is not stored yet."""
    now = now_ms()
    return any(0 < each.expires <= now for each in load_pending(tx, conversation))


def expire_pending(tx: Transaction, conversation: str | None = None) -> list[Approval]:
    """Answer every expired approval with its default answer. Return these approvals."""
    now = now_ms()
    found: list[Approval] = []
    for each in load_pending(tx, conversation):
        if not 0 < each.expires <= now:
            continue
        number, current = _load_locked(tx, each.id)
        if current is not None and current.state == "pending":
            current = replace(current, cancelled=current.question is not None)
            found.append(
                _save_answer(tx, number, current, current.default_allows, current.default_reason, EXPIRED, now)
            )
    return found


def load_approval(tx: Transaction, id: str) -> Approval:
    """Return an approval. Raises `UnknownApproval`."""
    rows = tx.rows(f"{SELECT} WHERE a.id = ?", id)
    if not rows:
        raise UnknownApproval(id)
    return _decoded(rows)[0]


def answer(
    tx: Transaction,
    id: str,
    *,
    allow: bool,
    reason: str,
    who: str,
    time: int,
    result: str | None = None,
    failed: bool = False,
    content: Mapping[str, object] | None = None,
    cancelled: bool = False,
) -> Approval:
    """Store an answer. Raises `UnknownApproval`, or `AlreadyAnswered` if the approval is no longer pending.

    The answer to a call that the client runs needs a `result`, unless it is a denial. The answer to a question needs
    `content` that fits its forms. Otherwise it stays pending.
    """
    number, current = _load_locked(tx, id)
    if current is None:
        raise UnknownApproval(id)
    if current.state != "pending":
        same = (current.state == "allowed", current.reason, current.who, current.answered)
        if tx.is_retry and same == (allow, reason[:MAX_REASON], who, time):  # the previous attempt was committed
            return current
        raise AlreadyAnswered(id, answer=current.state, who=current.who, answered=current.answered)
    if allow and current.client != (result is not None):
        problem = "expected the result of the client's tool" if current.client else "expected no result"
        raise InvalidInput(f"approval {id!r}: {problem}", fix="Deny it, or answer as the client that runs the tool.")
    asked, given = current.question, dict[str, JSONObject]()
    if asked is None and (content is not None or cancelled):
        raise InvalidInput(f"approval {id!r}: it is not a question", fix="Leave out content and cancel.")
    if asked is not None and allow:
        given = check_answer(asked, content)
    current = replace(current, result=result or "", failed=failed, answer=given, cancelled=cancelled)
    return _save_answer(tx, number, current, allow, reason, who, time)


def store_rule(tx: Transaction, answered: Approval, always: Always) -> None:
    """Store the rule that an answer makes, and answer by it what else the conversation waits for now."""
    conversation, _ = _load_locked(tx, answered.id)
    rule = rule_of_answer(answered, always)
    insert_rule(tx, conversation, rule, always.seconds)
    for each in load_pending(tx, answered.conversation):
        if each.conversation == answered.conversation:
            found = find_answering_rule(tx, conversation, each)
            if found is not None and found.id == rule.id:
                _save_answer(tx, conversation, replace(each, rule=rule.id), rule.allow, rule.reason, BY_RULE, now_ms())


def find_answering_rule(tx: Transaction, conversation: int, approval: Approval) -> ApprovalRule | None:
    """Return the rule that answers an approval now. None answers a question, or a call that the client runs."""
    if approval.client or approval.question is not None:
        return None
    return find_rule(tx, conversation, approval.ruled_agent, approval.ruled_tool, approval.ruled_arguments)


def answer_by_rule(tx: Transaction, conversation: int, approval: Approval) -> Approval | None:
    """Store an approval together with the answer of the rule that holds now, as applied. Return None without a rule."""
    rule = find_answering_rule(tx, conversation, approval)
    if rule is None:
        return None
    done = replace(
        approval,
        state="allowed" if rule.allow else "denied",
        answered=now_ms(),
        reason=rule.reason[:MAX_REASON],
        who=BY_RULE,
        rule=rule.id,
        started=True,
        expires=0,
    )
    insert_approvals(tx, conversation, [done])
    return done


def answer_always(tx: Transaction, conversation: int, approval: Approval, always: Always) -> Approval:
    """Store an approval that a callback has answered, as applied, with the rule that its answer makes."""
    done = replace(
        approval,
        state="allowed" if always.allow else "denied",
        answered=now_ms(),
        reason=always.reason[:MAX_REASON],
        who=always.who[:MAX_WHO],
        started=True,
        expires=0,
    )
    insert_approvals(tx, conversation, [done])
    insert_rule(tx, conversation, rule_of_answer(done, always), always.seconds)
    return done


def rule_of_answer(approval: Approval, always: Always) -> ApprovalRule:
    """Return the rule that an answer to an approval makes. Raises `InvalidInput`."""
    if approval.client or approval.question is not None:
        what = "a call that the client runs" if approval.client else "a question"
        raise InvalidInput(f"approval {approval.id!r}: no rule can answer {what}", fix="Answer it without always.")
    return make_rule(
        always,
        tool=approval.ruled_tool,
        arguments=approval.ruled_arguments,
        agent=approval.ruled_agent,
        approval=approval.id,
        who=approval.who,
    )


class CallAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer to a call of a reply: by `who`, or by the rule with that id. `index` is the position of the call.

    `text` is the answer in one sentence, with what the rule is about, and who made it when.
    """

    call: str
    index: int
    name: str
    allowed: bool
    answered: int
    who: str = ""
    reason: str = ""
    rule: str = ""
    text: str = ""


def load_call_answers(tx: Transaction, conversation: str, message: Message) -> list[CallAnswer]:
    """Return the answers to the calls of a reply, in the order of the calls. A program's own calls are included."""
    places = {call.id: index for index, call in reversed([*enumerate(message.tool_calls)])}
    number = load_tip(tx, conversation).conversation
    asked = [
        each
        for each in (load_turn_approvals(tx, number, message.turn) if message.turn and places else [])
        if each.state in ("allowed", "denied")
        and each.question is None
        and (each.seq == message.seq or (not each.seq and each.call in places))
    ]
    rules = load_rules_by_id(tx, [each.rule for each in asked if each.rule])
    found = [
        CallAnswer(
            call=each.call,
            index=each.index if each.seq else places[each.call],
            name=each.name,
            allowed=each.state == "allowed",
            answered=each.answered,
            who=each.who,
            reason=each.reason,
            rule=each.rule,
            text=_describe_answer(each, rules.get(each.rule)),
        )
        for each in asked
    ]
    return sorted(found, key=lambda each: each.index)


def load_ruled(tx: Transaction, conversation: str) -> list[tuple[Approval, str]]:
    """Return the calls of a conversation that rules answered, oldest first, each with that answer in one sentence."""
    number = load_tip(tx, conversation).conversation
    found = _decoded_readable(tx.rows(f"{SELECT} WHERE a.conversation = ? ORDER BY a.number", number))
    found = [each for each in found if each.rule]
    rules = load_rules_by_id(tx, [each.rule for each in found])
    return [(each, _describe_answer(each, rules.get(each.rule))) for each in found]


def _describe_answer(approval: Approval, rule: ApprovalRule | None) -> str:
    verb = "Allowed" if approval.state == "allowed" else "Denied"
    if approval.rule:
        made = f" by {rule.who}" if rule is not None and rule.who else ""
        return f"{verb} by rule {approval.rule} " + (
            "(removed since)" if rule is None else f"({rule.describe()}), made on {format_time(rule.made)}{made}"
        )
    by = "because no answer came in time" if approval.who == EXPIRED else f"by {approval.who or 'a program'}"
    return f"{verb} {by} on {format_time(approval.answered)}"


def answer_event(approval: Approval) -> ApprovalAnswered:
    """Return the event of an answer."""
    return ApprovalAnswered(
        time=approval.answered,
        agent=approval.agent,
        turn=approval.turn,
        step=approval.step,
        id=approval.call,
        name=approval.name,
        approval=approval.id,
        allowed=approval.state == "allowed",
        text=approval.reason,
        who=approval.who,
        rule=approval.rule,
    )


def save_started(tx: Transaction, approval: Approval) -> None:
    """Record that the answer was applied: the tool starts, or its call got the declined result.

    What a person has written for a server is not kept any longer.
    """
    asked = approval.question
    _update(tx, replace(approval, started=True, answer={}, question=asked and replace(asked, state=None)))


def withdraw(
    tx: Transaction, conversation: int, turn: int, *, hosted_only: bool = False, keeps_questions: bool = False
) -> None:
    """Withdraw the pending approvals of a turn that has ended, or only those of a provider that runs tools itself.

    Answers that were not applied no longer count.
    """
    for each in load_turn_approvals(tx, conversation, turn):
        if keeps_questions and each.question is not None and each.seq:
            continue
        if not hosted_only or not each.seq:
            if each.state == "pending":
                _update(tx, replace(each, state="withdrawn", answered=now_ms()))
            elif each.state != "withdrawn" and not each.started:
                save_started(tx, each)


def redact_approvals(tx: Transaction, conversation: int, steps: Collection[tuple[object, object]] | None) -> None:
    """Remove what approvals quote of the messages of some steps (turn and index), or of all. Unreadable ones go."""
    redacted: list[str] = []
    for number, id, body in tx.rows("SELECT number, id, body FROM main.approval WHERE conversation = ?", conversation):
        try:
            each = decode_row(_approval_from_json, body, "Approval")
        except StoreCorrupt as error:
            log_warning(f"approval {number} is removed: {error}")
            tx.run("DELETE FROM main.approval WHERE number = ?", number)
            redacted.append(id)
            continue
        is_theirs = steps is None or (each.turn, each.step) in steps
        redacted += [id] if is_theirs else []
        if is_theirs and (each.arguments or each.reason or each.result or each.question):
            asked = each.question and replace(each.question, requests=(), state=None)
            _update(tx, replace(each, arguments={}, reason="", result="", question=asked, answer={}))
    delete_rules_of(tx, redacted)


def _load_locked(tx: Transaction, id: str) -> tuple[int, Approval | None]:
    """Lock the conversation of an approval. Return its number and the approval as it is now."""
    row = tx.row("SELECT conversation FROM main.approval WHERE id = ?", id)
    if row is None:
        return 0, None
    if tx.dialect.row_lock:
        tx.row(f"SELECT 1 FROM main.conversation WHERE number = ?{tx.dialect.row_lock}", row[0])
    found = _decoded(tx.rows(f"{SELECT} WHERE a.id = ?", id))
    return row[0], found[0] if found else None


def _save_answer(
    tx: Transaction, conversation: int, approval: Approval, allow: bool, reason: str, who: str, time: int
) -> Approval:
    done = replace(approval, state="allowed" if allow else "denied", reason=reason[:MAX_REASON], who=who, answered=time)
    _update(tx, done)
    append_events(tx, conversation, [answer_event(done)])
    defer_continuation(tx, *agent_calls.find_outermost_caller(tx, conversation, done.agent))
    return done


MAX_REASON = 10_000
"""Maximum length of the reason of an answer."""
MAX_WHO = 200
"""Maximum length of the person of an answer."""


def _update(tx: Transaction, approval: Approval) -> None:
    unused = approval.state != "withdrawn" and not approval.started
    tx.run(
        "UPDATE main.approval SET answered = ?, unused = ?, body = ? WHERE id = ?",
        approval.answered,
        int(unused),
        _encode(approval),
        approval.id,
    )


def _encode(approval: Approval) -> bytes:
    bare = replace(approval, conversation="")
    try:
        return msgspec.json.encode(bare)
    except UnicodeEncodeError:  # a lone surrogate in the arguments of the call
        return msgspec.json.encode(fix_surrogates_in_json(msgspec.to_builtins(bare)))


def _decoded_readable(rows: Sequence[Row]) -> list[Approval]:
    found: list[Approval] = []
    for row in rows:
        try:
            found += _decoded([row])
        except StoreCorrupt as error:
            log_warning(f"an approval of conversation {row[1]!r} is left out: {error}")
    return found


def _decoded(rows: Sequence[Row]) -> list[Approval]:
    return [replace(decode_row(_approval_from_json, body, "Approval"), conversation=name) for body, name in rows]
