//! The hook for upload chunks: whoever stages them answers on the connection's own task.

use bytes::Bytes;

use crate::reason::Reason;

/// Whose upload a chunk belongs to, from its topic `efl/1/FLEET/d/DEVICE/up/TRANSFER`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UploadTopic<'topic> {
    /// The device, which the access rules have checked against the link's identity.
    pub device: &'topic str,
    /// The transfer's id, as the device wrote it.
    pub transfer: &'topic str,
}

/// What became of an upload, as the gateway is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UploadKind {
    /// Chunks arrived since the last report: a receipt is due.
    Progress,
    /// The last chunk arrived and every hash fits.
    Whole,
    /// A chunk was refused.
    Refused,
}

/// One report to the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadReport {
    /// The device.
    pub device: String,
    /// The transfer.
    pub transfer: String,
    /// What happened.
    pub kind: UploadKind,
    /// A stable word for the log, such as the reason of a refusal.
    pub detail: &'static str,
}

/// The sink's answer to one chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkAnswer {
    /// Goes into the PUBACK; MQTT 3.1.1 has no place for it.
    pub reason: Reason,
    /// For the gateway, when it is time for one.
    pub report: Option<UploadReport>,
}

/// Stages chunks. Called on the task of the connection that they arrive on, so that hashing runs
/// in parallel for several devices and a slow sink slows only its sender; it must not wait.
pub trait ChunkSink: Send + Sync + 'static {
    /// Takes one chunk packet, a slice of the read buffer.
    fn accept(&self, upload: UploadTopic<'_>, packet: Bytes) -> ChunkAnswer;

    /// Returns the reports that time has made due; asked four times a second.
    fn due(&self) -> Vec<UploadReport> {
        Vec::new()
    }
}

/// Splits the topic of a chunk, or says that it is none.
pub fn upload_topic<'topic>(fleet: &str, topic: &'topic str) -> Option<UploadTopic<'topic>> {
    let rest = topic
        .strip_prefix("efl/1/")?
        .strip_prefix(fleet)?
        .strip_prefix("/d/")?;
    let (device, rest) = rest.split_once('/')?;
    let transfer = rest.strip_prefix("up/")?;
    let is_one = !device.is_empty() && !transfer.is_empty() && !transfer.contains('/');
    is_one.then_some(UploadTopic { device, transfer })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_a_chunk_topic_apart() {
        let found = upload_topic("f", "efl/1/f/d/dev-1/up/ab12");
        assert_eq!(
            found,
            Some(UploadTopic {
                device: "dev-1",
                transfer: "ab12"
            })
        );
    }

    #[test]
    fn leaves_other_topics_alone() {
        for topic in [
            "efl/1/g/d/dev/up/x",
            "efl/1/f/d/dev/q",
            "efl/1/f/d//up/x",
            "efl/1/f/d/dev/up/",
            "efl/1/f/d/dev/up/x/y",
            "efl/1/ff/d/dev/up/x",
        ] {
            assert_eq!(upload_topic("f", topic), None, "{topic}");
        }
    }
}
