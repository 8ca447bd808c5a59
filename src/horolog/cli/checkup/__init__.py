"""The checks of `horolog doctor`.

answers         answers of a running broker; `running` judges them
stopped         checks of a directory whose broker is stopped
local_process   the broker's process, if it runs on this machine
check           one check: what was seen, and what to do
"""
