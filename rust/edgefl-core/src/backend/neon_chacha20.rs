//! Mask expansion with NEON: four `ChaCha20` blocks at a time, added from registers.
//!
//! Source: RFC 8439, section 2.3. Word w of four blocks is in one register; all sixteen registers
//! are turned into blocks at the end.
//!
//! Not guaranteed: keystream that the compiler spills to the stack is not wiped.

#![allow(unused_unsafe)] // arithmetic on registers became safe with Rust 1.87

use std::arch::aarch64::{
    uint32x4_t, uint8x16_t, vaddq_u16, vaddq_u32, vdupq_n_u32, veorq_u32, vld1q_u32, vld1q_u8,
    vreinterpretq_u16_u32, vreinterpretq_u16_u8, vreinterpretq_u32_u16, vreinterpretq_u32_u64,
    vreinterpretq_u32_u8, vreinterpretq_u64_u32, vreinterpretq_u8_u16, vreinterpretq_u8_u32,
    vrev32q_u16, vshlq_n_u32, vsriq_n_u32, vst1q_u8, vsubq_u16, vsubq_u32, vtrn1q_u32, vtrn1q_u64,
    vtrn2q_u32, vtrn2q_u64,
};

use zeroize::Zeroizing;

use super::groups::GroupKernel;
use super::Sign;
use crate::ring::Lane;
use crate::secret::Seed;

const BLOCK_BYTES: usize = 64;
const BLOCKS: usize = 4;
pub(super) const REGISTER_BYTES: usize = 16;
/// "expand 32-byte k", the first four words of every state.
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];
const COUNTER_STEPS: [u32; BLOCKS] = [0, 1, 2, 3];

/// Says whether this processor has NEON.
pub(super) fn is_available() -> bool {
    std::arch::is_aarch64_feature_detected!("neon")
}

/// The words of a key. One exists only where NEON was found: the unsafe code below builds on it.
pub(crate) struct Key(Box<Zeroizing<[u32; 8]>>);

impl Key {
    pub(super) fn new(seed: &Seed) -> Option<Self> {
        if !is_available() {
            return None;
        }
        let mut words = Box::new(Zeroizing::new([0; 8]));
        for (word, bytes) in words.iter_mut().zip(seed.export_bytes().chunks_exact(4)) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        Some(Self(words))
    }
}

impl GroupKernel for Key {
    const GROUP_BYTES: usize = BLOCK_BYTES * BLOCKS;

    fn combine_groups<L: Lane>(&self, lanes: &mut [L], first_group: u64, sign: Sign) {
        #[allow(clippy::cast_possible_truncation)] // the counter of RFC 8439 has 32 bits
        let counter = (first_group * BLOCKS as u64) as u32;
        // SAFETY: a key exists only where NEON was found.
        unsafe {
            match sign {
                Sign::Add => combine_groups::<L, false>(lanes, &self.0, counter),
                Sign::Subtract => combine_groups::<L, true>(lanes, &self.0, counter),
            }
        }
    }
}

#[target_feature(enable = "neon")]
unsafe fn combine_groups<L: Lane, const SUBTRACT: bool>(
    lanes: &mut [L],
    key: &[u32; 8],
    counter: u32,
) {
    let block_lanes = BLOCK_BYTES / L::BYTES;
    let register_lanes = REGISTER_BYTES / L::BYTES;
    let mut counter = counter;
    for group in lanes.chunks_exact_mut(block_lanes * BLOCKS) {
        // SAFETY: the caller answers for NEON, which is all that these functions ask for.
        let rows = unsafe { four_blocks(key, counter) };
        for (quarter, four_rows) in rows.chunks_exact(4).enumerate() {
            // SAFETY: as above.
            let block_parts = unsafe { transpose(four_rows) };
            for (block, mask) in group.chunks_exact_mut(block_lanes).zip(block_parts) {
                let target = &mut block[quarter * register_lanes..][..register_lanes];
                // SAFETY: as above; `target` has 16 bytes.
                unsafe { combine_register::<L, SUBTRACT>(target, vreinterpretq_u8_u32(mask)) };
            }
        }
        counter = counter.wrapping_add(4);
    }
}

/// Adds a register to 16 bytes of lanes, or subtracts it, lane by lane.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn combine_register<L: Lane, const SUBTRACT: bool>(
    lanes: &mut [L],
    mask: uint8x16_t,
) {
    let target = lanes.as_mut_ptr().cast::<u8>();
    // SAFETY: the caller answers for NEON and for 16 bytes of lanes, which are borrowed mutably
    // here; any bits make a lane, and these loads and stores ask for no alignment.
    unsafe {
        let old = vld1q_u8(target);
        let new = if L::BITS == 16 {
            let (old, mask) = (vreinterpretq_u16_u8(old), vreinterpretq_u16_u8(mask));
            vreinterpretq_u8_u16(if SUBTRACT {
                vsubq_u16(old, mask)
            } else {
                vaddq_u16(old, mask)
            })
        } else {
            let (old, mask) = (vreinterpretq_u32_u8(old), vreinterpretq_u32_u8(mask));
            vreinterpretq_u8_u32(if SUBTRACT {
                vsubq_u32(old, mask)
            } else {
                vaddq_u32(old, mask)
            })
        };
        vst1q_u8(target, new);
    }
}

/// Quarter rounds side by side, step by step, so that their latencies overlap.
///
/// A macro, for its indices must be constants: an array indexed at run time leaves the registers.
macro_rules! quarter_rounds {
    ($x:ident, $([$a:literal $b:literal $c:literal $d:literal])*) => {
        $(
            $x[$a] = vaddq_u32($x[$a], $x[$b]);
            $x[$d] = rotate_16(veorq_u32($x[$d], $x[$a]));
        )*
        $(
            $x[$c] = vaddq_u32($x[$c], $x[$d]);
            $x[$b] = rotate::<12, 20>(veorq_u32($x[$b], $x[$c]));
        )*
        $(
            $x[$a] = vaddq_u32($x[$a], $x[$b]);
            $x[$d] = rotate::<8, 24>(veorq_u32($x[$d], $x[$a]));
        )*
        $(
            $x[$c] = vaddq_u32($x[$c], $x[$d]);
            $x[$b] = rotate::<7, 25>(veorq_u32($x[$b], $x[$c]));
        )*
    };
}

/// Returns word w of four consecutive blocks in register w.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn four_blocks(key: &[u32; 8], counter: u32) -> [uint32x4_t; 16] {
    // SAFETY: `COUNTER_STEPS` holds the four words that are loaded; the rest is arithmetic on
    // registers, and the caller answers for NEON.
    unsafe {
        let mut start = [vdupq_n_u32(0); 16];
        for (word, value) in start.iter_mut().zip(CONSTANTS.iter().chain(key)) {
            *word = vdupq_n_u32(*value);
        }
        start[12] = vaddq_u32(vdupq_n_u32(counter), vld1q_u32(COUNTER_STEPS.as_ptr()));
        let mut x = start;
        for _ in 0..10 {
            quarter_rounds!(x, [0 4 8 12] [1 5 9 13] [2 6 10 14] [3 7 11 15]);
            quarter_rounds!(x, [0 5 10 15] [1 6 11 12] [2 7 8 13] [3 4 9 14]);
        }
        for (word, first) in x.iter_mut().zip(start) {
            *word = vaddq_u32(*word, first);
        }
        x
    }
}

#[inline]
#[target_feature(enable = "neon")]
unsafe fn rotate_16(value: uint32x4_t) -> uint32x4_t {
    // SAFETY: arithmetic on registers; the caller answers for NEON.
    unsafe { vreinterpretq_u32_u16(vrev32q_u16(vreinterpretq_u16_u32(value))) }
}

#[inline]
#[target_feature(enable = "neon")]
unsafe fn rotate<const LEFT: i32, const RIGHT: i32>(value: uint32x4_t) -> uint32x4_t {
    // SAFETY: arithmetic on registers; the caller answers for NEON.
    unsafe { vsriq_n_u32::<RIGHT>(vshlq_n_u32::<LEFT>(value), value) }
}

/// Turns 4 rows of 4 lanes into 4 columns: result j holds lane j of every row.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn transpose(rows: &[uint32x4_t]) -> [uint32x4_t; 4] {
    // SAFETY: arithmetic on registers; the caller answers for NEON.
    unsafe {
        let even = |a, b| vreinterpretq_u64_u32(vtrn1q_u32(a, b));
        let odd = |a, b| vreinterpretq_u64_u32(vtrn2q_u32(a, b));
        let (even_low, even_high) = (even(rows[0], rows[1]), even(rows[2], rows[3]));
        let (odd_low, odd_high) = (odd(rows[0], rows[1]), odd(rows[2], rows[3]));
        [
            vreinterpretq_u32_u64(vtrn1q_u64(even_low, even_high)),
            vreinterpretq_u32_u64(vtrn1q_u64(odd_low, odd_high)),
            vreinterpretq_u32_u64(vtrn2q_u64(even_low, even_high)),
            vreinterpretq_u32_u64(vtrn2q_u64(odd_low, odd_high)),
        ]
    }
}
