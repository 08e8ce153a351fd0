"""Chooses which tensors of a model are trained, and which of those stay on the device.

A choice is a list of terms, as text with commas between: `all`, `head` (the last layer and what
follows it), `last:N` (the last N layers and what follows them), `biases`, `lora:R` or
`lora:R:PATTERN` (low-rank changes of layers' weights), names, and name patterns with `*` and `?`.
"""

import difflib
import fnmatch
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import onnx

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.differentiate import no_gradient
from edgefl.training.onnx.compile.weights import Weights

ALL = "all"
HEAD = "head"
BIASES = "biases"
LORA_DOWN = ".lora_a"
LORA_UP = ".lora_b"
_LAST = "last:"
_LORA = "lora:"
_PATTERN_MARKS = "*?["


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraTerm:
    """Low-rank changes that are asked for.

    Attributes:
        rank: Their rank.
        pattern: Names of the weights that are changed.
    """

    rank: int
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A choice, with low-rank changes apart from tensors of the model.

    Attributes:
        terms: All other terms.
        lora: Low-rank changes.
    """

    terms: tuple[str, ...]
    lora: tuple[LoraTerm, ...]


def parse_selection(wanted: str | Sequence[str]) -> Selection:
    """Read a choice.

    Args:
        wanted: Terms, or one text with commas between them.

    Raises:
        TrainingError: E-MODEL-TRAINABLE for a rank that is no whole number from 1.
    """
    listed = wanted.split(",") if isinstance(wanted, str) else wanted
    terms = [term.strip() for term in listed if term.strip()]
    return Selection(
        terms=tuple(term for term in terms if not term.startswith(_LORA)),
        lora=tuple(_lora_term(term) for term in terms if term.startswith(_LORA)),
    )


def select_trainable(
    graph: onnx.GraphProto, terms: Sequence[str], *, source_names: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the trained tensors in the model's own order, which becomes the flat order.

    Args:
        graph: Prepared forward graph.
        terms: Of a `Selection`.
        source_names: Tensors of the source model; those that are gone had no effect.

    Returns:
        Names, at least one.

    Raises:
        TrainingError: E-MODEL-TRAINABLE for unknown names (with close matches), running statistics
            or an empty choice; E-MODEL-NO-GRADIENT for tensors that the output does not depend on.
    """
    weights = Weights(graph)
    gone = [name for name in terms if name in source_names and name not in weights.tensors]
    if gone:
        raise no_gradient(gone)
    chosen = {name for term in terms for name in _choose(weights, term)}
    if not chosen:
        raise TrainingError(
            "E-MODEL-TRAINABLE",
            "at least one float32 tensor to train",
            "none",
            "export the model with its weights as initializers",
        )
    return tuple(name for name in weights.tensors if name in chosen)


def select_local(
    graph: onnx.GraphProto, trained: Sequence[str], terms: Sequence[str]
) -> tuple[str, ...]:
    """Return which of the trained tensors stay on the device.

    Args:
        graph: Prepared forward graph, before low-rank changes.
        trained: All that is trained.
        terms: As for `select_trainable`, from among these; a weight stands for its change too.

    Returns:
        Names in the order of `trained`; at least one trained tensor is left out.

    Raises:
        TrainingError: E-MODEL-LOCAL.
    """
    if not terms:
        return ()
    weights = Weights(graph)
    chosen: set[str] = set()
    for term in terms:
        found = _choose_trained(weights, trained, term)
        if not found:
            raise TrainingError(
                "E-MODEL-LOCAL",
                "trained tensors to keep on the device",
                f"{term!r}, which is none of them",
                f"trained are {_listed(trained)}",
            )
        chosen.update(found)
    if len(chosen) == len(set(trained)):
        raise TrainingError(
            "E-MODEL-LOCAL",
            "at least one trained tensor that is averaged",
            "all trained tensors kept on the device",
            "keep fewer of them local",
        )
    return tuple(name for name in trained if name in chosen)


def _choose_trained(weights: Weights, trained: Sequence[str], term: str) -> list[str]:
    if term in {ALL, HEAD, BIASES} or term.startswith(_LAST):
        wanted = set(_choose(weights, term))
        return [
            name
            for name in trained
            if name in wanted or name.removesuffix(LORA_DOWN).removesuffix(LORA_UP) in wanted
        ]
    return [name for name in trained if fnmatch.fnmatchcase(name, term) or name == term]


def _choose(weights: Weights, term: str) -> list[str]:
    if term == ALL:
        return weights.candidates
    if term == HEAD:
        return weights.last_layers(1)
    if term == BIASES:
        return weights.biases
    if term.startswith(_LAST):
        return weights.last_layers(_whole_number(term, term.removeprefix(_LAST)))
    if any(mark in term for mark in _PATTERN_MARKS) and term not in weights.tensors:
        return _matching(weights, term)
    return [_named(weights, term)]


def _matching(weights: Weights, pattern: str) -> list[str]:
    found = [
        name
        for name in weights.tensors
        if fnmatch.fnmatchcase(name, pattern) and _is_usable(weights, name)
    ]
    if not found:
        raise _unknown(weights, pattern)
    return found


def _named(weights: Weights, name: str) -> str:
    if name not in weights.tensors:
        raise _unknown(weights, name)
    if not weights.uses(name):
        raise no_gradient([name])
    if not _is_usable(weights, name):
        raise TrainingError(
            "E-MODEL-TRAINABLE",
            "weights",
            f"{name!r}, a running statistic, scale or bound",
            "leave it out; it stays as it is in the frozen group",
        )
    return name


def _is_usable(weights: Weights, name: str) -> bool:
    """Tell whether training a tensor makes sense when it is asked for by name."""
    return any(not use.is_fixed for use in weights.uses(name))


def _unknown(weights: Weights, name: str) -> TrainingError:
    candidates = weights.candidates
    close = difflib.get_close_matches(name, candidates)
    return TrainingError(
        "E-MODEL-TRAINABLE",
        "names of float32 initializers, or all, head, last:N, biases, lora:R",
        repr(name),
        f"did you mean {', '.join(close)}?" if close else f"there are {_listed(candidates)}",
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:30])
    return shown if len(names) <= 30 else f"{shown} and {len(names) - 30} more"


def _lora_term(term: str) -> LoraTerm:
    rank, _, pattern = term.removeprefix(_LORA).partition(":")
    return LoraTerm(rank=_whole_number(term, rank), pattern=pattern or "*")


def _whole_number(term: str, digits: str) -> int:
    if not digits.isdecimal() or int(digits) < 1:
        raise TrainingError(
            "E-MODEL-TRAINABLE", "a whole number from 1", repr(term), "as in last:2 or lora:4"
        )
    return int(digits)
