"""Oracle for session tests: after every success, the provider's memory, the ledger and the log must agree.

It reads the log and the ledger rows itself, and has its own short definition of what an agent sees.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec

from contextc._json import JSONObject, encode
from contextc.compiler import Compiled, ledger
from contextc.compiler.ledger import split_chunk
from contextc.messages import Message, decode_message
from contextc.store.ledger_schema import Channel, ChannelState, Item, LedgerRow
from contextc.store.message_log import SEQ_BITS, SEQ_MASK, make_place
from contextc.store.transaction_engine import Transaction
from tests.compiler.random_simulation import Simulation, mark_of
from tests.compiler.simulated_providers import (
    MARK,
    Answer,
    SessionProvider,
    blocks,
    head_of,
    marks,
    reply_messages,
    sent_messages,
)

STRAY = "no call asked for it"
CUT = ("its turn was cut away", "its step was cut away", "summed up", "too long to be shown", "its call was left out")


class ConsistencyOracle(Simulation):
    def check_announced(self, compiled: Compiled) -> None:
        """Guarantee 9.6: a fallback is a new session, and the manifest says why."""
        if isinstance(self.ends[self.provider], SessionProvider):
            assert (compiled.mode == "full") == bool(compiled.manifest.why)
            assert (compiled.session_id is None) == (compiled.mode == "full")
        body = compiled.body.decode()
        content = {mark for mark in self.redacted if mark in body}
        assert not content, f"{content} was redacted, and is sent again"

    def ledger(self, channel: Channel) -> tuple[ChannelState, list[Item], list[bytes]]:
        """Return the state of the channel, its items, and their wire messages as blocks."""

        def work(tx: Transaction) -> tuple[ChannelState, list[Item], list[bytes]]:
            state = ledger.load_state(tx, channel)
            assert state is not None
            items, wires = list[Item](), list[JSONObject]()
            for channel_number, first, last in state.layout:
                for stored, wire in tx.rows(
                    "SELECT items, wire FROM main.shown WHERE place BETWEEN ? AND ? ORDER BY place",
                    make_place(channel_number, first),
                    make_place(channel_number, last),
                ):
                    row = msgspec.json.decode(stored, type=LedgerRow)
                    items += row.items
                    if row.drop:
                        del wires[-row.drop :]
                    wires += split_chunk(wire)
            return state, [*items, *state.produced], blocks(wires)

        return self.store.read(work)

    def check(self, compiled: Compiled, answer: Answer, *, changed: bool) -> None:
        channel, end = compiled.channel, self.ends[self.provider]
        _, items, wires = self.ledger(channel)
        replies = blocks(reply_messages(compiled.formatter, answer.produced))
        if isinstance(end, SessionProvider):
            assert answer.session_id is not None
            session = end.sessions[answer.session_id]
            sent, memory = blocks(session.sent), blocks(session.memory)
            resent = self.compilers[self.provider].provider.resends_head
            self.check_static(compiled, items, head_of(compiled) if resent else session.head)
        else:
            self.check_static(compiled, items, head_of(compiled))
            sent = blocks(sent_messages(compiled))
            memory = [*sent, *replies]
        if not changed:
            assert sent == wires, "the provider's memory is not what the ledger says"
        self.check_items(compiled, items, changed=changed)
        self.check_marks(items, memory)
        if self.dynamic and not changed:
            last = next((item.text for item in reversed(items) if item.kind == "dynamic"), "")
            assert last.endswith(self.dynamic), "the dynamic fragments are not what the model was told last"

    def check_static(self, compiled: Compiled, items: Sequence[Item], head: JSONObject) -> None:
        """Check that the instructions in force are the last ones that were sent."""
        static = self.statics[self.agent]
        texts = [encode(head).decode()]
        texts += [item.text for item in items if item.kind == "update"]
        assert compiled.mode == "resume" or len(texts) == 1, "an old update was told again, in a new session"
        assert f"version {static}." in texts[-1] if static else "version" not in texts[-1]

    def check_items(self, compiled: Compiled, items: Sequence[Item], *, changed: bool) -> None:
        """Every message that the agent sees is in the ledger exactly once, or was left out for a reason."""
        channel = compiled.channel
        gone = self.gone.setdefault(channel, self._inherited(channel))
        before = set(gone)
        for left in compiled.record.left:
            if left.why in CUT or left.why == STRAY:
                gone.add(left.place)
        shown = Counter(item.place for item in items if item.place and item.kind in ("message", "late"))
        gone -= shown.keys()
        each = Counter((item.place, item.only, item.text) for item in items if item.kind in ("message", "late"))
        twice = {where & SEQ_MASK for (where, _, _), count in each.items() if count > 1}
        assert not twice, f"messages {twice} are in the ledger twice"
        if changed:
            return
        log, last = self.log(channel.conversation), compiled.record.tip
        produced = {where for where, message in log.items() if message.seq > last}
        self.check_strays(compiled, log, shown)
        kept = self.store.pinned(channel.conversation)
        pinned = {where for where, message in log.items() if message.seq in kept}
        cut = {left.place for left in compiled.record.left if left.why in CUT} - before
        assert not pinned & cut, "a pinned message was cut away"
        prompt = compiled.head.body if compiled.mode == "full" else None
        leads = set[int]() if self.statics[self.agent] else leading(log)
        for where, message in log.items():
            if where in leads:
                assert not shown[where], f"message {message.seq} belongs to the prompt, and was shown besides"
                assert prompt is None or mark_of(message) in encode(prompt).decode()
            elif sees(self.agent, channel, message) and self.is_running(message, log):
                pass  # shown when its run ends, or before, where it was seen from inside that run
            elif sees(self.agent, channel, message):
                assert shown[where] or where in gone, f"message {message.seq} ({mark_of(message)}) was never shown"
            else:
                assert not shown[where] or message.redacted, f"message {message.seq} was shown, and should not be"
        strays = shown.keys() - log.keys() - produced
        assert not strays, f"{[(where >> SEQ_BITS, where & SEQ_MASK) for where in strays]} is not on the line"

    def is_running(self, message: Message, log: dict[int, Message]) -> bool:
        """Return True if a message belongs to another run of this agent that has not ended."""
        run = self.runs[self.agent]
        if run is None or message.run is None or message.run == run or message.author != self.agent:
            return False
        last = [each for each in log.values() if each.run == message.run and each.author == self.agent][-1]
        return last.role != "assistant" or bool(last.tool_calls)

    def check_strays(self, compiled: Compiled, log: dict[int, Message], shown: Counter[int]) -> None:
        """A result is left out only where its call is not there, or another result came first."""
        for where in [left.place for left in compiled.record.left if left.why == STRAY]:
            for result in [each for each in log[where].tool_results if each.call_id not in self.answered]:
                first = next(at for at, each in log.items() if result.call_id in [r.call_id for r in each.tool_results])
                calls = [at for at, each in log.items() if result.call_id in [call.id for call in each.tool_calls]]
                assert first != where or not any(shown[at] for at in calls), f"{result.text[:6]} was left out"

    def _inherited(self, channel: Channel) -> set[int]:
        """A fork begins with what its parent had; of that, with what had been cut away there."""
        found: set[int] = set()
        for other, gone in self.gone.items():
            if other[1:] == channel[1:]:
                found |= gone
        return found

    def check_marks(self, items: Sequence[Item], memory: Sequence[bytes]) -> None:
        """Check that everything that was sent is in the provider's memory once."""
        answer = marks(memory)
        kept = [item.text.encode() for item in items if item.is_kept_history or item.kind == "summary"]
        answer.subtract(marks(kept))  # a digest, and what is kept of people's words, repeat what messages say
        assert not [mark for mark, count in answer.items() if count > 1], f"told twice: {answer}"
        everything = self.everything()
        called = {
            call.id for item in items if item.role == "assistant" and item.kind == "message"
            for call in everything[item.place].tool_calls
        }  # fmt: skip
        answered: set[str] = set()
        for item in items:
            if not item.place or item.kind not in ("message", "late"):
                continue
            message = everything[item.place]
            if message.redacted or item.decayed:
                continue
            if item.kind == "late":  # one result of a message; another of it may be cut away
                assert all([answer[mark] for mark in MARK.findall(item.text)])
                continue
            wanted = set(MARK.findall(message.text))
            if item.calls:
                answered |= {result.call_id for result in message.tool_results}
            elif item.role == "assistant":
                wanted |= {mark for call in message.tool_calls for mark in MARK.findall(str(call.arguments))}
            for result in message.tool_results:
                if result.call_id in called and result.call_id not in answered:
                    answered.add(result.call_id)
                    wanted |= set(MARK.findall(result.text))
            missing = {mark for mark in wanted if not answer[mark]}
            assert not missing, f"{missing} of message {message.seq} is in the ledger, and the model was not told"

    def everything(self) -> dict[int, Message]:
        """Return every message of all branches by place."""
        rows = self.store.read(lambda tx: tx.rows("SELECT place, body FROM main.message"))
        return {where: decode_message(body) for where, body in rows}


def leading(log: dict[int, Message]) -> set[int]:
    """Return the places of the system messages at the start of a conversation. They are the prompt if there is no
    other.
    """
    found: set[int] = set()
    for where, message in log.items():
        if message.role != "system" or message.audience is not None:
            break
        if not message.redacted:
            found.add(where)
    return found


def sees(agent: str, channel: Channel, message: Message) -> bool:
    """Guarantees 4.1 and 4.4, for what these lives hold."""
    if message.redacted:
        return False
    if message.audience is not None:
        return message.audience in (agent, f"{channel.provider}:{channel.model}")
    if message.author == agent or message.role in ("user", "system"):
        return True
    return message.role == "assistant" and bool(message.text.strip())
