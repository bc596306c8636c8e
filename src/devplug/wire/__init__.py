"""The sockets: messages, methods and the transport. The only place that knows gRPC and HTTP/2."""
