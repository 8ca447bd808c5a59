"""Who may do what: identities with keys, and their rights to topics and consumer groups."""
