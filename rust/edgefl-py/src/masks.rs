//! Masks, and the flag that takes long work back.

use edgefl_core as core;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arguments::{threads_of, writable, NamedElement, WideInt};
use crate::errors::to_python;
use crate::keys::{refuse_copy, Seed};

/// One mask: a seed, the generator that expands it, and its sign.
#[pyclass(frozen, module = "edgefl._native")]
pub(crate) struct Mask {
    seed: Py<Seed>,
    prg: core::Prg,
    sign: core::Sign,
}

#[pymethods]
impl Mask {
    #[new]
    #[pyo3(signature = (seed, prg, subtract), text_signature = "(seed, prg, subtract)")]
    #[allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value
    fn new(seed: Py<Seed>, prg: WideInt, subtract: bool) -> PyResult<Self> {
        Ok(Self {
            seed,
            prg: core::Prg::from_id(prg.0).map_err(to_python)?,
            sign: if subtract {
                core::Sign::Subtract
            } else {
                core::Sign::Add
            },
        })
    }

    #[allow(clippy::unused_self)] // Python calls it on an instance
    fn __repr__(&self) -> &'static str {
        "<Mask>"
    }

    #[allow(clippy::unused_self)] // Python calls it on an instance
    fn __reduce__(&self) -> PyResult<()> {
        refuse_copy("Mask")
    }
}

impl Mask {
    /// Returns what the core takes.
    pub(crate) fn to_core(&self) -> core::Mask<'_> {
        core::Mask {
            seed: &self.seed.get().0,
            prg: self.prg,
            sign: self.sign,
        }
    }
}

/// Takes back work that another thread is doing.
#[pyclass(frozen, module = "edgefl._native")]
pub(crate) struct CancelFlag(pub(crate) core::CancelFlag);

#[pymethods]
impl CancelFlag {
    #[new]
    fn new() -> Self {
        Self(core::CancelFlag::new())
    }

    /// Takes the work back; there is no way to unset it.
    fn cancel(&self) {
        self.0.cancel();
    }

    /// Whether the work was taken back.
    #[getter]
    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// Adds masks to the accumulator and takes off others, modulo 2^b.
#[pyfunction]
#[pyo3(signature = (accumulator, ring_bits, masks, threads=WideInt(1), cancel=None), text_signature = "(accumulator, ring_bits, masks, threads=1, cancel=None)")]
#[allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value
pub(crate) fn apply_masks(
    py: Python<'_>,
    accumulator: &Bound<'_, PyAny>,
    ring_bits: WideInt,
    masks: Vec<Py<Mask>>,
    threads: WideInt,
    cancel: Option<&CancelFlag>,
) -> PyResult<()> {
    let call = Call {
        ring: core::RingBits::new(ring_bits.0).map_err(to_python)?,
        masks: masks.iter().map(|mask| mask.get().to_core()).collect(),
        threads: threads_of(&threads)?,
        cancel: cancel.map(|flag| &flag.0),
    };
    let is_narrow = PyUntypedBuffer::get(accumulator).is_ok_and(|buffer| buffer.item_size() == 2);
    if is_narrow {
        call.apply::<u16>(py, accumulator)
    } else {
        call.apply::<u32>(py, accumulator)
    }
}

/// The arguments of `apply_masks`, but the accumulator.
struct Call<'a> {
    ring: core::RingBits,
    masks: Vec<core::Mask<'a>>,
    threads: usize,
    cancel: Option<&'a core::CancelFlag>,
}

impl Call<'_> {
    /// Works on one copy of the accumulator: another Python thread may write to it meanwhile, and
    /// a borrowed buffer that changes is undefined behaviour.
    fn apply<L: core::Lane + NamedElement>(
        &self,
        py: Python<'_>,
        accumulator: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let buffer = writable::<L>("accumulator", accumulator)?;
        let mut lanes = buffer.to_vec(py)?;
        py.detach(|| {
            core::apply_masks(
                &mut lanes,
                self.ring,
                &self.masks,
                self.threads,
                self.cancel,
            )
        })
        .map_err(to_python)?;
        buffer.copy_from_slice(py, &lanes)
    }
}

/// Names the code that expands masks on this machine, the fastest first, by generator.
#[pyfunction]
pub(crate) fn backends(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let names = PyDict::new(py);
    for prg in core::Prg::ALL {
        let available = core::Backend::available(prg);
        let available: Vec<&str> = available.into_iter().map(core::Backend::name).collect();
        names.set_item(prg.name(), available)?;
    }
    Ok(names)
}

/// Says whether this processor has AES instructions: what a device declares in its bundle.
#[pyfunction]
pub(crate) fn has_aes_hardware() -> bool {
    core::has_aes_hardware()
}
