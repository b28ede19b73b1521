"""Approvals of a store, and requests to end its turns: `Store` extends this class."""

from collections.abc import Callable

from contextc.errors import InvalidInput
from contextc.store import approvals, turn_requests
from contextc.store.append_and_load import now_ms
from contextc.store.approvals import Approval
from contextc.store.backend_interface import Transaction
from contextc.store.conversation_types import DEFAULT_AGENT
from contextc.store.lease_manager import LeaseManager
from contextc.store.message_rows import check_name, load_tip
from contextc.store.transaction_engine import Connection
from contextc.store.turn_requests import RequestKind, TurnRequest

MAX_WHO = 200


class TurnControls(LeaseManager[Connection]):
    """Approvals, and requests to end turns. All of them work for turns of any process."""

    def approvals(self, conversation: str | None = None) -> list[Approval]:
        """Return the pending approvals of a conversation, or of the whole store, oldest first.

        Expired ones are answered with their default answer first. Raises `UnknownConversation`.
        """

        def work(tx: Transaction) -> list[Approval]:
            if conversation is not None:
                load_tip(tx, conversation)
            return approvals.load_pending(tx, conversation)

        found, now = self.read(work), now_ms()
        if any(0 < each.expires <= now for each in found):
            self.expire_approvals(conversation)
            found = self.read(work)
        return found

    def turn_approvals(self, conversation: str, turn: int) -> list[Approval]:
        """Return all approvals of a turn, also those that were answered or withdrawn."""
        return self.read(lambda tx: approvals.load_turn_approvals(tx, load_tip(tx, conversation).conversation, turn))

    def answer_approval(
        self,
        id: str,
        allow: bool,
        *,
        reason: str = "",
        who: str = "",
        result: str | None = None,
        failed: bool = False,
        in_transaction: Callable[[Transaction, Approval], None] | None = None,
    ) -> Approval:
        """Answer a pending approval. The model gets the `reason` of a denial. `who` is stored with the answer.

        `result` is what a client's own tool returned, and `failed` is True if it failed. Only approvals with `client`
        have one.

        The first answer counts: a later one raises `AlreadyAnswered`, which names who answered and when. The turn is
        not continued by this; `in_transaction` can submit that in the same transaction. Raises `UnknownApproval`.
        """
        if not isinstance(allow, bool):
            raise InvalidInput("allow must be True or False", got=allow)
        for name, text in (("reason", reason), ("who", who), ("result", result or "")):
            if not isinstance(text, str):
                raise InvalidInput(f"{name} must be a string, got {type(text).__name__}")
        known = self.read(lambda tx: approvals.load_approval(tx, id))
        if known.state == "pending" and 0 < known.expires <= now_ms():
            self.expire_approvals(known.conversation)
        time = now_ms()

        def work(tx: Transaction) -> Approval:
            done = approvals.answer(
                tx, id, allow=allow, reason=reason, who=who[:MAX_WHO], time=time, result=result, failed=failed
            )
            if in_transaction is not None:
                in_transaction(tx, done)
            return done

        return self.write(work, repeatable=in_transaction is None)

    def expire_approvals(self, conversation: str | None = None) -> list[Approval]:
        """Answer expired approvals with their default answer. Return these."""
        if not self.read(lambda tx: approvals.has_expired(tx, conversation)):
            return []
        return self.write(lambda tx: approvals.expire_pending(tx, conversation))

    def answered_turns(self) -> list[tuple[str, str, int]]:
        """Return the turns that wait although all their approvals are answered: conversation, agent and turn."""
        self.expire_approvals()
        return self.read(approvals.load_answered_turns)

    def cancel_turn(self, conversation: str, agent: str = DEFAULT_AGENT, *, who: str = "") -> TurnRequest:
        """Cancel an agent's turn, in whichever process it runs. A turn that waits for approval ends at once.

        A running turn notices the request with its next write or step, at the latest when its lease is renewed.
        """
        return self._request_end(conversation, agent, "cancel", who)

    def stop_turn(self, conversation: str, agent: str = DEFAULT_AGENT, *, who: str = "") -> TurnRequest:
        """End an agent's turn after its current step, in whichever process it runs. Its finish reason is `stopped`."""
        return self._request_end(conversation, agent, "stop", who)

    def turn_requests(self, conversation: str, turn: int) -> list[TurnRequest]:
        """Return the requests to end a turn, oldest first."""
        return self.read(lambda tx: turn_requests.load_requests(tx, conversation, turn))

    def _request_end(self, conversation: str, agent: str, kind: RequestKind, who: str) -> TurnRequest:
        check_name(agent, "agent")
        if not isinstance(who, str):
            raise InvalidInput(f"who must be a string, got {type(who).__name__}")
        self.recover()  # a turn whose process has ended is interrupted, and not running
        return self.write(lambda tx: turn_requests.request_end(tx, conversation, agent, kind, who[:MAX_WHO]))
