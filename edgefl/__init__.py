"""Federated learning for battery-powered boards."""

import warnings
from pathlib import Path

__version__ = "0.1.0"
DISTRIBUTION = "edgefl-runtime"
"""What brings this package. PyPI also has an unrelated `edgefl`, of the same import name."""


def second_owner(folder: Path) -> str | None:
    """Return the unrelated distribution that also writes into `folder`/edgefl, if there is one.

    Cheap enough for every import: one listing of one folder, nothing is opened.

    Args:
        folder: Where this package lies: `site-packages`.
    """
    # Our own metadata is called edgefl_runtime-*, so this matches the other one alone.
    found = next(folder.glob("edgefl-*.dist-info"), None)
    return None if found is None else found.name.removesuffix(".dist-info")


def mending_line() -> str:
    """Return the command that leaves one owner of the import package."""
    return f"pip uninstall -y edgefl && pip install --force-reinstall '{DISTRIBUTION}'"


_other = second_owner(Path(__file__).parent.parent)
if _other is not None:
    warnings.warn(
        f"E-PACKAGE-OWNER: expected {DISTRIBUTION} alone to own the import package 'edgefl'; found "
        f"{_other} beside it, whose files may have replaced ours; {mending_line()}",
        RuntimeWarning,
        stacklevel=2,
    )
