-- Responses that other software got, as their bytes arrived, for the inspector. `place` is channel * 2^32 + number of the
-- request. `body` is compressed and bounded: the first bytes, and the times and sizes of the pieces.
CREATE TABLE raw_reply (
    place INTEGER PRIMARY KEY,
    body BLOB NOT NULL
);
