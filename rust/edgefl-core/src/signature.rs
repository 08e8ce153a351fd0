//! Ed25519 signatures with strict verification. Source: RFC 8032, section 5.1.
//!
//! Strict means: the scalar of the signature must be canonical and neither the public key nor the
//! point of the signature may be of small order, so that a signature has one form and one message.

use ed25519_dalek::{Signature, Signer, VerifyingKey};

use crate::batch::check_count;
use crate::error::CoreError;
use crate::secret::Seed;

/// An Ed25519 secret key, made from the 32 bytes that RFC 8032 calls the private key.
pub struct SigningKey(Box<ed25519_dalek::SigningKey>);

impl SigningKey {
    /// Makes the key of this seed.
    pub fn from_seed(seed: &Seed) -> Self {
        Self(Box::new(ed25519_dalek::SigningKey::from_bytes(
            seed.export_bytes(),
        )))
    }

    /// Returns the public key.
    pub fn public_key(&self) -> [u8; 32] {
        self.0.verifying_key().to_bytes()
    }

    /// Returns the seed that makes this key again. For storage.
    pub fn export_seed(&self) -> Seed {
        let mut seed = Seed::zero();
        seed.bytes_mut().copy_from_slice(self.0.as_bytes());
        seed
    }

    /// Signs a message. The same key and message give the same signature.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }
}

/// Says whether the signature is right; malformed keys and signatures are simply not right.
pub fn verify(public_key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let (Ok(public_key), Ok(signature)) = (
        <&[u8; 32]>::try_from(public_key),
        <&[u8; 64]>::try_from(signature),
    ) else {
        return false;
    };
    VerifyingKey::from_bytes(public_key).is_ok_and(|key| {
        key.verify_strict(message, &Signature::from_bytes(signature))
            .is_ok()
    })
}

/// Verifies many signatures, each by itself and as strictly as [`verify`].
///
/// One equation for all would be faster and accept signatures that the strict check refuses
/// (it must multiply by the cofactor), so that two verifiers could differ.
///
/// # Errors
/// [`CoreError::BatchLength`].
pub fn verify_many(
    public_keys: &[&[u8]],
    messages: &[&[u8]],
    signatures: &[&[u8]],
) -> Result<Vec<bool>, CoreError> {
    check_count("message", public_keys.len(), messages.len())?;
    check_count("signature", public_keys.len(), signatures.len())?;
    Ok(public_keys
        .iter()
        .zip(messages)
        .zip(signatures)
        .map(|((public_key, message), signature)| verify(public_key, message, signature))
        .collect())
}
