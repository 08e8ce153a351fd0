"""Puts one subgraph behind another."""

from collections.abc import Mapping
from dataclasses import replace

from edgefl.training.litert.format.model import Subgraph


def append_subgraph(front: Subgraph, back: Subgraph, joined: Mapping[int, int]) -> dict[int, int]:
    """Append the operators of a subgraph to another one.

    Args:
        front: Is extended; its outputs are left as they are.
        back: What follows; not changed.
        joined: For some tensors of `back` the tensor of `front` that takes their place.

    Returns:
        Where each tensor of `back` is now.

    Raises:
        ValueError: Joined tensors differ in shape or type.
    """
    places = {-1: -1}
    for index, tensor in enumerate(back.tensors):
        if index in joined:
            taken = front.tensors[joined[index]]
            if (taken.shape, taken.kind) != (tensor.shape, tensor.kind):
                message = f"{list(taken.shape)} of {taken.kind.name} before {list(tensor.shape)}"
                raise ValueError(message)
            places[index] = joined[index]
        else:
            places[index] = len(front.tensors)
            front.tensors.append(tensor)
    front.operators += [
        replace(
            operator,
            inputs=tuple(places[index] for index in operator.inputs),
            outputs=tuple(places[index] for index in operator.outputs),
        )
        for operator in back.operators
    ]
    return places
