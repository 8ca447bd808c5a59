"""horolog: a message broker for messages that must arrive later."""

__version__ = "0.1.0"
