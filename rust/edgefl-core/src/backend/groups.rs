//! Brings any run of lanes to code that makes keystream in whole groups of blocks.

use zeroize::Zeroizing;

use super::Sign;
use crate::ring::Lane;

/// Lanes of the largest group: 512 bytes in lanes of two.
const MOST_LANES: usize = 256;

/// Code that combines keystream with lanes, one group of blocks at a time.
pub(crate) trait GroupKernel {
    /// Bytes of a group, at most 512.
    const GROUP_BYTES: usize;

    /// Combines whole groups: `lanes` is a multiple of a group, `first_group` counts from the
    /// start of the stream.
    fn combine_groups<L: Lane>(&self, lanes: &mut [L], first_group: u64, sign: Sign);
}

/// Adds or takes off the keystream; lane `first_lane` of it meets the first of `lanes`.
pub(crate) fn combine<K: GroupKernel, L: Lane>(
    kernel: &K,
    lanes: &mut [L],
    first_lane: u64,
    sign: Sign,
) {
    let group_lanes = K::GROUP_BYTES / L::BYTES;
    let group = first_lane / group_lanes as u64;
    #[allow(clippy::cast_possible_truncation)] // below 512
    let offset = (first_lane % group_lanes as u64) as usize;
    let head_lanes = (group_lanes - offset) % group_lanes;
    let (head, rest) = lanes.split_at_mut(head_lanes.min(lanes.len()));
    combine_part(kernel, head, group, offset, sign);
    let group = group + u64::from(head_lanes > 0);
    let whole_groups = rest.len() / group_lanes;
    let (whole, tail) = rest.split_at_mut(whole_groups * group_lanes);
    kernel.combine_groups(whole, group, sign);
    combine_part(kernel, tail, group + whole_groups as u64, 0, sign);
}

/// Combines a part of one group, whose keystream is laid out in full beside it.
fn combine_part<K: GroupKernel, L: Lane>(
    kernel: &K,
    lanes: &mut [L],
    group: u64,
    offset: usize,
    sign: Sign,
) {
    if lanes.is_empty() {
        return;
    }
    let mut masks = Zeroizing::new([L::default(); MOST_LANES]);
    kernel.combine_groups(&mut masks[..K::GROUP_BYTES / L::BYTES], group, Sign::Add);
    for (lane, mask) in lanes.iter_mut().zip(&masks[offset..]) {
        sign.apply(lane, *mask);
    }
}
