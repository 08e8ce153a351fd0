//! Mask expansion with AES-NI: eight AES-128 blocks at a time, added from registers.
//!
//! Source: FIPS 197, sections 5.1 and 5.2; NIST SP 800-38A, section 6.5. The key schedule uses the
//! processor's own instruction, so that no table is read at a place that depends on the key.
//!
//! A group of eight begins at a multiple of eight, so its counters differ in the last three bits
//! only: one XOR makes each of them, with the first round key already in.
//!
//! Not guaranteed: keystream and round keys that the compiler spills to the stack are not wiped.

#![allow(unused_unsafe)] // arithmetic on registers became safe with Rust 1.87

use std::arch::x86_64::{
    __m128i, _mm_add_epi16, _mm_add_epi32, _mm_aesenc_si128, _mm_aesenclast_si128,
    _mm_aeskeygenassist_si128, _mm_loadu_si128, _mm_set_epi32, _mm_setzero_si128,
    _mm_shuffle_epi32, _mm_slli_si128, _mm_storeu_si128, _mm_sub_epi16, _mm_sub_epi32,
    _mm_xor_si128,
};

use zeroize::Zeroizing;

use super::groups::GroupKernel;
use super::{CounterPrefix, Sign};
use crate::ring::Lane;
use crate::secret::Seed;

pub(super) const BLOCK_BYTES: usize = 16;
pub(super) const ROUND_KEYS: usize = 11;
const BLOCKS: usize = 8;

/// Says whether this processor has AES instructions.
pub(super) fn is_available() -> bool {
    std::arch::is_x86_feature_detected!("aes")
}

/// The round keys of AES-128. They exist only where AES instructions were found.
pub(super) struct RoundKeys(Box<Zeroizing<[[u8; BLOCK_BYTES]; ROUND_KEYS]>>);

impl RoundKeys {
    /// Expands the first 16 bytes of the seed. The prefix of the counter goes into round key 0,
    /// which meets nothing but the counter.
    pub(super) fn new(seed: &Seed, prefix: &CounterPrefix) -> Option<Self> {
        if !is_available() {
            return None;
        }
        let mut keys = Box::new(Zeroizing::new([[0; BLOCK_BYTES]; ROUND_KEYS]));
        keys[0].copy_from_slice(&seed.export_bytes()[..BLOCK_BYTES]);
        // SAFETY: AES instructions were found above.
        unsafe { expand_key(&mut keys) };
        for (byte, prefix) in keys[0].iter_mut().zip(prefix) {
            *byte ^= prefix;
        }
        Some(Self(keys))
    }

    pub(super) fn as_bytes(&self) -> &[[u8; BLOCK_BYTES]; ROUND_KEYS] {
        &self.0
    }
}

/// The key of a mask that AES-NI expands.
pub(crate) struct Key(RoundKeys);

impl Key {
    pub(super) fn new(seed: &Seed, prefix: &CounterPrefix) -> Option<Self> {
        RoundKeys::new(seed, prefix).map(Self)
    }
}

impl GroupKernel for Key {
    const GROUP_BYTES: usize = BLOCK_BYTES * BLOCKS;

    fn combine_groups<L: Lane>(&self, lanes: &mut [L], first_group: u64, sign: Sign) {
        #[allow(clippy::cast_possible_truncation)] // the caller stays below 2^32 blocks
        let counter = (first_group * BLOCKS as u64) as u32;
        // SAFETY: round keys exist only where AES instructions were found.
        unsafe {
            match sign {
                Sign::Add => combine_groups::<L, false>(lanes, self.0.as_bytes(), counter),
                Sign::Subtract => combine_groups::<L, true>(lanes, self.0.as_bytes(), counter),
            }
        }
    }
}

