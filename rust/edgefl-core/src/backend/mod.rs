//! Chooses, at run time, the code that expands masks.
//!
//! For each generator there is portable code on top of its crate, and code of our own for vector
//! instructions, which combines the keystream with the accumulator straight from registers. All give
//! the same lanes. Which one runs depends on the processor alone: no setting or environment variable
//! changes it.
//!
//! Code of our own is kept where it beats the crate by 1.3 in the loop over 30 masks and one tile.
//! Nanoseconds per coordinate and mask on one core of an AMD EPYC of 2021 (16-bit / 32-bit lanes):
//!
//! | generator | portable | own | ratio |
//! |---|---|---|---|
//! | `ChaCha20` | 1.1 / 2.3 | AVX2 0.68 / 1.34 | 1.7 |
//! | AES-128-CTR | 0.48 / 0.96 | AES-NI 0.22 / 0.45 | 2.1 |
//! | AES-128-CTR | | VAES 0.126 / 0.25 | 3.8 |
//!
//! The code for `aarch64` is checked against the portable code and the vectors under emulation; its
//! speed was not measured on a board. `edgefl selftest crypto` does both where it runs.

mod groups;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
#[allow(unsafe_code)] // vector instructions
mod neon_aes;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
#[allow(unsafe_code)] // vector instructions
mod neon_chacha20;
mod portable;
pub(crate) mod wide;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)] // vector instructions
mod x86_aes;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)] // vector instructions
mod x86_chacha20;
#[cfg(all(target_arch = "x86_64", has_vaes_intrinsics))]
#[allow(unsafe_code)] // vector instructions
mod x86_vaes;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)] // calls code that is compiled for AVX2
mod x86_wide;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)] // vector instructions
pub(crate) mod x86_x25519;

use crate::error::CoreError;
use crate::prg::Prg;
use crate::ring::Lane;
use crate::secret::Seed;

/// What happens to a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// It is added.
    Add,
    /// It is taken off.
    Subtract,
}

impl Sign {
    #[inline]
    fn apply<L: Lane>(self, lane: &mut L, mask: L) {
        *lane = match self {
            Self::Add => lane.plus(mask),
            Self::Subtract => lane.minus(mask),
        };
    }
}

/// The first 12 bytes of the AES counter block; the last 4 count the blocks, big-endian.
///
/// Zero for every mask: a key is used for one stream. The vectors of the standards begin elsewhere.
pub(crate) type CounterPrefix = [u8; 12];

/// Code that expands masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// The generator's crate, which has vector code of its own for several processors.
    Portable,
    /// Eight `ChaCha20` blocks at a time in 256-bit registers (`x86_64`).
    Avx2,
    /// Eight AES blocks at a time in 128-bit registers (`x86_64`).
    AesNi,
    /// Sixteen AES blocks at a time in 256-bit registers (`x86_64`).
    Vaes,
    /// Four `ChaCha20` blocks at a time in 128-bit registers (`aarch64`).
    Neon,
    /// Eight AES blocks at a time with the AES instructions of `ARMv8` (`aarch64`).
    ArmAes,
}

impl Backend {
    /// The fastest first.
    const ALL: [Self; 6] = [
        Self::Vaes,
        Self::AesNi,
        Self::ArmAes,
        Self::Avx2,
        Self::Neon,
        Self::Portable,
    ];

    /// Returns its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::AesNi => "aes-ni",
            Self::Vaes => "vaes",
            Self::Neon => "neon",
            Self::ArmAes => "arm-aes",
        }
    }

    /// Returns the code that this processor has for a generator, the fastest first.
    ///
    /// The last is always [`Backend::Portable`].
    pub fn available(prg: Prg) -> Vec<Self> {
        Self::ALL
            .into_iter()
            .filter(|backend| backend.is_available(prg))
            .collect()
    }

    /// Returns the code that expands this generator's masks here.
    pub fn chosen(prg: Prg) -> Self {
        Self::ALL
            .into_iter()
            .find(|backend| backend.is_available(prg))
            .unwrap_or(Self::Portable)
    }

    fn is_available(self, prg: Prg) -> bool {
        match (self, prg) {
            (Self::Portable, _) => true,
            #[cfg(target_arch = "x86_64")]
            (Self::Avx2, Prg::ChaCha20) => x86_chacha20::is_available(),
            #[cfg(target_arch = "x86_64")]
            (Self::AesNi, Prg::Aes128Ctr) => x86_aes::is_available(),
            #[cfg(all(target_arch = "x86_64", has_vaes_intrinsics))]
            (Self::Vaes, Prg::Aes128Ctr) => x86_vaes::is_available(),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            (Self::Neon, Prg::ChaCha20) => neon_chacha20::is_available(),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            (Self::ArmAes, Prg::Aes128Ctr) => neon_aes::is_available(),
            _ => false,
        }
    }
}

