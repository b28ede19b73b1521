-- Approvals of tool calls, and requests to end a turn, as rows: any process can list, give and answer them.
--
-- `id` cannot be guessed. `expires` and `answered` are Unix milliseconds: `expires` 0 means never, `answered` 0 means
-- pending. `unused` is 1 until the answer was applied to the call, or the approval was withdrawn. `body` has the call and
-- the answer as JSON.
CREATE TABLE approval (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    conversation INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    answered INTEGER NOT NULL DEFAULT 0,
    unused INTEGER NOT NULL DEFAULT 1,
    body BLOB NOT NULL
);
CREATE INDEX approval_unused ON approval (conversation, number) WHERE unused = 1;
CREATE INDEX approval_turn ON approval (conversation, turn);

-- Requests to end a turn: at once (cancel), or after its step (stop). `taken` is when the turn has ended for it, or 0.
CREATE TABLE turn_request (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    kind TEXT NOT NULL,
    who TEXT NOT NULL,
    asked INTEGER NOT NULL,
    taken INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX turn_request_turn ON turn_request (conversation, turn);

-- The kind of such a request, for the process that runs the turn: every write under the lease reads this row anyway.
ALTER TABLE lease ADD COLUMN request TEXT NOT NULL DEFAULT '';
