//! Expands mask seeds and adds them to the accumulator in one pass. Source: secagg of Bonawitz et
//! al. 2017, section 4, with ChaCha20 (RFC 8439) as its PRG.
//!
//! Word i of the keystream (u32 LE) is coordinate i of the mask. All masks are expanded for one tile
//! before the next tile is touched, so that memory traffic does not grow with the number of masks.
//! A tile has 8 KB: with its keystream it fills half of a 32-KB first-level cache. Cost: about 1.5 ns
//! per coordinate and mask with AVX2.

use crate::backend::{combine_mask, Sign};
use crate::error::CoreError;
use crate::ring::RingBits;
use crate::secret::Seed;

/// Most threads that one call may use.
pub const MAX_THREADS: usize = 64;

const TILE_WORDS: usize = 2048;
const WORDS_PER_BLOCK: u64 = 16;

/// Adds the masks of `add`, takes off those of `subtract`, and reduces modulo 2^b.
///
/// With more than one thread the accumulator is cut into equal runs of whole tiles; the result
/// does not depend on the number of threads. On an error the accumulator is half done: discard it.
///
/// # Errors
/// [`CoreError::Threads`], [`CoreError::ThreadStart`] or [`CoreError::StreamLength`].
pub fn apply_masks(
    accumulator: &mut [u32],
    ring: RingBits,
    add: &[&Seed],
    subtract: &[&Seed],
    threads: usize,
) -> Result<(), CoreError> {
    if !(1..=MAX_THREADS).contains(&threads) {
        return Err(CoreError::Threads {
            found: i64::try_from(threads).unwrap_or(i64::MAX),
        });
    }
    let tiles = accumulator.len().div_ceil(TILE_WORDS);
    let run_words = tiles.div_ceil(threads).max(1) * TILE_WORDS;
    if threads == 1 || accumulator.len() <= run_words {
        return mask_run(accumulator, 0, ring, add, subtract);
    }
    std::thread::scope(|scope| {
        let mut workers = Vec::with_capacity(threads);
        for (index, run) in accumulator.chunks_mut(run_words).enumerate() {
            let first_word = index * run_words;
            let worker = std::thread::Builder::new()
                .spawn_scoped(scope, move || {
                    mask_run(run, first_word as u64, ring, add, subtract)
                })
                .map_err(|_| CoreError::ThreadStart)?;
            workers.push(worker);
        }
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or(Err(CoreError::ThreadStart)))
    })
}

fn mask_run(
    run: &mut [u32],
    first_word: u64,
    ring: RingBits,
    add: &[&Seed],
    subtract: &[&Seed],
) -> Result<(), CoreError> {
    for (index, tile) in run.chunks_mut(TILE_WORDS).enumerate() {
        let first_block = (first_word + (index * TILE_WORDS) as u64) / WORDS_PER_BLOCK;
        for seed in add {
            combine_mask(tile, seed, first_block, Sign::Add)?;
        }
        for seed in subtract {
            combine_mask(tile, seed, first_block, Sign::Subtract)?;
        }
        for word in tile {
            *word &= ring.mask();
        }
    }
    Ok(())
}
