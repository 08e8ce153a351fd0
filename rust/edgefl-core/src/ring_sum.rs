//! The running sum of masked inputs at the gateway, from which the masks are taken off at the end.
//!
//! One vector in lanes of 16 or 32 bits, whatever the cohort; packed inputs are added straight from their
//! bytes. Bits above b hold anything until values are read. Wiped when dropped: with the masks off it
//! is the sum of the updates. A copy that is packed before, for a restart, is as masked as the inputs. Not guaranteed: after an error in the middle of unmasking the sum is gone.

use zeroize::Zeroizing;

use crate::cancel::CancelFlag;
use crate::check::{CheckRows, CheckSums, CHECK_COORDINATES};
use crate::error::CoreError;
use crate::lanes::RingLane;
use crate::mask::{Mask, MaskExpander};
use crate::pack::{add_packed_lanes, check_packed, pack_lanes, packed_bytes};
use crate::ring::{same_length, RingBits};
use crate::tiles::{run_jobs, split_tiles, TILE};

enum Lanes {
    Narrow(Zeroizing<Vec<u16>>),
    Wide(Zeroizing<Vec<u32>>),
}

/// Runs one expression with `$lanes` bound to the vector of either width.
macro_rules! with_lanes {
    ($sum:expr, $lanes:ident => $body:expr) => {
        match $sum {
            Lanes::Narrow($lanes) => $body,
            Lanes::Wide($lanes) => $body,
        }
    };
}

/// A sum of vectors modulo 2^b, the last four coordinates of which are check coordinates.
pub struct RingSum {
    lanes: Lanes,
    ring: RingBits,
    is_spoilt: bool,
}

impl RingSum {
    /// Starts at zero.
    ///
    /// # Errors
    /// [`CoreError::Length`] where nothing is left beside the check coordinates.
    pub fn new(length: usize, ring: RingBits) -> Result<Self, CoreError> {
        if length <= CHECK_COORDINATES {
            return Err(CoreError::Length {
                what: "a sum with its check coordinates",
                expected: CHECK_COORDINATES + 1,
                found: length,
            });
        }
        let lanes = if ring.bits() <= u16::BITS {
            Lanes::Narrow(Zeroizing::new(vec![0; length]))
        } else {
            Lanes::Wide(Zeroizing::new(vec![0; length]))
        };
        Ok(Self {
            lanes,
            ring,
            is_spoilt: false,
        })
    }

    /// Returns the number of coordinates, check coordinates included.
    #[allow(clippy::len_without_is_empty)] // it never is
    pub fn len(&self) -> usize {
        with_lanes!(&self.lanes, lanes => lanes.len())
    }

    /// Adds one packed vector; adds nothing where its form is wrong.
    ///
    /// # Errors
    /// [`CoreError::PackedLength`] and [`CoreError::PackedPadding`], both a peer's fault;
    /// [`CoreError::SumSpoilt`].
    pub fn add_packed(&mut self, packed: &[u8]) -> Result<(), CoreError> {
        self.check_sound()?;
        check_packed(packed, self.ring, self.len())?;
        let ring = self.ring;
        with_lanes!(&mut self.lanes, lanes => add_packed_lanes(packed, ring, lanes));
        Ok(())
    }

    /// Returns the sum so far, packed as the inputs are: added to a sum of zeros it gives the same sum.
    ///
    /// # Errors
    /// [`CoreError::SumSpoilt`], or [`CoreError::Length`] beyond `usize`.
    pub fn to_packed(&self) -> Result<Vec<u8>, CoreError> {
        self.check_sound()?;
        let size_bytes = packed_bytes(self.len(), self.ring).ok_or(CoreError::Length {
            what: "the values",
            expected: usize::MAX / RingBits::MAX as usize,
            found: self.len(),
        })?;
        let mut packed = vec![0; size_bytes];
        with_lanes!(&self.lanes, lanes => pack_lanes(lanes, self.ring, &mut packed));
        Ok(packed)
    }

