"""The only code that touches files.

api             what everybody else asks of a disk
disk, mapped    the real one
open_files      those that stay open while there is room
lock            that it is one broker's own
sectors         one that cannot read some of its sectors
flipped_bit     which bit of a content has flipped, by its check sum
crash_note      the file that says which signal ended the last process
meta            `meta` of a data directory
descriptors     how many files the process may open, and a stdout that nobody reads
"""
