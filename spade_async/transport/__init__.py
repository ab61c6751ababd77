"""The link between the processes of a run: messages, codec, hub and peers."""
