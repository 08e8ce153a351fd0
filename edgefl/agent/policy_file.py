"""The owner's floors in a TOML file; what it does not name keeps its default.

```toml
adversary = "malicious"       # weakest class accepted; the default trusts the gateway
least_survivors = 20           # least devices that an update must be hidden among
least_degree = 16              # least neighbours in a sparse graph
least_corrupt_permille = 50    # least share of the fleet assumed to collude with the gateway
least_drop_permille = 50
young_days = 14                # identities younger than this ...
most_young_permille = 200      # ... may be at most this share of roster and neighbourhood
allow_experimental = false     # modes without a settled security argument
allow_aes = true               # AES-128-CTR between devices that have it in hardware
max_epsilon = 8.0              # over all tasks, against the gateway
max_clip_norm = 100.0
least_colluders = 0            # least devices whose noise a plan must not count
```
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgefl.errors import ConfigError
from edgefl.privacy.plan import PrivacyPolicy
from edgefl.protocol.policy import DevicePolicy
from edgefl.protocol.reasons import AdversaryClass, Prg
from edgefl.storage.files import read_file

DEFAULT_MAX_EPSILON = 8.0
LEAST_SURVIVORS = 2
MALICIOUS_CORRUPT_PERMILLE = 50
"""Least share of colluding devices that must be assumed where the gateway may be malicious."""
_MOST_BYTES = 1 << 20
_ADVERSARIES = {adversary.name.lower().replace("_", "-"): adversary for adversary in AdversaryClass}


@dataclass(frozen=True, slots=True)
class _Key:
    kind: type
    is_good: Callable[[float], bool]
    wanted: str
    default: str | float | bool


def _count(least: int, most: int, default: int) -> _Key:
    return _Key(int, lambda value: least <= value <= most, f"{least} to {most}", default)


_KEYS: dict[str, _Key] = {
    "adversary": _Key(str, lambda _: True, ", ".join(_ADVERSARIES), "honest-but-curious"),
    "least_survivors": _count(LEAST_SURVIVORS, 65_536, 3),
    "least_degree": _count(2, 65_536, 2),
    "least_corrupt_permille": _count(0, 500, 0),
    "least_drop_permille": _count(0, 1000, 0),
    "young_days": _count(0, 3650, 0),
    "most_young_permille": _count(0, 1000, 1000),
    "allow_experimental": _Key(bool, lambda _: True, "true or false", False),
    "allow_aes": _Key(bool, lambda _: True, "true or false", True),
    "max_epsilon": _Key(float, lambda value: value > 0, "a number above 0", DEFAULT_MAX_EPSILON),
    "max_clip_norm": _Key(float, lambda value: value > 0, "a number above 0", 100.0),
    "least_colluders": _count(0, 65_536, 0),
}


def read_policy(path: Path | None, overrides: Mapping[str, str | float | None]) -> DevicePolicy:
    """Return the floors of a policy file, with options of the command line before it.

    Args:
        path: The file; None takes the defaults.
        overrides: By the file's keys; None leaves the file's value.

    Raises:
        ConfigError: E-POLICY-FILE: it cannot be read, or names an unknown key or a bad value.
    """
    named = {} if path is None else _load(path)
    values = {key: expected.default for key, expected in _KEYS.items()} | named
    for key, value in overrides.items():
        if value is not None:
            values[key] = _checked(key, value, "option")
    adversary = _ADVERSARIES.get(str(values["adversary"]))
    if adversary is AdversaryClass.MALICIOUS and "least_corrupt_permille" not in named:
        # Against a gateway with nobody at its side, a plan could leave every guard at its weakest.
        values["least_corrupt_permille"] = MALICIOUS_CORRUPT_PERMILLE
    if adversary is None:
        raise ConfigError(
            "E-POLICY-FILE",
            f"adversary = one of {', '.join(_ADVERSARIES)}",
            repr(values["adversary"]),
        )
    return DevicePolicy(
        # Whoever accepts a class accepts the stronger protection of those above it.
        adversary_classes=frozenset(one for one in AdversaryClass if one >= adversary),
        prgs=frozenset(Prg) if values["allow_aes"] else frozenset({Prg.CHACHA20}),
        allows_experimental=bool(values["allow_experimental"]),
        least_survivor_floor=int(values["least_survivors"]),
        least_degree=int(values["least_degree"]),
        least_corrupt_permille=int(values["least_corrupt_permille"]),
        least_drop_permille=int(values["least_drop_permille"]),
        young_days=int(values["young_days"]),
        most_young_permille=int(values["most_young_permille"]),
        privacy=PrivacyPolicy(
            max_epsilon=float(values["max_epsilon"]),
            max_clip_norm=float(values["max_clip_norm"]),
            min_colluders=int(values["least_colluders"]),
        ),
    )


def _load(path: Path) -> dict[str, str | float | bool]:
    try:
        content = tomllib.loads(read_file(path, _MOST_BYTES).decode("utf-8"))
    except OSError as error:
        raise ConfigError(
            "E-POLICY-FILE", f"a readable policy file {path}", error.strerror or str(error)
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError("E-POLICY-FILE", f"TOML in {path}", str(error)) from error
    unknown = sorted(content.keys() - _KEYS.keys())
    if unknown:
        # A floor that is misspelt would silently not hold.
        raise ConfigError(
            "E-POLICY-FILE", f"only the keys {', '.join(_KEYS)}", ", ".join(unknown)[:200]
        )
    return {key: _checked(key, value, str(path)) for key, value in content.items()}


def _checked(key: str, value: object, source: str) -> str | float | bool:
    expected = _KEYS[key]
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if expected.kind is float and is_number:
        value = float(value)  # type: ignore[arg-type]
    if type(value) is not expected.kind or not expected.is_good(value):  # type: ignore[arg-type]
        raise ConfigError(
            "E-POLICY-FILE", f"{key} = {expected.wanted} in {source}", repr(value)[:80]
        )
    return value  # type: ignore[return-value]
