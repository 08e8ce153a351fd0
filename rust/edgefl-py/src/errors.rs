//! The one mapping from the core's errors to the exceptions that `edgefl.errors` owns.

use edgefl_core::{CoreError, ErrorKind};
use pyo3::{import_exception, PyErr, PyTypeInfo};

import_exception!(edgefl.errors, Cancelled);
import_exception!(edgefl.errors, ConfigError);
import_exception!(edgefl.errors, EnvironmentProblem);
import_exception!(edgefl.errors, PrivacyError);
import_exception!(edgefl.errors, RemoteProtocolError);
import_exception!(edgefl.errors, ShareError);
#[cfg(feature = "endpoint")]
import_exception!(edgefl.errors, TransportError);
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

/// Turns an error of the endpoint into its Python exception.
#[cfg(feature = "endpoint")]
pub(crate) fn endpoint_error(error: &edgefl_mqtt::EndpointError) -> PyErr {
    use edgefl_mqtt::EndpointError as E;
    use std::io::ErrorKind as Io;
    match error {
        E::Bind { address, source } => {
            let (code, expected, found, advice) = match source.kind() {
                Io::AddrInUse => (
                    "E-PORT-IN-USE",
                    format!("a free port at {address}"),
                    "another program listening there".to_owned(),
                    "stop that program, or choose another port (0 takes any free one)",
                ),
                Io::PermissionDenied => (
                    "E-PORT-FORBIDDEN",
                    format!("permission to listen at {address}"),
                    "none".to_owned(),
                    "choose a port above 1023 (0 takes any free one)",
                ),
                _ => (
                    "E-LISTEN-ADDRESS",
                    format!("to listen at {address}"),
                    source.to_string(),
                    "give an address of this machine",
                ),
            };
            raise::<EnvironmentProblem>((code, expected, found, advice))
        }
        E::PlaintextRemote(address) => buffer_error(
            "E-PLAINTEXT-REMOTE",
            "a loopback address, where there is no TLS".to_owned(),
            address.clone(),
            "listen with TLS there",
        ),
        E::Tls(detail) => buffer_error(
            "E-TLS-MATERIAL",
            "certificates and a key in PEM that fit each other".to_owned(),
            detail.clone(),
            "make them anew with 'edgefl gateway init'",
        ),
        E::NoCertificates => buffer_error(
            "E-TLS-SETTINGS",
            "certificates for a listener with TLS".to_owned(),
            "none".to_owned(),
            "run 'edgefl gateway init' first",
        ),
        E::Setting {
            name,
            expected,
            found,
        } => buffer_error(
            "E-ENDPOINT-SETTING",
            format!("{name}: {expected}"),
            found.clone(),
            "see docs/endpoint.md",
        ),
        E::State(state) => raise::<TransportError>((
            "E-ENDPOINT-STATE",
            "an endpoint that is new".to_owned(),
            format!("one that is {state}"),
            "make another one",
        )),
        other => raise::<EnvironmentProblem>((
            "E-ENDPOINT-SYSTEM",
            "threads and sockets for the endpoint".to_owned(),
            other.to_string(),
            "raise the limits of this process",
        )),
    }
}
