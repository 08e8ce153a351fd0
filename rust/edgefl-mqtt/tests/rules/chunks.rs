//! Chunks of a download: cut as the client takes them, after all else, and gone with its connection.

use bytes::Bytes;
use edgefl_mqtt::Chunks;

use crate::harness::{Arrived, Client, Connect, Lab, V3, V5};

const TOPIC: &str = "efl/1/f/d/a/c";
const CHUNK_BYTES: usize = 2_000;

fn blob() -> Bytes {
    (0..=9 * CHUNK_BYTES)
        .map(|place| u8::try_from(place % 251).expect("below 256"))
        .collect()
}

fn chunks(id: u8, indices: impl IntoIterator<Item = u32>) -> Chunks {
    Chunks {
        transfer_id: [id; 8],
        blob: blob(),
        chunk_bytes: CHUNK_BYTES,
        indices: indices.into_iter().collect(),
        expiry: Some(std::time::Duration::from_secs(60)),
    }
}

/// What docs/protocol.md says of a chunk on its way down.
fn packet(id: u8, index: u32) -> Vec<u8> {
    let start = usize::try_from(index).expect("small") * CHUNK_BYTES;
    let blob = blob();
    let data = &blob[start..blob.len().min(start + CHUNK_BYTES)];
    let mut packet = vec![2];
    packet.extend([id; 8]);
    packet.push(1);
    packet.extend(index.to_be_bytes());
    packet.extend(data);
    packet
}

fn take(device: &mut Client, count: usize) -> Vec<Arrived> {
    (0..count).map(|_| device.arrived()).collect()
}

#[test]
fn a_download_flows_as_its_chunks_are_acknowledged() {
    for version in [V3, V5] {
        let lab = Lab::new();
        let mut device = lab.device(version, "a");
        device.subscribe(TOPIC, 1);
        assert_eq!(lab.endpoint.send_chunks(TOPIC, &chunks(7, 0..10)), 1);
        let first = take(&mut device, 4);
        device.expect_quiet();
        assert!(lab.stat("queued_bytes") < 5 * CHUNK_BYTES as u64);
        for (index, chunk) in (0..).zip(&first) {
            assert!(chunk.payload == packet(7, index) && chunk.qos == 1);
            device.acknowledge(chunk.id);
        }
        for index in 4..10 {
            let chunk = device.arrived();
            assert!(chunk.payload == packet(7, index));
            device.acknowledge(chunk.id);
        }
        device.expect_quiet();
        lab.wait_stat("queued_bytes", 0);
    }
}

#[test]
fn messages_go_before_chunks_and_what_is_stopped_ends() {
    let lab = Lab::new();
    let mut device = lab.device(V5, "a");
    device.subscribe(TOPIC, 1);
    lab.endpoint.send_chunks(TOPIC, &chunks(7, 0..10));
    let first = take(&mut device, 4);
    lab.publish(TOPIC, b"a word between", 1);
    let word = device.arrived();
    assert_eq!(word.payload, b"a word between");
    lab.endpoint.send_chunks(TOPIC, &chunks(8, [1]));
    lab.endpoint.stop_chunks(TOPIC, [7; 8]);
    for message in first.iter().chain([&word]) {
        device.acknowledge(message.id);
    }
    let other = device.arrived();
    assert!(other.payload == packet(8, 1));
    device.acknowledge(other.id);
    device.expect_quiet();
}

#[test]
fn a_connection_takes_its_chunks_with_it() {
    let lab = Lab::new();
    let lasting = Connect::lasting(V5, 60);
    let mut device = lab.client(V5, "edgefl-f-a", &lasting);
    device.subscribe(TOPIC, 1);
    lab.endpoint.send_chunks(TOPIC, &chunks(7, 0..10));
    let first = take(&mut device, 4);
    lab.publish(TOPIC, b"a word between", 1);
    device.acknowledge(first[0].id);
    assert_eq!(device.arrived().payload, b"a word between");
    drop(device);
    lab.wait_stat("connections", 0);
    // A client that is away holds no blob, and nothing of the room of others.
    assert!(lab.stat("queued_bytes") < CHUNK_BYTES as u64);
    assert_eq!(lab.endpoint.send_chunks(TOPIC, &chunks(7, 0..10)), 0);
    let mut device = lab.client(V5, "edgefl-f-a", &lasting);
    let again = device.arrived();
    assert!(again.dup && again.payload == b"a word between");
    device.acknowledge(again.id);
    device.expect_quiet();
    assert_eq!(lab.endpoint.send_chunks(TOPIC, &chunks(7, [9])), 1);
    assert!(device.arrived().payload == packet(7, 9));
}

#[test]
fn whoever_takes_no_acknowledged_messages_gets_no_chunks() {
    let lab = Lab::new();
    let mut device = lab.device(V5, "a");
    device.subscribe(TOPIC, 0);
    assert_eq!(lab.endpoint.send_chunks(TOPIC, &chunks(7, 0..10)), 0);
    let elsewhere = "efl/1/f/d/b/c";
    assert_eq!(lab.endpoint.send_chunks(elsewhere, &chunks(7, 0..10)), 0);
    device.expect_quiet();
}
