"""A description of the machine: the processor's family and model, and its caches."""

from __future__ import annotations

import os
import pathlib
import platform

# Names of the models up to each number, by vendor and family. Sources: AMD's processor programming references, and the
# kernel's arch/x86/include/asm/intel-family.h for Intel.
FAMILIES = {
    ("AuthenticAMD", 23): [(0x2F, "Zen"), (0xFF, "Zen 2")],
    ("AuthenticAMD", 25): [(0x0F, "Zen 3"), (0x1F, "Zen 4"), (0x5F, "Zen 3"), (0xFF, "Zen 4")],
    ("AuthenticAMD", 26): [(0xFF, "Zen 5")],
    ("GenuineIntel", 6): [
        (0x54, "Intel before Skylake-SP"), (0x55, "Skylake-SP"), (0x69, "Intel"), (0x6C, "Ice Lake-SP"),
        (0x8E, "Intel"), (0x8F, "Sapphire Rapids"), (0xAC, "Intel"), (0xAE, "Granite Rapids"), (0xCE, "Intel"),
        (0xCF, "Emerald Rapids"),
    ],
}  # fmt: skip


def cpuinfo() -> dict[str, str]:
    """The first processor's lines of /proc/cpuinfo."""
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def core_name(vendor: str, family: int, model: int) -> str:
    for last, name in FAMILIES.get((vendor, family), []):
        if model <= last:
            return name
    return f"family {family} model {model}"


def caches() -> dict[str, str]:
    """{"L1d": "48K", ...} of the first processor."""
    found = {}
    for index in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            found[f"L{level}{'d' if level == '1' else ''}"] = size
    return found


def describe() -> dict:
    info = cpuinfo()
    family, model = int(info.get("cpu family", 0)), int(info.get("model", 0))
    vendor = info.get("vendor_id", platform.machine())
    return {
        "cpu": info.get("model name", platform.machine()),
        "vendor": vendor,
        "family": family,
        "model": model,
        "name": core_name(vendor, family, model),
        "processors": len(os.sched_getaffinity(0)),
        "caches": caches(),
        "system": platform.platform(),
    }


def title(machine: dict) -> str:
    sizes = ", ".join(f"{name} {size}" for name, size in machine["caches"].items())
    return (
        f"{machine['cpu']} ({machine['name']}, family {machine['family']} model {machine['model']}), "
        f"{machine['processors']} processors, {sizes}"
    )
