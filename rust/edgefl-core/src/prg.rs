//! ChaCha20 as a random stream: one key, one stream. Source: RFC 8439, sections 2.3 and 2.4.
//!
//! Zero nonce, block counter from 0. A key is good for 2^32 - 1 blocks (256 GiB) and refuses beyond.
//! The crate beneath picks SIMD code at run time.

use chacha20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use chacha20::ChaCha20;
use zeroize::Zeroizing;

use crate::error::CoreError;
use crate::secret::Seed;

const BLOCK_BYTES: u64 = 64;
const BUFFER_BYTES: usize = 4096;

/// The keystream of one seed, read forward. Its state is wiped when dropped.
pub struct Keystream(Box<ChaCha20>);

impl Keystream {
    /// Starts at block 0.
    pub fn new(seed: &Seed) -> Self {
        Self(Box::new(ChaCha20::new(
            seed.export_bytes().into(),
            &[0; 12].into(),
        )))
    }

    /// Starts at a later block.
    ///
    /// # Errors
    /// [`CoreError::StreamLength`] beyond the end of the stream.
    pub fn from_block(seed: &Seed, block: u64) -> Result<Self, CoreError> {
        let mut stream = Self::new(seed);
        let position = block
            .checked_mul(BLOCK_BYTES)
            .ok_or(CoreError::StreamLength)?;
        stream
            .0
            .try_seek(position)
            .map_err(|_| CoreError::StreamLength)?;
        Ok(stream)
    }

    /// Overwrites `output` with the next bytes of the stream.
    ///
    /// # Errors
    /// [`CoreError::StreamLength`] beyond the end of the stream.
    pub fn fill(&mut self, output: &mut [u8]) -> Result<(), CoreError> {
        self.0
            .try_write_keystream(output)
            .map_err(|_| CoreError::StreamLength)
    }
}

/// Random numbers from one seed's keystream, little-endian, buffered.
pub struct RandomWords {
    stream: Keystream,
    buffer: Zeroizing<Vec<u8>>,
    used_bytes: usize,
}

impl RandomWords {
    /// Starts at the first word of the seed's stream.
    pub fn new(seed: &Seed) -> Self {
        Self {
            stream: Keystream::new(seed),
            buffer: Zeroizing::new(vec![0; BUFFER_BYTES]),
            used_bytes: BUFFER_BYTES,
        }
    }

    /// Returns the next 8 bytes as a number.
    ///
    /// # Errors
    /// [`CoreError::StreamLength`] at the end of the stream.
    pub fn next_u64(&mut self) -> Result<u64, CoreError> {
        if self.used_bytes == BUFFER_BYTES {
            self.stream.fill(&mut self.buffer)?;
            self.used_bytes = 0;
        }
        let mut word = [0; 8];
        word.copy_from_slice(&self.buffer[self.used_bytes..self.used_bytes + 8]);
        self.used_bytes += 8;
        Ok(u64::from_le_bytes(word))
    }

    /// Returns the next 16 bytes as a number, low half first.
    ///
    /// # Errors
    /// [`CoreError::StreamLength`] at the end of the stream.
    pub fn next_u128(&mut self) -> Result<u128, CoreError> {
        let low = self.next_u64()?;
        let high = self.next_u64()?;
        Ok(u128::from(low) | u128::from(high) << 64)
    }
}
