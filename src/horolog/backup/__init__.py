"""Backups of a data directory.

manifest, place         which files one holds; its directory
copying, restoring      into a backup, and out of it; `pieces` reads and writes files
status                  how far a broker is with one
"""
