//! Check coordinates: four public random linear combinations of a ring vector.
//!
//! Each device appends them to its vector; being linear they survive summing, so the aggregator
//! compares those of the unmasked sum with the summed ones. Row j's coefficients are the words of
//! the ChaCha20 stream keyed by HKDF-SHA256(session id, no salt, info `check row j`), each made odd
//! so that an error in one coordinate always shows. Finds corruption and wrong masks; it is no
//! defence against a device that lies on purpose, for the coefficients are public.

use crate::error::CoreError;
use crate::kdf;
use crate::prg::Keystream;
use crate::ring::RingBits;

/// How many check coordinates there are.
pub const CHECK_COORDINATES: usize = 4;

const TILE_WORDS: usize = 1024;

/// Returns the check coordinates of a vector modulo 2^b.
///
/// # Errors
/// [`CoreError::StreamLength`] for more than 2^36 values.
pub fn check_coordinates(
    values: &[u32],
    ring: RingBits,
    session_id: &[u8; 32],
) -> Result<[u32; CHECK_COORDINATES], CoreError> {
    let mut sums = [0; CHECK_COORDINATES];
    for (row, sum) in sums.iter_mut().enumerate() {
        let key = kdf::derive_seed(session_id, &[], format!("check row {row}").as_bytes());
        *sum = row_sum(values, &mut Keystream::new(&key))? & ring.mask();
    }
    Ok(sums)
}

fn row_sum(values: &[u32], stream: &mut Keystream) -> Result<u32, CoreError> {
    let mut coefficients = [0_u8; TILE_WORDS * 4];
    let mut sum = 0_u32;
    for tile in values.chunks(TILE_WORDS) {
        let coefficients = &mut coefficients[..tile.len() * 4];
        stream.fill(coefficients)?;
        for (value, bytes) in tile.iter().zip(coefficients.chunks_exact(4)) {
            let coefficient = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) | 1;
            sum = sum.wrapping_add(coefficient.wrapping_mul(*value));
        }
    }
    Ok(sum)
}
