"""Keeps fork hooks out of the template: first part of the runner, before any further import.

Workers begin with one thread and are seeded by us: the hooks of `random`, `threading` and the like
would only cost each of them time. `prepare` gives the function back.
"""

import os

register_at_fork = os.register_at_fork
os.register_at_fork = lambda **hooks: None
