"""The coordinator: every decision and every durable fact of a run (design.md 3). No torch."""
