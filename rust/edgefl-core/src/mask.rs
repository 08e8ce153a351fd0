//! Expands mask seeds and adds them to the accumulator in one pass. Source: secagg of Bonawitz et
//! al. 2017, section 4, with `ChaCha20` or AES-128-CTR as its PRG.
//!
//! Lane i of the keystream (little-endian) is coordinate i of the mask. All masks are expanded for
//! one tile of 16 KB before the next tile is touched, so that memory traffic does not grow with the
//! number of masks; nothing but the tile is held, whatever the length of the vector.
//!
//! Threads take tiles from a common queue, so that a slow core holds up one tile only. Plain threads
//! of the standard library do: a pool such as rayon's would save some 30 us a call, next to
//! milliseconds of work, at the price of a pool that outlives the call and a `fork` in Python.

use std::slice::ChunksMut;
use std::sync::{Mutex, PoisonError};

use crate::backend::{Backend, MaskKey, Sign};
use crate::cancel::CancelFlag;
use crate::error::CoreError;
use crate::prg::Prg;
use crate::ring::{Lane, RingBits};
use crate::secret::Seed;

/// Most threads that one call may use.
pub const MAX_THREADS: usize = 64;

/// Bytes of a tile: half of a first-level cache, whose other half holds keys and buffers.
pub const TILE_BYTES: usize = 16 * 1024;

/// Blocks of keystream that a key is good for, of either generator.
const MOST_BLOCKS: u64 = u32::MAX as u64;

/// One mask: the seed, the generator that expands it, and what is done with it.
#[derive(Clone, Copy, Debug)]
pub struct Mask<'a> {
    /// The seed, used for this mask only.
    pub seed: &'a Seed,
    /// The generator.
    pub prg: Prg,
    /// Whether it is added or taken off.
    pub sign: Sign,
}

/// The masks of one vector, with their keys prepared and wiped on drop.
pub struct MaskExpander(Vec<(MaskKey, Prg, Sign)>);

