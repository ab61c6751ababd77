"""A domain with a real language model: SmolLM2-135M out of a package, warm-started."""
