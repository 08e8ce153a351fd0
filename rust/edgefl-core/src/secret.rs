//! A 32-byte secret that is wiped when dropped.
//!
//! The bytes live on the heap, so that moving a [`Seed`] leaves no copy behind on the stack. There
//! is no `Copy`, `Clone`, `PartialEq` or content in `Debug`. Not guaranteed: copies that a caller
//! made through [`Seed::export_bytes`], and registers or spilled temporaries of the algorithms.

use std::fmt;

use sha2::{Digest, Sha256};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::error::CoreError;
use crate::kdf;

/// Bytes of a secret: a seed, or the private half of a key.
pub const SECRET_BYTES: usize = 32;

const COMMITMENT_TAG: &[u8] = b"edgefl/1 seed commitment";

/// A 32-byte secret: the key of one random stream, or the private half of a key.
pub struct Seed(Box<[u8; SECRET_BYTES]>);

impl Seed {
    /// Draws a fresh seed from the operating system, blocking until it is ready.
    ///
    /// # Errors
    /// [`CoreError::OsRandomness`] when the system gives none.
    pub fn generate() -> Result<Self, CoreError> {
        let mut seed = Self::zero();
        getrandom::fill(seed.0.as_mut_slice()).map_err(|_| CoreError::OsRandomness)?;
        Ok(seed)
    }

    /// Copies 32 bytes into a new seed.
    ///
    /// # Errors
    /// [`CoreError::SecretLength`] for any other length.
    pub fn from_bytes(secret: &[u8]) -> Result<Self, CoreError> {
        if secret.len() != SECRET_BYTES {
            return Err(CoreError::SecretLength {
                found: secret.len(),
            });
        }
        let mut seed = Self::zero();
        seed.0.copy_from_slice(secret);
        Ok(seed)
    }

    /// Returns a view of the secret bytes. The caller answers for every copy.
    pub fn export_bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }

    /// Copies the seed on purpose; there is no `Clone`, so that no copy is made by accident.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        let mut copy = Self::zero();
        copy.0.copy_from_slice(self.0.as_slice());
        copy
    }

    /// Derives another seed with HKDF-SHA256 (RFC 5869); this seed is the input keying material.
    #[must_use]
    pub fn derive(&self, salt: &[u8], info: &[u8]) -> Self {
        kdf::derive_seed(self.0.as_slice(), salt, info)
    }

    /// Derives one seed for each info: as [`Seed::derive`], with the extraction done once.
    #[must_use]
    pub fn derive_many(&self, salt: &[u8], infos: &[&[u8]]) -> Vec<Self> {
        kdf::derive_seeds(self.0.as_slice(), salt, infos)
    }

    /// Commits to the seed: SHA-256 of a tag, the context's length (u64 LE), the context, the seed.
    ///
    /// Hiding holds for seeds drawn uniformly, as all of ours are.
    pub fn commitment(&self, context: &[u8]) -> [u8; 32] {
        let mut hasher = Sha256::new();
        hasher.update(COMMITMENT_TAG);
        hasher.update((context.len() as u64).to_le_bytes());
        hasher.update(context);
        hasher.update(self.0.as_slice());
        hasher.finalize().into()
    }

    pub(crate) fn zero() -> Self {
        Self(Box::new([0; SECRET_BYTES]))
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8; SECRET_BYTES] {
        &mut self.0
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("<Seed>")
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        self.0.as_mut_slice().zeroize();
    }
}

impl ZeroizeOnDrop for Seed {}