impl MaskExpander {
    /// Prepares the keys for the fastest code that this processor has.
    #[must_use]
    pub fn new(masks: &[Mask<'_>]) -> Self {
        let prepared = masks.iter().map(|mask| {
            let key = MaskKey::new(mask.seed, mask.prg, Backend::chosen(mask.prg))
                .unwrap_or_else(|_| MaskKey::portable(mask.seed, mask.prg));
            (key, mask.prg, mask.sign)
        });
        Self(prepared.collect())
    }

    /// Prepares the keys for the code asked for: to measure and to test it.
    ///
    /// # Errors
    /// [`CoreError::Backend`] where this processor lacks it, or it lacks a mask's generator.
    pub fn with_backend(masks: &[Mask<'_>], backend: Backend) -> Result<Self, CoreError> {
        let prepared = masks.iter().map(|mask| {
            MaskKey::new(mask.seed, mask.prg, backend).map(|key| (key, mask.prg, mask.sign))
        });
        prepared.collect::<Result<_, _>>().map(Self)
    }

    /// Adds all masks to one tile, which starts at coordinate `first_coordinate` of the vector.
    ///
    /// Wraps at the width of a lane; reducing modulo 2^b is the caller's. Any start will do, a
    /// multiple of 256 is quickest. On an error the tile is as it was.
    ///
    /// # Errors
    /// [`CoreError::StreamLength`] beyond the end of a mask's keystream.
    pub fn add_to_tile<L: Lane>(
        &self,
        tile: &mut [L],
        first_coordinate: u64,
    ) -> Result<(), CoreError> {
        self.check_length::<L>(first_coordinate, tile.len())?;
        for (key, _, sign) in &self.0 {
            key.combine(tile, first_coordinate, *sign)?;
        }
        Ok(())
    }

    fn check_length<L: Lane>(&self, first: u64, length: usize) -> Result<(), CoreError> {
        let end_bytes = first
            .checked_add(length as u64)
            .and_then(|end| end.checked_mul(L::BYTES as u64))
            .ok_or(CoreError::StreamLength)?;
        let is_enough = self
            .0
            .iter()
            .all(|(_, prg, _)| end_bytes.div_ceil(prg.block_bytes()) <= MOST_BLOCKS);
        is_enough.then_some(()).ok_or(CoreError::StreamLength)
    }
}

/// Adds or takes off all masks and reduces modulo 2^b, in place.
///
/// The result does not depend on the number of threads; where the system starts fewer, fewer do
/// the work. On [`CoreError::Cancelled`] the accumulator is half done: discard it. On any other
/// error it is as it was.
///
/// # Errors
/// [`CoreError::Threads`], [`CoreError::LaneWidth`], [`CoreError::StreamLength`] or
/// [`CoreError::Cancelled`].
pub fn apply_masks<L: Lane>(
    accumulator: &mut [L],
    ring: RingBits,
    masks: &[Mask<'_>],
    threads: usize,
    cancel: Option<&CancelFlag>,
) -> Result<(), CoreError> {
    if !(1..=MAX_THREADS).contains(&threads) {
        return Err(CoreError::Threads {
            found: i64::try_from(threads).unwrap_or(i64::MAX),
        });
    }
    ring.check_lane::<L>()?;
    let expander = MaskExpander::new(masks);
    expander.check_length::<L>(0, accumulator.len())?;
    let tile_lanes = TILE_BYTES / L::BYTES;
    let helpers = threads.min(accumulator.len().div_ceil(tile_lanes)).max(1) - 1;
    let queue = TileQueue::new(accumulator, tile_lanes);
    let work = || work_off(&queue, &expander, ring, cancel);
    if helpers == 0 {
        return work();
    }
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..helpers)
            .map_while(|_| std::thread::Builder::new().spawn_scoped(scope, work).ok())
            .collect();
        let own = work();
        let results = workers.into_iter().map(|worker| {
            worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        results.fold(own, Result::and)
    })
}

/// Returns AES-128-CTR keystream from any counter block, by the code asked for.
///
/// For the vectors of the standards and the self-test: masks always begin at zero.
///
/// # Errors
/// [`CoreError::Backend`] where this processor lacks the code; [`CoreError::StreamLength`] where the
/// last 4 bytes of the counter would overflow.
pub fn aes_128_ctr_keystream(
    key: &[u8; 16],
    counter_block: &[u8; 16],
    backend: Backend,
    blocks: usize,
) -> Result<Vec<u8>, CoreError> {
    let mut seed = Seed::zero();
    seed.bytes_mut()[..key.len()].copy_from_slice(key);
    let mut prefix = [0; 12];
    let (start, counter) = counter_block.split_at(prefix.len());
    prefix.copy_from_slice(start);
    let first_block = counter
        .iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte));
    if first_block + blocks as u64 > MOST_BLOCKS {
        return Err(CoreError::StreamLength);
    }
    let key = MaskKey::aes_128_ctr(&seed, &prefix, backend)?;
    let mut words = vec![0_u32; 4 * blocks];
    key.combine(&mut words, 4 * first_block, Sign::Add)?;
    Ok(words.into_iter().flat_map(u32::to_le_bytes).collect())
}

fn work_off<L: Lane>(
    queue: &TileQueue<'_, L>,
    expander: &MaskExpander,
    ring: RingBits,
    cancel: Option<&CancelFlag>,
) -> Result<(), CoreError> {
    while let Some((first_coordinate, tile)) = queue.next() {
        if let Some(flag) = cancel {
            flag.check()?;
        }
        expander.add_to_tile(tile, first_coordinate)?;
        for lane in tile {
            *lane = lane.reduced(ring);
        }
    }
    Ok(())
}

/// The tiles that no thread has taken yet.
struct TileQueue<'a, L>(Mutex<Rest<'a, L>>);

struct Rest<'a, L> {
    tiles: ChunksMut<'a, L>,
    first_coordinate: u64,
}

impl<'a, L> TileQueue<'a, L> {
    fn new(lanes: &'a mut [L], tile_lanes: usize) -> Self {
        Self(Mutex::new(Rest {
            tiles: lanes.chunks_mut(tile_lanes),
            first_coordinate: 0,
        }))
    }

    fn next(&self) -> Option<(u64, &'a mut [L])> {
        // A panic elsewhere leaves the queue whole: nothing can panic while it is held.
        let mut rest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tile = rest.tiles.next()?;
        let first_coordinate = rest.first_coordinate;
        rest.first_coordinate += tile.len() as u64;
        Some((first_coordinate, tile))
    }
}
