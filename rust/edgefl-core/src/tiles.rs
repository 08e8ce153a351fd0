//! Cuts a vector into runs of whole tiles, one per thread.

use std::ops::Range;

use crate::error::CoreError;
use crate::mask::MAX_THREADS;

/// Coordinates per tile: 16 KB of u32 lanes, and one rotation block at most.
pub(crate) const TILE: usize = 4096;

/// Returns at most `threads` runs of tiles that together are all of `0..tiles`, each a run of equal
/// length but the last.
///
/// # Errors
/// [`CoreError::Threads`] outside 1..=64.
pub(crate) fn split_tiles(tiles: usize, threads: usize) -> Result<Vec<Range<usize>>, CoreError> {
    if !(1..=MAX_THREADS).contains(&threads) {
        return Err(CoreError::Threads {
            found: i64::try_from(threads).unwrap_or(i64::MAX),
        });
    }
    let run = tiles.div_ceil(threads).max(1);
    Ok((0..tiles)
        .step_by(run)
        .map(|start| start..(start + run).min(tiles))
        .collect())
}

/// Does each job on a thread of its own, the first on this one, and returns the results in order.
///
/// # Errors
/// The first error of a job; [`CoreError::ThreadStart`].
pub(crate) fn run_jobs<J: Send, T: Send>(
    jobs: Vec<J>,
    work: impl Fn(J) -> Result<T, CoreError> + Sync,
) -> Result<Vec<T>, CoreError> {
    let mut jobs = jobs.into_iter();
    let Some(first) = jobs.next() else {
        return Ok(Vec::new());
    };
    let work = &work;
    std::thread::scope(|scope| {
        let workers = jobs
            .map(|job| {
                std::thread::Builder::new()
                    .spawn_scoped(scope, move || work(job))
                    .map_err(|_| CoreError::ThreadStart)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let mut results = vec![work(first)?];
        for worker in workers {
            // A worker never panics by itself; were it to, its result would be missing.
            results.push(worker.join().map_err(|_| CoreError::ThreadStart)??);
        }
        Ok(results)
    })
}