/// Fills in round keys 1 to 10 from key 0.
#[target_feature(enable = "aes,sse2")]
#[allow(clippy::cast_ptr_alignment)] // only unaligned loads and stores use the pointers
unsafe fn expand_key(keys: &mut [[u8; BLOCK_BYTES]; ROUND_KEYS]) {
    // The round constants are part of the instruction, hence the macro.
    macro_rules! rounds {
        ($($round:literal $constant:literal),*) => {
            $(
                // SAFETY: the pointers lead to 16 bytes each of `keys`; the caller answers for AES.
                unsafe {
                    let last = _mm_loadu_si128(keys[$round - 1].as_ptr().cast());
                    let assist = _mm_aeskeygenassist_si128::<$constant>(last);
                    let next = next_key(last, assist);
                    _mm_storeu_si128(keys[$round].as_mut_ptr().cast(), next);
                }
            )*
        };
    }
    rounds!(1 0x01, 2 0x02, 3 0x04, 4 0x08, 5 0x10, 6 0x20, 7 0x40, 8 0x80, 9 0x1b, 10 0x36);
}

/// XORs each word with all words before it, and the substituted last word into all.
#[inline]
#[target_feature(enable = "sse2")]
unsafe fn next_key(last: __m128i, assist: __m128i) -> __m128i {
    // SAFETY: arithmetic on registers; SSE2 is part of x86_64.
    unsafe {
        let one = _mm_xor_si128(last, _mm_slli_si128::<4>(last));
        let all = _mm_xor_si128(one, _mm_slli_si128::<8>(one));
        _mm_xor_si128(all, _mm_shuffle_epi32::<0xff>(assist))
    }
}

#[target_feature(enable = "aes,sse2")]
#[allow(clippy::cast_ptr_alignment)] // only unaligned loads and stores use the pointers
unsafe fn combine_groups<L: Lane, const SUBTRACT: bool>(
    lanes: &mut [L],
    round_keys: &[[u8; BLOCK_BYTES]; ROUND_KEYS],
    counter: u32,
) {
    let mut counter = counter;
    for group in lanes.chunks_exact_mut(BLOCK_BYTES * BLOCKS / L::BYTES) {
        // SAFETY: the caller answers for AES; the loads read the round keys, 16 bytes each.
        let masks = unsafe { eight_blocks(round_keys, counter) };
        for (block, mask) in group.chunks_exact_mut(BLOCK_BYTES / L::BYTES).zip(masks) {
            let target = block.as_mut_ptr().cast::<__m128i>();
            // SAFETY: `target` points to 16 bytes of `group`, which is borrowed mutably here; the
            // unaligned forms of load and store are used, and any bits make a lane.
            unsafe {
                let old = _mm_loadu_si128(target);
                let new = match (L::BITS, SUBTRACT) {
                    (16, false) => _mm_add_epi16(old, mask),
                    (16, true) => _mm_sub_epi16(old, mask),
                    (_, false) => _mm_add_epi32(old, mask),
                    (_, true) => _mm_sub_epi32(old, mask),
                };
                _mm_storeu_si128(target, new);
            }
        }
        counter = counter.wrapping_add(8);
    }
}

/// Encrypts the counters `counter` to `counter` + 7, the first a multiple of eight.
#[inline]
#[target_feature(enable = "aes,sse2")]
#[allow(clippy::cast_ptr_alignment)] // only unaligned loads use the pointer
#[allow(clippy::cast_possible_wrap)] // the intrinsics take bit patterns as i32
unsafe fn eight_blocks(
    round_keys: &[[u8; BLOCK_BYTES]; ROUND_KEYS],
    counter: u32,
) -> [__m128i; BLOCKS] {
    // SAFETY: the pointer of `key` leads to 16 bytes; the rest is arithmetic on registers, and the
    // caller answers for AES.
    unsafe {
        let key = |round: usize| _mm_loadu_si128(round_keys[round].as_ptr().cast());
        let first = _mm_set_epi32(counter.swap_bytes() as i32, 0, 0, 0);
        let first = _mm_xor_si128(first, key(0));
        let mut blocks = [_mm_setzero_si128(); BLOCKS];
        for (block, index) in blocks.iter_mut().zip(0..) {
            *block = _mm_xor_si128(first, _mm_set_epi32(index << 24, 0, 0, 0));
        }
        for round in 1..ROUND_KEYS - 1 {
            let key = key(round);
            for block in &mut blocks {
                *block = _mm_aesenc_si128(*block, key);
            }
        }
        let key = key(ROUND_KEYS - 1);
        for block in &mut blocks {
            *block = _mm_aesenclast_si128(*block, key);
        }
        blocks
    }
}