/// Says whether this processor has instructions for AES, so that AES masks are fast *and* their
/// time does not depend on the key.
///
/// What a device declares in its bundle. Without them the portable code still runs in constant time
/// (bit-sliced), but slower than `ChaCha20`.
pub fn has_aes_hardware() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    false
}

/// The key of one mask, prepared for one backend and wiped on drop.
pub(crate) enum MaskKey {
    PortableChaCha20(portable::ChaCha20Key),
    PortableAes(portable::AesKey),
    #[cfg(target_arch = "x86_64")]
    Avx2(x86_chacha20::Key),
    #[cfg(target_arch = "x86_64")]
    AesNi(x86_aes::Key),
    #[cfg(all(target_arch = "x86_64", has_vaes_intrinsics))]
    Vaes(x86_vaes::Key),
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    Neon(neon_chacha20::Key),
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    ArmAes(neon_aes::Key),
}

impl MaskKey {
    /// Prepares a key.
    ///
    /// # Errors
    /// [`CoreError::Backend`] where this processor lacks the backend or it lacks the generator.
    pub(crate) fn new(seed: &Seed, prg: Prg, backend: Backend) -> Result<Self, CoreError> {
        match prg {
            Prg::ChaCha20 => Self::chacha20(seed, backend),
            Prg::Aes128Ctr => Self::aes_128_ctr(seed, &[0; 12], backend),
        }
    }

    fn chacha20(seed: &Seed, backend: Backend) -> Result<Self, CoreError> {
        let key = match backend {
            Backend::Portable => Some(Self::portable(seed, Prg::ChaCha20)),
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2 => x86_chacha20::Key::new(seed).map(Self::Avx2),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Backend::Neon => neon_chacha20::Key::new(seed).map(Self::Neon),
            _ => None,
        };
        key.ok_or(CoreError::Backend)
    }

    /// Prepares an AES key for a stream that begins at a chosen counter.
    ///
    /// # Errors
    /// As [`MaskKey::new`].
    pub(crate) fn aes_128_ctr(
        seed: &Seed,
        prefix: &CounterPrefix,
        backend: Backend,
    ) -> Result<Self, CoreError> {
        let key = match backend {
            Backend::Portable => Some(Self::PortableAes(portable::AesKey::new(seed, prefix))),
            #[cfg(target_arch = "x86_64")]
            Backend::AesNi => x86_aes::Key::new(seed, prefix).map(Self::AesNi),
            #[cfg(all(target_arch = "x86_64", has_vaes_intrinsics))]
            Backend::Vaes => x86_vaes::Key::new(seed, prefix).map(Self::Vaes),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Backend::ArmAes => neon_aes::Key::new(seed, prefix).map(Self::ArmAes),
            _ => None,
        };
        key.ok_or(CoreError::Backend)
    }

    /// Prepares a key for the code that is always there.
    pub(crate) fn portable(seed: &Seed, prg: Prg) -> Self {
        match prg {
            Prg::ChaCha20 => Self::PortableChaCha20(portable::ChaCha20Key::new(seed)),
            Prg::Aes128Ctr => Self::PortableAes(portable::AesKey::new(seed, &[0; 12])),
        }
    }

    /// Adds or takes off the keystream; lane `first_lane` of it meets the first of `lanes`.
    ///
    /// # Errors
    /// [`CoreError::StreamLength`]; the caller makes sure that the key has keystream enough.
    pub(crate) fn combine<L: Lane>(
        &self,
        lanes: &mut [L],
        first_lane: u64,
        sign: Sign,
    ) -> Result<(), CoreError> {
        match self {
            Self::PortableChaCha20(key) => key.combine(lanes, first_lane, sign)?,
            Self::PortableAes(key) => key.combine(lanes, first_lane, sign),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(key) => groups::combine(key, lanes, first_lane, sign),
            #[cfg(target_arch = "x86_64")]
            Self::AesNi(key) => groups::combine(key, lanes, first_lane, sign),
            #[cfg(all(target_arch = "x86_64", has_vaes_intrinsics))]
            Self::Vaes(key) => groups::combine(key, lanes, first_lane, sign),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::Neon(key) => groups::combine(key, lanes, first_lane, sign),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::ArmAes(key) => groups::combine(key, lanes, first_lane, sign),
        }
        Ok(())
    }
}
