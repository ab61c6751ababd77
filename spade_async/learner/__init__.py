"""The learner process: training batches in, new policy versions out."""
