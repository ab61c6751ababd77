"""Scripted runs for the benches: the setting, one run, and its figures from the ledger."""
