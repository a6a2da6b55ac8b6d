-- From version 1 to version 2. Statements are parted by a semicolon and an empty line.
ALTER TABLE semel_meta ADD COLUMN forgotten_s INTEGER NOT NULL DEFAULT 0;

ALTER TABLE semel_meta ADD COLUMN key TEXT;

ALTER TABLE semel_meta ADD COLUMN is_registered INTEGER NOT NULL DEFAULT 0
