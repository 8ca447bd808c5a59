"""HTTP/2 (RFC 9113), HPACK (RFC 7541) and gRPC framing as bytes in, events out; no socket is touched here.

calls, grpc_wire        gRPC on top: its calls, and how messages, statuses and timeouts travel
connection, events      one connection: bytes in, events out
streams                 the life of a stream, as a table
frames, outgoing        frames; what is owed, and waits for the peer's windows
header_block, heads, request_head   header blocks: put together, decoded, and which of them are a request
hpack, huffman          their compression
budget, faults          what a peer may do, and what it may not
"""
