"""Who may do what.

file    the access file: identities with keys, and their rights
rules   rights to topics and consumer groups
guard   who sends a request
"""
