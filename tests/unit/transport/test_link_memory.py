from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import resource
from spade_async.transport.memory import keep_freed_blocks
keep_freed_blocks()
keep_freed_blocks()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
blocks = [bytearray(1 << 20) for _ in range(4)]
del blocks
before = faults()
for _ in range(100):
    blocks = [bytearray(1 << 20) for _ in range(4)]
    del blocks
print(faults() - before)
"""


def test_a_freed_block_is_used_again_without_a_page_fault_for_each_page():
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    # 400 blocks of 256 pages: 102,400 faults when the kernel gets each back.
    assert int(found.stdout) < 2_000
