-- The record: conversations as chains of messages.
--
-- A branch is a run of messages in one b-tree range; it begins after a message of its parent branch (`base`). Forking,
-- rewinding and editing write one branch row and copy nothing. `place` is branch * 2^32 + seq, so the table's own b-tree
-- serves every range of every chain. `body` is the whole message as JSON, so that a row becomes a message in one pass. A tree is all branches that share a root.
--
-- The message table has no other index, so an append writes to one page. A message is found by its id, which begins with
-- its seq, or by its uid, which holds the place it was given; only a uid that was there before its place is in `early_uid`.
CREATE TABLE conversation (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    tree INTEGER NOT NULL,
    branch INTEGER NOT NULL,
    revision INTEGER NOT NULL DEFAULT 0,
    created INTEGER NOT NULL
);
CREATE INDEX conversation_tree ON conversation (tree);

CREATE TABLE branch (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    tree INTEGER NOT NULL,
    parent INTEGER,
    base_seq INTEGER NOT NULL,
    base_id BLOB NOT NULL,
    conversation TEXT,
    created INTEGER NOT NULL
);
CREATE INDEX branch_parent ON branch (parent);
CREATE INDEX branch_tree ON branch (tree);

CREATE TABLE message (
    place INTEGER PRIMARY KEY,
    id BLOB NOT NULL,
    time INTEGER NOT NULL,
    redacted INTEGER NOT NULL DEFAULT 0,
    body BLOB NOT NULL
);

CREATE TABLE early_uid (
    tree INTEGER NOT NULL,
    uid TEXT NOT NULL,
    place INTEGER NOT NULL,
    PRIMARY KEY (tree, uid)
);
CREATE INDEX early_uid_place ON early_uid (place);

-- Idempotent appends: a key stands for one message of one conversation, for ever.
CREATE TABLE append_key (
    conversation TEXT NOT NULL,
    key TEXT NOT NULL,
    place INTEGER NOT NULL,
    PRIMARY KEY (conversation, key)
);
CREATE INDEX append_key_place ON append_key (place);

-- Context edges: what lies before one is kept, and not sent to a model any more. A branch has its own, and those that its
-- line had when it began.
CREATE TABLE edge (
    place INTEGER PRIMARY KEY
);

-- Media bytes, once each, and who uses them: the last use that goes takes the bytes along.
CREATE TABLE blob (
    name TEXT PRIMARY KEY,
    data BLOB NOT NULL
);
CREATE TABLE blob_use (
    name TEXT NOT NULL,
    place INTEGER NOT NULL,
    PRIMARY KEY (name, place)
);
CREATE INDEX blob_use_place ON blob_use (place);

-- Turns: one at a time for a conversation and an agent. `number` only grows, so a write can be refused that carries an
-- outlived one. `holder` is empty between turns; `branch` and `seq` are where the conversation stood when the turn began.
CREATE TABLE lease (
    conversation TEXT NOT NULL,
    agent TEXT NOT NULL,
    number INTEGER NOT NULL,
    holder TEXT NOT NULL,
    expires REAL NOT NULL,
    branch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (conversation, agent)
);

-- Messages that are still being written live outside the chain. Each batch of deltas is one row, so what is written
-- follows what is new; `head` is the message without its parts.
CREATE TABLE stream (
    uid TEXT PRIMARY KEY,
    conversation TEXT NOT NULL,
    agent TEXT NOT NULL,
    lease INTEGER NOT NULL,
    head BLOB NOT NULL
);
CREATE INDEX stream_lease ON stream (conversation, agent);
CREATE TABLE stream_delta (
    uid TEXT NOT NULL,
    number INTEGER NOT NULL,
    parts BLOB NOT NULL,
    PRIMARY KEY (uid, number)
);
