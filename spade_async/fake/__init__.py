"""Dry runs (`spade-async train CONFIG --fake-weights`): a recipe's real processes on any machine.

Every part is the real one, the engine included; only the model is a tiny random one of the recipe's
architecture, and the sizes are small. It shows that the parts start, talk and train; its figures
mean nothing.
"""
