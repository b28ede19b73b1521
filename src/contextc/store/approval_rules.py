"""Rules that answer calls of a tool in advance, as functions over a transaction: always allow, or always deny.

A rule is made by a person's answer to an approval, in the transaction of that answer. Nothing that a model writes makes
one. It stands in for a person only where a person would be asked. So it can neither give an agent a tool, nor apply
to an agent without `approve`. Whether it holds is decided in the transaction that starts the call, by the clock of the
store: a rule that expired or was revoked does not hold for the next call of any process.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject, encode_canonical, fix_surrogates_in_json
from contextc.errors import InvalidInput, StoreCorrupt, UnknownRule
from contextc.store import agent_calls
from contextc.store.message_log import decode_row
from contextc.store.transaction_engine import Row, Transaction, log_warning

RuleScope: TypeAlias = Literal["conversation", "agent", "store"]
SCOPES: tuple[RuleScope, ...] = ("conversation", "agent", "store")
RuleArguments: TypeAlias = Literal["exact", "any"]
BY_RULE = "rule"
"""The value of `who` of an answer that a rule has given."""
MAX_RULE_SECONDS = 10 * 366 * 86_400
NOT_IN_REST = frozenset(";&|<>$`(){}[]\\\"'\n")
"""Characters that a value must not have after the prefix of a rule: they can begin another command."""


class Always(Struct, frozen=True, kw_only=True):
    """An answer to an approval that also holds for later calls of the tool: always allow, or with `allow=False` deny.

    It holds in this conversation, and in those of the agents that it calls; with the scope "agent" for all
    conversations of the agent with this name, and with "store" for every agent of the store. With `arguments="any"` it
    holds for all arguments, otherwise for exactly those of the call.

    With `argument` and `prefix`, that one argument only has to begin with the prefix, and the others must be equal.
    What follows the prefix must be separate from it, without characters that can begin another command, and no `..`.

    It holds for `seconds`, or without them until it is revoked. A rule of a conversation ends with it. The model gets
    the `reason` of a denial, also later. `who` is the person, if the answer does not say it.
    """

    allow: bool = True
    scope: RuleScope = "conversation"
    arguments: RuleArguments = "exact"
    argument: str = ""
    prefix: str = ""
    seconds: float | None = None
    reason: str = ""
    who: str = ""

    def check(self) -> None:
        """Raise `InvalidInput` for the first field with an invalid value."""
        for name, value, known in (("scope", self.scope, SCOPES), ("arguments", self.arguments, ("exact", "any"))):
            if value not in known:
                raise InvalidInput(f"always: {name} must be one of {', '.join(known)}", got=value)
        for name in ("argument", "prefix", "reason", "who"):
            if not isinstance(getattr(self, name), str):
                raise InvalidInput(f"always: {name} must be a string", got=getattr(self, name))
        if not isinstance(self.allow, bool):
            raise InvalidInput("always: allow must be True or False", got=self.allow)
        if bool(self.argument) != bool(self.prefix.strip()) or (self.prefix and self.arguments == "any"):
            raise InvalidInput(
                "always: argument and prefix belong together, with arguments='exact'",
                fix="Pass the name of the argument and the beginning of its value.",
            )
        seconds = self.seconds
        if seconds is not None and (
            isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MAX_RULE_SECONDS
        ):
            raise InvalidInput("always: seconds must be above 0 and at most ten years, or None", got=seconds)


class ApprovalRule(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A stored rule. `made`, `expires` and `revoked` are Unix milliseconds; 0 is never.

    `conversation` is the one in which it holds, and `agent` the agent; both are "" for every agent of the store.
    `arguments` is None if it holds for all. `approval` is the answer that made it, and `who` the person.
    """

    id: str
    tool: str
    allow: bool
    scope: RuleScope
    conversation: str = ""
    agent: str = ""
    arguments: JSONObject | None = None
    argument: str = ""
    prefix: str = ""
    reason: str = ""
    made: int = 0
    expires: int = 0
    revoked: int = 0
    who: str = ""
    revoked_by: str = ""
    approval: str = ""

    def covers(self, tool: str, arguments: JSONObject) -> bool:
        """Return True if a call of a tool has the arguments that the rule is about."""
        if tool != self.tool:
            return False
        if self.arguments is None:
            return True
        if not self.argument:
            return encode_canonical(arguments) == encode_canonical(self.arguments)
        value = arguments.get(self.argument)
        rest: JSONObject = {name: each for name, each in arguments.items() if name != self.argument}
        known: JSONObject = {name: each for name, each in self.arguments.items() if name != self.argument}
        return (
            isinstance(value, str)
            and encode_canonical(rest) == encode_canonical(known)
            and continues_prefix(value, self.prefix)
        )

    def describe(self) -> str:
        """Return what the rule is about, in one line: the tool with its arguments, and where it holds."""
        if self.arguments is None:
            what = "with any arguments"
        elif self.argument:
            what = f"with {self.argument} beginning with {_quote(self.prefix)}"
        else:
            what = f"with {_quote(self.arguments)}"
        where = {"conversation": "in this conversation", "agent": f"by agent {self.agent}", "store": "by every agent"}
        return f"{'allow' if self.allow else 'deny'} {self.tool} {what}, {where[self.scope]}"


