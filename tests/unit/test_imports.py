"""The cut of the project, read from its imports: who may know whom, and how long a file may be."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "spade_async"
MAX_LINES = 400

# Lower layers know nothing of higher ones. A module belongs to the longest prefix that fits.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("types", "errors", "seeds"),
    ("config", "telemetry", "domain", "disk", "cluster"),
    (
        "grounding", "designer", "regret", "environment.contract", "environment.text",
        "agent.prompt", "agent.action", "grpo.advantage", "grpo.samples", "buffer",
        "transport.messages", "engine.protocol",
    ),
    (
        "sandbox", "sandbox_core", "sandbox_sync", "sandbox_policy", "sandbox_records",
        "sandbox_profiles", "sandbox_profile_record", "sandbox_interpreter", "jail_backends",
        "transport", "ledger", "engine", "weights", "grpo",
    ),
    # designer.hint tries the hint alone as an answer, in the jail: a use case.
    ("environment", "agent", "designer.hint", "evals", "nano", "smollm2"),
    ("coordinator", "generator", "learner", "simulate", "planning"),
    ("supervisor", "fake"),
    ("view",),
    ("commands",),
    ("cli", "cli_corpus", "cli_plan"),
    ("__main__",),
)  # fmt: skip

HEAVY = {"torch", "transformers", "tokenizers", "safetensors", "vllm"}
HEAVY_ALLOWED = (
    "engine", "weights", "grpo.batch", "grpo.chunked", "grpo.loss", "grpo.correction", "learner",
    "generator", "nano", "smollm2", "fake.model",
)  # fmt: skip
NATIVE_ALLOWED = ("sandbox_core", "jail_backends", "transport.native")


def modules() -> Iterator[tuple[str, Path]]:
    """(dotted name inside the package, file) of every module of ours."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        yield ".".join(parts), path


def imports(path: Path) -> Iterator[str]:
    """Every imported module, wherever it stands, but for `if TYPE_CHECKING`."""
    for node in _walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide who is imported"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        is_typing = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        if not is_typing:
            yield from _walk(child)


def within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def layer(name: str) -> int | None:
    """Number of the layer, by the longest prefix; None for the package itself."""
    found = [
        (len(prefix), number)
        for number, prefixes in enumerate(LAYERS)
        for prefix in prefixes
        if within(name, prefix)
    ]
    return max(found)[1] if found else None


def test_every_module_has_a_layer() -> None:
    homeless = [name for name, _ in modules() if name and layer(name) is None]
    assert homeless == []


def test_no_module_imports_a_higher_layer() -> None:
    wrong = []
    for name, path in modules():
        mine = layer(name)
        for imported in imports(path):
            if mine is None or not imported.startswith("spade_async."):
                continue
            theirs = layer(imported.removeprefix("spade_async."))
            if theirs is not None and theirs > mine:
                wrong.append(f"{name} imports {imported}")
    assert wrong == []


def test_processes_do_not_import_each_other() -> None:
    wrong = [
        f"{name} imports {imported}"
        for name, path in modules()
        for imported in imports(path)
        for mine in ("coordinator", "generator", "learner")
        for theirs in ("coordinator", "generator", "learner")
        if mine != theirs and within(name, mine) and within(imported, f"spade_async.{theirs}")
    ]
    assert wrong == []


def test_model_libraries_stay_where_models_are() -> None:
    wrong = [
        f"{name} imports {imported}"
        for name, path in modules()
        for imported in imports(path)
        if imported.partition(".")[0] in HEAVY
        and not any(within(name, prefix) for prefix in HEAVY_ALLOWED)
    ]
    assert wrong == []


def test_native_module_is_imported_in_one_place() -> None:
    wrong = [
        name
        for name, path in modules()
        if name not in NATIVE_ALLOWED
        and any(within(imported, "spade_async._sandbox_rs") for imported in imports(path))
    ]
    assert wrong == []


def test_nothing_pickles() -> None:
    wrong = [
        f"{name} imports {imported}"
        for name, path in modules()
        for imported in imports(path)
        if imported.partition(".")[0] in {"pickle", "cloudpickle", "dill", "marshal", "shelve"}
        # Runs in the interpreter of the children, never in ours.
        and name != "jail_backends.look"
    ]
    assert wrong == []


def test_core_does_not_know_the_nano_domain() -> None:
    wrong = [
        f"{name} imports {imported}"
        for name, path in modules()
        for imported in imports(path)
        # Its programs are spoken by a second domain.
        if within(imported, "spade_async.nano")
        and not (within(name, "nano") or within(name, "smollm2"))
    ]
    assert wrong == []


@pytest.mark.parametrize("folder", ["spade_async", "tests", "benches", "sandbox_rs"])
def test_no_file_is_longer_than_a_reader_can_hold(folder: str) -> None:
    files = [
        path
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".rs"} and "target" not in path.parts
    ]
    long = [(str(p), n) for p in files if (n := len(p.read_text().splitlines())) > MAX_LINES]
    assert long == []


@pytest.mark.parametrize(
    "module",
    ["spade_async.coordinator.process", "spade_async.supervisor.train", "spade_async.cli",
     "spade_async.commands.report", "spade_async.ledger", "spade_async.transport.hub",
     "spade_async.supervisor.make_model"],
)  # fmt: skip
def test_process_without_a_model_never_loads_torch(module: str) -> None:
    code = f"import {module}, sys; assert not {{'torch', 'transformers'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_no_two_files_of_tests_have_one_name() -> None:
    """They are imported by their names alone: the second one would not be collected."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
