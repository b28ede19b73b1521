-- The random key of the placeholders for redacted text, at most one row.
CREATE TABLE redaction_key (
    number INTEGER PRIMARY KEY,
    key BLOB NOT NULL
);
