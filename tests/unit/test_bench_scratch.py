"""What a bench killed by -9 leaves goes at the next start of one; what lives is not touched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benches._scratch import PREFIX, scratch, sweep

ROOT = Path(__file__).parents[2]
HOLD = (
    "import sys, time\nfrom pathlib import Path\nfrom benches._scratch import scratch\n"
    "with scratch(Path(sys.argv[1])) as folder:\n"
    "    (folder / 'part').write_text('half')\n    print(folder, flush=True)\n    time.sleep(600)\n"
)


def test_a_folder_goes_with_its_maker_or_at_the_next_start(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as bench:
        assert bench.stdout is not None
        left = Path(bench.stdout.readline().strip())
        assert left.parent == tmp_path
        assert sweep(tmp_path) == []
        bench.kill()
        bench.wait()
    assert (left / "part").exists()
    (tmp_path / f"{PREFIX}of-somebody-else").mkdir()
    with scratch(tmp_path) as mine:
        assert sweep(tmp_path) == [left]
        assert mine.is_dir()
    assert [path.name for path in tmp_path.iterdir()] == [f"{PREFIX}of-somebody-else"]


def test_a_pid_that_is_used_again_does_not_save_a_folder(tmp_path: Path) -> None:
    stale = tmp_path / f"{PREFIX}1-12345-x"  # pid 1 lives, and started at another time
    stale.mkdir()
    assert sweep(tmp_path) == [stale]
