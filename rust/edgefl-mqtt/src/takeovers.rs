//! Tells two owners of one identity from one that reconnects.
//!
//! A takeover counts when the first connection's peer was alive: it ended its side in answer. A
//! client that lost its network does not. Three such takeovers within five minutes, and the next
//! comer is refused for as long as the present owner is heard from; so a mistake costs a device
//! five minutes at most.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

const MOST: usize = 3;
const WITHIN: Duration = Duration::from_secs(300);
/// Sessions that are remembered at most.
const MAX_SESSIONS: usize = 10_000;

/// Takeovers from a living owner, by session.
#[derive(Debug, Default)]
pub(crate) struct Takeovers {
    living: HashMap<String, VecDeque<Instant>>,
}

impl Takeovers {
    /// Notes one.
    pub(crate) fn note(&mut self, session_key: &str, now: Instant) {
        if self.living.len() >= MAX_SESSIONS {
            self.living
                .retain(|_, times| times.back().is_some_and(|&at| now - at <= WITHIN));
        }
        if self.living.len() >= MAX_SESSIONS && !self.living.contains_key(session_key) {
            return;
        }
        let times = self.living.entry(session_key.to_owned()).or_default();
        times.push_back(now);
        while times.len() > MOST {
            times.pop_front();
        }
    }

    /// Whether a session has two owners, as far as is known.
    pub(crate) fn has_two_owners(&self, session_key: &str, now: Instant) -> bool {
        let times = self.living.get(session_key);
        times.is_some_and(|times| times.iter().filter(|&&at| now - at <= WITHIN).count() >= MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_within_five_minutes_are_two_owners() {
        let mut takeovers = Takeovers::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for seconds in [0, 200, 400] {
            takeovers.note("a", at(seconds));
        }
        assert!(
            !takeovers.has_two_owners("a", at(400)),
            "the first is too long ago"
        );
        takeovers.note("a", at(410));
        assert!(takeovers.has_two_owners("a", at(410)));
        assert!(!takeovers.has_two_owners("b", at(410)));
        assert!(!takeovers.has_two_owners("a", at(501)));
    }

    #[test]
    fn memory_is_bounded() {
        let mut takeovers = Takeovers::default();
        let now = Instant::now();
        for number in 0..MAX_SESSIONS + 100 {
            takeovers.note(&number.to_string(), now);
        }
        assert_eq!(takeovers.living.len(), MAX_SESSIONS);
        takeovers.note("late", now + 2 * WITHIN);
        assert_eq!(takeovers.living.len(), 1);
    }
}
