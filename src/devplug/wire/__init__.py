"""What crosses a socket: messages, methods and the transport. The only importer of gRPC and protobuf."""
