"""Our own faults, one class per boundary that is crossed.

What untrusted code does is never here: that is an `Outcome`. `boundary()` turns any escaping
exception into the class of the boundary it crossed and keeps the cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

EXIT_REFUSED = 78
"""Exit status (EX_CONFIG) of a part that found something a restart cannot mend."""


class SpadeError(Exception):
    """Base of every fault of ours. The message names the thing, the value and the next move."""


class ConfigError(SpadeError):
    """A configuration cannot be used as written."""


class SandboxError(SpadeError):
    """The jail itself failed: no worker, dead broker, a closed pool."""


class SandboxBusy(SandboxError):
    """The bounded queue for workers is full; try again later or raise `sandbox.queue`."""


class GenerationError(SpadeError):
    """The engine could not produce tokens."""


class PromptTooLong(GenerationError):
    """A prompt does not fit the context, whatever is left out of it: what it was for is skipped."""


PROMPT_TOO_LONG = PromptTooLong.__name__
"""Part of the missing reason of what was skipped for it."""


class TransportError(SpadeError):
    """A message could not be sent, read or understood."""


class WeightsError(SpadeError):
    """A weight set is missing, damaged or not the one that was announced."""


class LedgerError(SpadeError):
    """The ledger cannot be opened, read or committed."""


class LedgerUnusable(LedgerError):
    """The ledger is damaged, none of ours or of a newer program: starting again mends nothing."""


class RunFolderError(SpadeError):
    """A run folder is in use, of another configuration, or cannot be written."""


class ProcessFailure(SpadeError):
    """A part of the run died; names who, why and what to do."""


def exit_status(fault: BaseException) -> int:
    """Exit status of a process that ends for a fault of ours: 78 when a restart cannot mend it."""
    is_refused = isinstance(fault, ConfigError | RunFolderError | LedgerUnusable)
    return EXIT_REFUSED if is_refused else 1


@contextmanager
def boundary(error: type[SpadeError], what: str) -> Iterator[None]:
    """Turn whatever escapes the block into `error`, leaving our own typed errors alone.

    Args:
        error: class of the boundary that is crossed here.
        what: start of the message, e.g. ``"reading checkpoint step-12"``.
    """
    try:
        yield
    except SpadeError:
        raise
    except Exception as cause:
        raise error(f"{what}: {type(cause).__name__}: {cause}") from cause
