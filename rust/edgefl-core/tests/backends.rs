//! Every piece of mask code gives the lanes of the portable one: at every length, start and sign.

mod common;

use edgefl_core::{
    aes_128_ctr_keystream, has_aes_hardware, Backend, CoreError, Keystream, Lane, Mask,
    MaskExpander, Prg, Seed, Sign, TILE_BYTES,
};
use proptest::prelude::*;
use serde_json::Value;

use common::{cases, hex, unhex};

/// Blocks of keystream that a key is good for.
const MOST_BLOCKS: u64 = u32::MAX as u64;

fn block_lanes<L: Lane>(prg: Prg) -> u64 {
    let block_bytes = match prg {
        Prg::ChaCha20 => 64,
        Prg::Aes128Ctr => 16,
    };
    block_bytes / L::BYTES as u64
}

fn start<L: Lane>(length: usize) -> Vec<L> {
    (0_u32..)
        .take(length)
        .map(|i| L::from_keystream(&i.wrapping_mul(2_654_435_761).to_le_bytes()))
        .collect()
}

fn expanded<L: Lane>(
    masks: &[Mask<'_>],
    backend: Backend,
    first: u64,
    length: usize,
) -> Result<Vec<L>, CoreError> {
    let mut lanes = start::<L>(length);
    MaskExpander::with_backend(masks, backend)?.add_to_tile(&mut lanes, first)?;
    Ok(lanes)
}

/// Compares all code of this processor with the portable one.
fn all_agree<L: Lane + std::fmt::Debug>(masks: &[Mask<'_>], first: u64, length: usize) {
    let prg = masks[0].prg;
    let expected = expanded::<L>(masks, Backend::Portable, first, length);
    for backend in Backend::available(prg) {
        let found = expanded::<L>(masks, backend, first, length);
        assert!(
            found == expected,
            "{backend:?}, from {first}, {length} lanes"
        );
    }
}

fn both_lanes_agree(masks: &[Mask<'_>], first: u64, length: usize) {
    all_agree::<u16>(masks, first, length);
    all_agree::<u32>(masks, first, length);
}

fn prg() -> impl Strategy<Value = Prg> {
    prop::sample::select(Prg::ALL.as_slice())
}

/// Mostly short, some of several tiles.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 0_usize..700, 1 => 0..3 * TILE_BYTES]
}

proptest! {
    #[test]
    fn every_backend_gives_the_portable_lanes(
        keys in proptest::collection::vec((any::<[u8; 32]>(), any::<bool>()), 1..4),
        prg in prg(), length in length(), first in prop_oneof![0_u64..5000, 0..1_u64 << 33],
    ) {
        let seeds: Vec<Seed> = keys
            .iter()
            .map(|(key, _)| Seed::from_bytes(key).expect("32 bytes"))
            .collect();
        let masks: Vec<Mask<'_>> = seeds
            .iter()
            .zip(&keys)
            .map(|(seed, (_, is_added))| Mask {
                seed,
                prg,
                sign: if *is_added { Sign::Add } else { Sign::Subtract },
            })
            .collect();
        both_lanes_agree(&masks, first, length);
    }

    /// A vector in pieces is the vector in one, wherever it is cut.
    #[test]
    fn pieces_give_the_whole(key in any::<[u8; 32]>(), prg in prg(), cut in 0_usize..900, first in 0_u64..900) {
        let seed = [Seed::from_bytes(&key).expect("32 bytes")];
        let masks = common::masks(prg, &seed, &[]);
        let expander = MaskExpander::new(&masks);
        let mut whole = vec![0_u16; 900];
        expander.add_to_tile(&mut whole, first).expect("short");
        let mut pieces = vec![0; 900];
        let (left, right) = pieces.split_at_mut(cut);
        expander.add_to_tile(left, first).expect("short");
        expander.add_to_tile(right, first + cut as u64).expect("short");
        prop_assert_eq!(whole, pieces);
    }
}

#[test]
fn every_short_length_and_start_agrees() {
    let seed = [Seed::from_bytes(&[5; 32]).expect("32 bytes")];
    for prg in Prg::ALL {
        let masks = common::masks(prg, &seed, &[]);
        for length in 0..530 {
            both_lanes_agree(&masks, 0, length);
        }
        for first in 0..530 {
            both_lanes_agree(&masks, first, 17);
        }
    }
}

/// Around every byte of the block counter that carries into the next.
#[test]
fn counters_carry_alike() {
    let seed = [Seed::from_bytes(&[9; 32]).expect("32 bytes")];
    for prg in Prg::ALL {
        let masks = common::masks(prg, &seed, &[]);
        for bits in [8, 16, 24, 31] {
            let block = (1_u64 << bits) - 3;
            all_agree::<u16>(&masks, block * block_lanes::<u16>(prg) + 1, 2000);
            all_agree::<u32>(&masks, block * block_lanes::<u32>(prg) + 1, 2000);
        }
    }
}

#[test]
fn all_end_at_the_same_block() {
    fn check<L: Lane + std::fmt::Debug>(prg: Prg) {
        let seed = [Seed::from_bytes(&[7; 32]).expect("32 bytes")];
        let masks = common::masks(prg, &seed, &[]);
        let end = MOST_BLOCKS * block_lanes::<L>(prg);
        for length in [1, 63, 600] {
            let first = end - length as u64;
            all_agree::<L>(&masks, first, length);
            for backend in Backend::available(prg) {
                assert!(expanded::<L>(&masks, backend, first, length).is_ok());
                for beyond in [first + 1, end, u64::MAX / 4, u64::MAX] {
                    let refused = expanded::<L>(&masks, backend, beyond, length);
                    assert_eq!(refused, Err(CoreError::StreamLength), "{backend:?}");
                }
            }
        }
    }
    for prg in Prg::ALL {
        check::<u16>(prg);
        check::<u32>(prg);
    }
}

#[test]
fn the_portable_code_is_always_there_and_last() {
    for prg in Prg::ALL {
        let available = Backend::available(prg);
        assert_eq!(available.last(), Some(&Backend::Portable));
        assert_eq!(available[0], Backend::chosen(prg));
    }
    // Our own AES code is there exactly where the processor has instructions for it.
    let is_special = Backend::chosen(Prg::Aes128Ctr) != Backend::Portable;
    assert_eq!(has_aes_hardware(), is_special);
}

#[test]
fn code_for_another_generator_is_refused() {
    let seed = [Seed::from_bytes(&[1; 32]).expect("32 bytes")];
    for prg in Prg::ALL {
        let masks = common::masks(prg, &seed, &[]);
        for other in Prg::ALL.into_iter().filter(|other| *other != prg) {
            for backend in Backend::available(other) {
                let is_made = MaskExpander::with_backend(&masks, backend).is_ok();
                assert_eq!(is_made, backend == Backend::Portable);
            }
        }
    }
}

/// The lanes of a `ChaCha20` mask are the words of the stream; see vectors.rs for that stream.
#[test]
fn chacha20_masks_are_the_stream() {
    let seed = [Seed::from_bytes(&[3; 32]).expect("32 bytes")];
    let mut bytes = vec![0; 6000];
    Keystream::new(&seed[0]).fill(&mut bytes).expect("short");
    let masks = common::masks(Prg::ChaCha20, &seed, &[]);
    let mut lanes = vec![0_u16; 3000];
    MaskExpander::new(&masks)
        .add_to_tile(&mut lanes, 0)
        .expect("short");
    let found: Vec<u8> = lanes.into_iter().flat_map(u16::to_le_bytes).collect();
    assert_eq!(found, bytes);
}

fn aes_holds(case: &Value, backend: Backend) -> bool {
    let array = |field: &str| unhex(&case[field]).try_into().expect("16 bytes");
    let (plaintext, expected) = (unhex(&case["plaintext"]), unhex(&case["ciphertext"]));
    let blocks = plaintext.len() / 16;
    let keystream = aes_128_ctr_keystream(&array("key"), &array("counter_block"), backend, blocks);
    let found = keystream.expect("available");
    let found = found.iter().zip(&plaintext).map(|(mask, byte)| mask ^ byte);
    found.collect::<Vec<u8>>() == expected
}

#[test]
fn aes_of_the_standards() {
    for case in cases("aes_128.json", "cases") {
        for backend in Backend::available(Prg::Aes128Ctr) {
            assert!(aes_holds(&case, backend), "{backend:?}, {}", case["from"]);
            for field in ["key", "counter_block", "plaintext", "ciphertext"] {
                for byte in 0..unhex(&case[field]).len() {
                    let mut content = unhex(&case[field]);
                    content[byte] ^= 1 << (byte % 8);
                    let mut changed = case.clone();
                    changed[field] = Value::String(hex(&content));
                    assert!(!aes_holds(&changed, backend), "{backend:?}: {field} {byte}");
                }
            }
        }
    }
}

/// A mask begins at counter zero, and its key is the first half of the seed.
#[test]
fn aes_masks_begin_at_counter_zero() {
    let key: [u8; 16] = std::array::from_fn(|i| u8::try_from(i * 7).expect("small"));
    for backend in Backend::available(Prg::Aes128Ctr) {
        for rest in [0, 255] {
            let seed = [Seed::from_bytes(&[key, [rest; 16]].concat()).expect("32 bytes")];
            let masks = common::masks(Prg::Aes128Ctr, &seed, &[]);
            let mut lanes = vec![0_u32; 1000];
            let expander = MaskExpander::with_backend(&masks, backend).expect("available");
            expander.add_to_tile(&mut lanes, 0).expect("short");
            let found: Vec<u8> = lanes.into_iter().flat_map(u32::to_le_bytes).collect();
            let expected = aes_128_ctr_keystream(&key, &[0; 16], Backend::Portable, 250);
            assert_eq!(Ok(found), expected);
        }
    }
    let beyond = aes_128_ctr_keystream(&key, &[255; 16], Backend::Portable, 1);
    assert_eq!(beyond, Err(CoreError::StreamLength));
}
