-- From version 2 to version 3. Statements are parted by a semicolon and an empty line.
CREATE TABLE semel_totals (
  only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
  rows INTEGER NOT NULL,
  records INTEGER NOT NULL,
  clock_ms INTEGER NOT NULL,
  oldest_ms INTEGER,
  due_ms INTEGER,
  carried_until_ms INTEGER
) STRICT;

ALTER TABLE semel_meta ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;

CREATE TABLE semel_sessions (
  number INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  principal TEXT NOT NULL,
  epochs BLOB NOT NULL,
  closed_seq INTEGER NOT NULL,
  closed_ack INTEGER NOT NULL,
  crashes INTEGER NOT NULL,
  is_started INTEGER NOT NULL,
  at_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE semel_places (
  session INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  at_ms INTEGER NOT NULL,
  state INTEGER NOT NULL,
  fingerprint BLOB,
  status INTEGER,
  headers TEXT,
  body BLOB,
  PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID
