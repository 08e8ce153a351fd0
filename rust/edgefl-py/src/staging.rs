//! The store in which uploads arrive, shared by the endpoint's threads and Python.

use std::sync::Arc;

use edgefl_core as core;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::errors::to_python;
use crate::keys::refuse_copy;

/// Blobs that are still arriving, in bounded memory.
#[pyclass(frozen, module = "edgefl._native")]
pub(crate) struct UploadStage(pub(crate) Arc<core::UploadStage>);

#[pymethods]
impl UploadStage {
    #[new]
    #[pyo3(signature = (max_bytes, max_blobs), text_signature = "(max_bytes, max_blobs)")]
    fn new(max_bytes: usize, max_blobs: usize) -> Self {
        Self(Arc::new(core::UploadStage::new(max_bytes, max_blobs)))
    }

    /// Expects a blob.
    fn open(
        &self,
        key: &str,
        size_bytes: usize,
        chunk_bytes: usize,
        chunk_hashes: &[u8],
    ) -> PyResult<()> {
        self.0
            .open(key, size_bytes, chunk_bytes, chunk_hashes)
            .map_err(to_python)
    }

    /// Takes a chunk packet and names what became of it.
    #[allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value
    fn accept(&self, py: Python<'_>, key: &str, packet: PyBackedBytes) -> &'static str {
        py.detach(|| self.0.accept(key, &packet)).name()
    }

    /// Returns the bitmap of the chunks that are missing.
    fn missing<'py>(&self, py: Python<'py>, key: &str) -> PyResult<Bound<'py, PyBytes>> {
        let missing = self.0.missing(key).map_err(to_python)?;
        Ok(PyBytes::new(py, &missing))
    }

    /// Returns how many chunks are missing.
    fn missing_count(&self, key: &str) -> PyResult<usize> {
        self.0.missing_count(key).map_err(to_python)
    }

    /// Returns a copy of a blob that is whole.
    fn read<'py>(&self, py: Python<'py>, key: &str) -> PyResult<Bound<'py, PyBytes>> {
        self.0
            .read(key, |bytes| PyBytes::new(py, bytes))
            .map_err(to_python)
    }

    /// Returns a blob that is whole, and forgets it.
    fn take<'py>(&self, py: Python<'py>, key: &str) -> PyResult<Bound<'py, PyBytes>> {
        self.0
            .take(key, |bytes| PyBytes::new(py, bytes))
            .map_err(to_python)
    }

    /// Returns a blob that is whole without a copy, and forgets it.
    fn take_out(&self, py: Python<'_>, key: &str) -> PyResult<StagedBlob> {
        py.detach(|| self.0.take_out(key))
            .map(StagedBlob)
            .map_err(to_python)
    }

    /// Forgets a blob; says whether it was open.
    fn discard(&self, key: &str) -> bool {
        self.0.discard(key)
    }

    /// Returns the names of the open blobs.
    fn keys(&self) -> Vec<String> {
        self.0.keys()
    }

    /// Bytes that the open blobs may take.
    #[getter]
    fn held_bytes(&self) -> usize {
        self.0.held_bytes()
    }

    #[allow(clippy::unused_self)] // Python calls it on an instance
    fn __repr__(&self) -> &'static str {
        "<UploadStage>"
    }

    #[allow(clippy::unused_self)] // Python calls it on an instance
    fn __reduce__(&self) -> PyResult<()> {
        refuse_copy("UploadStage")
    }
}

/// A blob that was taken out of a stage; its bytes stay where they arrived.
#[pyclass(frozen, module = "edgefl._native")]
pub(crate) struct StagedBlob(pub(crate) core::StagedBlob);

#[pymethods]
impl StagedBlob {
    /// Names its content.
    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.name())
    }

    /// Returns a copy of its bytes.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.bytes())
    }

    fn __len__(&self) -> usize {
        self.0.bytes().len()
    }

    #[allow(clippy::unused_self)] // Python calls it on an instance
    fn __repr__(&self) -> &'static str {
        "<StagedBlob>"
    }

    #[allow(clippy::unused_self)] // Python calls it on an instance
    fn __reduce__(&self) -> PyResult<()> {
        refuse_copy("StagedBlob")
    }
}
