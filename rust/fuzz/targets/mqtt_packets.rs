//! MQTT packets of both versions: whatever the bytes, they are read or refused; and nothing that is
//! read is larger than what came.

#![no_main]

use bytes::BytesMut;
use edgefl_mqtt::frame::{read_header, Header};
use edgefl_mqtt::packet::{decode, version_of, Incoming, Version};
use libfuzzer_sys::fuzz_target;

const MAX_BYTES: usize = 4_096;

fuzz_target!(|data: &[u8]| {
    let Ok(Header::Packet { total_bytes }) = read_header(data, MAX_BYTES) else {
        return;
    };
    let Some(packet) = data.get(..total_bytes) else {
        return;
    };
    let spoken = version_of(packet);
    for version in [Version::V3, Version::V5] {
        match decode(version, BytesMut::from(packet)) {
            Ok(Incoming::Publish(publish)) => {
                assert!(publish.topic.len() + publish.payload.len() < total_bytes);
                assert_eq!(publish.packet_id.is_some(), publish.qos > 0);
                assert!(version == Version::V5 || publish.topic_alias.is_none());
            }
            Ok(Incoming::Connect(connect)) => {
                assert!(connect.client_id.len() < total_bytes);
                assert_eq!(connect.version, version);
                assert!(spoken != Ok(Version::V3) || version == Version::V3);
            }
            Ok(Incoming::Subscribe { filters, .. }) => {
                assert!(!filters.is_empty() && filters.len() < total_bytes);
            }
            Ok(_) | Err(_) => {}
        }
    }
});
