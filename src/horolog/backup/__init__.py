"""Backups of a data directory.

place                   the directory of a backup: checked and locked
manifest, found         the list of a backup's files; how it is rebuilt if it is lost
copying, restoring      copying into a backup, and out of it
pieces                  reads and writes the files piece by piece
status                  progress of a broker's backup
"""
