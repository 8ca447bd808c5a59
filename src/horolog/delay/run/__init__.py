"""Run files: scheduled messages sorted by due time, in files that never change.

format              the layout
writer, merge       writing a run from rows, from a far buffer, from other runs
reader, search      reading a run; finding the rows of a second or an origin
keys                finding the rows of a key
repair              rebuilding the damaged tail of a run
"""
