"""Verifying a data directory offline: every check sum and every cross-reference, with bounded memory."""