    /// Adds masks, or takes them off. On an error the sum is gone.
    ///
    /// # Errors
    /// [`CoreError::Threads`], [`CoreError::ThreadStart`], [`CoreError::StreamLength`],
    /// [`CoreError::Cancelled`] or [`CoreError::SumSpoilt`].
    pub fn apply_masks(
        &mut self,
        masks: &[Mask<'_>],
        threads: usize,
        cancel: Option<&CancelFlag>,
    ) -> Result<(), CoreError> {
        self.check_sound()?;
        let runs = split_tiles(self.len().div_ceil(TILE), threads)?;
        let run_lanes = runs.first().map_or(1, std::ops::Range::len) * TILE;
        let masks = MaskExpander::new(masks);
        let done = with_lanes!(
            &mut self.lanes,
            lanes => apply_to_lanes(lanes, run_lanes, &masks, cancel)
        );
        if done.is_err() {
            self.is_spoilt = true;
            with_lanes!(&mut self.lanes, lanes => lanes.fill(0));
        }
        done
    }

    /// Says whether the check coordinates are those of the values before them.
    ///
    /// # Errors
    /// [`CoreError::SumSpoilt`] or [`CoreError::StreamLength`].
    pub fn checks_hold(&self, session_id: &[u8; 32]) -> Result<bool, CoreError> {
        self.check_sound()?;
        with_lanes!(&self.lanes, lanes => checks_hold(lanes, self.ring, session_id))
    }

    /// Hands out the first values modulo 2^b, in order.
    ///
    /// # Errors
    /// [`CoreError::Length`] for more values than there are before the check coordinates;
    /// [`CoreError::SumSpoilt`].
    pub fn read(&self, count: usize, take: impl FnMut(u32)) -> Result<(), CoreError> {
        self.check_count(count)?;
        let mask = self.ring.mask();
        with_lanes!(
            &self.lanes,
            lanes => lanes.iter().take(count).map(|lane| lane.to_word() & mask).for_each(take)
        );
        Ok(())
    }

    /// Says whether [`RingSum::read`] would give so many values.
    ///
    /// # Errors
    /// As [`RingSum::read`].
    pub fn check_count(&self, count: usize) -> Result<(), CoreError> {
        self.check_sound()?;
        let most = self.len() - CHECK_COORDINATES;
        same_length("values before the check coordinates", most, count.max(most))
    }

    fn check_sound(&self) -> Result<(), CoreError> {
        if self.is_spoilt {
            Err(CoreError::SumSpoilt)
        } else {
            Ok(())
        }
    }
}

fn apply_to_lanes<L: RingLane>(
    lanes: &mut [L],
    run_lanes: usize,
    masks: &MaskExpander,
    cancel: Option<&CancelFlag>,
) -> Result<(), CoreError> {
    let jobs: Vec<_> = lanes.chunks_mut(run_lanes).enumerate().collect();
    run_jobs(jobs, |(index, run)| {
        for (tile_index, tile) in run.chunks_mut(TILE).enumerate() {
            cancel.map_or(Ok(()), CancelFlag::check)?;
            masks.add_to_tile(tile, (index * run_lanes + tile_index * TILE) as u64)?;
        }
        Ok(())
    })?;
    Ok(())
}

fn checks_hold<L: RingLane>(
    lanes: &[L],
    ring: RingBits,
    session_id: &[u8; 32],
) -> Result<bool, CoreError> {
    let (values, found) = lanes.split_at(lanes.len() - CHECK_COORDINATES);
    let mut sums = CheckSums::default();
    CheckRows::new(session_id, values.len())?.add(&mut sums, values, 0);
    let differ = |(sum, found): (&u32, &L)| (sum ^ found.to_word()) & ring.mask() != 0;
    Ok(!sums.iter().zip(found).any(differ))
}
