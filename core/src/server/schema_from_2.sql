-- From version 2 to version 3. Statements are parted by a semicolon and an empty line.
CREATE TABLE semel_totals (
  only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
  rows INTEGER NOT NULL,
  records INTEGER NOT NULL,
  clock_ms INTEGER NOT NULL,
  oldest_ms INTEGER,
  due_ms INTEGER,
  carried_until_ms INTEGER
) STRICT
