"""What the benches and tests of the link share: messages, hostile frames, bad networks, hosts."""
