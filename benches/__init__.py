"""Benchmarks: ``python -m benches NAME [--quick] [--json FILE]`` from the repository root.

A benchmark is a module here with ``run(quick: bool) -> dict`` (plain figures) and
``table(result: dict) -> str`` (the same for people).
"""
