//! The one mapping from the core's errors to the exceptions that `edgefl.errors` owns.

use edgefl_core::{CoreError, ErrorKind};
use pyo3::{import_exception, PyErr, PyTypeInfo};

import_exception!(edgefl.errors, Cancelled);
import_exception!(edgefl.errors, ConfigError);
import_exception!(edgefl.errors, EnvironmentProblem);
import_exception!(edgefl.errors, PrivacyError);
import_exception!(edgefl.errors, RemoteProtocolError);
import_exception!(edgefl.errors, ShareError);
import_exception!(edgefl.errors, WireError);

type Message = (&'static str, String, String, &'static str);

/// Turns an error of the core into its Python exception, for `map_err`.
#[allow(clippy::needless_pass_by_value)] // the shape that `map_err` asks for
pub(crate) fn to_python(error: CoreError) -> PyErr {
    let report = error.report();
    let message = (report.code, report.expected, report.found, report.advice);
    match report.kind {
        ErrorKind::Privacy => raise::<PrivacyError>(message),
        ErrorKind::Share => raise::<ShareError>(message),
        ErrorKind::Wire => raise::<WireError>(message),
        ErrorKind::RemoteProtocol => raise::<RemoteProtocolError>(message),
        ErrorKind::Cancelled => raise::<Cancelled>(message),
        ErrorKind::Environment => raise::<EnvironmentProblem>(message),
        _ => raise::<ConfigError>(message),
    }
}

/// Makes the exception for a buffer that is not what a function needs.
pub(crate) fn buffer_error(
    code: &'static str,
    expected: String,
    found: String,
    advice: &'static str,
) -> PyErr {
    raise::<ConfigError>((code, expected, found, advice))
}

fn raise<E: PyTypeInfo>(message: Message) -> PyErr {
    PyErr::new::<E, _>(message)
}
