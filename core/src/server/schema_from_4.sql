-- From version 4 to version 5. Statements are parted by a semicolon and an empty line.
ALTER TABLE semel_totals ADD COLUMN dispatched INTEGER;

-- What was kept says nothing of it: the rows are counted once more.
DELETE FROM semel_totals
