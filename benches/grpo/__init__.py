"""Parts of the bench ``learner``: the workload, one worker per side, the sweep."""
