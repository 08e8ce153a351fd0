//! X25519 key agreement. Source: RFC 7748, sections 5 and 6.1. Cost: one scalar multiplication; with
//! AVX2 four peers take less than one does without.
//!
//! An agreement whose result is all zero is refused (a public key of small order would fix the
//! result whatever our secret is). The raw result is never handed to a protocol; it goes through
//! HKDF first, with a salt and an info that bind the session.

use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::Zeroizing;

#[cfg(target_arch = "x86_64")]
use crate::backend::x86_x25519;
use crate::batch::{check_count, in_threads};
use crate::error::CoreError;
use crate::secret::{Seed, SECRET_BYTES};

/// Peers that are worked on together.
pub(crate) const LADDER_LANES: usize = 4;
/// What fills the places of peers that are not there.
#[cfg(target_arch = "x86_64")]
const BASE_POINT: [u8; 32] = {
    let mut point = [0; 32];
    point[0] = 9;
    point
};

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
        let peer = peer_public_key
            .try_into()
            .map_err(|_| CoreError::PublicKeyLength {
                found: peer_public_key.len(),
            })?;
        self.multiply(&[peer])
            .first()
            .and_then(contributory)
            .ok_or(CoreError::WeakPublicKey)
    }

    /// Multiplies up to four points by the secret scalar, in the fastest way of this processor.
    fn multiply(&self, points: &[[u8; 32]]) -> Zeroizing<Vec<[u8; 32]>> {
        // Four lanes take as long as one and a half points one by one.
        if points.len() > 1 {
            if let Some(results) = self.multiply_in_lanes(points) {
                return results;
            }
        }
        self.multiply_portable(points)
    }

    #[cfg(target_arch = "x86_64")]
    fn multiply_in_lanes(&self, points: &[[u8; 32]]) -> Option<Zeroizing<Vec<[u8; 32]>>> {
        let mut lanes = [BASE_POINT; LADDER_LANES];
        for (lane, point) in lanes.iter_mut().zip(points) {
            *lane = *point;
        }
        let results = x86_x25519::shared_secrets(self.secret.as_bytes(), &lanes)?;
        let wanted = results.iter().take(points.len());
        Some(Zeroizing::new(wanted.copied().collect()))
    }

    #[cfg(not(target_arch = "x86_64"))]
    #[allow(clippy::unused_self)] // the other one needs it
    fn multiply_in_lanes(&self, _: &[[u8; 32]]) -> Option<Zeroizing<Vec<[u8; 32]>>> {
        None
    }

    fn multiply_portable(&self, points: &[[u8; 32]]) -> Zeroizing<Vec<[u8; 32]>> {
        let multiply = |point: &[u8; 32]| {
            self.secret
                .diffie_hellman(&PublicKey::from(*point))
                .to_bytes()
        };
        Zeroizing::new(points.iter().map(multiply).collect())
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
        in_threads(peer_public_keys, threads, LADDER_LANES, |first, run| {
            let mut seeds = Vec::with_capacity(run.len());
            for (group, peers) in run.chunks(LADDER_LANES).enumerate() {
                let first = first + group * LADDER_LANES;
                seeds.append(&mut self.agree_group(first, peers, salt, &infos[first..])?);
            }
            Ok(seeds)
        })
    }

    /// Agrees with up to four peers, the first of which has this index.
    fn agree_group(
        &self,
        first: usize,
        peers: &[&[u8]],
        salt: &[u8],
        infos: &[&[u8]],
    ) -> Result<Vec<Seed>, CoreError> {
        let refusal = |offset: usize| CoreError::PeerKey {
            index: first + offset,
            size_bytes: peers[offset].len(),
        };
        let well_formed = peers.iter().map_while(|peer| (*peer).try_into().ok());
        let points: Vec<[u8; 32]> = well_formed.collect();
        let seeds = self
            .multiply(&points)
            .iter()
            .zip(infos)
            .enumerate()
            .map(|(offset, (shared, info))| {
                let shared = contributory(shared).ok_or_else(|| refusal(offset))?;
                Ok(shared.derive(salt, info))
            })
            .collect::<Result<Vec<Seed>, CoreError>>()?;
        if points.len() < peers.len() {
            return Err(refusal(points.len()));
        }
        Ok(seeds)
    }
}

/// Refuses the all-zero result; all of it is read before that is decided.
fn contributory(shared: &[u8; 32]) -> Option<Seed> {
    if shared.iter().fold(0, |all, byte| all | byte) == 0 {
        return None;
    }
    let mut seed = Seed::zero();
    seed.bytes_mut().copy_from_slice(shared);
    Some(seed)
}

/// Returns the public keys of many seeds. Cost: one multiplication of the base point each.
pub fn agreement_public_keys(seeds: &[&Seed]) -> Vec<[u8; SECRET_BYTES]> {
    seeds
        .iter()
        .map(|seed| AgreementKey::from_seed(seed).public_key())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{AgreementKey, LADDER_LANES};
    use crate::secret::Seed;

    /// 2^255 - 19 plus a small difference, little-endian, with the ignored bit as asked.
    fn near_modulus(difference: i8, high_bit: u8) -> [u8; 32] {
        let mut point = [0xff; 32];
        point[0] = 0xed_u8.wrapping_add_signed(difference);
        point[31] = 0x7f | high_bit << 7;
        point
    }

    fn edge_points() -> Vec<[u8; 32]> {
        let small = [0_u8, 1, 2, 9].map(|first| {
            let mut point = [0; 32];
            point[0] = first;
            point
        });
        let mut points = small.to_vec();
        for difference in [-2, -1, 0, 1, 2, 18] {
            points.extend([0, 1].map(|high_bit| near_modulus(difference, high_bit)));
        }
        points.extend([[0xff; 32], [0x55; 32], [0xaa; 32]]);
        // Every limb of 25 or 26 bits full, and every other one.
        points.extend((0..256).step_by(17).map(|bit| {
            let mut point = [0; 32];
            point[bit / 8] = 1 << (bit % 8);
            point
        }));
        points
    }

    #[test]
    fn four_lanes_equal_the_portable_ladder() {
        let mut stream = crate::prg::Keystream::new(&Seed::zero());
        let mut points = edge_points();
        for _ in 0..64 {
            let mut point = [0; 32];
            stream.fill(&mut point).expect("short");
            points.push(point);
        }
        let mut scalars = vec![[0; 32], [0xff; 32], [0x55; 32]];
        for _ in 0..5 {
            let mut scalar = [0; 32];
            stream.fill(&mut scalar).expect("short");
            scalars.push(scalar);
        }
        for scalar in scalars {
            let key = AgreementKey::from_seed(&Seed::from_bytes(&scalar).expect("32 bytes"));
            for group in points.chunks(LADDER_LANES) {
                let expected = key.multiply_portable(group);
                assert_eq!(*key.multiply(group), *expected);
                if let Some(found) = key.multiply_in_lanes(&group[..1]) {
                    assert_eq!(found[0], expected[0]);
                }
            }
        }
    }
}
