"""A run read back for people: one environment, the pool of all, several runs, one page."""
