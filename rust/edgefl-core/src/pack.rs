//! Packs ring vectors into b bits per coordinate, least significant bit first.
//!
//! Value i takes bits i*b to i*b + b - 1 of the byte string, bit 0 of a byte being its lowest.
//! The unused high bits of the last byte are zero; unpacking refuses anything else, so that a
//! vector has one packed form.

use crate::error::CoreError;
use crate::ring::{same_length, RingBits};

const WORD_BITS: u32 = 32;

/// Returns the bytes that `count` values take, or `None` where that leaves `usize`.
pub fn packed_bytes(count: usize, ring: RingBits) -> Option<usize> {
    count
        .checked_mul(ring.bits() as usize)
        .map(|bits| bits.div_ceil(8))
}

/// Packs values, each below 2^b.
///
/// # Errors
/// [`CoreError::RingValue`] for a larger value, [`CoreError::Length`] beyond `usize`.
#[allow(clippy::cast_possible_truncation)] // the low 32 bits of the pending ones are meant
pub fn pack(values: &[u32], ring: RingBits) -> Result<Vec<u8>, CoreError> {
    if let Some(index) = values.iter().position(|value| *value > ring.mask()) {
        return Err(CoreError::RingValue {
            index,
            ring_bits: ring.bits(),
        });
    }
    let size_bytes = packed_bytes(values.len(), ring).ok_or(CoreError::Length {
        what: "the values",
        expected: usize::MAX / RingBits::MAX as usize,
        found: values.len(),
    })?;
    let mut packed = Vec::with_capacity(size_bytes + 4);
    let (mut pending, mut pending_bits) = (0_u64, 0);
    for value in values {
        pending |= u64::from(*value) << pending_bits;
        pending_bits += ring.bits();
        if pending_bits >= WORD_BITS {
            packed.extend_from_slice(&(pending as u32).to_le_bytes());
            pending >>= WORD_BITS;
            pending_bits -= WORD_BITS;
        }
    }
    packed.extend_from_slice(&(pending as u32).to_le_bytes());
    packed.truncate(size_bytes);
    Ok(packed)
}

/// Unpacks exactly `out.len()` values.
///
/// # Errors
/// [`CoreError::PackedLength`] or [`CoreError::PackedPadding`], both a peer's fault.
#[allow(clippy::cast_possible_truncation)] // masked to at most 32 bits
pub fn unpack(packed: &[u8], ring: RingBits, out: &mut [u32]) -> Result<(), CoreError> {
    let size_bytes = packed_bytes(out.len(), ring).unwrap_or(usize::MAX);
    same_length("packed bytes", size_bytes, packed.len()).map_err(|_| CoreError::PackedLength {
        expected: size_bytes,
        found: packed.len(),
    })?;
    let mut words = packed.chunks(4).map(|bytes| {
        let mut word = [0; 4];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from(u32::from_le_bytes(word))
    });
    let (mut pending, mut pending_bits) = (0_u64, 0);
    for value in out {
        if pending_bits < ring.bits() {
            pending |= words.next().unwrap_or(0) << pending_bits;
            pending_bits += WORD_BITS;
        }
        *value = pending as u32 & ring.mask();
        pending >>= ring.bits();
        pending_bits -= ring.bits();
    }
    if pending == 0 {
        Ok(())
    } else {
        Err(CoreError::PackedPadding)
    }
}
