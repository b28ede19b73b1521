-- A provider's own record of its sessions, kept for it: what it needs to go on with one, in its own words.
--
-- `subpath` is '' for the main transcript of a session. `conversation` is whose words are in it ('' where nobody said):
-- with that one it is deleted. A `redacted` one has lost its entries, and takes none any more. `summary` is what the
-- provider keeps beside a transcript, `time` when it was last written, `entries` how many were ever appended.
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

-- One row an entry. `place` is transcript * 2^32 + number; `name` is the entry's own uuid, or one that we gave it, so that
-- an entry which is given twice is stored once.
CREATE TABLE transcript_entry (
    place INTEGER PRIMARY KEY,
    transcript INTEGER NOT NULL,
    name BLOB NOT NULL,
    body BLOB NOT NULL
);
CREATE UNIQUE INDEX transcript_entry_name ON transcript_entry (transcript, name);
