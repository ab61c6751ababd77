"""Whether a run that is to be resumed has nothing left to do: then nothing is started."""

from __future__ import annotations

from spade_async.config.run_folder import RunFolder
from spade_async.config.schema import Config
from spade_async.disk.manifest import damage
from spade_async.ledger import LedgerReader
from spade_async.telemetry.status import read_status


def is_finished(folder: RunFolder, config: Config) -> bool:
    """The last step is done and scored, and its checkpoint is whole.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    status = read_status(folder.status)
    # Only the coordinator says "finished", after the last evaluation; without its word, or with
    # more steps asked for, the run is started and finds out.
    if status is None or status.state != "finished" or status.step < config.train.steps:
        return False
    with LedgerReader.open(folder.ledger) as ledger:
        if [tuple(row) for row in ledger.query("PRAGMA quick_check(1)")] != [("ok",)]:
            return False
        newest = max(
            (row for row in ledger.versions() if not row.is_abandoned),
            key=lambda row: row.ordinal,
            default=None,
        )
    if newest is None or newest.version.step < config.train.steps:
        return False
    if newest.checkpoint is None:
        return newest.version.step == 0
    checkpoint = folder.checkpoints / newest.checkpoint
    return checkpoint.is_dir() and damage(checkpoint) is None
