"""RocketMQ's remoting protocol (4.x, and 5.x over TCP) as bytes in, commands out; no socket is touched here."""
