//! MQTT over WebSocket: the handshake's rules, and packets across frames.

use std::io::{Read, Write};
use std::net::TcpStream;

use edgefl_mqtt::{Endpoint, Limits, Listeners, Settings};

use crate::harness::{Connect, FLEET, PATIENCE, V5};

fn endpoint() -> (Endpoint, u16) {
    let settings = Settings {
        fleet: FLEET.into(),
        listeners: Listeners {
            ws: Some(([127, 0, 0, 1], 0).into()),
            ..Listeners::default()
        },
        tls: None,
        limits: Limits::default(),
        worker_threads: 1,
    };
    let endpoint = Endpoint::new(settings, None).expect("good settings");
    let port = endpoint.start().expect("a port").ws.expect("a listener");
    (endpoint, port)
}

fn upgrade(port: u16, path: &str, protocol: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{protocol}\r\n"
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
        answer.push(byte[0]);
    }
    (stream, String::from_utf8(answer).expect("text"))
}

/// A masked binary frame; the mask is zero.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("short");
    assert!(length < 126);
    [&[0x80 | opcode, 0x80 | length, 0, 0, 0, 0][..], payload].concat()
}

fn read_frame(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut head = [0; 2];
    stream.read_exact(&mut head).expect("a frame");
    let mut payload = vec![0; usize::from(head[1])];
    stream.read_exact(&mut payload).expect("its payload");
    (head[0] & 0x0F, payload)
}

#[test]
fn packets_pass_over_frames_however_they_are_cut() {
    let (_endpoint, port) = endpoint();
    let (mut stream, answer) = upgrade(port, "/mqtt", "Sec-WebSocket-Protocol: x, mqtt\r\n");
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    assert!(
        answer
            .to_lowercase()
            .contains("sec-websocket-protocol: mqtt\r\n"),
        "{answer}"
    );
    let connect = Connect::default().packet(V5, "browser");
    stream
        .write_all(&frame(2, &connect[..5]))
        .expect("it reads");
    stream.write_all(&frame(9, b"ping")).expect("it reads");
    stream
        .write_all(&frame(2, &connect[5..]))
        .expect("it reads");
    stream
        .write_all(&frame(2, &[0xC0, 0, 0xC0, 0]))
        .expect("it reads");
    let mut packets = Vec::new();
    while packets.len() < 2 || !packets.ends_with(&[0xD0, 0, 0xD0, 0]) {
        let (opcode, payload) = read_frame(&mut stream);
        match opcode {
            2 => packets.extend(payload),
            10 => assert_eq!(payload, b"ping"),
            other => panic!("opcode {other}"),
        }
    }
    assert_eq!(packets[0], 0x20);
}

#[test]
fn the_handshake_has_rules() {
    let (_endpoint, port) = endpoint();
    let protocol = "Sec-WebSocket-Protocol: mqtt\r\n";
    assert!(upgrade(port, "/other", protocol)
        .1
        .starts_with("HTTP/1.1 404"));
    assert!(upgrade(port, "/mqtt", "").1.starts_with("HTTP/1.1 400"));
    assert!(upgrade(port, "/mqtt", "Sec-WebSocket-Protocol: soap\r\n")
        .1
        .starts_with("HTTP/1.1 400"));
}

#[test]
fn text_frames_end_the_connection() {
    let (_endpoint, port) = endpoint();
    let (mut stream, _) = upgrade(port, "/mqtt", "Sec-WebSocket-Protocol: mqtt\r\n");
    stream.write_all(&frame(1, b"hello")).expect("it reads");
    let mut rest = Vec::new();
    // A close frame or none, and then the end.
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.len() < 64);
}
