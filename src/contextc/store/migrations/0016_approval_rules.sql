-- Rules of people that answer calls of a tool in advance: always allow, or always deny.
--
-- A rule is made by an answer: `approval` is its id, `conversation` where it was given. `bound` is the only conversation
-- in which the rule holds, or 0; `agent` the only agent, or ''. `expires` and `revoked` are Unix milliseconds, or 0.
-- `quotes` is 1 if `body` has arguments of a call, so that the rule goes with the conversation that it quotes.
CREATE TABLE approval_rule (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    tool TEXT NOT NULL,
    bound INTEGER NOT NULL,
    agent TEXT NOT NULL,
    conversation INTEGER NOT NULL,
    approval TEXT NOT NULL,
    quotes INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    revoked INTEGER NOT NULL DEFAULT 0,
    body BLOB NOT NULL
);
CREATE INDEX approval_rule_tool ON approval_rule (tool) WHERE revoked = 0;
