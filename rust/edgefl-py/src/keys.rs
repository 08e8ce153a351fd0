//! Seeds, keys, signatures and sealed messages.

use edgefl_core as core;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::arguments::{slices, threads_of, WideInt};
use crate::errors::to_python;

/// `copy`, `deepcopy` and `pickle` all come through `__reduce__`.
pub(crate) fn refuse_copy(what: &str) -> PyResult<()> {
    Err(PyTypeError::new_err(format!(
        "{what} is a secret: it is neither copied nor pickled"
    )))
}

/// Views the core's seeds inside a list of Python's.
pub(crate) fn core_seeds(seeds: &[Py<Seed>]) -> Vec<&core::Seed> {
    seeds.iter().map(|seed| &seed.get().0).collect()
}

/// A 32-byte secret held and wiped by Rust. No repr of content, no equality, no pickling.
#[pyclass(frozen, module = "edgefl._native")]
pub(crate) struct Seed(pub(crate) core::Seed);

#[pymethods]
impl Seed {
    #[allow(clippy::unused_self)] // Python calls it on an instance
    fn __repr__(&self) -> &'static str {
        "<Seed>"
    }

    #[allow(clippy::unused_self)] // Python calls it on an instance
    fn __reduce__(&self) -> PyResult<()> {
        refuse_copy("Seed")
    }

    /// Draws a fresh seed from the operating system.
    #[staticmethod]
    fn generate() -> PyResult<Self> {
        core::Seed::generate().map(Self).map_err(to_python)
    }

    /// Copies 32 bytes into a seed. The caller's bytes cannot be wiped.
    #[staticmethod]
    fn from_bytes(secret: &[u8]) -> PyResult<Self> {
        core::Seed::from_bytes(secret).map(Self).map_err(to_python)
    }

    /// Returns the secret bytes. Python's copy cannot be wiped: only for sealing and storage.
    fn export_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.export_bytes())
    }

    /// Derives another seed with HKDF-SHA256; this seed is the input keying material.
    fn derive(&self, salt: &[u8], info: &[u8]) -> Self {
        Self(self.0.derive(salt, info))
    }

    /// Derives one seed for each info, as `derive` does.
    #[allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value
    fn derive_many(&self, py: Python<'_>, salt: &[u8], infos: Vec<PyBackedBytes>) -> Vec<Self> {
        let infos = slices(&infos);
        py.detach(|| self.0.derive_many(salt, &infos))
            .into_iter()
            .map(Self)
            .collect()
    }

    /// Commits to this seed: SHA-256 of a tag, the context with its length, and the seed.
    fn commitment<'py>(&self, py: Python<'py>, context: &[u8]) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.commitment(context))
    }
}

/// An X25519 secret key (RFC 7748).
#[pyclass(frozen, module = "edgefl._native")]
pub(crate) struct AgreementKey(core::AgreementKey);

#[pymethods]
impl AgreementKey {
    #[allow(clippy::unused_self)] // Python calls it on an instance
    fn __repr__(&self) -> &'static str {
        "<AgreementKey>"
    }

    #[allow(clippy::unused_self)] // Python calls it on an instance
    fn __reduce__(&self) -> PyResult<()> {
        refuse_copy("AgreementKey")
    }

    /// Makes the key whose scalar is the seed, clamped.
    #[staticmethod]
    fn from_seed(seed: &Seed) -> Self {
        Self(core::AgreementKey::from_seed(&seed.0))
    }

    /// The 32-byte public key.
    #[getter]
    fn public_key<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.public_key())
    }

    /// Returns the seed that makes this key again.
    fn export_seed(&self) -> Seed {
        Seed(self.0.export_seed())
    }

    /// Agrees with a peer on a seed: HKDF-SHA256 of the X25519 result.
    fn agree(&self, peer_public_key: &[u8], salt: &[u8], info: &[u8]) -> PyResult<Seed> {
        self.0
            .agree(peer_public_key, salt, info)
            .map(Seed)
            .map_err(to_python)
    }

    /// Agrees with many peers, each under its own info.
    #[pyo3(signature = (peer_public_keys, salt, infos, threads=WideInt(1)), text_signature = "($self, peer_public_keys, salt, infos, threads=1)")]
    #[allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value
    fn agree_many(
        &self,
        py: Python<'_>,
        peer_public_keys: Vec<PyBackedBytes>,
        salt: &[u8],
        infos: Vec<PyBackedBytes>,
        threads: WideInt,
    ) -> PyResult<Vec<Seed>> {
        let threads = threads_of(&threads)?;
        let (peers, infos) = (slices(&peer_public_keys), slices(&infos));
        let seeds = py
            .detach(|| self.0.agree_many(&peers, salt, &infos, threads))
            .map_err(to_python)?;
        Ok(seeds.into_iter().map(Seed).collect())
    }
}

