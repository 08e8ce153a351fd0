//! The cryptographic and numeric core of edgefl: masks, secret sharing, keys, integer noise, and the
//! store in which uploads arrive.
//!
//! Plain functions over slices; the caller owns every buffer. Nothing here knows Python, a network
//! or a clock, and nothing panics on input. Each module's head names its algorithm, the source of
//! it and what it does not guarantee.
//!
//! ```
//! use edgefl_core::{apply_masks, Mask, Prg, RingBits, Seed, Sign};
//!
//! let ring = RingBits::new(20)?;
//! let seed = Seed::from_bytes(&[7; 32])?;
//! let mask = |sign| [Mask { seed: &seed, prg: Prg::ChaCha20, sign }];
//! let mut masked = vec![1_u32, 2, 3];
//! apply_masks(&mut masked, ring, &mask(Sign::Add), 1, None)?;
//! assert_ne!(masked, [1, 2, 3]);
//! apply_masks(&mut masked, ring, &mask(Sign::Subtract), 1, None)?;
//! assert_eq!(masked, [1, 2, 3]);
//! # Ok::<(), edgefl_core::CoreError>(())
//! ```

#![deny(unsafe_code)]

mod aead;
mod agreement;
mod backend;
mod batch;
mod cancel;
mod check;
mod chunk_packet;
mod encode;
mod error;
mod field;
mod kdf;
mod lanes;
mod mask;
mod noise;
mod pack;
mod prg;
mod quantize;
mod ring;
mod ring_sum;
mod rotation;
mod rounding;
mod secret;
mod selftest;
mod shamir;
mod signature;
mod spare_buffers;
mod stage_error;
mod staging;
mod tiles;

pub use aead::{open_many, open_sealed, seal, seal_many, seal_with_nonce, NONCE_BYTES, TAG_BYTES};
pub use agreement::{agreement_public_keys, AgreementKey};
pub use backend::{has_aes_hardware, Backend, Sign};
pub use cancel::CancelFlag;
pub use check::{check_coordinates, CHECK_COORDINATES};
pub use chunk_packet::{ChunkPacket, ChunkVerdict, CHUNK_HEADER_BYTES, MAX_CHUNK_BYTES};
pub use encode::{encode_and_mask, weight_slot, EncodeSecrets, EncodeSettings};
pub use error::{CoreError, ErrorKind, ErrorReport};
pub use kdf::hkdf_sha256;
pub use mask::{aes_128_ctr_keystream, apply_masks, Mask, MaskExpander, MAX_THREADS, TILE_BYTES};
pub use noise::{
    add_skellam_noise, NoNoise, NoiseSource, PoissonTable, SkellamNoise, MAX_NOISE_VARIANCE,
};
pub use pack::{pack, packed_bytes, unpack};
pub use prg::{Keystream, Prg, RandomWords};
pub use quantize::{
    clip_factor, quantize, round_inside_bound, update_norm, QuantizeSettings, MAX_ATTEMPTS,
    MAX_QUANTIZED,
};
pub use ring::{add_in_ring, reduce_to_ring, Lane, RingBits};
pub use ring_sum::RingSum;
pub use rotation::{decode_sum, Rotation, MAX_ROTATION_BLOCK};
pub use secret::{Seed, SECRET_BYTES};
pub use selftest::{self_test, CheckResult};
pub use shamir::{
    combine_many, combine_shares, split_secret, split_secrets, Share, Shares, MAX_POINT,
    SHARE_BYTES,
};
pub use signature::{verify, verify_many, SigningKey};
pub use stage_error::StageProblem;
pub use staging::{StagedBlob, UploadStage, CHUNK_HASH_BYTES, MAX_STAGE_KEY_BYTES};
