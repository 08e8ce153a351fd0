//! What the calls over many items share: lists that belong together, and threads.

use crate::error::CoreError;
use crate::mask::MAX_THREADS;

/// Refuses a list that has not one entry for each item.
pub(crate) fn check_count(
    what: &'static str,
    expected: usize,
    found: usize,
) -> Result<(), CoreError> {
    if expected == found {
        Ok(())
    } else {
        Err(CoreError::BatchLength {
            what,
            expected,
            found,
        })
    }
}

/// Cuts the items into one run per thread and joins the results in order.
///
/// `work` gets the index of its first item and the run. Runs are multiples of `group` items, but
/// for the last one. The error of the first run that failed is returned.
pub(crate) fn in_threads<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    group: usize,
    work: impl Fn(usize, &[T]) -> Result<Vec<R>, CoreError> + Sync,
) -> Result<Vec<R>, CoreError> {
    if !(1..=MAX_THREADS).contains(&threads) {
        return Err(CoreError::Threads {
            found: i64::try_from(threads).unwrap_or(i64::MAX),
        });
    }
    let run_items = items.len().div_ceil(group).div_ceil(threads).max(1) * group;
    if items.len() <= run_items {
        return work(0, items);
    }
    let work = &work;
    std::thread::scope(|scope| {
        let mut workers = Vec::with_capacity(threads);
        for (index, run) in items.chunks(run_items).enumerate() {
            let worker = std::thread::Builder::new()
                .spawn_scoped(scope, move || work(index * run_items, run))
                .map_err(|_| CoreError::ThreadStart)?;
            workers.push(worker);
        }
        let mut results = Vec::with_capacity(items.len());
        for worker in workers {
            results.append(&mut worker.join().unwrap_or(Err(CoreError::ThreadStart))?);
        }
        Ok(results)
    })
}
