//! Mask expansion with the AES instructions of `ARMv8`: eight AES-128 blocks at a time.
//!
//! Source: FIPS 197, sections 5.1 and 5.2; NIST SP 800-38A, section 6.5. The key schedule uses the
//! processor's own substitution, so that no table is read at a place that depends on the key.
//!
//! A group of eight begins at a multiple of eight, so its counters differ in the last three bits
//! only: one XOR makes each of them.
//!
//! Not guaranteed: keystream and round keys that the compiler spills to the stack are not wiped.

#![allow(unused_unsafe)] // arithmetic on registers became safe with Rust 1.87

use std::arch::aarch64::{
    uint8x16_t, vaeseq_u8, vaesmcq_u8, vdupq_n_u32, vdupq_n_u8, veorq_u8, vgetq_lane_u32, vld1q_u8,
    vreinterpretq_u32_u8, vreinterpretq_u8_u32, vsetq_lane_u8,
};

use zeroize::Zeroizing;

use super::groups::GroupKernel;
use super::neon_chacha20::combine_register;
use super::{CounterPrefix, Sign};
use crate::ring::Lane;
use crate::secret::Seed;

const BLOCK_BYTES: usize = 16;
const ROUND_KEYS: usize = 11;
const BLOCKS: usize = 8;
const ROUND_CONSTANTS: [u8; ROUND_KEYS - 1] =
    [0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x1b, 0x36];

/// Says whether this processor has AES instructions.
pub(super) fn is_available() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("neon")
}

/// The round keys of a mask. They exist only where NEON and AES instructions were found.
pub(crate) struct Key(Box<Zeroizing<[[u8; BLOCK_BYTES]; ROUND_KEYS]>>);

impl Key {
    /// Expands the first 16 bytes of the seed. The prefix of the counter goes into round key 0,
    /// which meets nothing but the counter.
    pub(super) fn new(seed: &Seed, prefix: &CounterPrefix) -> Option<Self> {
        if !is_available() {
            return None;
        }
        let mut keys = Box::new(Zeroizing::new([[0; BLOCK_BYTES]; ROUND_KEYS]));
        keys[0].copy_from_slice(&seed.export_bytes()[..BLOCK_BYTES]);
        // SAFETY: NEON and AES instructions were found above.
        unsafe { expand_key(&mut keys) };
        for (byte, prefix) in keys[0].iter_mut().zip(prefix) {
            *byte ^= prefix;
        }
        Some(Self(keys))
    }
}

impl GroupKernel for Key {
    const GROUP_BYTES: usize = BLOCK_BYTES * BLOCKS;

    fn combine_groups<L: Lane>(&self, lanes: &mut [L], first_group: u64, sign: Sign) {
        #[allow(clippy::cast_possible_truncation)] // the caller stays below 2^32 blocks
        let counter = (first_group * BLOCKS as u64) as u32;
        // SAFETY: a key exists only where NEON and AES instructions were found.
        unsafe {
            match sign {
                Sign::Add => combine_groups::<L, false>(lanes, &self.0, counter),
                Sign::Subtract => combine_groups::<L, true>(lanes, &self.0, counter),
            }
        }
    }
}

/// Fills in round keys 1 to 10 from key 0.
#[target_feature(enable = "neon,aes")]
unsafe fn expand_key(keys: &mut [[u8; BLOCK_BYTES]; ROUND_KEYS]) {
    for (round, constant) in (1..).zip(ROUND_CONSTANTS) {
        let last = keys[round - 1];
        let word = |index: usize| {
            u32::from_le_bytes([
                last[4 * index],
                last[4 * index + 1],
                last[4 * index + 2],
                last[4 * index + 3],
            ])
        };
        // SAFETY: the caller answers for NEON and AES.
        let substituted = unsafe { substitute(word(3)) };
        let mut next = substituted.rotate_right(8) ^ u32::from(constant);
        for index in 0..4 {
            next ^= word(index);
            keys[round][4 * index..][..4].copy_from_slice(&next.to_le_bytes());
        }
    }
}

/// Substitutes the four bytes of a word: of four equal columns, shifting the rows changes nothing.
#[inline]
#[target_feature(enable = "neon,aes")]
unsafe fn substitute(word: u32) -> u32 {
    // SAFETY: arithmetic on registers; the caller answers for NEON and AES.
    unsafe {
        let columns = vreinterpretq_u8_u32(vdupq_n_u32(word));
        vgetq_lane_u32::<0>(vreinterpretq_u32_u8(vaeseq_u8(columns, vdupq_n_u8(0))))
    }
}

#[target_feature(enable = "neon,aes")]
unsafe fn combine_groups<L: Lane, const SUBTRACT: bool>(
    lanes: &mut [L],
    round_keys: &[[u8; BLOCK_BYTES]; ROUND_KEYS],
    counter: u32,
) {
    let block_lanes = BLOCK_BYTES / L::BYTES;
    let mut counter = counter;
    for group in lanes.chunks_exact_mut(block_lanes * BLOCKS) {
        // SAFETY: the caller answers for NEON and AES.
        let masks = unsafe { eight_blocks(round_keys, counter) };
        for (block, mask) in group.chunks_exact_mut(block_lanes).zip(masks) {
            // SAFETY: as above; `block` has 16 bytes.
            unsafe { combine_register::<L, SUBTRACT>(block, mask) };
        }
        counter = counter.wrapping_add(8);
    }
}

/// Encrypts the counters `counter` to `counter` + 7, the first a multiple of eight.
#[inline]
#[target_feature(enable = "neon,aes")]
unsafe fn eight_blocks(
    round_keys: &[[u8; BLOCK_BYTES]; ROUND_KEYS],
    counter: u32,
) -> [uint8x16_t; BLOCKS] {
    let mut first = [0; BLOCK_BYTES];
    first[12..].copy_from_slice(&counter.to_be_bytes());
    // SAFETY: `first` and each round key have the 16 bytes that are loaded; the rest is arithmetic
    // on registers, and the caller answers for NEON and AES.
    unsafe {
        let key = |round: usize| vld1q_u8(round_keys[round].as_ptr());
        let first = vld1q_u8(first.as_ptr());
        let mut blocks = [first; BLOCKS];
        for (block, index) in blocks.iter_mut().zip(0..) {
            *block = veorq_u8(first, vsetq_lane_u8::<15>(index, vdupq_n_u8(0)));
        }
        for round in 0..ROUND_KEYS - 2 {
            let key = key(round);
            for block in &mut blocks {
                *block = vaesmcq_u8(vaeseq_u8(*block, key));
            }
        }
        let (last_but_one, last) = (key(ROUND_KEYS - 2), key(ROUND_KEYS - 1));
        for block in &mut blocks {
            *block = veorq_u8(vaeseq_u8(*block, last_but_one), last);
        }
        blocks
    }
}
