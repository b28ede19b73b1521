"""Repair of stored conversations, as the doctor's findings announce it, in one transaction per conversation.

No message is changed or removed. A call without a result gets one at the end, and a ledger that names lost messages is
emptied. For all other problems, a new branch with the repaired messages becomes the current one, and the old branch
stays. A repair locks the conversation as a turn does. So a conversation with a running turn is skipped, and no turn
begins during a repair. Each chain is checked again under the lock, so a repair by another process is not repeated. A
killed process leaves a conversation repaired or unchanged.
"""

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from contextc.doctor.branch_check import load_branches
from contextc.doctor.chain_rewrite import ChainRewriter, repaired_branches
from contextc.doctor.current_branch import CurrentBranch, conversations_with_running_turn, repair_current_branch
from contextc.doctor.findings import Finding, pluralize
from contextc.doctor.hash_check import BranchRow
from contextc.doctor.ledger_check import repair_ledgers
from contextc.doctor.message_chain_check import ChainCheck, check_chain
from contextc.doctor.tool_pair_check import OpenCall
from contextc.errors import Conflict, ContextcError, InvalidInput, StoreCorrupt, UnknownConversation
from contextc.messages import Message, validate_message
from contextc.messages.pairing import make_synthetic_result
from contextc.store import Store, append_and_load, message_rows
from contextc.store.backend_interface import Transaction
from contextc.store.message_rows import BranchTip
from contextc.store.redaction import REPAIR_KEY

DATA_ERRORS = (TypeError, ValueError, AttributeError, LookupError)
"""Exceptions that unexpected values in rows can cause."""


class RepairResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for one conversation: `healed`, `sound` (nothing to repair), or `left` (unchanged), and why."""

    conversation: str
    outcome: Literal["healed", "sound", "left"]
    text: str
    appended: int = 0
    branches: dict[int, int] = {}
    """The new branches, by the branches they replace."""


def repair_conversations(
    store: Store, findings: Iterable[Finding], progress: Callable[[int, int], None] | None = None
) -> list[RepairResult]:
    """Repair the findings, conversation by conversation, and return the outcome of each.

    Pass some of the findings to repair only those. If a repair starts a branch, it fixes all problems of that chain.
    """
    wanted: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.conversation is not None and finding.healing != "none":
            wanted.setdefault(finding.conversation, []).append(finding)
    if wanted:
        store.recover()
    results: list[RepairResult] = []
    for name, group in wanted.items():
        try:
            results.append(
                store.write(lambda tx, name=name, group=group: _repair_conversation(tx, name, group), repeatable=True)
            )
        except (StoreCorrupt, InvalidInput, Conflict, *DATA_ERRORS) as error:
            results.append(_unchanged(name, error))  # the others are repaired all the same
        if progress:
            progress(len(results), len(wanted))
    return results


def _unchanged(name: str, error: Exception) -> RepairResult:
    why = str(error) if isinstance(error, ContextcError) else f"Its stored rows are invalid: {error!r}."
    return RepairResult(conversation=name, outcome="left", text=f"{why} Nothing was changed.")


def _repair_conversation(tx: Transaction, name: str, findings: list[Finding]) -> RepairResult:
    message_rows.lock_tree(tx, name)
    tx.row(f"SELECT 1 FROM conversation WHERE name = ?{tx.dialect.row_lock}", name)
    if name in conversations_with_running_turn(tx):
        text = "A turn is running in it, so nothing was changed. Repair it when the turn has ended."
        return RepairResult(conversation=name, outcome="left", text=text)
    before = (
        repair_current_branch(tx, name, load_branches(tx)) if any(each.healing == "row" for each in findings) else None
    )
    here, branches = _load_head(tx, name)
    may_branch = any(finding.healing == "branch" for finding in findings)
    others = sorted({line for finding in findings for line in finding.branches} - {here.branch})
    repaired = set(repaired_branches(tx, branches)) if others else set[int]()
    begun: dict[int, int] = {}
    for line in others:
        known = branches.get(line)
        if known is None or known.conversation != name or line in repaired:
            continue
        found = check_chain(tx, branches, line)
        if found.is_damaged and found.end > known.base:  # an empty branch has nothing to repair
            begun[line] = ChainRewriter(tx, name, branches, found).write(here).branch
    found = check_chain(tx, branches, here.branch)
    if may_branch and found.base is not None:
        begun[here.branch] = ChainRewriter(tx, name, branches, found).write(here).branch
        sql = "UPDATE conversation SET branch = ?, revision = revision + 1 WHERE name = ?"
        tx.run(sql, begun[here.branch], name)
        message_rows.update_last_active(tx, name)
    answers = here.branch in begun or any(finding.healing == "append" for finding in findings)
    results = (
        [append_and_load.prepare_entry(validate_message(_placeholder_result(asked))) for asked in found.open_calls]
        if answers
        else []
    )
    if results:
        append_and_load.append_messages(tx, name, results)
    return _describe_result(tx, name, found, begun, len(results), before, repair_ledgers(tx, name))


def _load_head(tx: Transaction, name: str) -> tuple[BranchTip, dict[int, BranchRow]]:
    """Return the head of a conversation, and the branches of its tree as `load_branches` verified them."""
    row = tx.row("SELECT number, tree, branch, revision FROM conversation WHERE name = ?", name)
    if row is None:
        raise UnknownConversation(name)
    number, tree, branch, revision = row
    branches = {each.number: each for each in load_branches(tx, tree)}
    if branch not in branches or branches[branch].conversation != name:
        raise StoreCorrupt(
            f"Its current branch {branch} is missing, or belongs to another conversation", fix="Scan the store again."
        )
    end, tip = message_rows.load_branch_end(tx, branch)
    return BranchTip(number, tree, branch, revision, end, tip), branches


def _placeholder_result(asked: OpenCall) -> Message:
    """Return the placeholder result of a call, to be stored."""
    message, call = asked.message, msgspec.structs.replace(asked.call, id=asked.id)
    reason = "cancelled" if message.status == "cancelled" else "interrupted"
    return Message(
        role="tool",
        parts=(make_synthetic_result(call, reason),),
        author=message.author,
        run=message.run,
        turn=message.turn,
        step=message.step,
        meta={REPAIR_KEY: {"of": message.uid, "because": ["open-call"]}},
    )


def _describe_result(
    tx: Transaction,
    name: str,
    found: ChainCheck,
    started: dict[int, int],
    appended: int,
    switched: CurrentBranch | None,
    ledgers: list[str],
) -> RepairResult:
    turned = switched is not None and switched.fault is not None
    notes = [f"Its current branch is now branch {found.branch}."] if turned and found.branch not in started else []
    for old, new in started.items():
        base = message_rows.load_base_seq(tx, new)
        after = f"after message {base}" if base else "at the root"
        notes.append(f"Branch {new}, started {after}, has the repaired messages of branch {old}. Branch {old} stays.")
        notes += [f"The current branch is now branch {new}."] if old == found.branch else []
    if appended:
        notes.append(f"Appended {pluralize(appended, 'result')}.")
    notes += ledgers
    if not notes:
        return RepairResult(conversation=name, outcome="sound", text="Nothing to repair.")
    return RepairResult(conversation=name, outcome="healed", text=" ".join(notes), appended=appended, branches=started)
