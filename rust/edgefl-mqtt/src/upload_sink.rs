//! Chunks into the upload stage, and reports to the gateway at the pace of receipts.
//!
//! A report is due after 32 chunks, one second after the first chunk that was not reported, for a
//! chunk that came twice (its sender missed a receipt), and when a blob is whole. Refused chunks are
//! reported once a second and device at most, so that a flood of them costs the gateway nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use edgefl_core::{ChunkVerdict, UploadStage};

use crate::reason::Reason;
use crate::sink::{ChunkAnswer, ChunkSink, UploadKind, UploadReport, UploadTopic};

/// Chunks after which a report is due.
pub const CHUNKS_PER_REPORT: u32 = 32;
/// Time after which a chunk is reported at the latest, and between two reports of refusals.
pub const REPORT_AFTER: Duration = Duration::from_secs(1);

/// Chunks of one transfer that no report has told of yet.
struct Unreported {
    chunks: u32,
    since: Instant,
}

#[derive(Default)]
struct Pace {
    unreported: HashMap<(String, String), Unreported>,
    refused_at: HashMap<String, Instant>,
}

/// The sink over an upload stage, in which a blob's name is `DEVICE/TRANSFER`.
pub struct UploadSink {
    stage: Arc<UploadStage>,
    pace: Mutex<Pace>,
}

impl UploadSink {
    /// Puts chunks into the stage, whose blobs the gateway opens.
    pub fn new(stage: Arc<UploadStage>) -> Self {
        Self {
            stage,
            pace: Mutex::default(),
        }
    }

    /// Does what [`ChunkSink::accept`] does, at a time given by the caller.
    pub fn accept_at(&self, upload: UploadTopic<'_>, packet: &[u8], now: Instant) -> ChunkAnswer {
        let key = format!("{}/{}", upload.device, upload.transfer);
        let verdict = self.stage.accept(&key, packet);
        let kind = if verdict.is_sound() {
            self.pace().count(upload, verdict, now)
        } else {
            self.pace().refuse(upload.device, now)
        };
        ChunkAnswer {
            reason: reason_of(verdict),
            report: kind.map(|kind| report(upload.device, upload.transfer, kind, verdict.name())),
        }
    }

