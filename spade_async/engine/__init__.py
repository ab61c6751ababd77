"""Token generation: the protocol, its implementations, and chat tokens. No torch at import."""
