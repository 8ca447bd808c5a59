"""Run files: their format, and how they are read, searched, written, merged and made whole again."""
