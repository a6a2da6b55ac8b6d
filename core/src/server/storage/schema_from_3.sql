-- From version 3 to version 4. Statements are parted by a semicolon and an empty line.
ALTER TABLE semel_totals ADD COLUMN sessions INTEGER;

ALTER TABLE semel_totals ADD COLUMN used_ms INTEGER
