"""Which process gets which GPU."""
