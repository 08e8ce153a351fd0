//! Why the store of arriving blobs refuses its owner, in the words shown to a user.

use crate::error::{CoreError, ErrorKind, ErrorReport};

/// Why a call on an upload stage is refused. A peer's chunk is never refused this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StageProblem {
    /// The name is empty or too long.
    KeyLength {
        /// Its length in bytes.
        found: usize,
    },
    /// A chunk size of zero, or above the largest.
    ChunkSize {
        /// The size asked for.
        found: usize,
    },
    /// The hash list does not fit the sizes, or the blob is empty.
    HashList {
        /// Size of the blob.
        size_bytes: usize,
        /// Bytes that its hash list takes.
        expected: usize,
        /// Bytes that were given.
        found: usize,
    },
    /// A blob of that name is open by another manifest.
    Reopened,
    /// No blob of that name is open.
    Unknown,
    /// Chunks are missing.
    Incomplete {
        /// How many.
        missing: usize,
    },
    /// The bounds leave no room.
    Full {
        /// The bound on bytes.
        max_bytes: usize,
        /// The bound on blobs.
        max_blobs: usize,
        /// Bytes held now.
        held_bytes: usize,
        /// Blobs held now.
        blobs: usize,
        /// Bytes that the new blob takes.
        wanted_bytes: usize,
    },
}

impl StageProblem {
    pub(crate) fn report(self) -> ErrorReport {
        let (code, expected, found, advice) = match self {
            Self::KeyLength { found } => (
                "E-STAGE-KEY",
                format!(
                    "a name of 1 to {} bytes",
                    crate::staging::MAX_STAGE_KEY_BYTES
                ),
                format!("{found} bytes"),
                "name a transfer by its device and its id",
            ),
            Self::ChunkSize { found } => (
                "E-STAGE-MANIFEST",
                format!(
                    "chunks of 1 to {} bytes",
                    crate::chunk_packet::MAX_CHUNK_BYTES
                ),
                format!("{found} bytes"),
                "take the chunk size from a manifest that was checked",
            ),
            Self::HashList {
                size_bytes,
                expected,
                found,
            } => (
                "E-STAGE-MANIFEST",
                format!("{expected} bytes of hashes, above zero, for {size_bytes} bytes"),
                format!("{found} bytes"),
                "take the hash list from a manifest that was checked",
            ),
            Self::Reopened => (
                "E-STAGE-KEY",
                "one manifest for each name".to_owned(),
                "another manifest for a blob that is open".to_owned(),
                "discard the blob first, or name the new one differently",
            ),
            Self::Unknown => (
                "E-STAGE-KEY",
                "the name of an open blob".to_owned(),
                "another name".to_owned(),
                "open the blob first",
            ),
            Self::Incomplete { missing } => (
                "E-STAGE-INCOMPLETE",
                "a blob whose every chunk is there".to_owned(),
                format!("{missing} missing"),
                "wait until it is whole",
            ),
            Self::Full {
                max_bytes,
                max_blobs,
                held_bytes,
                blobs,
                wanted_bytes,
            } => (
                "E-STAGE-FULL",
                format!("at most {max_blobs} blobs of {max_bytes} bytes in all"),
                format!("{blobs} blobs of {held_bytes} bytes, and one of {wanted_bytes} more"),
                "grant it when others have ended",
            ),
        };
        ErrorReport {
            kind: ErrorKind::Config,
            code,
            expected,
            found,
            advice,
        }
    }
}

impl From<StageProblem> for CoreError {
    fn from(problem: StageProblem) -> Self {
        Self::Stage(problem)
    }
}
