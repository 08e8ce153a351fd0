//! The order of PUBACKs: that of the messages, whenever each may be acknowledged.
//! Source: MQTT 5.0, section 4.6.

use std::collections::VecDeque;
use std::num::NonZeroU16;

use crate::mailbox::Slot;
use crate::reason::Reason;

/// Messages of QoS 1 from one client that are not acknowledged yet.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    waiting: VecDeque<(NonZeroU16, Option<Reason>)>,
    first: Slot,
}

impl Acks {
    /// Takes a place for a message, whose acknowledgement may be known already.
    pub(crate) fn open(&mut self, packet_id: NonZeroU16, reason: Option<Reason>) -> Slot {
        self.waiting.push_back((packet_id, reason));
        self.first + self.waiting.len() as Slot - 1
    }

    /// The message in this place may be acknowledged.
    pub(crate) fn close(&mut self, slot: Slot, reason: Reason) {
        let index = slot
            .checked_sub(self.first)
            .and_then(|index| usize::try_from(index).ok());
        if let Some((_, state)) = index.and_then(|index| self.waiting.get_mut(index)) {
            state.get_or_insert(reason);
        }
    }

    /// The next acknowledgement, if nothing before it is missing.
    pub(crate) fn next(&mut self) -> Option<(NonZeroU16, Reason)> {
        let (packet_id, reason) = *self.waiting.front()?;
        let reason = reason?;
        self.waiting.pop_front();
        self.first += 1;
        Some((packet_id, reason))
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_order_of_messages() {
        let mut acks = Acks::default();
        let id = |number| NonZeroU16::new(number).expect("not 0");
        let first = acks.open(id(7), None);
        let second = acks.open(id(8), Some(Reason::Success));
        assert_eq!(acks.next(), None);
        acks.close(second, Reason::NotAuthorized);
        acks.close(first, Reason::QuotaExceeded);
        acks.close(99, Reason::Success);
        assert_eq!(acks.next(), Some((id(7), Reason::QuotaExceeded)));
        assert_eq!(acks.next(), Some((id(8), Reason::Success)));
        acks.close(first, Reason::Success);
        assert_eq!((acks.next(), acks.len()), (None, 0));
    }
}
