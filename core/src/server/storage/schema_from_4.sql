-- From version 4 to version 5. Statements are parted by a semicolon and an empty line.
ALTER TABLE semel_totals ADD COLUMN dispatched INTEGER;

ALTER TABLE semel_meta ADD COLUMN forgets_s INTEGER NOT NULL DEFAULT 0;

-- What was kept says nothing of it: the rows are counted once more.
DELETE FROM semel_totals
