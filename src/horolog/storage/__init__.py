"""Storage: the only code that touches files.

api             the protocols that the rest of the broker uses: `Storage` and `File`
disk, mapped    the real disk; views of mapped files
open_files      a cache of open files, of bounded size
lock            the lock that keeps other processes out of a data directory
sectors         reading files of a disk that has lost some sectors
flipped_bit     finding the flipped bit of a content by its check sum
crash_note      the file that records which signal ended the last process
meta            `meta` of a data directory
descriptors     how many files the process may open; a stdout whose reader is gone
"""
