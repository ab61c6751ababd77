"""Parts of the bench of publishing: a model of a given size, the publisher, the fit."""
