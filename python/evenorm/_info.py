"""The library's version and SIMD targets."""

from evenorm import _core


def targets() -> list[str]:
    """Returns the SIMD targets that this CPU can run, best first: "avx3" (AVX-512), "avx2", "neon", "portable".

    >>> "portable" in targets()
    True
    """
    return _core.targets()


def target() -> str:
    """Returns the SIMD target in use: the best one, or the one that the environment variable EVENORM_TARGET names.

    Raises:
        ValueError: EVENORM_TARGET names a target that this CPU cannot run. Every norm raises this error too.

    >>> target() in targets()
    True
    """
    return _core.target()


def version() -> str:
    """Returns the library's version, "major.minor.patch".

    >>> import evenorm
    >>> version() == evenorm.__version__
    True
    """
    return _core.version()


def numerics_revision() -> int:
    """Returns the numerics revision: versions with the same revision give the same bits.

    >>> numerics_revision() >= 1
    True
    """
    return _core.numerics_revision()
