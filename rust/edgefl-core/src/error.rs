//! Every way in which the core refuses, with a stable code and three short phrases.
//!
//! The binding turns an [`ErrorReport`] into a Python exception by its [`ErrorKind`]; that is the
//! only mapping. No variant carries a secret byte, only lengths, positions and public numbers.

use std::fmt;

use crate::stage_error::StageProblem;

/// Which family of exceptions an error belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument of the caller is unusable.
    Config,
    /// A privacy parameter or an update is unusable.
    Privacy,
    /// A Shamir share is malformed, duplicated or wrong.
    Share,
    /// A peer's bytes do not follow the wire format.
    Wire,
    /// A peer broke the protocol.
    RemoteProtocol,
    /// The machine lacks something.
    Environment,
    /// The caller took the work back.
    Cancelled,
}

/// An error in the words shown to a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorReport {
    /// The family, which picks the exception.
    pub kind: ErrorKind,
    /// Stable identifier for searching and scripting.
    pub code: &'static str,
    /// What would have been right.
    pub expected: String,
    /// What was there instead.
    pub found: String,
    /// What the user can do.
    pub advice: &'static str,
}

/// Why the core refused. Numbers only, never secret bytes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CoreError {
    /// The ring is narrower than 8 or wider than 32 bits.
    RingBits {
        /// The number of bits asked for.
        found: i64,
    },
    /// Two lengths that must agree do not.
    Length {
        /// Which argument it is about.
        what: &'static str,
        /// The length that was needed.
        expected: usize,
        /// The length that was given.
        found: usize,
    },
    /// A list has not one entry for each item of a batch.
    BatchLength {
        /// What an entry of the list is.
        what: &'static str,
        /// How many items there are.
        expected: usize,
        /// How many entries were given.
        found: usize,
    },
    /// A value is not below 2^`ring_bits`.
    RingValue {
        /// Position of the value.
        index: usize,
        /// Bits of the ring.
        ring_bits: u32,
    },
    /// Packed bytes are too short or too long.
    PackedLength {
        /// Bytes that the values take.
        expected: usize,
        /// Bytes that were given.
        found: usize,
    },
    /// The unused high bits of the last packed byte are not zero.
    PackedPadding,
    /// An update holds NaN or an infinity.
    UpdateNotFinite {
        /// Position of the first such value.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// A scaled update value is outside the range in which rounding is exact.
    UpdateRange {
        /// Position of the value.
        index: usize,
    },
    /// Even rounded toward zero the update is longer than the bound.
    UpdateNorm {
        /// The bound on the squared L2 norm.
        bound: f64,
    },
    /// The quantization scale is not a positive finite number.
    QuantizeScale {
        /// The scale asked for.
        found: f64,
    },
    /// The clip norm is not a positive finite number.
    ClipNorm {
        /// The clip norm asked for.
        found: f64,
    },
    /// A rotation block is no power of two, or too large.
    RotationBlock {
        /// The block asked for.
        found: i64,
    },
    /// A weight is negative, above its bound, or not 1 where there are no weights.
    Weight {
        /// The weight asked for.
        found: i64,
        /// The largest weight.
        bound: i64,
    },
    /// Noise was asked for together with weights.
    WeightedNoise,
    /// A sum lost its content by an error in the middle of unmasking.
    SumSpoilt,
    /// The bound on the squared norm is NaN or negative.
    NormBound {
        /// The bound asked for.
        found: f64,
    },
    /// No rounding attempt is allowed.
    Attempts {
        /// The number asked for.
        found: i64,
    },
    /// The noise variance is NaN, negative or too large.
    NoiseVariance {
        /// The variance asked for.
        found: f64,
    },
    /// A value plus its noise leaves the 64-bit range.
    NoiseOverflow {
        /// Position of the value.
        index: usize,
    },
    /// The threshold is below one or above the number of points.
    ShareThreshold {
        /// The threshold asked for.
        threshold: i64,
        /// How many points there are.
        points: usize,
    },
    /// A point is zero, negative or above 2^16.
    SharePoint {
        /// The point.
        point: i64,
    },
    /// Two shares have the same point.
    ShareDuplicate {
        /// The point.
        point: i64,
    },
    /// A share has the wrong number of bytes.
    ShareLength {
        /// The number of bytes given.
        found: usize,
    },
    /// A limb of a share is not below the field's modulus.
    ShareRange {
        /// The point of the share.
        point: i64,
    },
    /// Fewer shares than the threshold.
    TooFewShares {
        /// How many are needed.
        threshold: i64,
        /// How many were given.
        found: usize,
    },
    /// The shares do not combine to a 32-byte secret.
    ShareSecret,
    /// A public key does not have 32 bytes.
    PublicKeyLength {
        /// The number of bytes given.
        found: usize,
    },
    /// The agreement with a public key gave the all-zero value.
    WeakPublicKey,
    /// A public key of a batch is refused.
    PeerKey {
        /// Position of the key in the batch.
        index: usize,
        /// Bytes of the key; 32 means that it is of small order.
        size_bytes: usize,
    },
    /// A sealed message does not open under this key and associated data.
    Sealed,
    /// A message is too long to seal.
    PlaintextLength,
    /// A secret does not have 32 bytes.
    SecretLength {
        /// The number of bytes given.
        found: usize,
    },
    /// No generator of masks has this number.
    Prg {
        /// The number asked for.
        found: i64,
    },
    /// The ring is wider than the lanes that hold its values.
    LaneWidth {
        /// Bits of the ring.
        ring_bits: u32,
        /// Bits of a lane.
        lane_bits: u32,
    },
    /// The code asked for is not there on this processor.
    Backend,
    /// The cancel flag was set before the work was done.
    Cancelled,
    /// More keystream was asked of one key than it has.
    StreamLength,
    /// The number of threads is outside the allowed range.
    Threads {
        /// The number asked for.
        found: i64,
    },
    /// The operating system would not start a thread.
    ThreadStart,
    /// The operating system gave no random bytes.
    OsRandomness,
    /// The store of arriving blobs refused its owner.
    Stage(StageProblem),
}

