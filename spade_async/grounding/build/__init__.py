"""Builds corpora from what is installed, without a network (`spade-async corpus build`)."""
