"""`spade-async report RUN --html FILE`: the run as one page."""

from __future__ import annotations

import os
from pathlib import Path

from spade_async.commands.report import build_report
from spade_async.commands.status import current_status
from spade_async.errors import RunFolderError
from spade_async.view.page.page import PageFacts, page
from spade_async.view.run import opened


def build_page(run_dir: Path) -> str:
    """The page's HTML.

    Raises:
        ConfigError: not a run folder.
        LedgerError: no readable ledger in it.
    """
    with opened(run_dir) as run:
        state, failure = "", None
        try:
            status = current_status(run_dir)
            state, failure = status.state, status.failure
        except RunFolderError:
            # No status was written: the page does without.
            pass
        return page(run, PageFacts(build_report(run_dir), state, failure))


def write_page(run_dir: Path, file: Path) -> int:
    """Write the page, all or nothing; its size in bytes.

    Raises:
        RunFolderError: the file cannot be written; see also `build_page`.
    """
    content = build_page(run_dir).encode("utf-8", "backslashreplace")
    draft = file.with_name(f".{file.name}.part")
    try:
        draft.write_bytes(content)
        os.replace(draft, file)
    except OSError as cause:
        draft.unlink(missing_ok=True)
        raise RunFolderError(
            f"{file} cannot be written: {cause.strerror or cause}; choose another --html"
        ) from cause
    return len(content)
