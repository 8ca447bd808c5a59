"""What `horolog doctor` looks at.

answers         what a running broker says of itself; `running` judges it
stopped         a directory without a broker
local_process   the process on this machine
check           what a check is, and what it found
"""
