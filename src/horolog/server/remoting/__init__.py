"""The doors of RocketMQ 4.x clients: name server and broker, over the remoting protocol."""
