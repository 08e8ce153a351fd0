//! Integers modulo 2^b, 8 <= b <= 32, each in a `u32`. Wrapping arithmetic, then a bit mask.

use crate::error::CoreError;

/// The width b of the ring of integers modulo 2^b.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingBits(u32);

impl RingBits {
    /// Narrowest ring.
    pub const MIN: u32 = 8;
    /// Widest ring.
    pub const MAX: u32 = 32;

    /// Checks the width.
    ///
    /// # Errors
    /// [`CoreError::RingBits`] outside 8..=32.
    pub fn new(bits: i64) -> Result<Self, CoreError> {
        u32::try_from(bits)
            .ok()
            .filter(|bits| (Self::MIN..=Self::MAX).contains(bits))
            .map(Self)
            .ok_or(CoreError::RingBits { found: bits })
    }

    /// Returns b.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Returns 2^b - 1.
    pub fn mask(self) -> u32 {
        u32::MAX >> (Self::MAX - self.0)
    }
}

/// Writes each value modulo 2^b (two's complement: negative values come out as 2^b - |v|).
///
/// # Errors
/// [`CoreError::Length`] when the lengths differ.
pub fn reduce_to_ring(values: &[i64], out: &mut [u32], ring: RingBits) -> Result<(), CoreError> {
    same_length("the output", values.len(), out.len())?;
    let mask = i64::from(ring.mask());
    for (target, value) in out.iter_mut().zip(values) {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // masked to 32 bits
        let reduced = (value & mask) as u32;
        *target = reduced;
    }
    Ok(())
}

/// Adds `values` to the accumulator modulo 2^b.
///
/// # Errors
/// [`CoreError::Length`] when the lengths differ.
pub fn add_in_ring(
    accumulator: &mut [u32],
    values: &[u32],
    ring: RingBits,
) -> Result<(), CoreError> {
    same_length("the values", accumulator.len(), values.len())?;
    let mask = ring.mask();
    for (target, value) in accumulator.iter_mut().zip(values) {
        *target = target.wrapping_add(*value) & mask;
    }
    Ok(())
}

pub(crate) fn same_length(
    what: &'static str,
    expected: usize,
    found: usize,
) -> Result<(), CoreError> {
    if expected == found {
        Ok(())
    } else {
        Err(CoreError::Length {
            what,
            expected,
            found,
        })
    }
}
