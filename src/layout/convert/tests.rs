//! Tests of the plans on a model of the threads: each element must be at the position of the
//! destination layout.

use super::*;
use crate::layout::{Access, Side, local, spatial};
use crate::util::test_sample::one_in;

/// Generator of pseudo-random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

const MISSING: u32 = u32::MAX;

/// Element numbers, as `registers[thread][register]`.
type Held = Vec<Vec<u32>>;

fn fill(layout: &Layout) -> Held {
    let thread = |t: usize| (0..layout.num_registers()).map(|r| layout.element(r, t % 32, t / 32)).collect();
    (0..32 * layout.num_warps()).map(thread).collect()
}

fn run(conversion: &Conversion, source: &Held, count: usize) -> Held {
    match conversion {
        Conversion::Identity => source.clone(),
        Conversion::Registers(map) => source.iter().map(|regs| map.iter().map(|&r| regs[r]).collect()).collect(),
        Conversion::Shuffle(plan) => run_shuffle(plan, source, count),
        Conversion::Shared(plan) => run_shared(plan, source, count),
    }
}

fn run_shuffle(plan: &ShufflePlan, source: &Held, count: usize) -> Held {
    let sent = |thread: usize, unit: usize| -> Vec<u32> {
        let unit = unit ^ f2_matrix::apply(&plan.source_select, thread as u32) as usize;
        plan.source_units[unit].iter().map(|&r| source[thread][r]).collect()
    };
    let mut result = vec![vec![MISSING; count]; source.len()];
    for (thread, registers) in result.iter_mut().enumerate() {
        for (number, round) in plan.rounds.iter().enumerate() {
            let lane = round.lane ^ f2_matrix::apply(&plan.lane_map, thread as u32);
            let sender = thread & !31 | lane as usize;
            assert!(round.shuffle || sender == thread);
            let unit = number ^ f2_matrix::apply(&plan.destination_select, thread as u32) as usize;
            let values = sent(sender, round.unit);
            plan.destination_units[unit].iter().zip(values).for_each(|(&r, value)| registers[r] = value);
        }
    }
    result
}

impl Side {
    fn in_round(&self, round: usize, thread: usize) -> impl Iterator<Item = &Access> {
        let own = f2_matrix::apply(&self.round, thread as u32) as usize;
        self.accesses.iter().filter(move |access| access.round ^ own == round)
    }
}

fn run_shared(plan: &SharedPlan, source: &Held, count: usize) -> Held {
    let mut result = vec![vec![MISSING; count]; source.len()];
    let address = |side: &Side, access: &Access, thread: usize| {
        let bytes = (f2_matrix::apply(&side.thread, thread as u32) ^ access.xor) + access.offset;
        assert_eq!(bytes as usize % (plan.vector * plan.element_bytes), 0, "aligned");
        assert!(bytes as usize + plan.vector * plan.element_bytes <= plan.bytes, "within the buffer");
        bytes as usize / plan.element_bytes
    };
    for round in 0..plan.rounds {
        let mut memory = vec![MISSING; plan.bytes / plan.element_bytes];
        for (thread, held) in source.iter().enumerate() {
            for access in plan.store.in_round(round, thread) {
                let at = address(&plan.store, access, thread);
                for (i, &r) in access.registers.iter().enumerate() {
                    assert!(memory[at + i] == MISSING || memory[at + i] == held[r], "two elements in one place");
                    memory[at + i] = held[r];
                    let place = f2_matrix::apply(&plan.offset_bases, held[r]) as usize / plan.element_bytes;
                    assert_eq!(place, at + i);
                }
            }
        }
        for (thread, held) in result.iter_mut().enumerate() {
            for access in plan.load.in_round(round, thread) {
                let at = address(&plan.load, access, thread);
                access.registers.iter().enumerate().for_each(|(i, &r)| held[r] = memory[at + i]);
                access.copies.iter().for_each(|&(from, to)| held[to] = held[from]);
            }
        }
    }
    result
}

fn check(source: &Layout, destination: &Layout, bits: u32, budget: usize) -> Conversion {
    let conversion = Conversion::plan(source, destination, bits, budget).expect("convertible");
    let result = run(&conversion, &fill(source), destination.num_registers());
    assert_eq!(result, fill(destination), "{source:?} to {destination:?}: {conversion:?}");
    if let Conversion::Shared(plan) = &conversion {
        assert_eq!(plan.bank_conflicts(), (0, 0), "{source:?} to {destination:?}: {plan:?}");
    }
    conversion
}

/// Makes a random layout of `bits` element bits: unit bases in random order, some thread bits
/// replicated.
fn random_layout(random: &mut Random, bits: usize, warp_bits: usize) -> Layout {
    let mut bases: Vec<u32> = (0..bits).map(|bit| 1 << bit).collect();
    for i in (1..bits).rev() {
        bases.swap(i, random.below(i + 1));
    }
    let mut threads: Vec<u32> = Vec::new();
    for _ in 0..5 + warp_bits {
        let replicated = bases.is_empty() || random.below(5) == 0;
        threads.push(if replicated { 0 } else { bases.remove(0) });
    }
    let warp = threads.split_off(5);
    Layout::new([1 << (bits / 2), 1 << (bits - bits / 2)], bases, threads, warp)
}

