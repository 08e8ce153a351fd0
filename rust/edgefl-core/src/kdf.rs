//! HKDF with SHA-256. Source: RFC 5869. Cost: two HMACs for 32 bytes of output.

use hkdf::Hkdf;
use sha2::Sha256;

use crate::error::CoreError;
use crate::secret::Seed;

/// Fills `output` with HKDF-SHA256 of the input keying material.
///
/// # Errors
/// [`CoreError::Length`] when more than 255 * 32 bytes are asked for.
pub fn hkdf_sha256(
    input: &[u8],
    salt: &[u8],
    info: &[u8],
    output: &mut [u8],
) -> Result<(), CoreError> {
    let found = output.len();
    Hkdf::<Sha256>::new(Some(salt), input)
        .expand(info, output)
        .map_err(|_| CoreError::Length {
            what: "HKDF output",
            expected: 255 * 32,
            found,
        })
}

pub(crate) fn derive_seed(input: &[u8], salt: &[u8], info: &[u8]) -> Seed {
    expand_seed(&Hkdf::<Sha256>::new(Some(salt), input), info)
}

/// Derives one seed for each info from one extraction.
pub(crate) fn derive_seeds(input: &[u8], salt: &[u8], infos: &[&[u8]]) -> Vec<Seed> {
    let extracted = Hkdf::<Sha256>::new(Some(salt), input);
    infos
        .iter()
        .map(|info| expand_seed(&extracted, info))
        .collect()
}

fn expand_seed(extracted: &Hkdf<Sha256>, info: &[u8]) -> Seed {
    let mut seed = Seed::zero();
    extracted
        .expand(info, seed.bytes_mut())
        .expect("infallible because 32 bytes are below the limit of HKDF");
    seed
}
