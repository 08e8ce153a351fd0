//! Mask expansion with the crates `chacha20` and `aes`, for every processor.
//!
//! Both choose vector or AES instructions at run time where they know them. Without AES
//! instructions `aes` computes bit-sliced: no table, no time that depends on the key.
//!
//! Not guaranteed: round keys that the crate moves on the stack while it makes them are not wiped.

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Block};
use zeroize::Zeroizing;

use super::{CounterPrefix, Sign};
use crate::error::CoreError;
use crate::prg::Keystream;
use crate::ring::Lane;
use crate::secret::Seed;

const BUFFER_BYTES: usize = 4096;
const AES_KEY_BYTES: usize = 16;
const AES_BLOCK_BYTES: usize = 16;

/// The key of a `ChaCha20` mask.
pub(crate) struct ChaCha20Key(Seed);

impl ChaCha20Key {
    pub(crate) fn new(seed: &Seed) -> Self {
        Self(seed.duplicate())
    }

    /// Adds or takes off the keystream; lane `first_lane` of it meets the first of `lanes`.
    pub(crate) fn combine<L: Lane>(
        &self,
        lanes: &mut [L],
        first_lane: u64,
        sign: Sign,
    ) -> Result<(), CoreError> {
        let mut stream = Keystream::from_byte(&self.0, first_lane * L::BYTES as u64)?;
        let mut buffer = Zeroizing::new(vec![0; BUFFER_BYTES.min(lanes.len() * L::BYTES)]);
        for chunk in lanes.chunks_mut(BUFFER_BYTES / L::BYTES) {
            let keystream = &mut buffer[..chunk.len() * L::BYTES];
            stream.fill(keystream)?;
            combine_bytes(chunk, keystream, sign);
        }
        Ok(())
    }
}

/// The key of an AES-128-CTR mask: round keys in the crate's form. Source: FIPS 197; NIST
/// SP 800-38A, section 6.5, with a 128-bit big-endian counter.
pub(crate) struct AesKey {
    cipher: Box<Aes128>,
    first_counter: u128,
}

impl AesKey {
    pub(crate) fn new(seed: &Seed, prefix: &CounterPrefix) -> Self {
        let mut first_counter = [0; AES_BLOCK_BYTES];
        first_counter[..prefix.len()].copy_from_slice(prefix);
        let mut key = Zeroizing::new([0; AES_KEY_BYTES]);
        key.copy_from_slice(&seed.export_bytes()[..AES_KEY_BYTES]);
        Self {
            cipher: Box::new(Aes128::new((&*key).into())),
            first_counter: u128::from_be_bytes(first_counter),
        }
    }

    /// Adds or takes off the keystream; lane `first_lane` of it meets the first of `lanes`.
    pub(crate) fn combine<L: Lane>(&self, lanes: &mut [L], first_lane: u64, sign: Sign) {
        let block_lanes = AES_BLOCK_BYTES / L::BYTES;
        let first_block = u128::from(first_lane / block_lanes as u64);
        let mut counter = self.first_counter + first_block;
        #[allow(clippy::cast_possible_truncation)] // below 8
        let offset = (first_lane % block_lanes as u64) as usize;
        let head_lanes = (block_lanes - offset) % block_lanes;
        let (head, rest) = lanes.split_at_mut(head_lanes.min(lanes.len()));
        let mut blocks = Zeroizing::new(vec![[0; AES_BLOCK_BYTES]; BUFFER_BYTES / AES_BLOCK_BYTES]);
        for (chunk, offset) in std::iter::once((head, offset)).chain(
            rest.chunks_mut(BUFFER_BYTES / L::BYTES)
                .map(|chunk| (chunk, 0)),
        ) {
            let used = (offset + chunk.len()).div_ceil(block_lanes);
            for block in &mut blocks[..used] {
                *block = counter.to_be_bytes();
                counter += 1;
            }
            let blocks = &mut blocks[..used];
            self.cipher
                .encrypt_blocks(Block::cast_slice_from_core_mut(blocks));
            combine_bytes(chunk, &blocks.as_flattened()[offset * L::BYTES..], sign);
        }
    }
}

#[inline]
fn combine_bytes<L: Lane>(lanes: &mut [L], keystream: &[u8], sign: Sign) {
    // The sign is asked once, so that each loop becomes vector code.
    let pairs = lanes.iter_mut().zip(keystream.chunks_exact(L::BYTES));
    match sign {
        Sign::Add => pairs.for_each(|(lane, bytes)| *lane = lane.plus(L::from_keystream(bytes))),
        Sign::Subtract => {
            pairs.for_each(|(lane, bytes)| *lane = lane.minus(L::from_keystream(bytes)));
        }
    }
}
