//! Mask expansion with AVX2: eight ChaCha20 blocks at a time, added from registers.
//!
//! Source: RFC 8439, section 2.3; the layout (word w of eight blocks in one register, transposed at
//! the end) is the usual one for wide ChaCha. Equal to the portable code by property test.
//!
//! Unsafe blocks stand around plain arithmetic as well: it is unsafe up to Rust 1.86.
//!
//! Not guaranteed: keystream that the compiler spills to the stack is not wiped.

#![allow(unused_unsafe)] // the vector arithmetic became safe with Rust 1.87

use std::arch::x86_64::{
    __m256i, _mm256_add_epi16, _mm256_add_epi32, _mm256_loadu_si256, _mm256_or_si256,
    _mm256_permute2x128_si256, _mm256_set1_epi32, _mm256_setr_epi32, _mm256_setr_epi8,
    _mm256_shuffle_epi8, _mm256_slli_epi32, _mm256_srli_epi32, _mm256_storeu_si256,
    _mm256_sub_epi16, _mm256_sub_epi32, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64,
    _mm256_unpacklo_epi32, _mm256_unpacklo_epi64, _mm256_xor_si256,
};

use zeroize::Zeroizing;

use super::groups::GroupKernel;
use super::Sign;
use crate::ring::Lane;
use crate::secret::Seed;

const BLOCK_BYTES: usize = 64;
const BLOCKS: usize = 8;
const REGISTER_BYTES: usize = 32;
const ROWS: usize = 8;
/// "expand 32-byte k", the first four words of every state.
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// Says whether this processor has AVX2.
pub(super) fn is_available() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
}

/// The words of a key. One exists only where AVX2 was found: the unsafe code below builds on it.
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
        // SAFETY: a key exists only where AVX2 was found.
        unsafe {
            match sign {
                Sign::Add => combine_groups::<L, false>(lanes, &self.0, counter),
                Sign::Subtract => combine_groups::<L, true>(lanes, &self.0, counter),
            }
        }
    }
}

#[target_feature(enable = "avx2")]
#[allow(clippy::cast_ptr_alignment)] // only unaligned loads and stores use the pointer
unsafe fn combine_groups<L: Lane, const SUBTRACT: bool>(
    lanes: &mut [L],
    key: &[u32; 8],
    counter: u32,
) {
    let mut counter = counter;
    for group in lanes.chunks_exact_mut(BLOCK_BYTES * BLOCKS / L::BYTES) {
        // SAFETY: the caller answers for AVX2, which is all that these functions ask for.
        let rows = unsafe { eight_blocks(key, counter) };
        let (low, high) = rows.split_at(ROWS);
        for (half, half_rows) in [low, high].into_iter().enumerate() {
            // SAFETY: as above.
            let block_parts = unsafe { transpose(half_rows) };
            let blocks = group.chunks_exact_mut(BLOCK_BYTES / L::BYTES);
            for (block, mask) in blocks.zip(block_parts) {
                let register_lanes = REGISTER_BYTES / L::BYTES;
                let target = block[half * register_lanes..][..register_lanes]
                    .as_mut_ptr()
                    .cast::<__m256i>();
                // SAFETY: `target` points to 32 bytes of `group`, which is borrowed mutably here;
                // the unaligned forms of load and store are used, and any bits make a lane.
                unsafe {
                    let old = _mm256_loadu_si256(target);
                    _mm256_storeu_si256(target, combined::<L, SUBTRACT>(old, mask));
                }
            }
        }
        counter = counter.wrapping_add(8);
    }
}

/// Adds or subtracts lane by lane.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn combined<L: Lane, const SUBTRACT: bool>(
    lanes: __m256i,
    masks: __m256i,
) -> __m256i {
    // SAFETY: arithmetic on registers; the caller answers for AVX2.
    unsafe {
        match (L::BITS, SUBTRACT) {
            (16, false) => _mm256_add_epi16(lanes, masks),
            (16, true) => _mm256_sub_epi16(lanes, masks),
            (_, false) => _mm256_add_epi32(lanes, masks),
            (_, true) => _mm256_sub_epi32(lanes, masks),
        }
    }
}

/// Quarter rounds side by side, step by step, so that their latencies overlap. Two at a time need
/// fewer registers than four and run no slower.
///
/// A macro, for its indices must be constants: an array indexed at run time leaves the registers.
macro_rules! quarter_rounds {
    ($x:ident, $by_16:ident, $by_8:ident, $([$a:literal $b:literal $c:literal $d:literal])*) => {
        $(
            $x[$a] = _mm256_add_epi32($x[$a], $x[$b]);
            $x[$d] = _mm256_shuffle_epi8(_mm256_xor_si256($x[$d], $x[$a]), $by_16);
        )*
        $(
            $x[$c] = _mm256_add_epi32($x[$c], $x[$d]);
            $x[$b] = rotate::<12, 20>(_mm256_xor_si256($x[$b], $x[$c]));
        )*
        $(
            $x[$a] = _mm256_add_epi32($x[$a], $x[$b]);
            $x[$d] = _mm256_shuffle_epi8(_mm256_xor_si256($x[$d], $x[$a]), $by_8);
        )*
        $(
            $x[$c] = _mm256_add_epi32($x[$c], $x[$d]);
            $x[$b] = rotate::<7, 25>(_mm256_xor_si256($x[$b], $x[$c]));
        )*
    };
}

