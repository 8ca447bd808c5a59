"""The wheel: scheduled messages in motion.

wheel       a calendar queue that knows which second is next, and keeps the coming ten loaded
slot        one loaded second
"""
