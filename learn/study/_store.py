"""The study's files. Each file is replaced as a whole or not at all.

NAME.json                 claims, settings, seeds, results, verdicts; equal for equal seeds on one machine
NAME.machine.json         date, machine, versions, seconds; may differ between equal runs
runs/NAME/KEY.json        one run, written when it ends; reused after a restart if sources and versions are equal
"""

import ast
import hashlib
import importlib
import inspect
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

from . import _sections, _setup

PACKAGES = ("evenorm", "torch", "numpy", "scikit-learn", "matplotlib")


def text_of(value: Any, indent: int | None = None) -> str:
    """The value as JSON. NaN is an error: a result that has no number is null."""
    return json.dumps(value, indent=indent, allow_nan=False, ensure_ascii=False)


def write_bytes(path: Path, content: bytes) -> None:
    """Replaces the file by the whole content, or leaves it untouched."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def write_json(path: Path, value: Any, indent: int | None = None) -> None:
    write_bytes(path, f"{text_of(value, indent)}\n".encode())


def lines_of_runs(whole: dict[str, Any]) -> str:
    """The section's JSON, indented, with one line for each run."""
    rest = {name: value for name, value in whole.items() if name != "runs"}
    runs = ",\n".join(f"    {text_of(run)}" for run in whole["runs"])
    return f'{text_of(rest, 2)[:-2]},\n  "runs": [\n{runs}\n  ]\n}}\n'


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def sources_of(module: ModuleType) -> dict[str, str]:
    """The sources of the module and of the study's public modules that it imports, by name."""
    found = {module.__name__: inspect.getsource(module)}
    for node in ast.walk(ast.parse(found[module.__name__])):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            names = [node.module] if node.module else [alias.name for alias in node.names]
            for name in names:
                if not name.startswith("_"):
                    found |= sources_of(importlib.import_module(f"{__package__}.{name}"))
    return found


def fingerprint(run: Callable[..., Any]) -> str:
    """A hash of the sources, versions and machine, on which a run's numbers depend besides settings and seed."""
    module = inspect.getmodule(run)
    assert module is not None
    sources = [source for _, source in sorted(sources_of(module).items())]
    sources += map(inspect.getsource, (_sections, _setup))
    parts = [*sources, text_of(versions()), processor()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def key_of(run: _sections.Run) -> str:
    settings = hashlib.sha256(json.dumps(dict(run.settings), sort_keys=True).encode()).hexdigest()[:12]
    return f"{settings}-{run.seed}"


class Runs:
    """The finished runs of one section."""

    def __init__(self, folder: Path, section: _sections.Section) -> None:
        self.folder = folder / "runs" / section.name
        self.fingerprint = fingerprint(section.run)

    def read(self, run: _sections.Run) -> dict[str, Any] | None:
        """The stored run; None if there is none, or if its settings, seed, sources, versions or machine differ."""
        try:
            found: dict[str, Any] = json.loads((self.folder / f"{key_of(run)}.json").read_text())
        except (OSError, ValueError):
            return None
        same = found.get("fingerprint") == self.fingerprint and found.get("settings") == dict(run.settings)
        return found if same and found.get("seed") == run.seed else None

    def write(self, run: _sections.Run, result: Any, seconds: float) -> None:
        whole = {"fingerprint": self.fingerprint, "settings": dict(run.settings), "seed": run.seed}
        write_json(self.folder / f"{key_of(run)}.json", {**whole, "seconds": seconds, "result": result})


def machine() -> dict[str, Any]:
    import torch

    import evenorm

    return {
        "processor": processor(),
        "architecture": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "processors": os.cpu_count(),
        "threads of a run": _setup.THREADS,
        "evenorm's target": evenorm.target(),
        "torch's target": torch.backends.cpu.get_cpu_capability(),
        "versions": versions(),
        "command": Path(sys.executable).name,
    }
