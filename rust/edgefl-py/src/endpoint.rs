//! The MQTT endpoint in Python: its threads never hold the GIL, and Python's never wait for them.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use edgefl_mqtt::{
    Bound as Ports, ChunkSink, Chunks, Endpoint, EndpointError, Listeners, Publishing, Reason,
    Settings, TlsMaterial, UploadSink, TRANSFER_ID_BYTES,
};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;

use crate::endpoint_event::EndpointEvent;
use crate::endpoint_settings::{address, limits};
use crate::errors::{buffer_error, endpoint_error};
use crate::staging::UploadStage;

/// An MQTT server in this process.
#[pyclass(frozen, module = "edgefl._native")]
pub(crate) struct MqttEndpoint(Endpoint);

#[pymethods]
impl MqttEndpoint {
    #[new]
    #[pyo3(
        signature = (fleet, *, mqtt=None, mqtts=None, ws=None, wss=None, client_authorities=None,
            certificate_chain=None, private_key=None, stage=None, worker_threads=2, **limit),
        text_signature = "(fleet, *, mqtt=None, mqtts=None, ws=None, wss=None, \
            client_authorities=None, certificate_chain=None, private_key=None, stage=None, \
            worker_threads=2, **limit)"
    )]
    // Python names them, so there is no order to mistake.
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        fleet: String,
        mqtt: Option<&str>,
        mqtts: Option<&str>,
        ws: Option<&str>,
        wss: Option<&str>,
        client_authorities: Option<Vec<u8>>,
        certificate_chain: Option<Vec<u8>>,
        private_key: Option<Vec<u8>>,
        stage: Option<Py<UploadStage>>,
        worker_threads: usize,
        limit: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let tls = match (client_authorities, certificate_chain, private_key) {
            (Some(client_authorities), Some(certificate_chain), Some(private_key)) => {
                Some(TlsMaterial {
                    client_authorities,
                    certificate_chain,
                    private_key,
                })
            }
            _ => None,
        };
        let settings = Settings {
            fleet,
            listeners: Listeners {
                mqtt: address(mqtt)?,
                mqtts: address(mqtts)?,
                ws: address(ws)?,
                wss: address(wss)?,
            },
            tls,
            limits: limits(limit)?,
            worker_threads,
        };
        let sink = stage.map(|stage| -> Arc<dyn ChunkSink> {
            Arc::new(UploadSink::new(stage.get().0.clone()))
        });
        let made = py.detach(|| Endpoint::new(settings, sink));
        made.map(Self).map_err(|error| endpoint_error(&error))
    }

    /// Listens, and serves from then on.
    fn start<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let started: Result<Ports, EndpointError> = py.detach(|| self.0.start());
        let bound = started.map_err(|error| endpoint_error(&error))?;
        let ports = PyDict::new(py);
        for (name, port) in [
            ("mqtt", bound.mqtt),
            ("mqtts", bound.mqtts),
            ("ws", bound.ws),
            ("wss", bound.wss),
        ] {
            if let Some(port) = port {
                ports.set_item(name, port)?;
            }
        }
        Ok(ports)
    }

    /// Publishes to every subscriber, of whom it returns the number.
    #[pyo3(
        signature = (topic, payload, qos=1, retain=false, expiry_s=None),
        text_signature = "($self, topic, payload, qos=1, retain=False, expiry_s=None)"
    )]
    #[allow(clippy::needless_pass_by_value)] // PyO3 hands arguments over by value
    fn publish(
        &self,
        py: Python<'_>,
        topic: &str,
        payload: PyBackedBytes,
        qos: u8,
        retain: bool,
        expiry_s: Option<u32>,
    ) -> usize {
        py.detach(|| {
            let payload = shared(payload);
            self.0.publish(
                topic,
                payload,
                Publishing {
                    qos,
                    retain,
                    expiry_s,
                },
            )
        })
    }

    /// Sends chunks of a transfer to every subscriber, as fast as it takes them; returns how many
    /// subscribers are connected.
    #[pyo3(
        signature = (topic, transfer_id, blob, chunk_bytes, indices, expiry_s=None),
        text_signature = "($self, topic, transfer_id, blob, chunk_bytes, indices, expiry_s=None)"
    )]
    #[allow(clippy::needless_pass_by_value, clippy::too_many_arguments)]
    fn send_chunks(
        &self,
        py: Python<'_>,
        topic: &str,
        transfer_id: [u8; TRANSFER_ID_BYTES],
        blob: PyBackedBytes,
        chunk_bytes: usize,
        indices: Vec<u32>,
        expiry_s: Option<u32>,
    ) -> usize {
        py.detach(|| {
            let chunks = Chunks {
                transfer_id,
                blob: Bytes::from_owner(blob),
                chunk_bytes,
                indices: indices.into(),
                expiry: expiry_s.map(|seconds| Duration::from_secs(seconds.into())),
            };
            self.0.send_chunks(topic, &chunks)
        })
    }

    /// Sends no more chunks of a transfer than are under way.
    #[pyo3(text_signature = "($self, topic, transfer_id)")]
    fn stop_chunks(&self, py: Python<'_>, topic: &str, transfer_id: [u8; TRANSFER_ID_BYTES]) {
        py.detach(|| self.0.stop_chunks(topic, transfer_id));
    }

    /// Asks for messages.
    #[pyo3(text_signature = "($self, filters)")]
    #[allow(clippy::needless_pass_by_value)]
    fn subscribe(&self, py: Python<'_>, filters: Vec<String>) {
        py.detach(|| self.0.subscribe(&filters));
    }

    /// Returns up to `max` events, without waiting.
    #[pyo3(text_signature = "($self, max)")]
    fn take_events(&self, py: Python<'_>, max: usize) -> Vec<EndpointEvent> {
        let events = py.detach(|| self.0.take_events(max));
        events
            .into_iter()
            .map(|event| EndpointEvent::new(py, event))
            .collect()
    }

    /// Lets the PUBACKs of these messages go out.
    #[pyo3(signature = (tickets, reason=0), text_signature = "($self, tickets, reason=0)")]
    #[allow(clippy::needless_pass_by_value)]
    fn acknowledge(&self, py: Python<'_>, tickets: Vec<u64>, reason: u8) -> PyResult<()> {
        let reason = reason_of(reason)?;
        py.detach(|| self.0.acknowledge(&tickets, reason));
        Ok(())
    }

    /// Readable while events wait; for `loop.add_reader` and `select`. Never read from it.
    fn fileno(&self) -> i32 {
        self.0.signal().as_raw_fd()
    }

    /// Replaces certificates and keys for connections from now on.
    #[pyo3(text_signature = "($self, client_authorities, certificate_chain, private_key)")]
    fn set_tls(
        &self,
        py: Python<'_>,
        client_authorities: Vec<u8>,
        certificate_chain: Vec<u8>,
        private_key: Vec<u8>,
    ) -> PyResult<()> {
        let material = TlsMaterial {
            client_authorities,
            certificate_chain,
            private_key,
        };
        py.detach(|| self.0.set_tls(&material))
            .map_err(|error| endpoint_error(&error))
    }

    /// Replaces the lists of who is shut out, and cuts them off.
    #[pyo3(text_signature = "($self, serials, identities)")]
    fn set_revoked(&self, py: Python<'_>, serials: Vec<String>, identities: Vec<String>) {
        py.detach(|| self.0.set_revoked(serials, identities));
    }

    /// Ends the connections of an identity, of which it returns the number.
    #[pyo3(signature = (identity, reason=0x98), text_signature = "($self, identity, reason=152)")]
    fn disconnect(&self, py: Python<'_>, identity: &str, reason: u8) -> PyResult<usize> {
        let reason = reason_of(reason)?;
        Ok(py.detach(|| self.0.disconnect(identity, reason)))
    }

    /// Returns counters and present sizes by name.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = PyDict::new(py);
        for (name, value) in py.detach(|| self.0.stats()) {
            stats.set_item(name, value)?;
        }
        Ok(stats)
    }

    /// Returns (client id, identity, address, queued messages, queued bytes) of every session.
    fn connections(&self, py: Python<'_>) -> Vec<Connection> {
        let sessions = py.detach(|| self.0.connections());
        let rows = sessions.into_iter().map(|session| {
            (
                session.who.client_id.to_string(),
                session.who.identity.map(|identity| identity.to_string()),
                session.address.map(|address| address.to_string()),
                session.queued_messages,
                session.queued_bytes,
            )
        });
        rows.collect()
    }

    /// Says goodbye to every client and ends all threads; waits three seconds at most.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }
}

/// Smaller payloads are copied: that costs less than giving the object back to Python.
const SHARED_BYTES: usize = 4_096;

/// Takes a payload, a large one without a copy: every queue that it waits in holds Python's object.
fn shared(payload: PyBackedBytes) -> Bytes {
    if payload.len() < SHARED_BYTES {
        Bytes::copy_from_slice(&payload)
    } else {
        Bytes::from_owner(payload)
    }
}

type Connection = (String, Option<String>, Option<String>, usize, usize);

fn reason_of(code: u8) -> PyResult<Reason> {
    Reason::from_code(code).ok_or_else(|| {
        let expected = "a reason code of MQTT 5".to_owned();
        buffer_error(
            "E-ENDPOINT-SETTING",
            expected,
            format!("{code:#04x}"),
            "see docs/endpoint.md",
        )
    })
}
