"""The end table: held-out accuracy before and after, with its noise."""
