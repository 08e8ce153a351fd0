//! Whole connections, one after the other, through the endpoint without sockets.
//!
//! Each connection: a byte for who it is, a byte for the size of the pieces, two bytes for the
//! length, and so many bytes of MQTT. Whatever they are, nobody speaks on a topic that is not its
//! own, and what is kept stays within its bounds.

#![no_main]

use std::sync::Arc;
use std::time::{Duration, Instant};

use edgefl_core::UploadStage;
use edgefl_mqtt::event::Event;
use edgefl_mqtt::in_memory::InMemoryEndpoint;
use edgefl_mqtt::{Limits, Listeners, Settings, UploadSink};
use libfuzzer_sys::fuzz_target;

const WHO: [Option<&str>; 4] = [None, Some("a"), Some("b"), Some("claim-1")];

fn endpoint() -> InMemoryEndpoint {
    let limits = Limits {
        max_packet_bytes: 2_048,
        max_connect_bytes: 1_024,
        max_sessions: 3,
        max_subscriptions: 3,
        max_queued_messages: 3,
        max_retained_messages: 3,
        receive_maximum: 3,
        topic_alias_maximum: 3,
        ..Limits::default()
    };
    let settings = Settings {
        fleet: "f".to_owned(),
        listeners: Listeners::default(),
        tls: None,
        limits,
        worker_threads: 1,
    };
    let stage = Arc::new(UploadStage::new(1 << 20, 4));
    InMemoryEndpoint::new(&settings, Some(Arc::new(UploadSink::new(stage)))).expect("sound")
}

/// The access rules in plain words.
fn may_say(identity: Option<&str>, topic: &str) -> bool {
    match identity {
        None => !topic.starts_with("efl/"),
        Some(claim) if claim.starts_with("claim-") => topic == format!("efl/1/f/enrol/{claim}/q"),
        Some(device) => {
            let own = format!("efl/1/f/d/{device}/");
            let leaf = topic.strip_prefix(&own);
            leaf.is_some_and(|leaf| matches!(leaf, "st" | "q" | "kb") || leaf.starts_with("up/"))
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let endpoint = endpoint();
    let mut rest = data;
    for _ in 0..4 {
        let Some((&[who, piece, high, low], after)) = rest.split_first_chunk() else {
            break;
        };
        let length = usize::from(u16::from_be_bytes([high, low])).min(after.len());
        let (sends, after) = after.split_at(length);
        rest = after;
        let device = WHO[usize::from(who) % WHO.len()];
        let (heard, events) = endpoint.converse(device, sends, usize::from(piece) * 8 + 1);
        // Whoever is answered at all is answered a CONNECT first.
        assert!(heard.is_empty() || heard[0] == 0x20, "{heard:?}");
        for event in &events {
            if let Event::Message {
                topic,
                from: Some(from),
                ..
            } = event
            {
                assert!(may_say(from.identity.as_deref(), topic), "{event:?}");
                if let Some(device) = device {
                    assert_eq!(from.identity.as_deref(), Some(device));
                }
            }
        }
        endpoint.tick(Instant::now() + Duration::from_secs(2));
    }
    for (name, value) in endpoint.stats() {
        match name {
            "sessions" | "retained_messages" => assert!(value <= 3, "{name} {value}"),
            "connections" => assert_eq!(value, 0),
            _ => {}
        }
    }
});
