//! The generators of masks, and `ChaCha20` as a random stream: one key, one stream.
//!
//! Source: RFC 8439, sections 2.3 and 2.4 (`ChaCha20`); FIPS 197 and NIST SP 800-38A, section 6.5
//! (AES-128 in counter mode). Zero nonce, block counter from 0. A key is good for 2^32 - 1 blocks
//! and refuses beyond. The crate beneath picks SIMD code at run time.

use chacha20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use chacha20::ChaCha20;
use zeroize::Zeroizing;

use crate::error::CoreError;
use crate::secret::Seed;

const BLOCK_BYTES: u64 = 64;
const BUFFER_BYTES: usize = 4096;

/// The generator that turns a seed into a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Prg {
    /// `ChaCha20`: the key is the whole seed. Every device has it.
    ChaCha20,
    /// AES-128 in counter mode: the key is the first 16 bytes of the seed.
    ///
    /// For pairs that both declare AES hardware: without it, code that runs in constant time is slow.
    Aes128Ctr,
}

impl Prg {
    /// All of them, the mandatory one first.
    pub const ALL: [Self; 2] = [Self::ChaCha20, Self::Aes128Ctr];

    /// Reads the number that stands for it on the wire.
    ///
    /// # Errors
    /// [`CoreError::Prg`] for any other number.
    pub fn from_id(id: i64) -> Result<Self, CoreError> {
        Self::ALL
            .into_iter()
            .find(|prg| i64::from(prg.id()) == id)
            .ok_or(CoreError::Prg { found: id })
    }

    /// Returns the number that stands for it on the wire.
    pub fn id(self) -> u8 {
        match self {
            Self::ChaCha20 => 1,
            Self::Aes128Ctr => 2,
        }
    }

    /// Returns its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::ChaCha20 => "chacha20",
            Self::Aes128Ctr => "aes-128-ctr",
        }
    }

    /// Returns the bytes that one count of its counter gives.
    pub(crate) fn block_bytes(self) -> u64 {
        match self {
            Self::ChaCha20 => BLOCK_BYTES,
            Self::Aes128Ctr => 16,
        }
    }
}

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
        let byte = block
            .checked_mul(BLOCK_BYTES)
            .ok_or(CoreError::StreamLength)?;
        Self::from_byte(seed, byte)
    }

    /// Starts inside a block.
    pub(crate) fn from_byte(seed: &Seed, byte: u64) -> Result<Self, CoreError> {
        let mut stream = Self::new(seed);
        stream
            .0
            .try_seek(byte)
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
