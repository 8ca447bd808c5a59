"""The lake beside the running broker: `reader` reads its table in threads and asks the core, `offloads` does the file
work of offloads, `late` fetches what nobody has promoted.
"""
