//! A PUBACK is a receipt: it waits for the gateway, in the order of the messages.

use crate::harness::{Client, Connect, Lab, V3, V5};

const UPLINK: &str = "efl/1/f/d/a/q";

fn is_silent(client: &mut Client) -> bool {
    client.send(&[0xC0, 0]);
    client.read().expect("an answer").0 == 0xD0
}

#[test]
fn a_message_is_acknowledged_when_the_gateway_says_so() {
    for version in [V3, V5] {
        let mut lab = Lab::new();
        lab.endpoint.subscribe(&["efl/1/f/d/+/q".into()]);
        let mut device = lab.device(version, "a");
        let first = device.publish(UPLINK, b"one");
        let second = device.publish(UPLINK, b"two");
        let (one, topic, payload, _) = lab.message();
        assert_eq!((topic.as_str(), payload.as_slice()), (UPLINK, &b"one"[..]));
        let two = lab.message().0;
        assert!(is_silent(&mut device), "no PUBACK yet");
        lab.endpoint
            .acknowledge(&[two.expect("a ticket")], edgefl_mqtt::Reason::Success);
        assert!(is_silent(&mut device), "the first comes first");
        lab.endpoint.acknowledge(
            &[one.expect("a ticket")],
            edgefl_mqtt::Reason::QuotaExceeded,
        );
        let reason = if version == V5 { 0x97 } else { 0 };
        assert_eq!(device.puback(), (first, reason));
        assert_eq!(device.puback(), (second, 0));
    }
}

#[test]
fn a_lost_connection_leaves_its_tickets_without_effect() {
    let mut lab = Lab::new();
    lab.endpoint.subscribe(&[UPLINK.into()]);
    let mut device = lab.device(V5, "a");
    device.publish(UPLINK, b"one");
    let ticket = lab.message().0.expect("a ticket");
    drop(device);
    lab.wait_stat("connections", 0);
    lab.endpoint
        .acknowledge(&[ticket, ticket, 99_999], edgefl_mqtt::Reason::Success);
    assert_eq!(lab.stat("gateway_unacknowledged"), 0);
    assert_eq!(lab.stat("gateway_bytes"), 0);
}

#[test]
fn messages_of_qos_0_have_no_ticket() {
    let mut lab = Lab::new();
    lab.endpoint.subscribe(&[UPLINK.into()]);
    let mut device = lab.device(V5, "a");
    let bytes = device.publish_packet(UPLINK, b"x", 0);
    device.send(&bytes);
    assert_eq!(lab.message(), (None, UPLINK.into(), b"x".to_vec(), false));
    assert_eq!(lab.stat("gateway_bytes"), 0);
}

#[test]
fn a_full_queue_stops_reading_its_senders_and_only_those() {
    let mut lab = Lab::with(|limits| {
        limits.max_packet_bytes = 10_000;
        limits.max_gateway_bytes = 20_000;
    });
    lab.endpoint.subscribe(&["efl/1/f/d/+/q".into()]);
    let mut flooding = lab.device(V5, "a");
    for _ in 0..10 {
        flooding.publish(UPLINK, &[1; 8_000]);
    }
    lab.wait_stat("gateway_unacknowledged", 2);
    let mut other = lab.client(V5, "tool", &Connect::default());
    other.publish("house/light", b"on");
    assert_eq!(
        other.puback(),
        (1, 0x10),
        "nobody subscribes, and it is served"
    );
    let mut fair = lab.device(V5, "b");
    fair.publish("efl/1/f/d/b/q", b"small");
    let mut order = Vec::new();
    for _ in 0..11 {
        let (ticket, topic, ..) = lab.message();
        order.push(topic);
        lab.endpoint
            .acknowledge(&[ticket.expect("a ticket")], edgefl_mqtt::Reason::Success);
    }
    assert!(
        order[..8].iter().any(|topic| topic.ends_with("b/q")),
        "it need not wait for all"
    );
    for _ in 0..10 {
        assert_eq!(flooding.puback().1, 0);
    }
    assert_eq!(lab.stat("gateway_bytes"), 0);
}

#[test]
fn the_gateway_gets_what_is_retained_and_is_not_its_own_subscriber() {
    let mut lab = Lab::new();
    let mut device = lab.device(V5, "a");
    let bytes = device.publish_packet("efl/1/f/d/a/st", b"here", 0x03);
    device.send(&bytes);
    assert_eq!(device.puback().1, 0x10);
    lab.endpoint
        .subscribe(&["efl/1/f/d/+/st".into(), "efl/1/f/agg".into()]);
    assert_eq!(
        lab.message(),
        (None, "efl/1/f/d/a/st".into(), b"here".to_vec(), true)
    );
    lab.retain("efl/1/f/agg", b"online");
    device.publish("efl/1/f/d/a/st", b"again");
    assert_eq!(lab.message().2, b"again");
}