/// Makes a layout of random bases that cover the tile.
fn random_linear(random: &mut Random, bits: usize, warp_bits: usize) -> Layout {
    loop {
        let mut some = |count: usize| -> Vec<u32> { (0..count).map(|_| random.below(1 << bits) as u32).collect() };
        let (lane, warp) = (some(5), some(warp_bits));
        let missing = bits.saturating_sub(f2_matrix::rank(&[&lane[..], &warp].concat()));
        let register = some(missing + 1);
        let layout = Layout::new([1 << bits], register, lane, warp);
        if layout.covers() {
            return layout;
        }
    }
}

#[test]
fn random_unit_layouts() {
    let random = &mut Random(0x9e3779b97f4a7c15);
    let mut kinds = [0; 4];
    let tries = 1500 / one_in(5);
    for _ in 0..tries {
        let (bits, warps) = (random.below(12), random.below(3));
        let (source, destination) = (random_layout(random, bits, warps), random_layout(random, bits, warps));
        let element_bits = 8 << random.below(4);
        let conversion = check(&source, &destination, element_bits, [1 << 20, 1 << 9][random.below(2)]);
        kinds[match conversion {
            Conversion::Identity => 0,
            Conversion::Registers(_) => 1,
            Conversion::Shuffle(_) => 2,
            Conversion::Shared(_) => 3,
        }] += 1;
    }
    assert!(kinds[2] > tries / 30 && kinds[3] > tries / 3, "{kinds:?}");
}

#[test]
fn random_linear_layouts() {
    let random = &mut Random(0x2545f4914f6cdd1d);
    for _ in 0..800 {
        let (bits, warps) = (1 + random.below(9), random.below(3));
        let (source, destination) = (random_linear(random, bits, warps), random_linear(random, bits, warps));
        check(&source, &destination, 8 << random.below(4), 1 << 20);
    }
}

/// Layouts that differ only inside of warps.
#[test]
fn random_shuffles() {
    let random = &mut Random(0xd1342543de82ef95);
    let mut shuffles = 0;
    for _ in 0..1000 {
        let bits = 2 + random.below(6);
        let (source, destination) = (random_layout(random, bits, 0), random_layout(random, bits, 0));
        shuffles += matches!(check(&source, &destination, 32, 1 << 20), Conversion::Shuffle(_)) as usize;
    }
    assert!(shuffles > 500, "{shuffles}");
}

#[test]
fn registers_are_renamed() {
    let a = Layout::blocked(&[64, 64], &[1, 0], 4, 4);
    let [low, high, rest @ ..] = a.register_bases() else { panic!() };
    let swapped =
        Layout::new([64, 64], [&[*high, *low], rest].concat(), a.lane_bases().to_vec(), a.warp_bases().to_vec());
    assert_eq!(check(&a, &a, 32, 1 << 16), Conversion::Identity);
    let Conversion::Registers(map) = check(&a, &swapped, 32, 1 << 16) else { panic!() };
    assert_eq!(map[..4], [0, 2, 1, 3]);
}

#[test]
fn a_transposition_of_lanes_and_registers_is_shuffled() {
    let rows = (spatial([8, 4]) * local([1, 2])).to_layout(1).unwrap();
    let pairs = (spatial([8, 1]) * local([1, 2]) * spatial([1, 4])).to_layout(1).unwrap();
    let Conversion::Shuffle(plan) = check(&rows, &pairs, 32, 1 << 16) else { panic!() };
    assert!(plan.num_shuffles(32) <= 2);
}

#[test]
fn half_precision_pairs_travel_together() {
    let rows = (spatial([8, 4]) * local([1, 2])).to_layout(1).unwrap();
    let swapped = Layout::new([8, 8], vec![1], vec![8, 16, 32, 2, 4], vec![]);
    let Conversion::Shuffle(plan) = check(&rows, &swapped, 16, 1 << 16) else { panic!() };
    assert_eq!(plan.num_shuffles(16), 1);
}

#[test]
fn coalesced_to_fragments() {
    for num_warps in [1, 4, 8] {
        for bits in [8, 16, 32, 64] {
            let vector = 128 / bits as usize;
            let source = Layout::blocked(&[128, 64], &[1, 0], vector, num_warps);
            let fragment = (local([2, 1]) * spatial([8, 4]) * local([1, 2])).to_layout(1).unwrap();
            let mut outer: Vec<u32> = (0..6).map(|bit| 1 << bit).collect();
            let warp = outer.split_off(6 - num_warps.ilog2() as usize);
            let tiles = Layout::new([8, 8], outer, vec![0; 5], warp);
            let destination = tiles.compose(&fragment).unwrap();
            let Conversion::Shared(plan) = check(&source, &destination, bits, 1 << 20) else { panic!() };
            assert!(plan.vector >= 2);
            check(&destination, &source, bits, 1 << 14);
        }
    }
}

#[test]
fn rounds_bound_the_buffer() {
    let rows = Layout::blocked(&[128, 128], &[1, 0], 4, 4);
    let columns = Layout::blocked(&[128, 128], &[0, 1], 4, 4);
    let Conversion::Shared(plan) = check(&rows, &columns, 32, 20_000) else { panic!() };
    assert_eq!((plan.bytes, plan.rounds), (16384, 4));
}

#[test]
fn unsupported_conversions() {
    let half = Layout::new([64], vec![], vec![1, 2, 4, 8, 16], vec![]);
    let whole = Layout::blocked(&[64], &[0], 1, 1);
    assert_eq!(Conversion::plan(&half, &whole, 32, 1 << 16), None);
    assert!(Conversion::plan(&whole, &half, 32, 1 << 16).is_some());
    assert_eq!(Conversion::plan(&whole, &Layout::blocked(&[64], &[0], 1, 2), 32, 1 << 16), None);
}
