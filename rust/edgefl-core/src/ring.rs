//! Integers modulo 2^b, 8 <= b <= 32, each in a lane: `u16` up to b = 16, `u32` above.
//!
//! Wrapping arithmetic, then a bit mask.

use zeroize::Zeroize;

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

    /// Checks that values modulo 2^b fit the lanes.
    ///
    /// # Errors
    /// [`CoreError::LaneWidth`] for a ring wider than a lane.
    pub fn check_lane<L: Lane>(self) -> Result<(), CoreError> {
        if self.0 > L::BITS {
            return Err(CoreError::LaneWidth {
                ring_bits: self.0,
                lane_bits: L::BITS,
            });
        }
        Ok(())
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u16 {}
    impl Sealed for u32 {}
}

/// The integer that holds one coordinate: `u16` where 16 bits are enough, `u32` elsewhere.
///
/// Narrow lanes halve the keystream and the memory. Sealed: the vector code knows these two.
pub trait Lane:
    sealed::Sealed + Copy + Default + PartialEq + Send + Sync + Zeroize + 'static
{
    /// Bits of a lane: 16 or 32.
    const BITS: u32;
    /// Bytes of a lane: 2 or 4.
    const BYTES: usize;

    /// Reads a lane from [`Self::BYTES`] little-endian bytes; fewer count as followed by zeros.
    #[must_use]
    fn from_keystream(bytes: &[u8]) -> Self;

    /// Adds modulo 2^[`Self::BITS`].
    #[must_use]
    fn plus(self, other: Self) -> Self;

    /// Subtracts modulo 2^[`Self::BITS`].
    #[must_use]
    fn minus(self, other: Self) -> Self;

    /// Reduces modulo 2^b. Meant for rings no wider than the lane; wider ones change nothing.
    #[must_use]
    fn reduced(self, ring: RingBits) -> Self;
}

macro_rules! lane {
    ($integer:ty) => {
        impl Lane for $integer {
            const BITS: u32 = <$integer>::BITS;
            const BYTES: usize = size_of::<$integer>();

            #[inline]
            fn from_keystream(bytes: &[u8]) -> Self {
                let mut whole = [0; size_of::<$integer>()];
                for (target, byte) in whole.iter_mut().zip(bytes) {
                    *target = *byte;
                }
                Self::from_le_bytes(whole)
            }

            #[inline]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline]
            fn reduced(self, ring: RingBits) -> Self {
                #[allow(clippy::cast_possible_truncation)] // the low bits are what is wanted
                let mask = ring.mask() as Self;
                self & mask
            }
        }
    };
}

lane!(u16);
lane!(u32);

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
