//! Connections that have not finished their CONNECT: bounded, and the oldest gives way.
//!
//! An honest client is through in a moment. When there is no room left, the one that has been there
//! longest is most likely there to keep others out, so it goes, and newcomers are let in.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::lock::lock;

/// The room.
pub(crate) struct WaitingRoom {
    most: usize,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    next_number: u64,
    by_number: BTreeMap<u64, Arc<Notify>>,
}

/// A connection's place in the room; dropping it leaves the room.
pub(crate) struct Place {
    room: Arc<WaitingRoom>,
    number: u64,
    shown_out: Arc<Notify>,
}

impl WaitingRoom {
    /// Makes an empty room.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            waiting: Mutex::default(),
        })
    }

    /// Takes a place, for which the oldest gives way where there is none.
    pub(crate) fn enter(self: &Arc<Self>) -> Place {
        let shown_out = Arc::new(Notify::new());
        let mut waiting = lock(&self.waiting);
        if waiting.by_number.len() >= self.most {
            if let Some((_, oldest)) = waiting.by_number.pop_first() {
                oldest.notify_one();
            }
        }
        let number = waiting.next_number;
        waiting.next_number += 1;
        waiting.by_number.insert(number, shown_out.clone());
        Place {
            room: self.clone(),
            number,
            shown_out,
        }
    }
}

impl Place {
    /// Waits until a newcomer needs the place.
    pub(crate) async fn shown_out(&self) {
        self.shown_out.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.room.waiting).by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn must_go(place: &Place) -> bool {
        tokio::select! {
            biased;
            () = place.shown_out() => true,
            () = tokio::task::yield_now() => false,
        }
    }

    #[tokio::test]
    async fn the_oldest_gives_way_and_those_that_left_do_not_count() {
        let room = WaitingRoom::new(2);
        let (first, second) = (room.enter(), room.enter());
        drop(second);
        let third = room.enter();
        assert!(!must_go(&first).await);
        let fourth = room.enter();
        assert!(must_go(&first).await);
        assert!(!must_go(&third).await && !must_go(&fourth).await);
        drop(first); // it has no place any more
        let _fifth = room.enter();
        assert!(must_go(&third).await);
        assert!(!must_go(&fourth).await);
    }
}
