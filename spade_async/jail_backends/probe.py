"""The trusted environment that each pool runs first: it tries what a jail must refuse."""

HARMLESS = """
class ProbeEnv:
    def reset(self, seed=None):
        return "{}", {}
"""
"""For a backend that would let it pass."""

PROBE = """
import os, socket
class ProbeEnv:
    def reset(self, seed=None):
        passed = {}
        def attempt(name, action):
            try:
                passed[name] = f"not refused: {action()!r}"[:200]
            except (OSError, AttributeError, ValueError):
                passed[name] = ""
        def create(path):
            os.open(path, os.O_WRONLY | os.O_CREAT)
            os.unlink(path)
        for path in ("/etc/passwd", "/proc/self/environ", "/dev/null", "/sys", "/tmp"):
            attempt(f"open {path}", lambda: os.open(path, os.O_RDONLY))
        for folder in ("", "/tmp", "/dev/shm", os.path.dirname(os.__file__)):
            attempt(f"create in {folder}/", lambda: create(f"{folder}/spade-probe"))
        for family in (socket.AF_INET, socket.AF_UNIX):
            attempt(f"socket {family}", lambda: socket.socket(family))
        attempt("kill others", lambda: os.kill(-1, 0))
        attempt("kill the parent", lambda: os.kill(os.getppid() or 1, 0))
        attempt("fork", lambda: os.fork() or os._exit(0))
        attempt("pipe", os.pipe)
        attempt("memfd", lambda: os.memfd_create("x"))
        attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, 0, 1))
        attempt("identity", lambda: os.setuid(0))
        attempt("unshare", lambda: os.unshare(os.CLONE_NEWUSER))
        return json.dumps(passed), {}
"""
