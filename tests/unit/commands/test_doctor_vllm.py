"""What `doctor` says of vLLM: whether it runs here, and which install to use."""

from __future__ import annotations

import pytest

from spade_async.commands import doctor
from spade_async.engine.vllm.installed import CPU_INSTALL, VllmInstall


def found(problem: str | None, version: str | None = "0.32.0") -> VllmInstall:
    return VllmInstall(version, is_cpu_build=True, has_gpu=False, problem=problem)


@pytest.mark.parametrize(
    ("problem", "detail", "remedy"),
    [
        (f"vLLM is not installed: {CPU_INSTALL}", "vLLM is not installed", CPU_INSTALL),
        ("vLLM 0.31.0 is here: pip install x", "vLLM 0.31.0 is here", "pip install x"),
    ],
)
def test_a_problem_is_told_with_its_install(
    monkeypatch: pytest.MonkeyPatch, problem: str, detail: str, remedy: str
) -> None:
    monkeypatch.setattr(doctor, "look", lambda: found(problem))
    (finding,) = doctor._vllm()
    assert (finding.ok, finding.needed, finding.detail) == (False, False, detail)
    assert finding.remedy.startswith(remedy)


def test_vllm_that_cannot_be_imported_is_not_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "look", lambda: found(None))
    monkeypatch.setattr(doctor, "_probe", lambda code: (None, "ImportError: no libnuma"))
    (finding,) = doctor._vllm()
    assert not finding.ok
    assert "ImportError: no libnuma" in finding.detail
    monkeypatch.setattr(doctor, "_probe", lambda code: ({"version": "0.32.0"}, ""))
    (finding,) = doctor._vllm()
    assert finding.ok
    assert finding.detail == "0.32.0, build for CPUs"
