//! Sealed messages: XChaCha20-Poly1305 with the 24-byte nonce in front.
//!
//! Source: draft-irtf-cfrg-xchacha-03 over RFC 8439. A random nonce of 24 bytes does not repeat in
//! any real number of messages. Opening fails as a whole: nothing says which byte was wrong.

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::batch::check_count;
use crate::error::CoreError;
use crate::secret::Seed;

/// Bytes of the nonce, which leads a sealed message.
pub const NONCE_BYTES: usize = 24;
/// Bytes of the tag, which ends a sealed message.
pub const TAG_BYTES: usize = 16;

const NONCE_INFO: &[u8] = b"edgefl/1 insecure nonce";

/// Seals a message; the nonce comes from the operating system, or from `insecure_nonce_seed`.
///
/// Security: a nonce made from a seed is for simulations that must repeat. It is derived from the
/// seed, the associated data and the plaintext, so equal inputs give equal bytes, which an observer
/// can notice.
///
/// # Errors
/// [`CoreError::OsRandomness`] or [`CoreError::PlaintextLength`].
pub fn seal(
    key: &Seed,
    plaintext: &[u8],
    associated_data: &[u8],
    insecure_nonce_seed: Option<&Seed>,
) -> Result<Vec<u8>, CoreError> {
    let mut nonce = [0; NONCE_BYTES];
    match insecure_nonce_seed {
        Some(seed) => {
            let derived = seed.derive(&message_digest(plaintext, associated_data), NONCE_INFO);
            nonce.copy_from_slice(&derived.export_bytes()[..NONCE_BYTES]);
        }
        None => getrandom::fill(&mut nonce).map_err(|_| CoreError::OsRandomness)?,
    }
    seal_with_nonce(key, plaintext, associated_data, &nonce)
}

/// Seals a message under a nonce of the caller, who must never use it twice with one key.
///
/// # Errors
/// [`CoreError::PlaintextLength`].
pub fn seal_with_nonce(
    key: &Seed,
    plaintext: &[u8],
    associated_data: &[u8],
    nonce: &[u8; NONCE_BYTES],
) -> Result<Vec<u8>, CoreError> {
    let cipher = XChaCha20Poly1305::new(key.export_bytes().into());
    let payload = Payload {
        msg: plaintext,
        aad: associated_data,
    };
    let ciphertext = cipher
        .encrypt(nonce.into(), payload)
        .map_err(|_| CoreError::PlaintextLength)?;
    Ok([nonce.as_slice(), &ciphertext].concat())
}

/// Seals many messages, each with its own key and associated data: as [`seal`] of each.
///
/// # Errors
/// [`CoreError::BatchLength`], [`CoreError::OsRandomness`] or [`CoreError::PlaintextLength`].
pub fn seal_many(
    keys: &[&Seed],
    plaintexts: &[&[u8]],
    associated_data: &[&[u8]],
    insecure_nonce_seeds: Option<&[&Seed]>,
) -> Result<Vec<Vec<u8>>, CoreError> {
    check_count("plaintext", keys.len(), plaintexts.len())?;
    check_count("associated data", keys.len(), associated_data.len())?;
    if let Some(seeds) = insecure_nonce_seeds {
        check_count("nonce seed", keys.len(), seeds.len())?;
    }
    keys.iter()
        .zip(plaintexts)
        .zip(associated_data)
        .enumerate()
        .map(|(index, ((key, plaintext), data))| {
            let nonce_seed = insecure_nonce_seeds.map(|seeds| seeds[index]);
            seal(key, plaintext, data, nonce_seed)
        })
        .collect()
}

/// Opens many sealed messages; what does not open is `None`. The plaintexts are wiped when dropped.
///
/// # Errors
/// [`CoreError::BatchLength`].
pub fn open_many(
    keys: &[&Seed],
    sealed: &[&[u8]],
    associated_data: &[&[u8]],
) -> Result<Vec<Option<Zeroizing<Vec<u8>>>>, CoreError> {
    check_count("sealed message", keys.len(), sealed.len())?;
    check_count("associated data", keys.len(), associated_data.len())?;
    Ok(keys
        .iter()
        .zip(sealed)
        .zip(associated_data)
        .map(|((key, sealed), data)| open_sealed(key, sealed, data).ok().map(Zeroizing::new))
        .collect())
}

/// Opens a sealed message.
///
/// # Errors
/// [`CoreError::Sealed`] when any byte of the message, the key or the associated data is wrong.
pub fn open_sealed(
    key: &Seed,
    sealed: &[u8],
    associated_data: &[u8],
) -> Result<Vec<u8>, CoreError> {
    let (nonce, ciphertext) = sealed
        .split_first_chunk::<NONCE_BYTES>()
        .ok_or(CoreError::Sealed)?;
    let payload = Payload {
        msg: ciphertext,
        aad: associated_data,
    };
    XChaCha20Poly1305::new(key.export_bytes().into())
        .decrypt(nonce.into(), payload)
        .map_err(|_| CoreError::Sealed)
}

fn message_digest(plaintext: &[u8], associated_data: &[u8]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update((associated_data.len() as u64).to_le_bytes());
    hasher.update(associated_data);
    hasher.update(plaintext);
    hasher.finalize().into()
}
