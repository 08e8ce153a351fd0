//! Runs plain Rust loops as compiled for AVX2.
//!
//! The loops hold no intrinsics: the compiler makes wider vector code of the same source, and as
//! IEEE 754 arithmetic is not reordered, the results are the same bit by bit.

use super::wide::Work;

/// Says whether this processor has AVX2.
pub(crate) fn is_available() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
}

/// Runs the work with AVX2 where this processor has it, else as compiled for every processor.
pub(crate) fn run<W: Work>(work: W) -> W::Output {
    if is_available() {
        // SAFETY: AVX2 was found on this processor on the line above.
        unsafe { with_avx2(work) }
    } else {
        work.run()
    }
}

#[target_feature(enable = "avx2")]
unsafe fn with_avx2<W: Work>(work: W) -> W::Output {
    work.run()
}
