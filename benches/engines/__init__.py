"""Parts of the bench of generation: engines under one call, models of a given size, CPU time."""
