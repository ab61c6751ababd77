"""The link over networks that drop, delay, double, reorder and cut: 0 lost, 0 doubled.

`python -m benches link_network` runs the same for minutes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from benches.wire.hosts import over_hosts, sweep, why_not
from benches.wire.traffic import over_bad_network
from spade_async.transport.keys import write_keys


def test_a_network_that_drops_delays_doubles_and_cuts_loses_and_doubles_nothing(caplog):
    caplog.set_level(logging.ERROR)
    result = asyncio.run(asyncio.wait_for(over_bad_network(8.0, 11), 110))
    assert (result["lost"], result["doubled"]) == (0, 0)
    assert result["sent"] > 500
    network = result["network"]
    assert min(network["dropped"], network["doubled"], network["delayed"]) > 30
    assert network["cuts"] >= 3
    assert result["resent"] > 0
    assert result["duplicates_refused"] > 0
    assert result["oldest_unacknowledged_s"] > 0.2
    assert result["refused"] == {}


def test_hosts_made_of_network_namespaces_lose_and_double_nothing(tmp_path):
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    write_keys(tmp_path / "server")
    # The other machines have their client's key and nothing else.
    (tmp_path / "client").mkdir()
    shutil.copy(tmp_path / "server" / "client.key", tmp_path / "client" / "client.key")
    result = over_hosts(6.0, 5, tmp_path / "server", tmp_path / "client")
    assert (result["lost"], result["doubled"]) == (0, 0)
    assert result["sent"] > 200
    assert result["pulled_cables"] >= 2
    assert result["failed_handshakes"] == {}


def test_hosts_of_a_killed_maker_are_removed_and_those_of_a_living_one_are_not():
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    dead = subprocess.Popen(["true"])
    dead.wait()
    left, living = f"spade-{dead.pid}-hub", f"spade-{os.getpid()}-kept"
    try:
        for name in (left, living):
            subprocess.run(["ip", "netns", "add", name], check=True)
        assert left in sweep()
        assert not Path("/run/netns", left).exists()
        assert Path("/run/netns", living).exists()
    finally:
        for name in (left, living):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
