//! Interleaving: the order of partitions and of asynchronous operations, random by a seed or
//! extreme.

/// Pseudorandom numbers (splitmix64).
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }
}

/// Time of asynchronous operations.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Asynchronous {
    /// Immediately.
    Early,
    /// If no partition can make progress otherwise.
    Late,
    Random,
}

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    /// A step of this partition.
    Partition(usize),
    /// Completion of this asynchronous operation.
    Event(usize),
}

/// Mean number of actions between changes of the priorities.
const CHANGES: usize = 12;

/// The interleaving of one run.
#[derive(Clone)]
pub struct Order {
    random: Random,
    asynchronous: Asynchronous,
    /// Priorities of the partitions, and of all asynchronous operations. The largest one is next.
    priorities: Vec<u64>,
    /// Priorities do not change.
    fixed: bool,
}

impl Order {
    /// Returns the interleaving of `partitions` partitions, the last of which is the producer if
    /// there is one. Seeds 0 to 2 are the extremes: producer first and late copies; producer last
    /// and late copies; producer first and early copies.
    pub fn new(seed: u64, partitions: usize) -> Order {
        let mut random = Random(seed.wrapping_mul(0x5851_f42d_4c95_7f2d));
        let (first, last) = (0..=partitions as u64, (0..=partitions as u64).rev());
        let (asynchronous, priorities, fixed) = match seed {
            0 => (Asynchronous::Late, first.collect(), true),
            1 => (Asynchronous::Late, last.collect(), true),
            2 => (Asynchronous::Early, first.collect(), true),
            _ => (Asynchronous::Random, first.map(|_| random.next()).collect(), false),
        };
        Order { random, asynchronous, priorities, fixed }
    }

    /// Returns one of the partitions that make progress, or one of `events` asynchronous
    /// operations. `None` if there are neither.
    pub fn next(&mut self, ready: &[usize], events: usize) -> Option<Next> {
        if !self.fixed && self.random.below(CHANGES) == 0 {
            self.priorities.iter_mut().for_each(|priority| *priority = self.random.next());
        }
        let partition = ready.iter().copied().max_by_key(|&partition| self.priorities[partition]);
        let Some(partition) = partition else { return (events > 0).then(|| Next::Event(self.event(events))) };
        let first = match self.asynchronous {
            Asynchronous::Early => true,
            Asynchronous::Late => false,
            Asynchronous::Random => self.priorities.last() > self.priorities.get(partition),
        };
        Some(if first && events > 0 { Next::Event(self.event(events)) } else { Next::Partition(partition) })
    }

    fn event(&mut self, events: usize) -> usize {
        match self.asynchronous {
            Asynchronous::Early => 0,
            // The last one first.
            Asynchronous::Late => events - 1,
            Asynchronous::Random => self.random.below(events),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_has_the_same_order() {
        let run = |seed| {
            let mut order = Order::new(seed, 2);
            (0..200).map(|i| order.next(&[0, 1], i % 5)).collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        assert!(run(0).iter().all(|&next| next == Some(Next::Partition(1))), "whoever loads goes first");
        assert!(run(1).iter().all(|&next| next == Some(Next::Partition(0))));
        assert_eq!(run(2)[3], Some(Next::Event(0)));
        for side in [Next::Partition(0), Next::Partition(1), Next::Event(2)] {
            assert!(run(7).contains(&Some(side)), "{side:?}");
        }
        assert_eq!(Order::new(9, 2).next(&[], 0), None);
        assert_eq!(Order::new(0, 2).next(&[], 3), Some(Next::Event(2)));
    }
}
