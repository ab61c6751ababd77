"""The generator process: runs whole rollouts (design, validation, hint, episodes)."""
