"""What of a run's configuration reaches the jail."""

from __future__ import annotations

from pathlib import Path

import pytest

from spade_async.config.load import resolve
from spade_async.config.schema import Config
from spade_async.environment.jail_policy import sandbox_policy
from spade_async.errors import ConfigError
from spade_async.sandbox_policy import SandboxPolicy

CONFIGS = Path(__file__).parents[3] / "configs"


def test_every_key_of_the_section_reaches_the_policy(tmp_path: Path) -> None:
    profiles = tmp_path / "own.toml"
    profiles.write_text('[chess]\nextends = "compute"\nmemory_bytes = 134217728\n')
    path = tmp_path / "run.toml"
    path.write_text(
        f"""
[sandbox]
level = "container"
profiles = ["{profiles}:chess", "compute"]
workers = 5
spares = 3
queue = 7
wall_s_per_call = 1.5
cpu_s_per_call = 0.5
memory_bytes = 67108864
reply_bytes = 1000
code_cache_bytes = 0
rotate_after = 100
rotate_after_s = 3600
[agent]
max_turns = 9
"""
    )
    policy = sandbox_policy(resolve(path))
    assert policy == SandboxPolicy(
        level="container", profiles=(f"{profiles}:chess", "compute"), num_workers=5, spares=3,
        queue=7, wall_s_per_call=1.5, cpu_s_per_call=0.5, memory_bytes=64 << 20, reply_bytes=1000,
        code_cache_bytes=0, rotate_after=100, rotate_after_s=3600.0, max_turns=9,
    )  # fmt: skip
    assert policy.profile_names == ("chess", "compute")


def test_the_nano_run_has_the_jail_it_had() -> None:
    policy = sandbox_policy(resolve(CONFIGS / "nano.toml"))
    assert policy == SandboxPolicy(
        num_workers=96, spares=8, queue=4096, memory_bytes=64 << 20, max_turns=1
    )


def test_defaults_of_the_section_are_those_of_the_policy_but_for_the_pool_size() -> None:
    config = Config()
    policy = sandbox_policy(config)
    assert policy == SandboxPolicy(num_workers=32, queue=4096, max_turns=config.agent.max_turns)


@pytest.mark.parametrize(
    ("profiles", "message"),
    [
        ('["computer"]', "profile 'computer': no such profile; did you mean 'compute'"),
        ('["nowhere.toml:x"]', "profiles in nowhere.toml"),
        ('["compute", "compute"]', "twice"),
    ],
)
def test_a_profile_that_is_not_there_is_a_fault_of_the_configuration(
    tmp_path: Path, profiles: str, message: str
) -> None:
    path = tmp_path / "run.toml"
    path.write_text(f"[sandbox]\nprofiles = {profiles}\n")
    with pytest.raises(ConfigError, match="sandbox: ") as caught:
        sandbox_policy(resolve(path))
    assert message in str(caught.value)
