//! From the gateway and from client to client.

use crate::harness::{Connect, Lab, V3, V5};

#[test]
fn commands_reach_a_device_once_and_in_order() {
    for version in [V3, V5] {
        let lab = Lab::new();
        let mut device = lab.device(version, "a");
        assert_eq!(device.subscribe("efl/1/f/d/a/c", 1), 1);
        for number in 0..50u8 {
            assert_eq!(lab.publish("efl/1/f/d/a/c", &[number], 1), 1);
        }
        for number in 0..50u8 {
            let message = device.arrived();
            assert_eq!(
                (message.payload, message.qos, message.dup),
                (vec![number], 1, false)
            );
            device.acknowledge(message.id);
        }
        device.expect_quiet();
        assert_eq!(lab.stat("queued_bytes"), 0);
    }
}

#[test]
fn qos_is_the_lower_of_both_sides() {
    let lab = Lab::new();
    let mut device = lab.device(V5, "a");
    assert_eq!(device.subscribe("efl/1/f/agg", 0), 0);
    assert_eq!(device.subscribe("efl/1/f/d/a/c", 2), 1, "QoS 2 becomes 1");
    lab.publish("efl/1/f/agg", b"x", 1);
    lab.publish("efl/1/f/d/a/c", b"y", 0);
    assert_eq!(device.arrived().qos, 0);
    assert_eq!(device.arrived().qos, 0);
}

#[test]
fn the_window_that_a_client_announces_is_kept() {
    let lab = Lab::new();
    let connect = Connect {
        properties: vec![0x21, 0, 2],
        ..Connect::default()
    };
    let mut device = lab.client(V5, "edgefl-f-a", &connect);
    device.subscribe("efl/1/f/d/a/c", 1);
    for number in 0..4 {
        lab.publish("efl/1/f/d/a/c", &[number], 1);
    }
    let first = device.arrived();
    device.arrived();
    device.expect_quiet();
    device.acknowledge(first.id);
    assert_eq!(device.arrived().payload, [2]);
    device.expect_quiet();
}

#[test]
fn large_payloads_pass_unharmed_in_both_directions() {
    for version in [V3, V5] {
        let mut lab = Lab::new();
        lab.endpoint.subscribe(&["efl/1/f/d/+/q".into()]);
        let mut device = lab.device(version, "a");
        device.subscribe("efl/1/f/d/a/c", 1);
        let payload: Vec<u8> = (0..200_000u32)
            .map(|number| number.to_be_bytes()[3])
            .collect();
        device.publish("efl/1/f/d/a/q", &payload);
        assert!(lab.message().2 == payload);
        lab.publish("efl/1/f/d/a/c", &payload, 1);
        assert!(device.arrived().payload == payload);
    }
}

#[test]
fn packets_arrive_whole_however_they_are_cut() {
    let mut lab = Lab::new();
    lab.endpoint.subscribe(&["efl/1/f/d/+/q".into()]);
    let mut device = lab.device(V5, "a");
    let mut bytes = device.publish_packet("efl/1/f/d/a/q", &[1; 100], 0);
    bytes.extend(device.publish_packet("efl/1/f/d/a/q", &[2; 9_000], 0));
    bytes.extend(device.publish_packet("efl/1/f/d/a/q", &[3; 10], 0));
    for piece in bytes.chunks(7).take(40) {
        device.send(piece);
        std::thread::yield_now();
    }
    device.send(&bytes[280..]);
    for (value, length) in [(1, 100), (2, 9_000), (3, 10)] {
        assert!(lab.message().2 == vec![value; length]);
    }
}

#[test]
fn an_expired_message_is_not_delivered_and_a_young_one_says_what_it_has_left() {
    let lab = Lab::new();
    let expiring = |payload: &'static [u8], seconds| {
        let how = edgefl_mqtt::Publishing {
            qos: 1,
            retain: false,
            expiry_s: Some(seconds),
        };
        lab.endpoint.publish("efl/1/f/d/a/c", payload.into(), how);
    };
    let lasting = Connect::lasting(V5, 60);
    let mut device = lab.client(V5, "edgefl-f-a", &lasting);
    device.subscribe("efl/1/f/d/a/c", 1);
    device.disconnect();
    expiring(b"short", 1);
    expiring(b"long", 100);
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let mut device = lab.client(V5, "edgefl-f-a", &lasting);
    let message = device.arrived();
    assert_eq!(message.payload, b"long");
    assert_eq!(message.properties[..4], [2, 0, 0, 0]);
    assert!(
        (90..100).contains(&message.properties[4]),
        "{:?}",
        message.properties
    );
    assert_eq!(lab.stat("dropped_expired"), 1);
}

