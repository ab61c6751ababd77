"""How weight sets travel from the learner to the generators, by reference and with a digest."""
