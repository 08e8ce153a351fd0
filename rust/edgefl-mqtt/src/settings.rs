//! What an endpoint is told at its start: where to listen, and every bound on what peers may cost.

use std::net::SocketAddr;
use std::time::Duration;

use crate::error::EndpointError;

/// Where the endpoint listens. Port 0 takes a free one; `None` leaves a listener out.
#[derive(Debug, Clone, Default)]
pub struct Listeners {
    /// MQTT without TLS: loopback addresses only.
    pub mqtt: Option<SocketAddr>,
    /// MQTT over TLS with client certificates.
    pub mqtts: Option<SocketAddr>,
    /// MQTT over WebSocket without TLS: loopback addresses only.
    pub ws: Option<SocketAddr>,
    /// MQTT over WebSocket over TLS with client certificates.
    pub wss: Option<SocketAddr>,
}

/// Certificates and keys in PEM, as bytes. The key is dropped once the TLS library has it.
#[derive(Clone)]
pub struct TlsMaterial {
    /// Authorities that sign the devices' certificates.
    pub client_authorities: Vec<u8>,
    /// The gateway's certificate, and what leads from it to the authority.
    pub certificate_chain: Vec<u8>,
    /// The gateway's private key.
    pub private_key: Vec<u8>,
}

impl std::fmt::Debug for TlsMaterial {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("TlsMaterial(..)")
    }
}

/// Bounds. The defaults suit a gateway with 10,000 devices and 512 MB.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at once; more are closed at once.
    pub max_connections: usize,
    /// Connections that have not finished their CONNECT yet.
    pub max_handshakes: usize,
    /// Connections per second that one address may open, after a burst of five times as many.
    pub handshakes_per_peer_per_s: u32,
    /// From accepting a connection to the end of its TLS handshake.
    pub tls_time: Duration,
    /// From there to the end of the CONNECT packet.
    pub connect_time: Duration,
    /// Largest packet, fixed header included; announced in MQTT 5.
    pub max_packet_bytes: usize,
    /// Largest packet before the CONNECT was accepted.
    pub max_connect_bytes: usize,
    /// Sum of packets larger than 4 KiB that have begun to arrive, over all connections.
    pub max_partial_bytes: usize,
    /// A packet must arrive within 20 s and one second for each of these bytes.
    pub least_bytes_per_s: usize,
    /// A client that takes nothing for this long is cut off.
    pub write_stall: Duration,
    /// Messages of QoS 1 that a client may send ahead of their acknowledgement.
    pub receive_maximum: u16,
    /// Topic aliases that a client may set.
    pub topic_alias_maximum: u16,
    /// Longest keepalive; longer ones and none become this one (MQTT 5 clients are told).
    pub max_keepalive_s: u16,
    /// Sessions at once, those of absent clients included.
    pub max_sessions: usize,
    /// How long a session is kept at most without its client; also for MQTT 3.1.1.
    pub max_session_expiry_s: u32,
    /// Filters per session.
    pub max_subscriptions: usize,
    /// Messages that wait for one client.
    pub max_queued_messages: usize,
    /// Sum of their sizes.
    pub max_queued_bytes: usize,
    /// Sum over all clients.
    pub max_all_queued_bytes: usize,
    /// Unacknowledged messages to one client, unless it announces fewer.
    pub max_in_flight: u16,
    /// Retained messages.
    pub max_retained_messages: usize,
    /// Sum of their sizes.
    pub max_retained_bytes: usize,
    /// Sum of the messages that wait for the gateway, or for its acknowledgement.
    pub max_gateway_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 12_000,
            max_handshakes: 1_000,
            handshakes_per_peer_per_s: 500,
            tls_time: Duration::from_secs(10),
            connect_time: Duration::from_secs(5),
            max_packet_bytes: 262_144,
            max_connect_bytes: 8_192,
            max_partial_bytes: 64 << 20,
            least_bytes_per_s: 1_024,
            write_stall: Duration::from_secs(30),
            receive_maximum: 64,
            topic_alias_maximum: 16,
            max_keepalive_s: 1_200,
            max_sessions: 20_000,
            max_session_expiry_s: 7 * 86_400,
            max_subscriptions: 32,
            max_queued_messages: 1_024,
            max_queued_bytes: 4 << 20,
            max_all_queued_bytes: 128 << 20,
            max_in_flight: 16,
            max_retained_messages: 50_000,
            max_retained_bytes: 64 << 20,
            max_gateway_bytes: 32 << 20,
        }
    }
}

/// Everything.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The fleet, which stands in every topic.
    pub fleet: String,
    /// Where to listen.
    pub listeners: Listeners,
    /// Needed for a listener with TLS.
    pub tls: Option<TlsMaterial>,
    /// Bounds.
    pub limits: Limits,
    /// Threads, 1 to 16.
    pub worker_threads: usize,
}

impl Settings {
    /// Checks what cannot be left to the moment of use.
    ///
    /// # Errors
    /// Plaintext off loopback, TLS without certificates, or a bound that is out of range.
    pub fn check(&self) -> Result<(), EndpointError> {
        for address in [self.listeners.mqtt, self.listeners.ws]
            .into_iter()
            .flatten()
        {
            if !address.ip().is_loopback() {
                return Err(EndpointError::PlaintextRemote(address.to_string()));
            }
        }
        if (self.listeners.mqtts.is_some() || self.listeners.wss.is_some()) && self.tls.is_none() {
            return Err(EndpointError::NoCertificates);
        }
        let fleet_fits = !self.fleet.is_empty() && !self.fleet.contains(['/', '+', '#', '\0']);
        require("fleet", fleet_fits, "a name", &self.fleet)?;
        let threads = self.worker_threads;
        require(
            "worker_threads",
            (1..=16).contains(&threads),
            "1 to 16",
            &threads,
        )?;
        let limits = &self.limits;
        let packet = limits.max_packet_bytes;
        require(
            "max_packet_bytes",
            (1_024..=16 << 20).contains(&packet),
            "1 KiB to 16 MiB",
            &packet,
        )?;
        let connect = limits.max_connect_bytes;
        require(
            "max_connect_bytes",
            (256..=packet).contains(&connect),
            "256 to max_packet_bytes",
            &connect,
        )?;
        // A semaphore counts in u32, and a bound below one packet would never let that packet in.
        for (name, bytes) in [
            ("max_partial_bytes", limits.max_partial_bytes),
            ("max_gateway_bytes", limits.max_gateway_bytes),
        ] {
            let fits = bytes >= 2 * packet && bytes <= 1 << 30;
            require(name, fits, "two packets to 1 GiB", &bytes)?;
        }
        for (name, count) in [
            ("receive_maximum", limits.receive_maximum),
            ("max_in_flight", limits.max_in_flight),
            ("max_keepalive_s", limits.max_keepalive_s),
        ] {
            require(name, count > 0, "at least 1", &count)?;
        }
        Ok(())
    }
}

fn require(
    name: &'static str,
    holds: bool,
    expected: &'static str,
    found: &dyn std::fmt::Display,
) -> Result<(), EndpointError> {
    if holds {
        return Ok(());
    }
    Err(EndpointError::Setting {
        name,
        expected,
        found: found.to_string(),
    })
}
