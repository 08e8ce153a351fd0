//! X25519 key agreement. Source: RFC 7748, sections 5 and 6.1. Cost: one scalar multiplication.
//!
//! An agreement whose result is all zero is refused (a public key of small order would fix the
//! result whatever our secret is). The raw result is never handed to a protocol; it goes through
//! HKDF first, with a salt and an info that bind the session.

use x25519_dalek::{PublicKey, StaticSecret};

use crate::batch::{check_count, in_threads};
use crate::error::CoreError;
use crate::secret::{Seed, SECRET_BYTES};

/// An X25519 secret key. The 32 bytes of its seed are the scalar before clamping.
pub struct AgreementKey {
    secret: Box<StaticSecret>,
    public_key: [u8; 32],
}

impl AgreementKey {
    /// Makes the key whose scalar is the seed, clamped as RFC 7748 asks.
    pub fn from_seed(seed: &Seed) -> Self {
        let secret = Box::new(StaticSecret::from(*seed.export_bytes()));
        let public_key = PublicKey::from(secret.as_ref()).to_bytes();
        Self { secret, public_key }
    }

    /// Returns the public key.
    pub fn public_key(&self) -> [u8; 32] {
        self.public_key
    }

    /// Returns the seed that makes this key again. For secret sharing and storage.
    pub fn export_seed(&self) -> Seed {
        let mut seed = Seed::zero();
        seed.bytes_mut().copy_from_slice(self.secret.as_bytes());
        seed
    }

    /// Returns the raw X25519 result.
    ///
    /// # Errors
    /// [`CoreError::PublicKeyLength`] or [`CoreError::WeakPublicKey`].
    pub fn shared_secret(&self, peer_public_key: &[u8]) -> Result<Seed, CoreError> {
        let peer: [u8; SECRET_BYTES] =
            peer_public_key
                .try_into()
                .map_err(|_| CoreError::PublicKeyLength {
                    found: peer_public_key.len(),
                })?;
        let shared = self.secret.diffie_hellman(&PublicKey::from(peer));
        if !shared.was_contributory() {
            return Err(CoreError::WeakPublicKey);
        }
        let mut seed = Seed::zero();
        seed.bytes_mut().copy_from_slice(shared.as_bytes());
        Ok(seed)
    }

    /// Agrees with a peer on a seed: HKDF-SHA256 of the X25519 result.
    ///
    /// # Errors
    /// [`CoreError::PublicKeyLength`] or [`CoreError::WeakPublicKey`].
    pub fn agree(
        &self,
        peer_public_key: &[u8],
        salt: &[u8],
        info: &[u8],
    ) -> Result<Seed, CoreError> {
        Ok(self.shared_secret(peer_public_key)?.derive(salt, info))
    }

    /// Agrees with many peers, each under its own info: as [`AgreementKey::agree`] with each.
    ///
    /// # Errors
    /// [`CoreError::PeerKey`] for the first refused key of the first run of threads,
    /// [`CoreError::BatchLength`], [`CoreError::Threads`] or [`CoreError::ThreadStart`].
    pub fn agree_many(
        &self,
        peer_public_keys: &[&[u8]],
        salt: &[u8],
        infos: &[&[u8]],
        threads: usize,
    ) -> Result<Vec<Seed>, CoreError> {
        check_count("info", peer_public_keys.len(), infos.len())?;
        in_threads(peer_public_keys, threads, 1, |first, run| {
            run.iter()
                .zip(&infos[first..])
                .enumerate()
                .map(|(offset, (peer, info))| {
                    let shared = self.shared_secret(peer).map_err(|_| CoreError::PeerKey {
                        index: first + offset,
                        size_bytes: peer.len(),
                    })?;
                    Ok(shared.derive(salt, info))
                })
                .collect()
        })
    }
}

/// Returns the public keys of many seeds. Cost: one multiplication of the base point each.
pub fn agreement_public_keys(seeds: &[&Seed]) -> Vec<[u8; SECRET_BYTES]> {
    seeds
        .iter()
        .map(|seed| AgreementKey::from_seed(seed).public_key())
        .collect()
}