impl CoreError {
    /// Returns the code and phrases shown to the user, and the family of exceptions.
    pub fn report(&self) -> ErrorReport {
        self.stage_report()
            .or_else(|| self.argument_report())
            .or_else(|| self.encoding_report())
            .or_else(|| self.update_report())
            .or_else(|| self.share_report())
            .unwrap_or_else(|| self.other_report())
    }

    fn stage_report(&self) -> Option<ErrorReport> {
        match self {
            Self::Stage(problem) => Some(problem.report()),
            _ => None,
        }
    }

    fn argument_report(&self) -> Option<ErrorReport> {
        let (code, expected, found, advice) = match self {
            Self::RingBits { found } => (
                "E-RING-BITS",
                "8 to 32 ring bits".to_owned(),
                found.to_string(),
                "take the ring bits from the session plan",
            ),
            Self::Length {
                what,
                expected,
                found,
            } => (
                "E-LENGTH",
                format!("{what} of length {expected}"),
                format!("length {found}"),
                "make both buffers of one session's dimension",
            ),
            Self::BatchLength {
                what,
                expected,
                found,
            } => (
                "E-BATCH-LENGTH",
                format!("one {what} for each of {expected} items"),
                found.to_string(),
                "give lists of one length",
            ),
            Self::RingValue { index, ring_bits } => (
                "E-RING-VALUE",
                format!("values below 2^{ring_bits}"),
                format!("a larger value at index {index}"),
                "reduce to the ring before packing",
            ),
            Self::Threads { found } => (
                "E-THREADS",
                format!("1 to {} threads", crate::mask::MAX_THREADS),
                found.to_string(),
                "give at most the number of cores",
            ),
            Self::Prg { found } => (
                "E-PRG",
                "generator 1 (ChaCha20) or 2 (AES-128-CTR)".to_owned(),
                found.to_string(),
                "take the generator from the signed bundles of the pair",
            ),
            Self::LaneWidth {
                ring_bits,
                lane_bits,
            } => (
                "E-LANE-WIDTH",
                format!("lanes of at least {ring_bits} bits"),
                format!("{lane_bits} bits"),
                "hold rings of more than 16 bits in uint32",
            ),
            Self::SecretLength { found } => (
                "E-SECRET-LENGTH",
                format!("{} bytes", crate::secret::SECRET_BYTES),
                format!("{found} bytes"),
                "",
            ),
            Self::PlaintextLength => (
                "E-PLAINTEXT-LENGTH",
                "a message shorter than 256 GiB".to_owned(),
                "a longer one".to_owned(),
                "split the message",
            ),
            Self::StreamLength => (
                "E-STREAM-LENGTH",
                "fewer than 2^32 blocks of keystream from one key".to_owned(),
                "a request for more".to_owned(),
                "use a fresh seed, or fewer coordinates per seed",
            ),
            _ => return None,
        };
        Some(ErrorReport {
            kind: ErrorKind::Config,
            code,
            expected,
            found,
            advice,
        })
    }

