"""Transactions: half messages that nobody sees, who is asked what became of them, and how they end.

open_halves  which transactions are open, and which ended last
halves       a half message is stored
ends         a transaction ends: by its producer, or because nobody knows
checks       when producers are asked
"""
