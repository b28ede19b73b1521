-- Turns, steps, events, queued input and trigger states.
--
-- `place` is the number of a conversation * 2^32 + a number that grows within it: of the turn, the step, the event. A turn
-- whose `running` is true and whose lease has ended was interrupted.
CREATE TABLE turn (
    place INTEGER PRIMARY KEY,
    agent TEXT NOT NULL,
    running INTEGER NOT NULL,
    body BLOB NOT NULL
);

-- One row per step, written before its request is sent: provider, model, request, usage, finish reason, duration.
CREATE TABLE step (
    place INTEGER PRIMARY KEY,
    turn INTEGER NOT NULL,
    body BLOB NOT NULL
);

CREATE TABLE event (
    place INTEGER PRIMARY KEY,
    body BLOB NOT NULL
);

-- Queued input: to be added between two steps of a running turn (steer), or after it (follow-up).
CREATE TABLE queue (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL,
    agent TEXT NOT NULL,
    kind TEXT NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX queue_conversation ON queue (conversation, agent, number);

-- The state of a trigger, written with its message.
CREATE TABLE trigger_state (
    conversation INTEGER NOT NULL,
    agent TEXT NOT NULL,
    name TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (conversation, agent, name)
);

-- Complete requests that were changed between compiling and sending. `place` is that of their manifest.
CREATE TABLE replaced (
    place INTEGER PRIMARY KEY,
    body BLOB NOT NULL
);
