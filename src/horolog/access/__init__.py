"""Access control: who sends a request, and what the sender may do.

file      the access file: identities with keys, and their rights
exposed   finding files with secrets that other users can read
rules     rights to topics and consumer groups
guard     authentication: checks signatures, tokens and secrets
"""
