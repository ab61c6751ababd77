"""What a breach of a limit says about it: part of the runner.

Memory, time and output are judged outside; what the interpreter raises by itself is named here.
"""

import errno

LIMITS = {}  # what is said, by the number of the error, or "threads"


def name_limits(pids, branches, stack_bytes, descriptors, files_bytes, files_inodes):
    """Take the limits of a worker: counts and bytes; 0 bytes of files where there are none."""
    LIMITS["threads"] = f"; limit {pids} processes and threads, each stack {stack_bytes} bytes"
    LIMITS[errno.EAGAIN] = f"; limit {pids * (branches + 1)} processes of all copies together"
    LIMITS[errno.EMFILE] = f"; limit {descriptors} descriptors"
    if files_bytes:
        LIMITS[errno.ENOSPC] = f"; limit {files_bytes} bytes, {files_inodes} files and folders"
        LIMITS[errno.EFBIG] = f"; limit {files_bytes} bytes"


def limit_of(error, code):
    """The limit whose breach raised an error in a code object (or None); "" if it is no breach."""
    if isinstance(error, OSError):
        number = error.errno
        if type(number) is not int:
            return ""
        if number == errno.EAGAIN and (code is None or "fork" not in code.co_names):
            return ""  # a socket without data, for one
        return LIMITS.get(number, "")
    if type(error) is RuntimeError and error.args == ("can't start new thread",):
        return LIMITS.get("threads", "")
    return ""
