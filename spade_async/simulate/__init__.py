"""The schedule in virtual time: the coordinator's policy classes without sockets, jail or model.

`one_role` compares rules of staleness, `two_roles` runs the whole schedule; `reference` holds the
two settings of docs/simulate.md, `natural_age` Little's law for the check at start-up, `whatif`
and `recorded` what `spade-async simulate` shows for a configuration and for a run.
"""
