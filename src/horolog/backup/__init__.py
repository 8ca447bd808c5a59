"""Backups of a data directory.

directory               the directory of a backup: checked and locked
manifest                the list of a backup's files
rebuilt_manifest        the list as rebuilt from the files if it is lost
copying, restoring      copying into a backup, and out of it
pieces                  reads and writes the files piece by piece
status                  progress of a broker's backup
"""
