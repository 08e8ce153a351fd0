//! What can be wrong with an endpoint's settings or its start.

use std::io;

/// Why an endpoint cannot be made, started or given new certificates.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// A listener's address is in use, forbidden or not this machine's.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Host and port that were asked for.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// A listener without TLS was asked for on an address that others can reach.
    #[error("plaintext off loopback: {0}")]
    PlaintextRemote(String),
    /// Certificates or keys cannot be used.
    #[error("TLS: {0}")]
    Tls(String),
    /// A listener with TLS was asked for, but no certificates were given.
    #[error("no certificates for the TLS listener")]
    NoCertificates,
    /// A value of the settings is out of range.
    #[error("setting {name} is {found}, expected {expected}")]
    Setting {
        /// Name of the field.
        name: &'static str,
        /// What is allowed.
        expected: &'static str,
        /// What was given.
        found: String,
    },
    /// The endpoint was started before, or is closed.
    #[error("the endpoint is {0}")]
    State(&'static str),
    /// The system refuses threads or sockets.
    #[error("the system refuses: {0}")]
    System(#[from] io::Error),
}
