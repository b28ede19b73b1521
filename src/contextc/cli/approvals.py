"""`contextc approvals`: what waits for an approval, and the rules that answer calls in advance; revoke a rule."""

from typing import Annotated

import msgspec

from contextc.cli.command_line import Option
from contextc.cli.console import JSONOption, out, pluralize, print_json, replace_control_characters
from contextc.cli.inputs import StoreOption, open_configured_store
from contextc.store import Approval, ApprovalRule
from contextc.store.approval_rules import format_time

WHO = "command line"
MAX_TEXT = 200


def run(
    revoke: Annotated[str | None, Option("--revoke", help="Revoke the rule with this id.")] = None,
    all_rules: Annotated[bool, Option("--all", help="List expired and revoked rules, too.")] = False,
    store: StoreOption = None,
    json: JSONOption = False,
) -> None:
    """List the pending approvals of a store, and the rules "always allow" and "always deny". Revoke a rule."""
    with open_configured_store(store) as handle:
        if revoke is not None:
            rule = handle.revoke_rule(revoke, who=WHO)
            if json:
                print_json(msgspec.to_builtins(rule))
            else:
                out.print(f"revoked: {replace_control_characters(_describe(rule))}", soft_wrap=True, markup=False)
            return
        pending, rules = handle.approvals(), handle.approval_rules(ended=all_rules)
    if json:
        print_json({"pending": msgspec.to_builtins(pending), "rules": msgspec.to_builtins(rules)})
        return
    lines = [_describe_pending(each) for each in pending]
    lines += [_describe(each) for each in rules]
    for line in lines:
        out.print(replace_control_characters(line), soft_wrap=True, markup=False, highlight=False)
    if not lines:
        out.print("nothing waits for an approval, and there are no rules")
    elif rules:
        out.print(f"{pluralize(len(rules), 'rule')}. contextc approvals --revoke ID ends one.")


def _describe_pending(approval: Approval) -> str:
    arguments = msgspec.json.encode(approval.arguments).decode(errors="replace")
    return f"waits: {approval.name}({_cut(arguments)}) of {approval.agent} in {approval.conversation}"


def _describe(rule: ApprovalRule) -> str:
    where = f" ({rule.conversation})" if rule.conversation else ""
    until = f", until {format_time(rule.expires)}" if rule.expires else ""
    ended = f", revoked on {format_time(rule.revoked)} by {rule.revoked_by or 'a program'}" if rule.revoked else ""
    made = f"; made on {format_time(rule.made)}{f' by {rule.who}' if rule.who else ''}"
    return f"{rule.id}  {_cut(rule.describe())}{where}{until}{ended}{made}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"
