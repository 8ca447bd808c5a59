"""Transactions: half messages, checks of their producers, and how transactions end.

open_halves   the transactions that are open, and those that ended last
halves        store half messages, which consumers cannot see
ends          end transactions: by their producers, or because their outcome stays unknown
checks        decide when producers are asked
transactions  the command handlers of transactions, and their two parts of a turn
"""
