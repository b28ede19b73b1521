-- Conversations as chains of messages.
--
-- A branch is a range of messages in one b-tree; it begins after a message of its parent branch (`base`). Forking,
-- rewinding and editing write one branch row and copy nothing. `place` is branch * 2^32 + seq, so the table's own b-tree
-- serves every range of every chain. `body` is the whole message as JSON, decoded in one pass. A tree is all branches that
-- share a root.
--
-- The message table has no other index, so an append writes to one page. A message is found by its id, which begins with
-- its seq, or by its uid, which contains its place. Only a uid that was assigned before the place is in `early_uid`.
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

-- Idempotent appends: a key identifies one message of one conversation permanently.
CREATE TABLE append_key (
    conversation TEXT NOT NULL,
    key TEXT NOT NULL,
    place INTEGER NOT NULL,
    PRIMARY KEY (conversation, key)
);
CREATE INDEX append_key_place ON append_key (place);

-- Context edges: messages before one are kept, but no longer sent to a model. A branch has its own edges, and those of its
-- ancestors at the time it was created.
CREATE TABLE edge (
    place INTEGER PRIMARY KEY
);

-- Media bytes, stored once, and references to them. Removing the last reference removes the bytes.
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

-- Leases: one turn at a time per conversation and agent. `number` only grows, so a write with an ended lease is refused.
-- `holder` is empty between turns; `branch` and `seq` are the end of the conversation when the turn began.
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

-- Messages that are still being written, outside the chain. Each batch of deltas is one row; `head` is the message without
-- its parts.
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
