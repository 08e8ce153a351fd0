//! Mask expansion with VAES: sixteen AES-128 blocks at a time, two to a 256-bit register.
//!
//! As [`super::x86_aes`] in all else. Needs Rust 1.89 to build; older compilers leave it out.
//!
//! Not guaranteed: keystream and round keys that the compiler spills to the stack are not wiped.

#![allow(unused_unsafe)] // arithmetic on registers became safe with Rust 1.87
#![allow(clippy::incompatible_msrv)] // build.rs leaves this file out where Rust is older

use std::arch::x86_64::{
    __m256i, _mm256_aesenc_epi128, _mm256_aesenclast_epi128, _mm256_broadcastsi128_si256,
    _mm256_loadu_si256, _mm256_set_epi32, _mm256_setzero_si256, _mm256_storeu_si256,
    _mm256_xor_si256, _mm_loadu_si128,
};

use super::groups::GroupKernel;
use super::x86_aes::{RoundKeys, BLOCK_BYTES, ROUND_KEYS};
use super::x86_chacha20::combined;
use super::{CounterPrefix, Sign};
use crate::ring::Lane;
use crate::secret::Seed;

const BLOCKS: usize = 16;
const REGISTER_BYTES: usize = 32;
const REGISTERS: usize = BLOCKS / 2;

/// Says whether this processor has AES on 256-bit registers.
pub(super) fn is_available() -> bool {
    std::arch::is_x86_feature_detected!("vaes") && std::arch::is_x86_feature_detected!("avx2")
}

/// The key of a mask that VAES expands. One exists only where VAES and AVX2 were found.
pub(crate) struct Key(RoundKeys);

impl Key {
    pub(super) fn new(seed: &Seed, prefix: &CounterPrefix) -> Option<Self> {
        if !is_available() {
            return None;
        }
        RoundKeys::new(seed, prefix).map(Self)
    }
}

impl GroupKernel for Key {
    const GROUP_BYTES: usize = BLOCK_BYTES * BLOCKS;

    fn combine_groups<L: Lane>(&self, lanes: &mut [L], first_group: u64, sign: Sign) {
        #[allow(clippy::cast_possible_truncation)] // the caller stays below 2^32 blocks
        let counter = (first_group * BLOCKS as u64) as u32;
        // SAFETY: a key exists only where VAES and AVX2 were found.
        unsafe {
            match sign {
                Sign::Add => combine_groups::<L, false>(lanes, self.0.as_bytes(), counter),
                Sign::Subtract => combine_groups::<L, true>(lanes, self.0.as_bytes(), counter),
            }
        }
    }
}

#[target_feature(enable = "vaes,avx2")]
#[allow(clippy::cast_ptr_alignment)] // only unaligned loads and stores use the pointers
unsafe fn combine_groups<L: Lane, const SUBTRACT: bool>(
    lanes: &mut [L],
    round_keys: &[[u8; BLOCK_BYTES]; ROUND_KEYS],
    counter: u32,
) {
    let mut counter = counter;
    for group in lanes.chunks_exact_mut(BLOCK_BYTES * BLOCKS / L::BYTES) {
        // SAFETY: the caller answers for VAES and AVX2.
        let masks = unsafe { sixteen_blocks(round_keys, counter) };
        for (part, mask) in group.chunks_exact_mut(REGISTER_BYTES / L::BYTES).zip(masks) {
            let target = part.as_mut_ptr().cast::<__m256i>();
            // SAFETY: `target` points to 32 bytes of `group`, which is borrowed mutably here; the
            // unaligned forms of load and store are used, and any bits make a lane.
            unsafe {
                let old = _mm256_loadu_si256(target);
                _mm256_storeu_si256(target, combined::<L, SUBTRACT>(old, mask));
            }
        }
        counter = counter.wrapping_add(16);
    }
}

/// Encrypts the counters `counter` to `counter` + 15, the first a multiple of sixteen.
#[inline]
#[target_feature(enable = "vaes,avx2")]
#[allow(clippy::cast_ptr_alignment)] // only unaligned loads use the pointer
#[allow(clippy::cast_possible_wrap)] // the intrinsics take bit patterns as i32
unsafe fn sixteen_blocks(
    round_keys: &[[u8; BLOCK_BYTES]; ROUND_KEYS],
    counter: u32,
) -> [__m256i; REGISTERS] {
    // SAFETY: the pointer of `key` leads to 16 bytes; the rest is arithmetic on registers, and the
    // caller answers for VAES and AVX2.
    unsafe {
        let key = |round: usize| {
            _mm256_broadcastsi128_si256(_mm_loadu_si128(round_keys[round].as_ptr().cast()))
        };
        let first = counter.swap_bytes() as i32;
        let first = _mm256_set_epi32(first, 0, 0, 0, first, 0, 0, 0);
        let first = _mm256_xor_si256(first, key(0));
        let mut pairs = [_mm256_setzero_si256(); REGISTERS];
        for (pair, index) in pairs.iter_mut().zip(0..) {
            let (low, high) = (index << 25, (2 * index + 1) << 24);
            *pair = _mm256_xor_si256(first, _mm256_set_epi32(high, 0, 0, 0, low, 0, 0, 0));
        }
        for round in 1..ROUND_KEYS - 1 {
            let key = key(round);
            for pair in &mut pairs {
                *pair = _mm256_aesenc_epi128(*pair, key);
            }
        }
        let key = key(ROUND_KEYS - 1);
        for pair in &mut pairs {
            *pair = _mm256_aesenclast_epi128(*pair, key);
        }
        pairs
    }
}
