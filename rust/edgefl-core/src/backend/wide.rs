//! Loops over whole tiles that are compiled once for each instruction set.

/// A loop that the compiler can turn into vector code; `run` must be `#[inline(always)]`.
pub(crate) trait Work {
    /// What the loop gives back.
    type Output;

    /// Runs the loop.
    fn run(self) -> Self::Output;
}

/// Runs the work with the widest vectors that this processor has.
pub(crate) fn run_widest<W: Work>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    return super::x86_wide::run(work);
    #[cfg(not(target_arch = "x86_64"))]
    work.run()
}
