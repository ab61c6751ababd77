"""Configuration: the schema, reading it, and where things lie in a run folder."""
