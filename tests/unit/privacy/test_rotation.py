"""Blocks, padding and the public seed of the rotation."""

import hashlib
import json
from pathlib import Path

import pytest

from edgefl.privacy.rotation import (
    LARGEST_ROTATION_BLOCK,
    ROTATION_BLOCKS,
    largest_block,
    padded_dimension,
    rotation_seed,
    useful_blocks,
)

VECTORS = json.loads(
    (Path(__file__).parents[2] / "vectors" / "rotation_seed.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["session_id"][:8])
def test_seed_follows_its_definition(case: dict[str, str]) -> None:
    assert rotation_seed(bytes.fromhex(case["session_id"])).hex() == case["rotation_seed"]


def test_seed_is_no_other_hash_of_the_session() -> None:
    session_id = bytes(range(32))
    assert rotation_seed(session_id) != hashlib.sha256(session_id).digest()
    assert rotation_seed(session_id) != rotation_seed(session_id[::-1])


def test_blocks_are_powers_of_two_up_to_the_largest() -> None:
    assert ROTATION_BLOCKS[0] == 2
    assert ROTATION_BLOCKS[-1] == LARGEST_ROTATION_BLOCK == 4096
    assert all(block & (block - 1) == 0 for block in ROTATION_BLOCKS)


@pytest.mark.parametrize(
    ("dimension", "block", "padded"),
    [
        (1907, 2048, 2048),
        (1907, 0, 1907),
        (2048, 2048, 2048),
        (2049, 2048, 4096),
        (10**6, 4096, 245 * 4096),
        (1, 2, 2),
    ],
)
def test_padding_fills_whole_blocks(dimension: int, block: int, padded: int) -> None:
    assert padded_dimension(dimension, block) == padded


@pytest.mark.parametrize(
    ("dimension", "block"), [(1, 2), (2, 2), (3, 4), (1907, 2048), (4096, 4096), (10**6, 4096)]
)
def test_largest_block_covers_a_small_update_whole(dimension: int, block: int) -> None:
    assert largest_block(dimension) == block


@pytest.mark.parametrize("dimension", [1, 31, 32, 1907, 5000, 10**6])
def test_smaller_blocks_are_tried_only_where_they_pad_less(dimension: int) -> None:
    blocks = useful_blocks(dimension)
    paddings = [padded_dimension(dimension, block) for block in blocks]
    assert list(blocks) == sorted(blocks, reverse=True)
    assert paddings == sorted(set(paddings), reverse=True)
    assert all(padding < 2 * max(dimension, 32) for padding in paddings)
