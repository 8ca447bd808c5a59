"""HTTP/2 (RFC 9113), HPACK (RFC 7541) and gRPC framing as bytes in, events out; no socket is touched here."""
