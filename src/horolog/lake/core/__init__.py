"""The lake in the broker's core: offloads, counts of messages in the lake, and recalls of them.

tier            implements the protocol of `delay.tier`
state           the state: messages waiting in the lake (`counts`), and recalled ones
                (`recalled_set`)
state_file      the file of counts and recalled messages
stages          the stages of an offload, as a state table
decisions       executes the commands of an offload
steps           applies the records of an offload
retracing       takes what an offload took out of buffers that are filled again from the log
recalls         recalls and reschedules of messages in the lake
"""
