-- The engine's tables, version 5. Statements are parted by a semicolon and an empty line.
--
-- One row a request, in one b-tree, and no index that would double what is written: a request that comes takes the row of one that it
-- acknowledges, which is one row written in the life of a request. What a walk over all rows asks for comes before what may be long.
CREATE TABLE semel_records (
  id TEXT PRIMARY KEY,
  -- rows::number: 1 executed, 2 poisoned, 3 cancelled, 4 suspect, 5 acknowledged, 6 expired, 7 dispatched
  state INTEGER NOT NULL,
  -- the key's clock at the last change of the row but a deadline's
  at_ms INTEGER NOT NULL,
  -- Unix s; NULL: the client did not say
  first_sent_s INTEGER,
  -- the latest deadline seen, rounded up; NULL: an attempt had none
  deadline_ms INTEGER,
  -- when a tombstone may leave
  lapses_ms INTEGER,
  -- of a suspect: how often the handler crashed on it, and whether it was started since without an end
  -- of one that was dispatched: how often, and the key's clock at the first time
  crashes INTEGER,
  is_started INTEGER,
  -- of a tombstone: whether it ran; 0 no, 1 yes, 2 unknown
  executed INTEGER,
  -- the text, or its number in semel_texts
  principal ANY NOT NULL,
  -- packed tombstones of the same principal: tombstones::to_bytes
  carried BLOB,
  fingerprint BLOB,
  status INTEGER,
  -- the text, or its number in semel_texts
  headers ANY,
  body BLOB
) STRICT, WITHOUT ROWID;

-- Principals and header lines that come again and again.
CREATE TABLE semel_texts (
  number INTEGER PRIMARY KEY,
  text TEXT NOT NULL UNIQUE
) STRICT;

-- Packed tombstones that no record carries, in the order in which they came.
CREATE TABLE semel_tombstones (
  chunk INTEGER PRIMARY KEY,
  -- the key's clock when it was written
  at_ms INTEGER NOT NULL,
  -- when the last of them lapses
  lapses_ms INTEGER NOT NULL,
  principal TEXT NOT NULL,
  entries BLOB NOT NULL
) STRICT;

-- What all records and sessions come to, so that an object that starts need not count them. Kept of many, where nobody asks for a while;
-- the next change takes it away. No row: they have to be counted.
CREATE TABLE semel_totals (
  only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
  rows INTEGER NOT NULL,
  -- of them, those that are unacknowledged
  records INTEGER NOT NULL,
  -- the key's clock
  clock_ms INTEGER NOT NULL,
  -- no row is older
  oldest_ms INTEGER,
  -- none may leave sooner, by the retention as it was set then
  due_ms INTEGER,
  -- none carries a packed tombstone that lasts longer
  carried_until_ms INTEGER,
  -- how many sessions there are; NULL: they have to be looked at
  sessions INTEGER,
  -- of those that are no stubs, none was last used before
  used_ms INTEGER,
  -- of the records, those that were sent to where they are executed, and have no outcome
  dispatched INTEGER
) STRICT;

-- Named senders. A row is written where a holder changes, a start or crash is counted, or the session becomes idle.
CREATE TABLE semel_sessions (
  -- what stands for the name in the rows of places
  number INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  principal TEXT NOT NULL,
  -- sessions::state::Epochs::to_bytes
  epochs BLOB NOT NULL,
  -- the last number and the last acknowledged one, when it was last idle
  closed_seq INTEGER NOT NULL,
  closed_ack INTEGER NOT NULL,
  -- of the next place: how often the handler crashed on it, and whether it was started since without an end
  crashes INTEGER NOT NULL,
  is_started INTEGER NOT NULL,
  -- the key's clock at the last change of its holder; of an idle one, when it was last used
  at_ms INTEGER NOT NULL
) STRICT;

-- One row a place that was taken and is not acknowledged; and the last one of a session, acknowledged or not.
CREATE TABLE semel_places (
  session INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  at_ms INTEGER NOT NULL,
  -- rows::number: 1 executed, 2 poisoned, 3 cancelled, 5 acknowledged
  state INTEGER NOT NULL,
  fingerprint BLOB,
  status INTEGER,
  headers TEXT,
  body BLOB,
  PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE semel_meta (
  only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
  engine_version INTEGER NOT NULL,
  handler_version INTEGER NOT NULL,
  fence_s INTEGER NOT NULL,
  clock_ms INTEGER NOT NULL,
  -- Unix s; the part of the fence that an administrator has moved
  forgotten_s INTEGER NOT NULL DEFAULT 0,
  -- the key, for what wakes the object without a request
  key TEXT,
  -- whether the registry of keys knows it
  is_registered INTEGER NOT NULL DEFAULT 0,
  -- the highest epoch that any session was ever given
  epoch INTEGER NOT NULL DEFAULT 0,
  -- Unix s; how far it was told to forget, which may be ahead of its clock
  forgets_s INTEGER NOT NULL DEFAULT 0
) STRICT;

INSERT INTO semel_meta (only_row, engine_version, handler_version, fence_s, clock_ms) VALUES (1, 0, 0, 0, 0)
