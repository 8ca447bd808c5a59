"""HTTP/2 (RFC 9113), HPACK (RFC 7541) and gRPC framing, without sockets: bytes in, events out.

calls, grpc_wire        gRPC calls; the encoding of their messages, statuses and timeouts
connection, events      one connection: bytes in, events out; the frames that carry requests
control_frames          all other frames: settings, pings, resets, windows
streams                 the life of a stream, as a table; which ids the peer has opened
frames, outgoing        frames; output, and answers that wait for the peer's windows
header_block, heads, request_head
                        header blocks: assembled, decoded with a cache, checked as requests
hpack, huffman          compression of header blocks
floods, token_bucket    limits on a peer's cheap frames
faults                  errors of a peer
"""
