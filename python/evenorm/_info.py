"""What this library is and what it runs on."""

from evenorm import _core


def targets() -> list[str]:
    """The SIMD targets that this CPU can run, best first: "avx3" (AVX-512), "avx2", "neon", "portable".

    >>> "portable" in targets()
    True
    """
    return _core.targets()


def target() -> str:
    """The SIMD target in use: the best, or the one that the environment variable EVENORM_TARGET names.

    Raises:
        ValueError: EVENORM_TARGET names none that this CPU can run (any norm raises it then).

    >>> target() in targets()
    True
    """
    return _core.target()


def version() -> str:
    """The library's version, "major.minor.patch".

    >>> import evenorm
    >>> version() == evenorm.__version__
    True
    """
    return _core.version()


def numerics_revision() -> int:
    """The revision of the bits that norms give: versions of one revision give the same bits.

    >>> numerics_revision() >= 1
    True
    """
    return _core.numerics_revision()
