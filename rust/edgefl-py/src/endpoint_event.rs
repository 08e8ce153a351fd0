//! What the endpoint tells Python: one class for all kinds of events.

use std::net::SocketAddr;

use edgefl_mqtt::event::{DisconnectReason, Event, Who};
use edgefl_mqtt::packet::Version;
use edgefl_mqtt::{DropReason, UploadKind};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// An event of the endpoint. Which attributes are not None depends on `kind`.
#[pyclass(frozen, get_all, module = "edgefl._native")]
#[derive(Default)]
pub(crate) struct EndpointEvent {
    kind: &'static str,
    ticket: Option<u64>,
    topic: Option<String>,
    payload: Option<Py<PyBytes>>,
    retained: bool,
    client_id: Option<String>,
    identity: Option<String>,
    address: Option<String>,
    old_address: Option<String>,
    new_address: Option<String>,
    version: Option<&'static str>,
    session_present: bool,
    keep_alive_s: Option<u16>,
    reason: Option<&'static str>,
    code: Option<u8>,
    detail: Option<String>,
    device: Option<String>,
    transfer: Option<String>,
}

#[pymethods]
impl EndpointEvent {
    /// Says what kind it is, and nothing of a payload.
    fn __repr__(&self) -> String {
        let topic = self.topic.as_deref().unwrap_or("");
        let client = self
            .client_id
            .as_deref()
            .or(self.device.as_deref())
            .unwrap_or("");
        let detail = self.detail.as_deref().or(self.reason).unwrap_or("");
        format!("<EndpointEvent {} {client} {topic} {detail}>", self.kind)
    }
}

impl EndpointEvent {
    /// Turns an event into its Python form, in which the payload is copied once.
    pub(crate) fn new(py: Python<'_>, event: Event) -> Self {
        match event {
            Event::Message {
                ticket,
                topic,
                payload,
                from,
                retained,
            } => Self {
                kind: "message",
                ticket,
                topic: Some(topic.to_string()),
                payload: Some(PyBytes::new(py, &payload).unbind()),
                retained,
                ..Self::of(from.as_ref())
            },
            Event::Connected {
                who,
                address,
                version,
                session_present,
                keep_alive_s,
            } => Self {
                kind: "connected",
                address: text(address),
                version: Some(version_name(version)),
                session_present,
                keep_alive_s: Some(keep_alive_s),
                ..Self::of(Some(&who))
            },
            Event::Disconnected {
                who,
                address,
                reason,
                code,
            } => Self {
                kind: "disconnected",
                address: text(address),
                reason: Some(reason_name(reason)),
                code: Some(code),
                ..Self::of(Some(&who))
            },
            Event::Refused {
                who,
                address,
                code,
                detail,
            } => Self {
                kind: "refused",
                address: text(address),
                code: Some(code),
                detail: Some(detail),
                ..Self::of(who.as_ref())
            },
            Event::TakenOver {
                who,
                old_address,
                new_address,
            } => Self {
                kind: "taken-over",
                old_address: text(old_address),
                new_address: text(new_address),
                ..Self::of(Some(&who))
            },
            Event::Dropped { who, topic, reason } => Self {
                kind: "dropped",
                topic: Some(topic.to_string()),
                reason: Some(drop_name(reason)),
                ..Self::of(Some(&who))
            },
            Event::Upload(report) => Self {
                kind: "upload",
                reason: Some(upload_name(report.kind)),
                detail: Some(report.detail.to_owned()),
                device: Some(report.device),
                transfer: Some(report.transfer),
                ..Self::default()
            },
        }
    }

    fn of(who: Option<&Who>) -> Self {
        Self {
            client_id: who.map(|who| who.client_id.to_string()),
            identity: who
                .and_then(|who| who.identity.as_ref())
                .map(ToString::to_string),
            ..Self::default()
        }
    }
}

// Each arm of `EndpointEvent::new` has an address.
#[allow(clippy::unnecessary_wraps)]
fn text(address: SocketAddr) -> Option<String> {
    Some(address.to_string())
}

fn version_name(version: Version) -> &'static str {
    match version {
        Version::V3 => "3.1.1",
        Version::V5 => "5",
    }
}

fn reason_name(reason: DisconnectReason) -> &'static str {
    match reason {
        DisconnectReason::Normal => "normal",
        DisconnectReason::Lost => "lost",
        DisconnectReason::KeepAlive => "keep-alive",
        DisconnectReason::TakenOver => "taken-over",
        DisconnectReason::Protocol => "protocol",
        DisconnectReason::Slow => "slow",
        DisconnectReason::Closed => "closed",
    }
}

fn drop_name(reason: DropReason) -> &'static str {
    match reason {
        DropReason::Away => "away",
        DropReason::QueueFull => "queue-full",
        DropReason::Expired => "expired",
        DropReason::TooLarge => "too-large",
    }
}

fn upload_name(kind: UploadKind) -> &'static str {
    match kind {
        UploadKind::Progress => "progress",
        UploadKind::Whole => "whole",
        UploadKind::Refused => "refused",
    }
}
