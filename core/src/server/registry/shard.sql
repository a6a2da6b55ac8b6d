-- A shard's tables, version 1, but for what was added since. Statements are parted by a semicolon and an empty line.
CREATE TABLE registry (
  only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
  version INTEGER NOT NULL,
  -- of how many shards this is which
  shards INTEGER NOT NULL,
  shard INTEGER NOT NULL,
  -- Unix s; how far all keys are to forget
  before_s INTEGER NOT NULL
) STRICT;

CREATE TABLE keys (
  key TEXT PRIMARY KEY,
  created_ms INTEGER NOT NULL,
  seen_ms INTEGER NOT NULL,
  records INTEGER NOT NULL,
  tombstones INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  oldest_ms INTEGER
) STRICT, WITHOUT ROWID;

-- A new key is three rows; a report is one, where the size of the database is what it was.
CREATE INDEX keys_newest ON keys (created_ms DESC, key);

CREATE INDEX keys_heaviest ON keys (bytes DESC, key);

-- This shard's part of the jobs.
CREATE TABLE jobs (
  id INTEGER PRIMARY KEY,
  before_s INTEGER NOT NULL,
  -- the last key that was visited, in the order of names; '' before the first, and once all were
  place TEXT NOT NULL,
  is_walked INTEGER NOT NULL,
  done INTEGER NOT NULL
) STRICT;

-- What was visited and isn't done: it failed, or has more to sweep.
CREATE TABLE undone (
  id INTEGER NOT NULL,
  key TEXT NOT NULL,
  tries INTEGER NOT NULL,
  has_failed INTEGER NOT NULL,
  PRIMARY KEY (id, key)
) STRICT, WITHOUT ROWID
