//! Whatever the bytes: a connection may end by them, the endpoint may not.

use std::io::Write;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::harness::{packet, Connect, Lab, V3, V5};

fn valid_packets() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop::sample::select(vec![
        0x10u8, 0x20, 0x30, 0x32, 0x34, 0x3D, 0x40, 0x50, 0x62, 0x70, 0x82, 0x90, 0xA2, 0xB0, 0xC0,
        0xD0, 0xE0, 0xF0,
    ]);
    (kind, prop::collection::vec(any::<u8>(), 0..60)).prop_map(|(kind, body)| packet(kind, &body))
}

fn damaged_publish() -> impl Strategy<Value = Vec<u8>> {
    let properties = prop::collection::vec(
        prop::sample::select(vec![0u8, 1, 2, 3, 8, 9, 0x0B, 0x23, 0x26, 0x7F, 0x80, 0xFF]),
        0..12,
    );
    (0u8..16, properties).prop_map(|(flags, properties)| {
        let mut body = crate::harness::text("efl/1/f/d/a/q");
        body.extend([0, 1]);
        body.extend(&properties);
        packet(0x30 | flags, &body)
    })
}

#[test]
fn random_bytes_end_at_most_their_own_connection() {
    let mut lab = Lab::with(|limits| limits.handshakes_per_peer_per_s = 10_000);
    lab.endpoint.subscribe(&["efl/1/f/d/good/q".into()]);
    let mut good = lab.device(V5, "good");
    let mut runner = TestRunner::new(Config {
        cases: 300,
        ..Config::default()
    });
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..80),
        prop::collection::vec(valid_packets(), 1..4).prop_map(|packets| packets.concat()),
        damaged_publish(),
    ];
    let strategy = (any::<bool>(), prop::sample::select(vec![V3, V5]), bytes);
    let result = runner.run(&strategy, |(is_greeted, version, bytes)| {
        let mut client = if is_greeted {
            lab.client(version, "edgefl-f-a", &Connect::default())
        } else {
            lab.dial(version)
        };
        let _ = client.stream.write_all(&bytes);
        let _ = client.stream.shutdown(std::net::Shutdown::Write);
        // It ends by itself, as its peer has closed.
        while client.read().is_ok() {}
        Ok(())
    });
    result.expect("no connection hangs");
    good.publish("efl/1/f/d/good/q", b"still here");
    assert_eq!(lab.message().2, b"still here");
    lab.wait_stat("connections", 1);
}
