"""Merkle trees: roots of the reference tree of certificate transparency, and only honest paths."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.errors import LocalProtocolError, WireError
from edgefl.protocol.merkle import MAX_LEAVES, MAX_PATH, MerkleTree, is_leaf, read_concatenated

# Source: github.com/google/certificate-transparency, merkletree tests (the inputs and roots that
# implementations of RFC 6962 share).
REFERENCE_LEAVES = [
    bytes.fromhex(digits)
    for digits in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
REFERENCE_ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def leaves_of(size: int) -> list[bytes]:
    return [b"leaf %d" % index for index in range(size)]


def test_the_reference_roots() -> None:
    for size, root in enumerate(REFERENCE_ROOTS, start=1):
        assert MerkleTree(REFERENCE_LEAVES[:size]).root.hex() == root


@given(size=st.integers(1, 70), data=st.data())
def test_a_path_proves_its_own_leaf_and_place_only(size: int, data: st.DataObject) -> None:
    leaves = leaves_of(size)
    tree = MerkleTree(leaves)
    position = data.draw(st.integers(0, size - 1))
    path = tree.path(position)
    assert is_leaf(leaves[position], position, path, size=size, root=tree.root)
    other = data.draw(st.integers(-1, size + 1))
    if other != position:
        assert not is_leaf(leaves[position], other, path, size=size, root=tree.root)
    assert not is_leaf(b"another", position, path, size=size, root=tree.root)
    assert not is_leaf(leaves[position], position, path, size=size, root=bytes(32))
    assert not is_leaf(leaves[position], position, (*path, bytes(32)), size=size, root=tree.root)
    if path:
        place = data.draw(st.integers(0, len(path) - 1))
        changed = [*path]
        changed[place] = bytes(32)
        assert not is_leaf(leaves[position], position, changed, size=size, root=tree.root)
        assert not is_leaf(leaves[position], position, path[:-1], size=size, root=tree.root)


def test_an_inner_node_is_no_leaf() -> None:
    tree = MerkleTree(leaves_of(4))
    left, right = (hashlib.sha256(b"\0" + leaf).digest() for leaf in leaves_of(2))
    # Without domain bytes, the two hashes below a node would pass for a leaf in a tree of two.
    assert not is_leaf(left + right, 0, tree.path(0)[1:], size=2, root=tree.root)


@given(position=st.integers(-5, 80), size=st.integers(0, 70), path=st.lists(st.binary(max_size=40)))
def test_hostile_paths_only_fail(position: int, size: int, path: list[bytes]) -> None:
    assert not is_leaf(b"leaf 1", position, path, size=size, root=bytes(32))


def test_the_largest_tree() -> None:
    tree = MerkleTree(leaves_of(MAX_LEAVES))
    path = tree.path(MAX_LEAVES - 1)
    assert len(path) == MAX_PATH
    last = b"leaf %d" % (MAX_LEAVES - 1)
    assert is_leaf(last, MAX_LEAVES - 1, path, size=MAX_LEAVES, root=tree.root)


@pytest.mark.parametrize("leaves", [[], [b""] * (MAX_LEAVES + 1)])
def test_sizes_that_no_tree_has(leaves: list[bytes]) -> None:
    with pytest.raises(LocalProtocolError, match="E-MERKLE-SIZE"):
        MerkleTree(leaves)


@pytest.mark.parametrize("position", [-1, 3])
def test_positions_that_no_leaf_has(position: int) -> None:
    with pytest.raises(LocalProtocolError, match="E-MERKLE-POSITION"):
        MerkleTree(leaves_of(3)).path(position)


@pytest.mark.parametrize("joined", [b"", bytes(31), bytes(33), bytes(96)])
def test_joined_digests_of_a_wrong_size_are_refused(joined: bytes) -> None:
    with pytest.raises(WireError, match="E-WIRE-BYTES"):
        read_concatenated(joined, 2)
    assert read_concatenated(b"a" * 32 + b"b" * 32, 2) == (b"a" * 32, b"b" * 32)
