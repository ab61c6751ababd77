"""The schedule without sockets: a place for the simulator, which is not built yet."""
