"""``python -m spade_async`` is the command line."""

from __future__ import annotations

from spade_async.cli import main

if __name__ == "__main__":
    main()
