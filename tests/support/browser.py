"""A real browser for the tests of pages: found, never installed."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ASKED = "SPADE_BROWSER"
"""Environment variable with the path of a Chromium, for machines where it has another name."""
SKIP_REASON = f"no browser: none of {', '.join(NAMES)} is on the PATH and {ASKED} is not set"
_MEASURE = """
<script>
for (const fold of document.querySelectorAll('details')) fold.open = true;
const wide = [...document.querySelectorAll('body *')].filter(
  e => e.getBoundingClientRect().right > innerWidth + 0.5 && !e.closest('pre'))
  .map(e => e.tagName + '.' + (e.getAttribute('class') || ''));
parent.document.documentElement.setAttribute('data-measured', JSON.stringify({
  inner: innerWidth, scroll: document.documentElement.scrollWidth,
  body: document.body.scrollWidth, wide: wide.slice(0, 10), title: document.title,
  scripts: document.scripts.length, images: document.images.length,
  back: getComputedStyle(document.body).backgroundColor,
  plots: [...document.querySelectorAll('svg.plot')].map(
    e => [e.getAttribute('aria-label'), e.getBoundingClientRect().width]),
  code: [...document.querySelectorAll('pre.code')].map(e => e.textContent),
}));
</script>
"""


def find() -> str | None:
    """Path of a Chromium, or None."""
    asked = os.environ.get(ASKED)
    return asked or next((p for name in NAMES if (p := shutil.which(name))), None)


def run(binary: str, folder: Path, *options: str, size: tuple[int, int]) -> str:
    """One headless run; its standard output."""
    command = [
        binary, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--hide-scrollbars", "--no-first-run", f"--user-data-dir={folder / 'profile'}",
        f"--window-size={size[0]},{size[1]}", *options,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def measure(
    binary: str, folder: Path, page: str, size: tuple[int, int], *options: str
) -> dict[str, Any]:
    """What the DOM says of a page, with every fold open.

    It stands in a frame of that size: a window of a headless Chromium is at least 500 wide.

    The page forbids scripts; in this copy ours may run, so a script that came in with a program
    would run too, and show.
    """
    copy = folder / f"measured-{size[0]}.html"
    freed = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    assert freed != page
    inner = html.escape(freed.replace("</body>", _MEASURE + "</body>"), quote=True)
    copy.write_text(
        f'<!doctype html><meta charset="utf-8"><body style="margin:0"><iframe srcdoc="{inner}"'
        f' style="border:0;width:{size[0]}px;height:{size[1]}px"></iframe></body>'
    )
    dumped = run(binary, folder, *options, "--dump-dom", copy.as_uri(), size=size)
    found = re.search(r'data-measured="([^"]*)"', dumped)
    assert found is not None, dumped[:500]
    measured: dict[str, Any] = json.loads(html.unescape(found[1]))
    return measured
