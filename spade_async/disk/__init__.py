"""The disk of a run: what is whole, what there is room for, what may go. No torch."""