    fn encoding_report(&self) -> Option<ErrorReport> {
        let (code, expected, found, advice) = match self {
            Self::QuantizeScale { found } => (
                "E-QUANTIZE-SCALE",
                "a positive, finite quantization scale".to_owned(),
                found.to_string(),
                "take the scale from the privacy plan",
            ),
            Self::ClipNorm { found } => (
                "E-CLIP-NORM",
                "a positive, finite clip norm".to_owned(),
                found.to_string(),
                "take the clip norm from the privacy plan",
            ),
            Self::RotationBlock { found } => (
                "E-ROTATION-BLOCK",
                format!(
                    "a rotation block that is a power of two up to {}",
                    crate::rotation::MAX_ROTATION_BLOCK
                ),
                found.to_string(),
                "take the block from the privacy plan",
            ),
            Self::Weight { found, bound } => (
                "E-WEIGHT",
                format!("a weight up to {bound}, and 1 where the bound is 1"),
                found.to_string(),
                "cap the weight at the bound of the privacy plan",
            ),
            Self::SumSpoilt => (
                "E-SUM-SPOILT",
                "a sum whose unmasking ended well".to_owned(),
                "one that failed or was cancelled in the middle".to_owned(),
                "start the session again",
            ),
            Self::NormBound { found } => (
                "E-NORM-BOUND",
                "a bound on the squared norm of zero or more".to_owned(),
                found.to_string(),
                "take the bound from the privacy plan",
            ),
            Self::Attempts { found } => (
                "E-ATTEMPTS",
                "1 to 4294967295 rounding attempts".to_owned(),
                found.to_string(),
                "64 attempts are plenty",
            ),
            _ => return None,
        };
        Some(ErrorReport {
            kind: ErrorKind::Config,
            code,
            expected,
            found,
            advice,
        })
    }

    fn update_report(&self) -> Option<ErrorReport> {
        let (code, expected, found, advice) = match self {
            Self::UpdateNotFinite { index, count } => (
                "E-UPDATE-NOT-FINITE",
                "finite numbers in the update".to_owned(),
                format!("{count} NaN or infinite, the first at index {index}"),
                "check the training data and lower the learning rate",
            ),
            Self::UpdateRange { index } => (
                "E-UPDATE-RANGE",
                "an update below 2^50 after scaling".to_owned(),
                format!("a larger one at index {index}"),
                "clip the update, or lower the quantization scale",
            ),
            Self::UpdateNorm { bound } => (
                "E-UPDATE-NORM",
                format!("an update with squared norm of at most {bound} after scaling"),
                "a longer one even when rounded toward zero".to_owned(),
                "clip the update before quantizing it",
            ),
            Self::WeightedNoise => (
                "E-WEIGHTED-NOISE",
                "no noise where updates have weights".to_owned(),
                "a noise variance above zero".to_owned(),
                "a weight multiplies what one device can change: use one or the other",
            ),
            Self::NoiseVariance { found } => (
                "E-NOISE-VARIANCE",
                format!(
                    "a variance from 0 to {:.0}",
                    crate::noise::MAX_NOISE_VARIANCE
                ),
                found.to_string(),
                "lower the quantization scale or the noise multiplier",
            ),
            Self::NoiseOverflow { index } => (
                "E-NOISE-OVERFLOW",
                "values that stay in 64 bits with their noise".to_owned(),
                format!("an overflow at index {index}"),
                "quantize before adding noise",
            ),
            _ => return None,
        };
        Some(ErrorReport {
            kind: ErrorKind::Privacy,
            code,
            expected,
            found,
            advice,
        })
    }