/// Returns the X25519 public keys of many seeds.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value
pub(crate) fn agreement_public_keys(
    py: Python<'_>,
    seeds: Vec<Py<Seed>>,
) -> Vec<Bound<'_, PyBytes>> {
    let seeds = core_seeds(&seeds);
    py.detach(|| core::agreement_public_keys(&seeds))
        .iter()
        .map(|public_key| PyBytes::new(py, public_key))
        .collect()
}

/// An Ed25519 secret key (RFC 8032).
#[pyclass(frozen, module = "edgefl._native")]
pub(crate) struct SigningKey(core::SigningKey);

#[pymethods]
impl SigningKey {
    #[allow(clippy::unused_self)] // Python calls it on an instance
    fn __repr__(&self) -> &'static str {
        "<SigningKey>"
    }

    #[allow(clippy::unused_self)] // Python calls it on an instance
    fn __reduce__(&self) -> PyResult<()> {
        refuse_copy("SigningKey")
    }

    /// Makes the key of this seed.
    #[staticmethod]
    fn from_seed(seed: &Seed) -> Self {
        Self(core::SigningKey::from_seed(&seed.0))
    }

    /// The 32-byte public key.
    #[getter]
    fn public_key<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.public_key())
    }

    /// Returns the seed that makes this key again.
    fn export_seed(&self) -> Seed {
        Seed(self.0.export_seed())
    }

    /// Signs a message; 64 bytes.
    fn sign<'py>(&self, py: Python<'py>, message: &[u8]) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.sign(message))
    }
}

/// Says whether an Ed25519 signature is right, strictly. Malformed bytes give False.
#[pyfunction]
pub(crate) fn verify(public_key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    core::verify(public_key, message, signature)
}

/// Verifies many signatures, each as strictly as `verify`.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value
pub(crate) fn verify_many(
    py: Python<'_>,
    public_keys: Vec<PyBackedBytes>,
    messages: Vec<PyBackedBytes>,
    signatures: Vec<PyBackedBytes>,
) -> PyResult<Vec<bool>> {
    let (keys, messages, signatures) =
        (slices(&public_keys), slices(&messages), slices(&signatures));
    py.detach(|| core::verify_many(&keys, &messages, &signatures))
        .map_err(to_python)
}

/// Seals a message with XChaCha20-Poly1305; the nonce leads the result.
#[pyfunction]
#[pyo3(signature = (key, plaintext, associated_data, insecure_nonce_seed=None))]
pub(crate) fn seal<'py>(
    py: Python<'py>,
    key: &Seed,
    plaintext: &[u8],
    associated_data: &[u8],
    insecure_nonce_seed: Option<&Seed>,
) -> PyResult<Bound<'py, PyBytes>> {
    let nonce_seed = insecure_nonce_seed.map(|seed| &seed.0);
    core::seal(&key.0, plaintext, associated_data, nonce_seed)
        .map(|sealed| PyBytes::new(py, &sealed))
        .map_err(to_python)
}

/// Opens a sealed message.
#[pyfunction]
pub(crate) fn open_sealed<'py>(
    py: Python<'py>,
    key: &Seed,
    sealed: &[u8],
    associated_data: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    core::open_sealed(&key.0, sealed, associated_data)
        .map(|plaintext| PyBytes::new(py, &plaintext))
        .map_err(to_python)
}

/// Seals many messages, each with its own key and associated data.
#[pyfunction]
#[pyo3(signature = (keys, plaintexts, associated_data, insecure_nonce_seeds=None))]
#[allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value
pub(crate) fn seal_many(
    py: Python<'_>,
    keys: Vec<Py<Seed>>,
    plaintexts: Vec<PyBackedBytes>,
    associated_data: Vec<PyBackedBytes>,
    insecure_nonce_seeds: Option<Vec<Py<Seed>>>,
) -> PyResult<Vec<Bound<'_, PyBytes>>> {
    let keys = core_seeds(&keys);
    let (plaintexts, headers) = (slices(&plaintexts), slices(&associated_data));
    let nonce_seeds = insecure_nonce_seeds.as_deref().map(core_seeds);
    let sealed = py
        .detach(|| core::seal_many(&keys, &plaintexts, &headers, nonce_seeds.as_deref()))
        .map_err(to_python)?;
    Ok(sealed
        .iter()
        .map(|message| PyBytes::new(py, message))
        .collect())
}

/// Opens many sealed messages; what does not open is None.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value
pub(crate) fn open_many(
    py: Python<'_>,
    keys: Vec<Py<Seed>>,
    sealed: Vec<PyBackedBytes>,
    associated_data: Vec<PyBackedBytes>,
) -> PyResult<Vec<Option<Bound<'_, PyBytes>>>> {
    let keys = core_seeds(&keys);
    let (sealed, headers) = (slices(&sealed), slices(&associated_data));
    let opened = py
        .detach(|| core::open_many(&keys, &sealed, &headers))
        .map_err(to_python)?;
    Ok(opened
        .iter()
        .map(|plaintext| plaintext.as_ref().map(|bytes| PyBytes::new(py, bytes)))
        .collect())
}
