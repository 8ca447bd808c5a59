"""Backups of a data directory.

manifest, found, place  which files one holds, without a manifest too; its directory
copying, restoring      into a backup, and out of it; `pieces` reads and writes files
status                  how far a broker is with one
"""