#[test]
fn local_programs_talk_to_each_other_and_keep_their_properties() {
    let lab = Lab::new();
    let mut listener = lab.client(V5, "one", &Connect::default());
    let mut speaker = lab.client(V5, "two", &Connect::default());
    assert_eq!(listener.subscribe("house/+", 1), 1);
    let properties = [&[0x08, 0, 4][..], b"back", &[0x26, 0, 1, b'k', 0, 1, b'v']].concat();
    let mut body = crate::harness::text("house/light");
    body.extend([0, 7, 14]);
    body.extend(&properties);
    body.extend(b"on");
    speaker.send(&crate::harness::packet(0x32, &body));
    assert_eq!(speaker.puback(), (7, 0));
    let message = listener.arrived();
    assert_eq!(
        (message.topic.as_str(), message.payload.as_slice()),
        ("house/light", &b"on"[..])
    );
    assert!(message.properties == properties || message.properties.len() == properties.len());
}

#[test]
fn retained_messages_come_with_a_subscription_and_are_cleared_by_nothing() {
    for version in [V3, V5] {
        let lab = Lab::new();
        lab.retain("efl/1/f/m/cur", b"v1");
        lab.retain("efl/1/f/m/cur", b"v2");
        let mut device = lab.device(version, "a");
        assert_eq!(device.subscribe("efl/1/f/m/#", 1), 1);
        let message = device.arrived();
        assert_eq!(
            (message.payload.as_slice(), message.retain),
            (&b"v2"[..], true)
        );
        device.acknowledge(message.id);
        lab.retain("efl/1/f/m/cur", b"v3");
        let message = device.arrived();
        assert_eq!(
            (message.payload.as_slice(), message.retain),
            (&b"v3"[..], false)
        );
        device.acknowledge(message.id);
        lab.retain("efl/1/f/m/cur", b"");
        device.arrived();
        let mut late = lab.device(version, "b");
        late.subscribe("efl/1/f/m/#", 1);
        late.expect_quiet();
    }
}

#[test]
fn subscription_options_of_mqtt_5_are_kept() {
    let lab = Lab::new();
    lab.retain("efl/1/f/m/cur", b"v1");
    let mut device = lab.device(V5, "a");
    assert_eq!(
        device.subscribe("efl/1/f/m/#", 0x20 | 1),
        1,
        "2: no retained messages"
    );
    device.expect_quiet();
    device.subscribe("efl/1/f/m/#", 0x10 | 1);
    device.expect_quiet();
    device.subscribe("efl/1/f/m/#", 0x08 | 1);
    let id = device.arrived().id;
    device.acknowledge(id);
    lab.retain("efl/1/f/m/cur", b"v2");
    assert!(device.arrived().retain, "as published");
    let mut local = lab.client(V5, "tool", &Connect::default());
    local.subscribe("echo", 0x04 | 1);
    local.publish("echo", b"x");
    assert_eq!(local.puback().1, 0x10, "no local");
    local.expect_quiet();
}

#[test]
fn what_is_unsubscribed_is_not_delivered() {
    let lab = Lab::new();
    let mut device = lab.device(V5, "a");
    device.subscribe("efl/1/f/agg", 1);
    assert_eq!(device.unsubscribe("efl/1/f/agg").last(), Some(&0));
    assert_eq!(device.unsubscribe("efl/1/f/agg").last(), Some(&0x11));
    assert_eq!(lab.publish("efl/1/f/agg", b"x", 1), 0);
    device.expect_quiet();
}

#[test]
fn aliases_stand_for_topics() {
    let mut lab = Lab::new();
    lab.endpoint.subscribe(&["efl/1/f/d/+/q".into()]);
    let mut device = lab.device(V5, "a");
    let mut named = crate::harness::text("efl/1/f/d/a/q");
    named.extend([3, 0x23, 0, 1]);
    named.extend(b"one");
    device.send(&crate::harness::packet(0x30, &named));
    device.send(&crate::harness::packet(
        0x30,
        &[0, 0, 3, 0x23, 0, 1, b't', b'w', b'o'],
    ));
    assert_eq!(lab.message().2, b"one");
    let (_, topic, payload, _) = lab.message();
    assert_eq!(
        (topic.as_str(), payload.as_slice()),
        ("efl/1/f/d/a/q", &b"two"[..])
    );
    device.send(&crate::harness::packet(0x30, &[0, 0, 3, 0x23, 0, 99, b'x']));
    device.expect_end(0x94);
}
