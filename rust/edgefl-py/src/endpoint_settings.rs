//! Settings of the endpoint from Python's arguments.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use edgefl_mqtt::Limits;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::errors::buffer_error;

/// Reads `HOST:PORT`.
pub(crate) fn address(text: Option<&str>) -> PyResult<Option<SocketAddr>> {
    let Some(text) = text else { return Ok(None) };
    let found = text
        .to_socket_addrs()
        .ok()
        .and_then(|mut found| found.next());
    found.map(Some).ok_or_else(|| {
        let expected = "HOST:PORT of this machine".to_owned();
        buffer_error(
            "E-LISTEN-ADDRESS",
            expected,
            format!("{text:?}"),
            "correct the address",
        )
    })
}

/// Reads bounds by name; those that are not given keep their defaults.
pub(crate) fn limits(given: Option<&Bound<'_, PyDict>>) -> PyResult<Limits> {
    let mut limits = Limits::default();
    for (name, value) in given.into_iter().flatten() {
        let name = name.cast::<PyString>()?.to_string();
        if !set_limit(&mut limits, &name, &value)? {
            let expected = "the name of a limit".to_owned();
            return Err(buffer_error(
                "E-ENDPOINT-SETTING",
                expected,
                name,
                "see docs/endpoint.md",
            ));
        }
    }
    Ok(limits)
}

macro_rules! by_name {
    ($limits:ident, $name:ident, $value:ident, [$($number:ident),+], [$(($seconds:literal, $time:ident)),+]) => {
        match $name {
            $(stringify!($number) => $limits.$number = $value.extract()?,)+
            $($seconds => $limits.$time = duration($value)?,)+
            _ => return Ok(false),
        }
    };
}

fn set_limit(limits: &mut Limits, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    by_name!(
        limits,
        name,
        value,
        [
            max_connections,
            max_handshakes,
            handshakes_per_peer_per_s,
            max_packet_bytes,
            max_connect_bytes,
            max_partial_bytes,
            least_bytes_per_s,
            receive_maximum,
            topic_alias_maximum,
            max_keepalive_s,
            max_sessions,
            max_session_expiry_s,
            max_subscriptions,
            max_queued_messages,
            max_queued_bytes,
            max_all_queued_bytes,
            max_in_flight,
            max_retained_messages,
            max_retained_bytes,
            max_gateway_bytes
        ],
        [
            ("tls_time_s", tls_time),
            ("connect_time_s", connect_time),
            ("write_stall_s", write_stall)
        ]
    );
    Ok(true)
}

fn duration(seconds: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let seconds: f64 = seconds.extract()?;
    let found = Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|time| !time.is_zero());
    found.ok_or_else(|| {
        let expected = "seconds above 0".to_owned();
        buffer_error(
            "E-ENDPOINT-SETTING",
            expected,
            seconds.to_string(),
            "correct the limit",
        )
    })
}
