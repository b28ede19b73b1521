-- Transcripts: a provider's own record of its sessions, in its own format, used to resume a session.
--
-- `subpath` is '' for the main transcript of a session. `conversation` is its owner ('' if unknown): it is
-- deleted with that conversation. A `redacted` one is empty and accepts no entries. `summary` is what the provider keeps
-- beside a transcript, `time` the last write, `entries` the number of entries ever appended.
CREATE TABLE transcript (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    project TEXT NOT NULL,
    session TEXT NOT NULL,
    subpath TEXT NOT NULL,
    conversation TEXT NOT NULL,
    time INTEGER NOT NULL,
    entries INTEGER NOT NULL,
    redacted INTEGER NOT NULL,
    summary BLOB
);
CREATE UNIQUE INDEX transcript_name ON transcript (project, session, subpath);
CREATE INDEX transcript_conversation ON transcript (conversation);

-- One row per entry. `place` is transcript * 2^32 + number; `name` is the entry's uuid, or a generated one, so that an
-- entry that is appended twice is stored once.
CREATE TABLE transcript_entry (
    place INTEGER PRIMARY KEY,
    transcript INTEGER NOT NULL,
    name BLOB NOT NULL,
    body BLOB NOT NULL
);
CREATE UNIQUE INDEX transcript_entry_name ON transcript_entry (transcript, name);
