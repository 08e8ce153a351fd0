//! What encoding and summing need of a lane beyond adding masks.

#![allow(clippy::inline_always)] // what is not inlined is not compiled for wide vectors

use crate::ring::Lane;

/// A lane as an integer modulo its own width: the low bits of a value, and products.
///
/// Everything here keeps values modulo 2^b for any b up to the lane's width, so that bits above b may
/// hold anything until they are read.
pub(crate) trait RingLane: Lane {
    /// Keeps the low bits.
    fn from_word(word: u32) -> Self;

    /// Widens with zeros.
    fn to_word(self) -> u32;

    /// Multiplies modulo the lane's width.
    fn times(self, other: Self) -> Self;
}

impl RingLane for u16 {
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // as meant
    fn from_word(word: u32) -> Self {
        word as Self
    }

    #[inline(always)]
    fn to_word(self) -> u32 {
        u32::from(self)
    }

    #[inline(always)]
    fn times(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }
}

impl RingLane for u32 {
    #[inline(always)]
    fn from_word(word: u32) -> Self {
        word
    }

    #[inline(always)]
    fn to_word(self) -> u32 {
        self
    }

    #[inline(always)]
    fn times(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }
}

/// Reads the 64 low bits of a whole number below 2^51 in magnitude, by adding 1.5 * 2^52: the mantissa
/// of the sum is then the number itself, in two's complement. Plain arithmetic that every vector unit has.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // as meant
pub(crate) fn low_word(whole: f64) -> u32 {
    (whole + SHIFTER).to_bits() as u32
}

/// 1.5 * 2^52: between its neighbours lies exactly 1, above and below.
pub(crate) const SHIFTER: f64 = 6_755_399_441_055_744.0;
