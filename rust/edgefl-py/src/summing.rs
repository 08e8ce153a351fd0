//! The gateway's sum of masked inputs, which Rust owns.

use std::sync::{Mutex, MutexGuard};

use edgefl_core as core;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::arguments::{session_id_of, threads_of, WideInt};
use crate::errors::to_python;
use crate::keys::refuse_copy;
use crate::masks::{CancelFlag, Mask};
use crate::staging::StagedBlob;

/// A sum of packed vectors modulo 2^b. Calls from several threads wait for each other.
#[pyclass(frozen, module = "edgefl._native")]
pub(crate) struct RingSum(Mutex<core::RingSum>);

#[pymethods]
impl RingSum {
    #[new]
    #[pyo3(signature = (length, ring_bits), text_signature = "(length, ring_bits)")]
    #[allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value
    fn new(length: usize, ring_bits: WideInt) -> PyResult<Self> {
        let ring = core::RingBits::new(ring_bits.0).map_err(to_python)?;
        let sum = core::RingSum::new(length, ring).map_err(to_python)?;
        Ok(Self(Mutex::new(sum)))
    }

    /// Adds one packed vector, or nothing where its form is wrong.
    #[allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value
    fn add_packed(&self, py: Python<'_>, packed: PyBackedBytes) -> PyResult<()> {
        py.detach(|| self.lock()?.add_packed(&packed))
            .map_err(to_python)
    }

    /// Adds one packed vector from where it arrived, or nothing where its form is wrong.
    fn add_staged(&self, py: Python<'_>, blob: &StagedBlob) -> PyResult<()> {
        py.detach(|| self.lock()?.add_packed(blob.0.bytes()))
            .map_err(to_python)
    }

    /// Returns the sum so far, packed as the inputs are.
    fn to_packed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let packed = py.detach(|| self.lock()?.to_packed()).map_err(to_python)?;
        Ok(PyBytes::new(py, &packed))
    }

    /// Adds masks and takes off others, in place.
    #[pyo3(signature = (masks, threads=WideInt(1), cancel=None), text_signature = "($self, masks, threads=1, cancel=None)")]
    #[allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value
    fn apply_masks(
        &self,
        py: Python<'_>,
        masks: Vec<Py<Mask>>,
        threads: WideInt,
        cancel: Option<&CancelFlag>,
    ) -> PyResult<()> {
        let threads = threads_of(&threads)?;
        let masks: Vec<core::Mask<'_>> = masks.iter().map(|mask| mask.get().to_core()).collect();
        let cancel = cancel.map(|flag| &flag.0);
        py.detach(|| self.lock()?.apply_masks(&masks, threads, cancel))
            .map_err(to_python)
    }

    /// Whether the check coordinates are those of the values before them.
    fn checks_hold(&self, py: Python<'_>, session_id: &[u8]) -> PyResult<bool> {
        let session_id = session_id_of(session_id)?;
        py.detach(|| self.lock()?.checks_hold(&session_id))
            .map_err(to_python)
    }

    /// Returns the first values modulo 2^b, each as four bytes, the lowest first.
    fn values<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Bound<'py, PyBytes>> {
        // Checked before so many bytes are asked for.
        py.detach(|| self.lock()?.check_count(count))
            .map_err(to_python)?;
        PyBytes::new_with(py, count * 4, |bytes| {
            let mut targets = bytes.chunks_exact_mut(4);
            py.detach(|| {
                self.lock()?.read(count, |value| {
                    if let Some(target) = targets.next() {
                        target.copy_from_slice(&value.to_le_bytes());
                    }
                })
            })
            .map_err(to_python)
        })
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        py.detach(|| self.lock().map(|sum| sum.len()))
            .map_err(to_python)
    }

    #[allow(clippy::unused_self)] // Python calls it on an instance
    fn __repr__(&self) -> &'static str {
        "<RingSum>"
    }

    #[allow(clippy::unused_self)] // Python calls it on an instance
    fn __reduce__(&self) -> PyResult<()> {
        refuse_copy("RingSum")
    }
}

impl RingSum {
    /// A panic in the middle of a change would leave half a sum behind.
    fn lock(&self) -> Result<MutexGuard<'_, core::RingSum>, core::CoreError> {
        self.0.lock().map_err(|_| core::CoreError::SumSpoilt)
    }
}
