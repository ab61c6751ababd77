"""The programs in the pages of the jail are run as they stand there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from spade_async.sandbox import SandboxPolicy, SyncPool

pytestmark = pytest.mark.timeout(120)

ROOT = Path(__file__).resolve().parents[2]


def programs(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)


def output(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-B", "-c", program], cwd=ROOT, capture_output=True, text=True,
        timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_jail_alone_is_used_in_ten_lines():
    program = programs("sandbox.md")[0]
    assert len(program.splitlines()) <= 10
    level, reset, step = output(program).splitlines()
    assert level.split(",")[0] in ("strict", "rootless", "container", "minimal", "reduced")
    assert reset.startswith("A number between ")
    assert step.startswith("finished ")


def test_the_first_program_of_the_api_plays_an_episode():
    words = output(programs("sandbox_api.md")[0]).split()
    assert words[0] == "True"
    assert words[2] == "+"


def test_the_documented_profiles_are_read_and_serve(tmp_path):
    pages = {"sandbox.md": "chess", "profiles.md": "puzzles"}
    pytest.importorskip("numpy")
    for page, name in pages.items():
        text = (ROOT / "docs" / page).read_text()
        path = tmp_path / f"{name}.toml"
        path.write_text(re.findall(r"```toml\n(.*?)```", text, re.DOTALL)[0])
        policy = SandboxPolicy(profiles=(f"{path}:{name}",), num_workers=1, spares=1)
        source = (
            "import graphlib\nclass AEnv:\n"
            " def reset(self, seed): return str(np.arange(3).sum()), {}\n"
        )
        with SyncPool(policy) as pool, pool.session(source, 1) as session:
            assert session.loaded.ok, session.loaded
            assert session.reset().observation == "3"


def test_a_template_of_a_source_and_gymnasium_are_used_as_written():
    gymnasium = pytest.importorskip("gymnasium")
    head = (
        "from spade_async.sandbox import SandboxPolicy, SyncPool\n"
        "source = open('configs/environments/find_number.py').read()\n"
        "pool = SyncPool(SandboxPolicy(num_workers=4))\npool.start()\n"
    )
    _, template, adapter = programs("sandbox_api.md")
    if "source_template" not in template:
        pytest.fail("the pages have changed: say here what their programs need")
    kept = "\nimport sys; print(observation, reward, file=sys.stderr); pool.close()"
    probe = "from spade_async.sandbox import probe_capabilities as p; print(p()['level'])"
    if output(probe).startswith("strict"):  # families need a control group, or root
        assert output(head + template + "\nprint('ok'); pool.close()") == "ok\n"
    assert output(head + adapter + kept) == ""
    assert gymnasium is not None