    fn share_report(&self) -> Option<ErrorReport> {
        let (code, expected, found, advice) = match self {
            Self::ShareThreshold { threshold, points } => (
                "E-SHARE-THRESHOLD",
                "a threshold from 1 to the number of points".to_owned(),
                format!("threshold {threshold} for {points} points"),
                "lower the threshold or share with more devices",
            ),
            Self::SharePoint { point } => (
                "E-SHARE-POINT",
                format!("points from 1 to {}", crate::shamir::MAX_POINT),
                point.to_string(),
                "a point is one plus the position in the signed cohort",
            ),
            Self::ShareDuplicate { point } => (
                "E-SHARE-DUPLICATE",
                "each point once".to_owned(),
                format!("point {point} twice"),
                "drop the repeated share",
            ),
            Self::ShareLength { found } => (
                "E-SHARE-LENGTH",
                format!("{} bytes per share", crate::shamir::SHARE_BYTES),
                format!("{found} bytes"),
                "the sender's share is damaged",
            ),
            Self::ShareRange { point } => (
                "E-SHARE-RANGE",
                "limbs below 2^61 - 1".to_owned(),
                format!("a larger limb in the share at point {point}"),
                "the sender's share is damaged",
            ),
            Self::TooFewShares { threshold, found } => (
                "E-SHARE-TOO-FEW",
                format!("{threshold} shares"),
                found.to_string(),
                "wait for more survivors, or abort the round",
            ),
            Self::ShareSecret => (
                "E-SHARE-SECRET",
                "shares of one 32-byte secret".to_owned(),
                "shares that combine to something else".to_owned(),
                "try another subset of the shares",
            ),
            _ => return None,
        };
        Some(ErrorReport {
            kind: ErrorKind::Share,
            code,
            expected,
            found,
            advice,
        })
    }

    fn other_report(&self) -> ErrorReport {
        let (kind, code, expected, found, advice) = match self {
            Self::PackedLength { expected, found } => (
                ErrorKind::Wire,
                "E-PACKED-LENGTH",
                format!("{expected} packed bytes"),
                format!("{found} bytes"),
                "the peer uses another dimension or ring",
            ),
            Self::PackedPadding => (
                ErrorKind::Wire,
                "E-PACKED-PADDING",
                "zero bits after the last value".to_owned(),
                "bits that are set".to_owned(),
                "the peer's bytes are damaged",
            ),
            Self::PublicKeyLength { found } => (
                ErrorKind::RemoteProtocol,
                "E-PUBLIC-KEY",
                "a public key of 32 bytes".to_owned(),
                format!("{found} bytes"),
                "drop this peer",
            ),
            Self::WeakPublicKey => (
                ErrorKind::RemoteProtocol,
                "E-PUBLIC-KEY",
                "a public key of large order".to_owned(),
                "one that makes every agreement zero".to_owned(),
                "drop this peer",
            ),
            Self::PeerKey { index, size_bytes } => (
                ErrorKind::RemoteProtocol,
                "E-PUBLIC-KEY",
                format!("a public key of 32 bytes and large order at index {index}"),
                format!("one of {size_bytes} bytes that is refused"),
                "drop this peer",
            ),
            Self::Sealed => (
                ErrorKind::RemoteProtocol,
                "E-SEALED",
                "a message sealed under this key and header".to_owned(),
                "bytes that do not open".to_owned(),
                "drop this message",
            ),
            Self::Backend => (
                ErrorKind::Environment,
                "E-BACKEND",
                "mask code that this processor has, for the generator asked for".to_owned(),
                "another".to_owned(),
                "choose one of those that `edgefl selftest crypto` lists",
            ),
            Self::Cancelled => (
                ErrorKind::Cancelled,
                "E-CANCELLED",
                "work that is let end".to_owned(),
                "its cancel flag set".to_owned(),
                "",
            ),
            Self::ThreadStart => (
                ErrorKind::Environment,
                "E-THREAD-START",
                "a system that starts threads".to_owned(),
                "a refusal".to_owned(),
                "use one thread",
            ),
            _ => (
                ErrorKind::Environment,
                "E-OS-RANDOMNESS",
                "random bytes from the operating system".to_owned(),
                "none".to_owned(),
                "check that /dev/urandom or getrandom(2) is available",
            ),
        };
        ErrorReport {
            kind,
            code,
            expected,
            found,
            advice,
        }
    }
}

impl fmt::Display for CoreError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.report();
        write!(
            formatter,
            "{}: expected {}; found {}",
            report.code, report.expected, report.found
        )
    }
}

impl std::error::Error for CoreError {}
