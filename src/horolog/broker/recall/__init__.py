"""Recall: find a message by id or key wherever it rests, cancel it or move it, one or many, and say what became of it."""
