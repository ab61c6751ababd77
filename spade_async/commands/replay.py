"""`spade-async replay`: runs a step again; of one that was not finite it names the culprit."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from spade_async.commands import replay_step
from spade_async.config.load import load_resolved
from spade_async.config.run_folder import RunFolder
from spade_async.errors import ConfigError, LedgerError
from spade_async.grpo.samples import whole_ids
from spade_async.ledger import LedgerReader
from spade_async.supervisor.folder import read_info


def figures(run_dir: Path, name: str) -> dict[str, Any]:
    """Everything ``replay --json`` prints.

    Raises:
        ConfigError: not a run folder, or a scripted run.
        RunFolderError: no such batch.
        WeightsError: a file of the batch is missing or damaged.
    """
    # Importing torch takes seconds: not before the run folder is known to be one.
    config = load_resolved(run_dir)
    if config.is_scripted:
        raise ConfigError(
            f"{run_dir} is a scripted run: it has no model to run a batch with; why it was set "
            f"aside is in {RunFolder(run_dir).quarantine}/BATCH.json"
        )
    from spade_async.learner.replay import find_batch, replay

    find_batch(run_dir, name)
    info = read_info(RunFolder(run_dir))
    found = replay(run_dir, name, Path(info.get("model_folder") or config.model.path))
    culprits = [asdict(culprit) for culprit in found.diagnosis.culprits]
    environments = _environments(run_dir, {c["sample_id"] for c in culprits} - {None})
    for culprit in culprits:
        culprit["environment_id"] = environments.get(culprit["sample_id"])
        # JSON has no NaN and no infinity.
        culprit["value"] = str(culprit["value"])
    return {
        "batch": found.path.stem,
        "step": found.batch.step,
        "branch": found.batch.branch,
        "weights_before": found.weights_before,
        "samples": len(whole_ids(found.batch.sample_ids)),
        "reason_then": found.reason_then,
        "reproduced": found.is_reproduced,
        "reason_now": found.diagnosis.reason,
        "loss": _finite(found.diagnosis.loss),
        "grad_norm": _finite(found.diagnosis.grad_norm),
        "culprits": culprits,
    }


def replay(run_dir: Path, name: str, *, as_json: bool, console: Console) -> bool:
    """Print what a batch set aside, or a trained step, does.

    Returns:
        Whether a batch that was set aside is not finite here either; True for a trained step.
    """
    step = replay_step.step_of(run_dir, name)
    if step is not None:
        config = load_resolved(run_dir)
        if config.is_scripted:
            raise ConfigError(f"{run_dir} is a scripted run: it has no model to run a step with")
        info = read_info(RunFolder(run_dir))
        model = Path(info.get("model_folder") or config.model.path)
        replay_step.show(
            replay_step.figures(run_dir, step, model), as_json=as_json, console=console
        )
        return True
    found = figures(run_dir, name)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        for line in lines(found):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    return bool(found["reproduced"])


def lines(found: dict[str, Any]) -> list[str]:
    """The same for a reader."""
    said = [
        f"{found['batch']}: step {found['branch']}.{found['step']}, {found['samples']} samples, "
        f"on weights {found['weights_before']}",
        f"then: {found['reason_then']}",
    ]
    if not found["reproduced"]:
        said.append(
            f"now:  finite on this CPU (loss {found['loss']}, gradient norm {found['grad_norm']}): "
            "not reproduced; suspect the hardware or a library of the run"
        )
        return said
    said.append(f"now:  {found['reason_now']}")
    return said + [_line(culprit) for culprit in found["culprits"]]


def _line(culprit: dict[str, Any]) -> str:
    what = f"{culprit['quantity']} is {culprit['value']}"
    if culprit["sample_id"] is None:
        return f"  {what}"
    environment = culprit["environment_id"] or "none (not in the ledger)"
    where = f"sample {culprit['sample_id']}, {culprit['role']}, environment {environment}"
    if culprit["token_index"] is not None:
        where += f", token {culprit['token_index']} (id {culprit['token_id']})"
    return f"  {where}: {what}"


def _environments(run_dir: Path, sample_ids: set[str]) -> dict[str, str]:
    """Sample id -> environment id, as far as the ledger knows."""
    try:
        with LedgerReader.open(RunFolder(run_dir).ledger) as ledger:
            rows = {name: ledger.sample(whole_ids([name])[0]) for name in sample_ids}
    except LedgerError:
        return {}
    return {
        sample_id: row.environment_id
        for sample_id, row in rows.items()
        if row is not None and row.environment_id is not None
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