def continues_prefix(value: str, prefix: str) -> bool:
    """Return True if a value is a prefix, or continues it with separate words that cannot begin another command."""
    if not value.startswith(prefix):
        return False
    rest = value[len(prefix) :]
    return not rest or (
        (rest[0] == " " or prefix[-1] in " /=:")
        and rest.isprintable()
        and not NOT_IN_REST.intersection(rest)
        and ".." not in rest
    )


def make_rule(always: Always, *, tool: str, arguments: JSONObject, agent: str, approval: str, who: str) -> ApprovalRule:
    """Return the rule that an answer makes. Raises `InvalidInput` if it would not hold for the call that is answered.

    An answer makes one rule, so the id of a rule is that of its answer, shorter and not to be traced back to it.
    """
    always.check()
    made = ApprovalRule(
        id=sha256(approval.encode()).hexdigest()[:12],
        tool=tool,
        allow=always.allow,
        scope=always.scope,
        agent=agent if always.scope == "agent" else "",
        arguments=None if always.arguments == "any" else arguments,
        argument=always.argument,
        prefix=always.prefix,
        reason=always.reason,
        approval=approval,
        who=who,
    )
    if not made.covers(tool, arguments):
        raise InvalidInput(
            f"always: the rule does not hold for the call itself: {always.argument} must begin with the prefix,"
            " and what follows must have no character that can begin another command",
            got=arguments.get(always.argument),
            fix="Use a prefix of the value that was shown, up to the end of a word.",
        )
    return made


def insert_rule(tx: Transaction, conversation: int, rule: ApprovalRule, seconds: float | None) -> ApprovalRule:
    """Store a rule that was made in a conversation. Its times are those of the store's clock."""
    now = _load_clock(tx)
    bound = find_outermost(tx, conversation) if rule.scope == "conversation" else 0
    rule = replace(rule, made=now, expires=0 if seconds is None else now + max(1, int(seconds * 1000)))
    tx.run(
        "INSERT INTO main.approval_rule (id, tool, bound, agent, conversation, approval, quotes, expires, body)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
        *(rule.id, rule.tool, bound, rule.agent, conversation, rule.approval, int(rule.arguments is not None)),
        *(rule.expires, _encode(rule)),
    )
    return replace(rule, conversation=agent_calls.load_name(tx, bound) if bound else "")


def find_outermost(tx: Transaction, conversation: int) -> int:
    """Return the conversation that called the agents down to this one; itself if it was not called."""
    while (call := agent_calls.find_agent_call(tx, conversation)) is not None:
        conversation = call.parent
    return conversation


