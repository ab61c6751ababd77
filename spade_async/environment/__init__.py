"""Environments: the contract of a program, its validation in the jail, metered jail sessions."""
