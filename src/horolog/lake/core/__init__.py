"""The lake as the core has it.

tier            all of it, as `delay.tier` asks for it
held            what waits there, and what was recalled; `counts` and `gone` are its two tables
state_file      the file of these two
stages          what an offload can be, as a table
decisions       the commands of an offload
steps           its records in the log
recalls         messages there that are recalled
"""
