"""The wire form of a privacy plan: integer keys, plain values, one exact type each."""

from typing import TypedDict, cast

from edgefl.errors import WireError


class PlanNumbers(TypedDict):
    """The numbers of a plan, by the names of its attributes."""

    clip_norm: float
    noise_multiplier: float
    n_cohort: int
    survivor_floor: int
    colluders: int
    ring_bits: int
    scale: float
    beta: float
    dimension: int
    delta: float
    epsilon_budget: float
    rounds: int
    epsilon_declared: float
    rotation_block: int
    weight_bound: int


WIRE_FIELDS: dict[int, tuple[str, type[int] | type[float] | type[str]]] = {
    1: ("unit", str),
    2: ("relation", str),
    3: ("mechanism", str),
    4: ("clip_norm", float),
    5: ("noise_multiplier", float),
    6: ("n_cohort", int),
    7: ("survivor_floor", int),
    8: ("colluders", int),
    9: ("ring_bits", int),
    10: ("scale", float),
    11: ("beta", float),
    12: ("dimension", int),
    13: ("delta", float),
    14: ("epsilon_budget", float),
    15: ("rounds", int),
    16: ("epsilon_declared", float),
    17: ("rotation_block", int),
    18: ("weight_bound", int),
}


def read_fields(wire: object) -> tuple[dict[str, str], PlanNumbers]:
    """Check keys and types of a peer's data; ranges are left to the plan's constructor.

    Args:
        wire: Decoded data of any shape.

    Returns:
        Text by field name, and the numbers.

    Raises:
        WireError: E-PRIVACY-PLAN.
    """
    if not isinstance(wire, dict) or {(type(key), key) for key in wire} != _KEYS:
        keys = f"a map with exactly the keys 1 to {len(WIRE_FIELDS)}"
        raise WireError("E-PRIVACY-PLAN", keys, "something else")
    for key, (name, kind) in WIRE_FIELDS.items():
        # `type is`, as a bool would pass for an int.
        if type(wire[key]) is not kind:
            found = type(wire[key]).__name__
            raise WireError("E-PRIVACY-PLAN", f"{name} as {kind.__name__}", found)
    names: dict[str, str] = {}
    numbers: dict[str, int | float] = {}
    for key, (name, kind) in WIRE_FIELDS.items():
        if kind is str:
            names[name] = wire[key]
        else:
            numbers[name] = wire[key]
    return names, cast("PlanNumbers", numbers)


_KEYS = {(int, key) for key in WIRE_FIELDS}
