//! Mask expansion with the `chacha20` crate, for every processor and for the ends of vectors.

use zeroize::Zeroizing;

use super::Sign;
use crate::error::CoreError;
use crate::prg::Keystream;
use crate::secret::Seed;

const CHUNK_WORDS: usize = 2048;
const WORD_BYTES: usize = 4;

/// Adds or takes off the seed's keystream from block `first_block` on; wraps modulo 2^32.
pub(crate) fn combine_mask(
    words: &mut [u32],
    seed: &Seed,
    first_block: u64,
    sign: Sign,
) -> Result<(), CoreError> {
    let mut stream = Keystream::from_block(seed, first_block)?;
    let mut keystream = Zeroizing::new(vec![0_u8; words.len().min(CHUNK_WORDS) * WORD_BYTES]);
    for chunk in words.chunks_mut(CHUNK_WORDS) {
        let keystream = &mut keystream[..chunk.len() * WORD_BYTES];
        stream.fill(keystream)?;
        match sign {
            Sign::Add => combine(chunk, keystream, u32::wrapping_add),
            Sign::Subtract => combine(chunk, keystream, u32::wrapping_sub),
        }
    }
    Ok(())
}

#[inline]
fn combine(words: &mut [u32], keystream: &[u8], operation: impl Fn(u32, u32) -> u32) {
    for (word, bytes) in words.iter_mut().zip(keystream.chunks_exact(WORD_BYTES)) {
        let mask = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        *word = operation(*word, mask);
    }
}