def find_rule(tx: Transaction, conversation: int, agent: str, tool: str, arguments: JSONObject) -> ApprovalRule | None:
    """Return the rule that answers a call now: one that denies before one that allows, the oldest first."""
    rows = tx.rows(
        "SELECT body, bound, expires, revoked FROM main.approval_rule WHERE tool = ? AND revoked = 0"
        f" AND (expires = 0 OR expires > {clock_sql(tx)}) AND (agent = '' OR agent = ?) ORDER BY number",
        tool,
        agent,
    )
    if not rows:
        return None
    here = find_outermost(tx, conversation)
    found = [each for row in rows if row[1] in (0, here) and (each := _decode(row)) and each.covers(tool, arguments)]
    return min(found, key=lambda each: each.allow, default=None)


def load_rules(tx: Transaction, *, ended: bool = False) -> list[ApprovalRule]:
    """Return the rules that hold, oldest first; with `ended` also those that expired or were revoked."""
    which = "" if ended else f" WHERE r.revoked = 0 AND (r.expires = 0 OR r.expires > {clock_sql(tx)})"
    rows = tx.rows(
        "SELECT r.body, r.bound, r.expires, r.revoked, c.name FROM main.approval_rule r"
        f" LEFT JOIN main.conversation c ON c.number = r.bound{which} ORDER BY r.number"
    )
    return [replace(each, conversation=row[4] or "") for row in rows if (each := _decode(row))]


def load_rules_by_id(tx: Transaction, ids: Iterable[str]) -> dict[str, ApprovalRule]:
    """Return stored rules by their ids, also those that hold no longer."""
    found: dict[str, ApprovalRule] = {}
    for id in dict.fromkeys(ids):
        rows = tx.rows("SELECT body, bound, expires, revoked FROM main.approval_rule WHERE id = ?", id)
        if rows and (rule := _decode(rows[0])) is not None:
            found[id] = replace(rule, conversation=agent_calls.load_name(tx, rows[0][1]) if rows[0][1] else "")
    return found


def revoke_rule(tx: Transaction, id: str, who: str) -> ApprovalRule:
    """Revoke a rule. One that was revoked before stays as it is. Raises `UnknownRule`."""
    found = load_rules_by_id(tx, [id]).get(id)
    if found is None:
        raise UnknownRule(id)
    if not found.revoked:
        found = replace(found, revoked=_load_clock(tx), revoked_by=who)
        tx.run("UPDATE main.approval_rule SET revoked = ?, body = ? WHERE id = ?", found.revoked, _encode(found), id)
    return found


def delete_rules_of(tx: Transaction, approvals: Sequence[str]) -> None:
    """Remove the rules that quote the calls of redacted approvals. The next such call is asked for again."""
    for each in approvals:
        tx.run("DELETE FROM main.approval_rule WHERE approval = ? AND quotes = 1", each)


_rule_from_json = msgspec.json.Decoder(ApprovalRule).decode


def clock_sql(tx: Transaction) -> str:
    """Return the SQL of the store's clock, in Unix milliseconds."""
    return f"CAST(({tx.dialect.now}) * 1000 AS BIGINT)"


def _load_clock(tx: Transaction) -> int:
    row = tx.row(f"SELECT {clock_sql(tx)}")
    assert row is not None, "a SELECT without a table has a row"
    return row[0]


def _decode(row: Row) -> ApprovalRule | None:
    """Return a rule of a row. An unreadable one holds for nothing, so that a person is asked."""
    try:
        return decode_row(_rule_from_json, row[0], "ApprovalRule")
    except StoreCorrupt as error:
        log_warning(f"a rule for approvals is left out: {error}")
        return None


def _encode(rule: ApprovalRule) -> bytes:
    bare = replace(rule, conversation="")
    try:
        return msgspec.json.encode(bare)
    except UnicodeEncodeError:  # a lone surrogate in the arguments of the call
        return msgspec.json.encode(fix_surrogates_in_json(msgspec.to_builtins(bare)))


def format_time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _quote(value: JSON) -> str:
    return msgspec.json.encode(fix_surrogates_in_json(value)).decode()
