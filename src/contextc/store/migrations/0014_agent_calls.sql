-- Agents that were called as tools. `conversation` is the one in which a called agent works. It answers a call of `parent`:
-- of its turn `turn`, in the reply `seq` (0: a reply that its provider was still writing), at the index `position`.
-- `agent` is the called agent, `caller` the one that called it. `depth` counts from 1. `answered` is 1 once the call has its
-- result, or gets none any more.
CREATE TABLE agent_call (
    conversation INTEGER PRIMARY KEY,
    parent INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    position INTEGER NOT NULL,
    call TEXT NOT NULL,
    agent TEXT NOT NULL,
    caller TEXT NOT NULL,
    depth INTEGER NOT NULL,
    answered INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX agent_call_parent ON agent_call (parent, turn);
CREATE INDEX agent_call_open ON agent_call (conversation) WHERE answered = 0;
