//! The endpoint's rules, one by one, from outside: raw bytes over real sockets.

mod access;
mod bounds;
mod chunks;
mod delivery;
mod gateway;
mod harness;
mod hostile;
mod sessions;
mod takeover;
mod tls;
mod websocket;
mod wills;
