"""Public fakes and fixtures for tests of applications; horolog's own simulator and process ring.

broker, plugin          a real broker in a process, and the pytest fixture that starts one
engine                  an engine with scripted answers
disk, inode, plain_disk a disk in memory with seeded faults; the real one in its place
adopted_runs, due_files run files, written without Spark: for adoption, for the due source
simulator, simulation   the command that runs seeds; the story of one seed, told by `sim_…` modules
sim_broker, sim_actor   the shard in a simulation; the base class of clients that act in it
sim_checks, sim_watch   the checkers of the promises; `sim_end` makes the final comparison
sim_clients, sim_readers, sim_polls, sim_retries, sim_backoff, sim_order     simulated clients
sim_dead_letters, sim_levels, sim_late, sim_moves, sim_schedules             more of them
sim_transactions, sim_adoptions, sim_lake, sim_lake_rows                     more of them
sim_rot                 bits that flip on the disk
ring, ring_clients      the installed broker, killed again and again, and its clients
"""
