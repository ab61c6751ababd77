"""The foreground process: prepares the run folder, spawns the parts, watches them, cleans up."""
