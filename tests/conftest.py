"""What holds for every test, whoever starts them."""

from __future__ import annotations

import signal

# A shell starts what runs in its background with Ctrl-C ignored, and nohup ignores a hang-up; both
# are inherited, also by what the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
