"""Public fakes and fixtures, and what tests horolog itself: simulator and process ring.

broker, plugin          a real broker for tests of applications, and the fixture of it
engine, disk, inode     an engine that answers as told; a disk in memory that breaks by seed
adopted_runs, due_files runs for adoption, written without Spark
simulator, simulation   a story of a shard by seed; all `sim_…` modules are parts of it
sim_broker, sim_actor   the shard in it; whoever acts in some of its turns
sim_checks, sim_watch   the checkers of the promises; `sim_end` compares at the end
sim_clients, sim_readers, sim_polls, sim_retries, sim_backoff, sim_order, sim_dead_letters     clients in it
sim_levels, sim_late, sim_moves, sim_schedules, sim_transactions, sim_adoptions, sim_lake      and more of them
sim_rot                 bits that flip
ring, ring_clients      the installed broker killed again and again
"""
