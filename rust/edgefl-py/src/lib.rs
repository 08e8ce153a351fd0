//! The Python module `edgefl._native`: check, copy buffers, release the GIL, call the core.
//!
//! No algorithm lives here. Each function copies what it needs out of Python, works on its own
//! copy without the GIL, and copies the result back, so that no other thread can see or disturb
//! a half-done buffer and no unsafe code is needed. Signatures: `edgefl/_native.pyi`.

mod arguments;
mod encoding;
#[cfg(feature = "endpoint")]
mod endpoint;
#[cfg(feature = "endpoint")]
mod endpoint_event;
#[cfg(feature = "endpoint")]
mod endpoint_settings;
mod errors;
mod keys;
mod masks;
mod selftest;
mod sharing;
mod staging;
mod summing;
mod vectors;

use pyo3::prelude::*;

/// Rust core of edgefl: masks, sharing, keys, integer noise.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("SHARE_BYTES", edgefl_core::SHARE_BYTES)?;
    module.add("SECRET_BYTES", edgefl_core::SECRET_BYTES)?;
    module.add("CHECK_COORDINATES", edgefl_core::CHECK_COORDINATES)?;
    module.add_class::<keys::Seed>()?;
    module.add_class::<keys::AgreementKey>()?;
    module.add_class::<keys::SigningKey>()?;
    module.add_class::<masks::Mask>()?;
    module.add_class::<masks::CancelFlag>()?;
    module.add_class::<summing::RingSum>()?;
    module.add_class::<staging::UploadStage>()?;
    module.add_class::<staging::StagedBlob>()?;
    #[cfg(feature = "endpoint")]
    module.add_class::<endpoint::MqttEndpoint>()?;
    #[cfg(feature = "endpoint")]
    module.add_class::<endpoint_event::EndpointEvent>()?;
    module.add("MAX_CHUNK_BYTES", edgefl_core::MAX_CHUNK_BYTES)?;
    module.add_function(wrap_pyfunction!(keys::verify, module)?)?;
    module.add_function(wrap_pyfunction!(keys::verify_many, module)?)?;
    module.add_function(wrap_pyfunction!(keys::agreement_public_keys, module)?)?;
    module.add_function(wrap_pyfunction!(keys::seal, module)?)?;
    module.add_function(wrap_pyfunction!(keys::seal_many, module)?)?;
    module.add_function(wrap_pyfunction!(keys::open_sealed, module)?)?;
    module.add_function(wrap_pyfunction!(keys::open_many, module)?)?;
    module.add_function(wrap_pyfunction!(sharing::split_secret, module)?)?;
    module.add_function(wrap_pyfunction!(sharing::split_secrets, module)?)?;
    module.add_function(wrap_pyfunction!(sharing::combine_shares, module)?)?;
    module.add_function(wrap_pyfunction!(sharing::combine_many, module)?)?;
    module.add_function(wrap_pyfunction!(masks::apply_masks, module)?)?;
    module.add_function(wrap_pyfunction!(encoding::encode_and_mask, module)?)?;
    module.add_function(wrap_pyfunction!(encoding::decode_sum, module)?)?;
    module.add_function(wrap_pyfunction!(encoding::rotate, module)?)?;
    module.add_function(wrap_pyfunction!(vectors::quantize, module)?)?;
    module.add_function(wrap_pyfunction!(vectors::add_skellam_noise, module)?)?;
    module.add_function(wrap_pyfunction!(vectors::check_coordinates, module)?)?;
    module.add_function(wrap_pyfunction!(vectors::pack, module)?)?;
    module.add_function(wrap_pyfunction!(vectors::unpack, module)?)?;
    module.add_function(wrap_pyfunction!(masks::backends, module)?)?;
    module.add_function(wrap_pyfunction!(masks::has_aes_hardware, module)?)?;
    module.add_function(wrap_pyfunction!(selftest::selftest, module)?)?;
    module.add_function(wrap_pyfunction!(selftest::measure_backend, module)?)?;
    Ok(())
}
