//! Checked arguments: integers of any size, and one-dimensional buffers of a known type.

use edgefl_core::CoreError;
use pyo3::buffer::{Element, PyBuffer, PyUntypedBuffer};
use pyo3::exceptions::{PyBufferError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::errors::{buffer_error, to_python};

#[cfg(target_endian = "little")]
const FOREIGN_BYTE_ORDER: [char; 2] = ['>', '!'];
#[cfg(target_endian = "big")]
const FOREIGN_BYTE_ORDER: [char; 1] = ['<'];

/// A Python integer, held at the ends of the 64-bit range when it lies beyond.
///
/// Every range check downstream is narrower than 64 bits, so the core refuses those with its own
/// message instead of an `OverflowError`.
pub(crate) struct WideInt(pub(crate) i64);

impl<'a, 'py> FromPyObject<'a, 'py> for WideInt {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match object.extract::<i64>() {
            Ok(value) => Ok(Self(value)),
            Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => {
                let is_negative = object.lt(0)?;
                Ok(Self(if is_negative { i64::MIN } else { i64::MAX }))
            }
            Err(error) => Err(error),
        }
    }
}

/// Reads a number of threads; the core refuses what is out of its range.
pub(crate) fn threads_of(threads: &WideInt) -> PyResult<usize> {
    usize::try_from(threads.0).map_err(|_| to_python(CoreError::Threads { found: threads.0 }))
}

/// Views a list of Python's `bytes`, which stay valid and unchanged without the GIL.
pub(crate) fn slices(list: &[PyBackedBytes]) -> Vec<&[u8]> {
    list.iter().map(|bytes| &**bytes).collect()
}

/// Element types of our buffers, by the name that NumPy users know.
pub(crate) trait NamedElement: Element {
    /// The dtype's name.
    const NAME: &'static str;
}

impl NamedElement for u8 {
    const NAME: &'static str = "uint8";
}
impl NamedElement for u16 {
    const NAME: &'static str = "uint16";
}
impl NamedElement for u32 {
    const NAME: &'static str = "uint32";
}
impl NamedElement for i64 {
    const NAME: &'static str = "int64";
}
impl NamedElement for f32 {
    const NAME: &'static str = "float32";
}
impl NamedElement for f64 {
    const NAME: &'static str = "float64";
}

/// Checks the length of a session id.
pub(crate) fn session_id_of(bytes: &[u8]) -> PyResult<[u8; 32]> {
    bytes.try_into().map_err(|_| {
        to_python(CoreError::Length {
            what: "a session id",
            expected: 32,
            found: bytes.len(),
        })
    })
}

/// Borrows a contiguous, one-dimensional buffer for reading.
pub(crate) fn readable<T: NamedElement>(
    name: &str,
    object: &Bound<'_, PyAny>,
) -> PyResult<PyBuffer<T>> {
    let buffer = PyUntypedBuffer::get(object).map_err(|error| {
        // PyO3 refuses a buffer of no dimension by itself.
        if error.is_instance_of::<PyBufferError>(object.py()) {
            shape_error(name, error.value(object.py()).to_string())
        } else {
            error
        }
    })?;
    if buffer.dimensions() != 1 || !buffer.is_c_contiguous() {
        let (shape, strides) = (buffer.shape(), buffer.strides());
        return Err(shape_error(
            name,
            format!("shape {shape:?}, strides {strides:?}"),
        ));
    }
    let format = buffer.format().to_string_lossy().into_owned();
    let refusal = || {
        buffer_error(
            "E-BUFFER-FORMAT",
            format!("{name} of dtype {}, native byte order", T::NAME),
            format!("buffer format {format:?}"),
            "convert it explicitly; nothing is cast here",
        )
    };
    // PyO3 looks at the size and kind of the elements and lets a foreign byte order pass.
    if format.starts_with(FOREIGN_BYTE_ORDER) {
        return Err(refusal());
    }
    buffer.into_typed().map_err(|_| refusal())
}

fn shape_error(name: &str, found: String) -> PyErr {
    buffer_error(
        "E-BUFFER-SHAPE",
        format!("{name} to be one-dimensional and contiguous"),
        found,
        "pass numpy.ascontiguousarray(values).ravel()",
    )
}

/// Borrows a contiguous, one-dimensional buffer for reading and writing.
pub(crate) fn writable<T: NamedElement>(
    name: &str,
    object: &Bound<'_, PyAny>,
) -> PyResult<PyBuffer<T>> {
    let buffer = readable(name, object)?;
    if buffer.readonly() {
        return Err(buffer_error(
            "E-BUFFER-READONLY",
            format!("{name} to be writable"),
            "a read-only buffer".to_owned(),
            "pass a copy",
        ));
    }
    Ok(buffer)
}
