"""Room for descriptors: two hundred live sessions need more than the usual 1,024."""

from __future__ import annotations

import resource


def room(num_files: int) -> None:
    """Raise the soft limit of open files to at least `num_files`, as far as the hard one lets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, num_files)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