    /// Does what [`ChunkSink::due`] does, at a time given by the caller.
    pub fn due_at(&self, now: Instant) -> Vec<UploadReport> {
        self.pace().take_due(now)
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        // Nothing in here can panic half way.
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ChunkSink for UploadSink {
    fn accept(&self, upload: UploadTopic<'_>, packet: Bytes) -> ChunkAnswer {
        self.accept_at(upload, &packet, Instant::now())
    }

    fn due(&self) -> Vec<UploadReport> {
        self.due_at(Instant::now())
    }
}

impl Pace {
    fn count(
        &mut self,
        upload: UploadTopic<'_>,
        verdict: ChunkVerdict,
        now: Instant,
    ) -> Option<UploadKind> {
        let key = (upload.device.to_owned(), upload.transfer.to_owned());
        let is_due_now = match verdict {
            ChunkVerdict::Whole => {
                self.unreported.remove(&key);
                return Some(UploadKind::Whole);
            }
            ChunkVerdict::Duplicate => true,
            _ => {
                let fresh = Unreported {
                    chunks: 0,
                    since: now,
                };
                let unreported = self.unreported.entry(key.clone()).or_insert(fresh);
                unreported.chunks += 1;
                unreported.chunks >= CHUNKS_PER_REPORT
            }
        };
        is_due_now.then(|| {
            self.unreported.remove(&key);
            UploadKind::Progress
        })
    }

    fn refuse(&mut self, device: &str, now: Instant) -> Option<UploadKind> {
        if self.refused_at.contains_key(device) {
            return None;
        }
        self.refused_at.insert(device.to_owned(), now);
        Some(UploadKind::Refused)
    }

    fn take_due(&mut self, now: Instant) -> Vec<UploadReport> {
        let is_over = |since: Instant| now.saturating_duration_since(since) >= REPORT_AFTER;
        self.refused_at.retain(|_, since| !is_over(*since));
        let due: Vec<_> = self
            .unreported
            .iter()
            .filter(|(_, unreported)| is_over(unreported.since))
            .map(|(key, _)| key.clone())
            .collect();
        due.into_iter()
            .inspect(|key| {
                self.unreported.remove(key);
            })
            .map(|(device, transfer)| UploadReport {
                device,
                transfer,
                kind: UploadKind::Progress,
                detail: "stored",
            })
            .collect()
    }
}

fn report(device: &str, transfer: &str, kind: UploadKind, detail: &'static str) -> UploadReport {
    UploadReport {
        device: device.to_owned(),
        transfer: transfer.to_owned(),
        kind,
        detail,
    }
}

fn reason_of(verdict: ChunkVerdict) -> Reason {
    match verdict {
        ChunkVerdict::NoSuchTransfer => Reason::QuotaExceeded,
        verdict if verdict.is_sound() => Reason::Success,
        _ => Reason::PayloadFormatInvalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use edgefl_core::ChunkPacket;
    use sha2::{Digest, Sha256};

    const UPLOAD: UploadTopic<'static> = UploadTopic {
        device: "dev",
        transfer: "x",
    };

    const CHUNKS: u8 = 80;

    /// Expects so many chunks, each of which is its index.
    fn sink() -> UploadSink {
        let hashes: Vec<u8> = (0..CHUNKS).flat_map(hash).collect();
        let stage = UploadStage::new(1 << 20, 4);
        stage
            .open("dev/x", CHUNKS.into(), 1, &hashes)
            .expect("room");
        UploadSink::new(Arc::new(stage))
    }

    /// SHA-256 of one byte.
    fn hash(byte: u8) -> [u8; 32] {
        Sha256::digest([byte]).into()
    }

    fn send(sink: &UploadSink, index: u8, now: Instant) -> (Reason, Option<UploadKind>) {
        let packet = ChunkPacket {
            index: index.into(),
            data: &[index],
        };
        let answer = sink.accept_at(UPLOAD, &packet.to_bytes(), now);
        (answer.reason, answer.report.map(|report| report.kind))
    }

    #[test]
    fn every_32nd_chunk_and_the_last_are_reported() {
        let (sink, now) = (sink(), Instant::now());
        let kinds: Vec<_> = (0..CHUNKS).map(|index| send(&sink, index, now).1).collect();
        let mut expected = vec![None; CHUNKS.into()];
        expected[31] = Some(UploadKind::Progress);
        expected[63] = Some(UploadKind::Progress);
        expected[79] = Some(UploadKind::Whole);
        assert_eq!(kinds, expected);
        assert!(sink.due_at(now + REPORT_AFTER).is_empty());
    }

    #[test]
    fn a_chunk_is_reported_after_a_second_and_once() {
        let (sink, now) = (sink(), Instant::now());
        assert_eq!(send(&sink, 0, now), (Reason::Success, None));
        assert!(sink.due_at(now + REPORT_AFTER / 2).is_empty());
        let due = sink.due_at(now + REPORT_AFTER);
        assert_eq!(due, [report("dev", "x", UploadKind::Progress, "stored")]);
        assert!(sink.due_at(now + 2 * REPORT_AFTER).is_empty());
    }

    #[test]
    fn a_duplicate_is_reported_at_once() {
        let (sink, now) = (sink(), Instant::now());
        send(&sink, 5, now);
        let again = send(&sink, 5, now);
        assert_eq!(again, (Reason::Success, Some(UploadKind::Progress)));
        assert!(sink.due_at(now + REPORT_AFTER).is_empty());
    }

    #[test]
    fn refusals_are_reported_once_a_second_and_device() {
        let (sink, now) = (sink(), Instant::now());
        let stranger = UploadTopic {
            device: "other",
            transfer: "x",
        };
        let junk = |upload, at| sink.accept_at(upload, b"junk", at).report;
        let refused = |device| Some(report(device, "x", UploadKind::Refused, "malformed"));
        assert_eq!(junk(UPLOAD, now), refused("dev"));
        assert_eq!(junk(UPLOAD, now), None);
        assert_eq!(junk(stranger, now), refused("other"));
        assert!(sink.due_at(now + REPORT_AFTER).is_empty());
        assert_eq!(junk(UPLOAD, now + REPORT_AFTER), refused("dev"));
    }

    #[test]
    fn reason_codes_tell_bad_bytes_from_what_was_not_granted() {
        let (sink, now) = (sink(), Instant::now());
        let packet = ChunkPacket {
            index: 0,
            data: &[9],
        }
        .to_bytes();
        let ungranted = UploadTopic {
            device: "dev",
            transfer: "y",
        };
        let reason = |upload| sink.accept_at(upload, &packet, now).reason;
        assert_eq!(reason(UPLOAD), Reason::PayloadFormatInvalid);
        assert_eq!(reason(ungranted), Reason::QuotaExceeded);
    }
}
