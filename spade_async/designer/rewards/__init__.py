"""What a design is paid: one file per variant, behind one small interface (step 8).

A variant turns what is known of one played design (`facts.Facts`) into a `facts.Raw`: a number with
its components, or missing with a reason. `registry.make` builds the one that a configuration names.
What became of drafts that were never played, and the penalty for repeats, is `designer.reward`; the
comparison with other designs is `grpo.advantage`. docs/rewards.md carries every formula.
"""
