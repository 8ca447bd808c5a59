"""RocketMQ's remoting protocol (4.x, and 5.x over TCP), without sockets: bytes in, commands out.

frame, frame_reader, frame_writer   the layout of frames, bytes to frames, frames to bytes
lenient_json                        JSON of headers and bodies
codes, request                      request and status codes; fields of a request, and its answer
send, send_header, building, gathered  send frames to one command, and its result to answers
batch, batches                      messages of batches
known_codes                         cached codes of tags and message groups
shapes, header_shapes, text_rows, send_reader, send_runs, sent  a fast path for sends of one shape
wanted                              what the properties of a message ask for
heartbeat, assignment, queue_locks  group members, their queues, and locks of orderly consumers
pop                                 answers to pop consumers
routes                              routes and the cluster, as a name server returns them
topic_bodies, group_bodies, client_bodies, broker_bodies    JSON bodies for admin tools
object_keys                         JSON whose keys are objects, for these bodies
"""
