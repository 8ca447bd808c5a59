"""Backups of a data directory: the manifest, copying into a backup, restoring from one."""
