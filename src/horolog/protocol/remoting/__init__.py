"""RocketMQ's remoting protocol (4.x, and 5.x over TCP) as bytes in, commands out; no socket is touched here.

frame, frame_reader, frame_writer   frames: the layout, bytes to frames, frames to bytes
codes, request                      what is asked for, how it went
send, send_header, building, gathered  sends: frames to one command, and its result to answers
batch, batches                      messages of batches
known_codes                         codes of their tags and message groups
shapes, header_shapes, text_rows, send_reader, send_runs, sent  the same for sends that are alike
wanted                              what properties of a message ask for
heartbeat, assignment, queue_locks  who is there, and who consumes what
pop                                 answers to pop consumers
routes                              what the name server tells
topic_bodies, group_bodies, client_bodies, broker_bodies    what admin tools are told; `object_keys` is their JSON
"""
