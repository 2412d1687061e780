"""One door to the network: sockets, HTTP requests and WebSocket handshakes that can be abandoned at any moment."""
