-- What runs: turns and their steps, what is told of them, what waits, and what triggers remember.
--
-- `place` is the number of a conversation * 2^32 + a number that grows within it: of the turn, the step, the event. A turn
-- whose `running` is true and whose lease has ended was interrupted.
CREATE TABLE turn (
    place INTEGER PRIMARY KEY,
    agent TEXT NOT NULL,
    running INTEGER NOT NULL,
    body BLOB NOT NULL
);

-- One row a step, from before its request leaves: provider, model, request, usage, finish reason, duration.
CREATE TABLE step (
    place INTEGER PRIMARY KEY,
    turn INTEGER NOT NULL,
    body BLOB NOT NULL
);

CREATE TABLE event (
    place INTEGER PRIMARY KEY,
    body BLOB NOT NULL
);

-- Input that waits: to enter between two steps of a running turn (steer), or after it (follow-up).
CREATE TABLE queue (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL,
    agent TEXT NOT NULL,
    kind TEXT NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX queue_conversation ON queue (conversation, agent, number);

-- What a trigger remembers, written with its message.
CREATE TABLE trigger_state (
    conversation INTEGER NOT NULL,
    agent TEXT NOT NULL,
    name TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (conversation, agent, name)
);

-- Requests that somebody changed between compiling and sending, whole. `place` is that of their manifest.
CREATE TABLE replaced (
    place INTEGER PRIMARY KEY,
    body BLOB NOT NULL
);
