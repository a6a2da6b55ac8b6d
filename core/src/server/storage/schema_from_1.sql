-- From version 1 to version 2. Statements are parted by a semicolon and an empty line.
ALTER TABLE semel_meta ADD COLUMN forgotten_s INTEGER NOT NULL DEFAULT 0;

ALTER TABLE semel_meta ADD COLUMN key TEXT;

ALTER TABLE semel_meta ADD COLUMN is_registered INTEGER NOT NULL DEFAULT 0;

-- The columns have another order and other types, which takes a table anew. No table is renamed: that fails if a view or a trigger of
-- the handler asks for a table that is gone.
CREATE TABLE semel_records_1 AS SELECT * FROM semel_records;

DROP TABLE semel_records;

CREATE TABLE semel_records (
  id TEXT PRIMARY KEY,
  state INTEGER NOT NULL,
  at_ms INTEGER NOT NULL,
  first_sent_s INTEGER,
  deadline_ms INTEGER,
  lapses_ms INTEGER,
  crashes INTEGER,
  is_started INTEGER,
  executed INTEGER,
  principal ANY NOT NULL,
  carried BLOB,
  fingerprint BLOB,
  status INTEGER,
  headers ANY,
  body BLOB
) STRICT, WITHOUT ROWID;

INSERT INTO semel_records (id, state, at_ms, first_sent_s, deadline_ms, lapses_ms, crashes, is_started, executed, principal,
  fingerprint, status, headers, body)
SELECT id, state, at_ms, first_sent_s, deadline_ms, lapses_ms, crashes, is_started, executed, principal,
  fingerprint, status, headers, body FROM semel_records_1 ORDER BY id;

DROP TABLE semel_records_1;

CREATE TABLE semel_texts (
  number INTEGER PRIMARY KEY,
  text TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE semel_tombstones (
  chunk INTEGER PRIMARY KEY,
  at_ms INTEGER NOT NULL,
  lapses_ms INTEGER NOT NULL,
  principal TEXT NOT NULL,
  entries BLOB NOT NULL
) STRICT
