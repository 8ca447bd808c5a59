"""Run files: scheduled messages sorted by due time, in files that never change.

format              the layout
writer, merge       made from rows, from a far buffer, from other runs
reader, search      rows of a second, of an origin
keys                rows of a key
repair              made whole again
"""
