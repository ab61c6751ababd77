"""GRPO: samples, micro-batches, importance correction, loss. `samples` needs no torch."""
