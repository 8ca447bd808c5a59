"""Consume: give messages out by lease or by offset, let those who found none wait, note what is consumed."""
