//! How many connections each address may open: a burst, then a steady rate.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

const BURST: f64 = 5.0;
/// Addresses that are remembered at most; beyond it those that are quiet are forgotten.
const MAX_ADDRESSES: usize = 10_000;

/// A token bucket for each address.
#[derive(Debug)]
pub(crate) struct PeerRate {
    per_s: f64,
    buckets: HashMap<IpAddr, (f64, Instant)>,
}

impl PeerRate {
    pub(crate) fn new(per_s: u32) -> Self {
        Self {
            per_s: f64::from(per_s),
            buckets: HashMap::new(),
        }
    }

    /// Tells whether an address may open one more connection now.
    pub(crate) fn allow(&mut self, address: IpAddr, now: Instant) -> bool {
        let full = self.per_s * BURST;
        if self.buckets.len() >= MAX_ADDRESSES && !self.buckets.contains_key(&address) {
            self.forget_quiet(now, full);
            if self.buckets.len() >= MAX_ADDRESSES {
                return false;
            }
        }
        let (tokens, last) = self.buckets.entry(address).or_insert((full, now));
        *tokens =
            full.min(*tokens + now.saturating_duration_since(*last).as_secs_f64() * self.per_s);
        *last = now;
        if *tokens < 1.0 {
            return false;
        }
        *tokens -= 1.0;
        true
    }

    fn forget_quiet(&mut self, now: Instant, full: f64) {
        let per_s = self.per_s;
        self.buckets.retain(|_, (tokens, last)| {
            *tokens + now.saturating_duration_since(*last).as_secs_f64() * per_s < full
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let mut rate = PeerRate::new(10);
        let address = IpAddr::from([10, 0, 0, 1]);
        let now = Instant::now();
        let passed = (0..100).filter(|_| rate.allow(address, now)).count();
        assert_eq!(passed, 50);
        assert!(rate.allow(IpAddr::from([10, 0, 0, 2]), now));
        let later = now + Duration::from_millis(500);
        assert_eq!((0..100).filter(|_| rate.allow(address, later)).count(), 5);
    }

    #[test]
    fn memory_is_bounded() {
        let mut rate = PeerRate::new(1);
        let now = Instant::now();
        for number in 0..20_000u32 {
            rate.allow(IpAddr::from(number.to_be_bytes()), now);
        }
        assert!(rate.buckets.len() <= MAX_ADDRESSES);
        assert!(rate.allow(IpAddr::from([99, 0, 0, 1]), now + Duration::from_secs(60)));
    }
}
