//! Chooses, at run time, the code that expands masks.
//!
//! Two ways to the same words: the `chacha20` crate ([`portable`]), which itself has SIMD code for
//! several processors, and our own 8-block kernel for AVX2 ([`x86`]), which adds the keystream to
//! the accumulator straight from registers and takes about 0.6 of the crate's time.

pub(crate) mod portable;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)] // vector instructions; the only file that may use it
pub(crate) mod x86;

use crate::error::CoreError;
use crate::secret::Seed;

/// What happens to a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// It is added.
    Add,
    /// It is taken off.
    Subtract,
}

/// Adds or takes off the seed's keystream from block `first_block` on; wraps modulo 2^32.
pub(crate) fn combine_mask(
    words: &mut [u32],
    seed: &Seed,
    first_block: u64,
    sign: Sign,
) -> Result<(), CoreError> {
    #[cfg(target_arch = "x86_64")]
    if x86::is_available() {
        return x86::combine_mask(words, seed, first_block, sign);
    }
    portable::combine_mask(words, seed, first_block, sign)
}

/// Names the ChaCha20 code that expands masks here: `avx2`, `sse2`, `neon` or `portable`.
pub fn chacha20_backend() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    return if x86::is_available() { "avx2" } else { "sse2" };
    #[cfg(not(target_arch = "x86_64"))]
    if cfg!(all(target_arch = "aarch64", target_feature = "neon")) {
        "neon"
    } else {
        "portable"
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use proptest::prelude::*;

    use super::{portable, x86, Sign};
    use crate::error::CoreError;
    use crate::secret::Seed;

    proptest! {
        #[test]
        fn vector_code_gives_the_portable_words(
            key in any::<[u8; 32]>(),
            length in 0_usize..700,
            first_block in 0_u64..(1 << 32) - 64,
            is_added in any::<bool>(),
        ) {
            prop_assume!(x86::is_available());
            let seed = Seed::from_bytes(&key).expect("32 bytes");
            let sign = if is_added { Sign::Add } else { Sign::Subtract };
            let mut expected: Vec<u32> = (0..length).map(|_| 0xdead_beef).collect();
            let mut found = expected.clone();
            portable::combine_mask(&mut expected, &seed, first_block, sign).expect("in range");
            x86::combine_mask(&mut found, &seed, first_block, sign).expect("in range");
            prop_assert_eq!(found, expected);
        }
    }

    /// Eight blocks end exactly at the last usable one, or one beyond it.
    #[test]
    fn both_end_at_the_same_block() {
        let seed = Seed::from_bytes(&[5; 32]).expect("32 bytes");
        for (first_block, is_refused) in [((1 << 32) - 9, false), ((1 << 32) - 8, true)] {
            let run = |combine: fn(&mut [u32], &Seed, u64, Sign) -> Result<(), CoreError>| {
                let mut words = vec![0; 128];
                combine(&mut words, &seed, first_block, Sign::Add).map(|()| words)
            };
            let expected = run(portable::combine_mask);
            assert_eq!(expected.is_err(), is_refused);
            if x86::is_available() {
                assert_eq!(run(x86::combine_mask), expected);
            }
        }
    }
}
