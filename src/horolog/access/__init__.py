"""Who may do what.

file      the access file: identities with keys, and their rights
exposed   files with secrets that other users can read
rules     rights to topics and consumer groups
guard     who sends a request
"""
