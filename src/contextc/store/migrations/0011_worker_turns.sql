-- Turns that workers run. A row says that input of an agent in a conversation was submitted to a queue. `submitted` is the
-- uid of input in the conversation that no turn has opened yet, or empty. `deaths` and `failures` count what went wrong with turn `turn` after `steps` steps. `parked` is when workers gave up on it, in Unix
-- milliseconds, or 0; `reason` is why.
CREATE TABLE worker_turn (
    conversation INTEGER NOT NULL,
    agent TEXT NOT NULL,
    queue TEXT NOT NULL,
    submitted TEXT NOT NULL DEFAULT '',
    turn INTEGER NOT NULL DEFAULT 0,
    steps INTEGER NOT NULL DEFAULT 0,
    deaths INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    parked INTEGER NOT NULL DEFAULT 0,
    reason TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (conversation, agent)
);

-- Keys of submitted input that was queued because a turn was running: the same key again submits nothing.
CREATE TABLE queue_key (
    conversation INTEGER NOT NULL,
    key TEXT NOT NULL,
    queued INTEGER NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (conversation, key)
);

-- Model calls in progress, for a limit per provider across processes. A slot whose time is over is free.
CREATE TABLE provider_slot (
    provider TEXT NOT NULL,
    number INTEGER NOT NULL,
    holder TEXT NOT NULL DEFAULT '',
    expires REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (provider, number)
);
