"""The ladder of `python -m benches sandbox`: what a jailed episode costs, rung by rung.

Every rung is a `Row`: a key in the JSON, a label, and a way to take one more sample. `run` plays
all of them in turns, so that noise of the machine falls on all alike.
"""