/// Returns word w of eight consecutive blocks in register w.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn eight_blocks(key: &[u32; 8], counter: u32) -> [__m256i; 16] {
    // SAFETY: arithmetic on registers; the caller answers for AVX2.
    unsafe {
        let start = start_state(key, counter);
        let mut x = start;
        // Hidden from the optimizer, which would turn the first into two shuffles instead of one.
        let by_16 = std::hint::black_box(byte_rotation(2));
        let by_8 = byte_rotation(3);
        for _ in 0..10 {
            quarter_rounds!(x, by_16, by_8, [0 4 8 12] [1 5 9 13]);
            quarter_rounds!(x, by_16, by_8, [2 6 10 14] [3 7 11 15]);
            quarter_rounds!(x, by_16, by_8, [0 5 10 15] [1 6 11 12]);
            quarter_rounds!(x, by_16, by_8, [2 7 8 13] [3 4 9 14]);
        }
        for (word, first) in x.iter_mut().zip(start) {
            *word = _mm256_add_epi32(*word, first);
        }
        x
    }
}

#[inline]
#[target_feature(enable = "avx2")]
#[allow(clippy::cast_possible_wrap)] // the intrinsics take bit patterns as i32
unsafe fn start_state(key: &[u32; 8], counter: u32) -> [__m256i; 16] {
    // SAFETY: arithmetic on registers; the caller answers for AVX2.
    unsafe {
        let zero = _mm256_set1_epi32(0);
        let mut state = [zero; 16];
        for (word, value) in state.iter_mut().zip(CONSTANTS.iter().chain(key)) {
            *word = _mm256_set1_epi32(*value as i32);
        }
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        state[12] = _mm256_add_epi32(_mm256_set1_epi32(counter as i32), lanes);
        state
    }
}

/// Byte order that rotates each word left by 32 - 8 * `first` bits: byte 0 comes from `first`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn byte_rotation(first: i8) -> __m256i {
    let at = |word: i8, byte: i8| word * 4 + (first + byte) % 4;
    // SAFETY: arithmetic on registers; the caller answers for AVX2.
    unsafe {
        #[rustfmt::skip]
        let order = _mm256_setr_epi8(
            at(0, 0), at(0, 1), at(0, 2), at(0, 3), at(1, 0), at(1, 1), at(1, 2), at(1, 3),
            at(2, 0), at(2, 1), at(2, 2), at(2, 3), at(3, 0), at(3, 1), at(3, 2), at(3, 3),
            at(0, 0), at(0, 1), at(0, 2), at(0, 3), at(1, 0), at(1, 1), at(1, 2), at(1, 3),
            at(2, 0), at(2, 1), at(2, 2), at(2, 3), at(3, 0), at(3, 1), at(3, 2), at(3, 3),
        );
        order
    }
}

#[inline]
#[target_feature(enable = "avx2")]
unsafe fn rotate<const LEFT: i32, const RIGHT: i32>(value: __m256i) -> __m256i {
    // SAFETY: arithmetic on registers; the caller answers for AVX2.
    unsafe {
        _mm256_or_si256(
            _mm256_slli_epi32::<LEFT>(value),
            _mm256_srli_epi32::<RIGHT>(value),
        )
    }
}

/// Turns 8 rows of 8 lanes into 8 columns: result j holds lane j of every row.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn transpose(rows: &[__m256i]) -> [__m256i; 8] {
    // SAFETY: arithmetic on registers; the caller answers for AVX2.
    unsafe {
        let mut pairs = [_mm256_set1_epi32(0); 8];
        for i in 0..4 {
            pairs[2 * i] = _mm256_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
            pairs[2 * i + 1] = _mm256_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
        }
        let mut quads = pairs;
        for half in [0, 4] {
            quads[half] = _mm256_unpacklo_epi64(pairs[half], pairs[half + 2]);
            quads[half + 1] = _mm256_unpackhi_epi64(pairs[half], pairs[half + 2]);
            quads[half + 2] = _mm256_unpacklo_epi64(pairs[half + 1], pairs[half + 3]);
            quads[half + 3] = _mm256_unpackhi_epi64(pairs[half + 1], pairs[half + 3]);
        }
        let mut columns = quads;
        for i in 0..4 {
            columns[i] = _mm256_permute2x128_si256::<0x20>(quads[i], quads[i + 4]);
            columns[i + 4] = _mm256_permute2x128_si256::<0x31>(quads[i], quads[i + 4]);
        }
        columns
    }
}
