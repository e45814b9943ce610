//! Layout conversions inside of warps by shuffles.
//!
//! A destination position (register `r`, lane `l`) receives its element from a source position,
//! given by a linear map φ. One round transfers one destination register of each lane, which may
//! differ between lanes: in round `ρ` lane `l` receives register `ρ ^ F(l)`. F is chosen so that
//! each sender sends only one register per round: `s` is a function of `ρ` and the sender.

use super::Layout;
use crate::layout::f2_matrix::{self, Span};
use crate::layout::linear_layout::LANE_BITS;
use crate::util::collect::CollectVec as _;
use crate::util::sort;

/// Transfer between the lanes of each warp, in three steps.
///
/// 1. Select: `v[u] = source[u ^ S]`, where S is the XOR of `source_select[i]` over the set bits
///    `i` of the thread number (lane bits, then warp bits).
/// 2. Rounds: in round `k` each lane reads `v[rounds[k].unit]` of the lane `rounds[k].lane ^ L`,
///    where L is the XOR of `lane_map[i]` over the thread bits. The result is `w[k]`. Without
///    `rounds[k].shuffle` it is the value of the thread itself.
/// 3. Select: `destination[u] = w[u ^ D]`, where D is derived from `destination_select`.
///
/// Units are sets of registers whose elements, if narrow, are transferred together in one word.
///
/// ```
/// use cutlet::layout::{Conversion, Layout};
///
/// let (pairs, single) = (Layout::blocked(&[64], &[0], 2, 1), Layout::blocked(&[64], &[0], 1, 1));
/// let Some(Conversion::Shuffle(plan)) = Conversion::plan(&pairs, &single, 32, 0) else { panic!() };
/// assert_eq!((plan.rounds.len(), plan.num_shuffles(32)), (2, 2));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShufflePlan {
    /// Source registers of each unit.
    pub source_units: Vec<Vec<usize>>,
    /// Destination registers of each unit, in the order of the source registers.
    pub destination_units: Vec<Vec<usize>>,
    /// XOR contribution of each thread bit to the source unit that a thread sends.
    pub source_select: Vec<u32>,
    /// XOR contribution of each thread bit to the lane that a thread reads.
    pub lane_map: Vec<u32>,
    /// XOR contribution of each thread bit to the unit that a thread receives.
    pub destination_select: Vec<u32>,
    /// One entry per destination unit.
    pub rounds: Vec<Round>,
}

/// Round of a [`ShufflePlan`].
///
/// ```
/// use cutlet::layout::{Conversion, Layout};
///
/// let (pairs, single) = (Layout::blocked(&[64], &[0], 2, 1), Layout::blocked(&[64], &[0], 1, 1));
/// let Some(Conversion::Shuffle(plan)) = Conversion::plan(&pairs, &single, 32, 0) else { panic!() };
/// assert!(plan.rounds.iter().all(|round| round.shuffle));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Selected source unit that is sent.
    pub unit: usize,
    /// XOR constant of the source lane.
    pub lane: u32,
    /// False if each lane reads its own value.
    pub shuffle: bool,
}

/// Source position inside of the warp: unit number and lane.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    unit: u32,
    lane: u32,
}

impl Place {
    const ZERO: Place = Place { unit: 0, lane: 0 };

    fn xor(self, other: Place) -> Place {
        Place { unit: self.unit ^ other.unit, lane: self.lane ^ other.lane }
    }

    fn sum(places: &[Place], set: usize) -> Place {
        let bits = places.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1);
        bits.fold(Place::ZERO, |sum, (_, place)| sum.xor(*place))
    }
}

impl ShufflePlan {
    /// Plans a conversion without values of other warps. `None` if there is none of this form.
    pub(super) fn new(source: &Layout, destination: &Layout, element_bits: u32) -> Option<ShufflePlan> {
        let packed = packed_bits(source, destination, element_bits);
        Self::with_packing(source, destination, &packed).or_else(|| Self::with_packing(source, destination, &[]))
    }

    fn with_packing(source: &Layout, destination: &Layout, packed: &[(usize, usize)]) -> Option<ShufflePlan> {
        let (sources, destinations): (Vec<usize>, Vec<usize>) = packed.iter().copied().unzip();
        let source_bits = remaining(source.register_bases().len(), &sources);
        let destination_bits = remaining(destination.register_bases().len(), &destinations);
        if destination_bits.len() > 5 {
            return None;
        }
        let unit_bases: Vec<u32> = source_bits.iter().map(|&bit| source.register_bases()[bit]).collect_vec();
        let solver = Solver::new(&unit_bases, source.lane_bases());

        let of_register = |&bit: &usize| solver.solve(destination.register_bases()[bit]);
        let registers: Vec<Place> = destination_bits.iter().map(of_register).collect::<Option<_>>()?;
        let warps: Vec<Place> = (source.warp_bases().iter().zip(destination.warp_bases()))
            .map(|(from, to)| solver.solve(from ^ to))
            .collect::<Option<_>>()?;
        let lanes: Vec<Place> = (0..LANE_BITS)
            .map(|bit| solver.solve_near(destination.lane_bases()[bit], bit, source.lane_bases()[bit]))
            .collect::<Option<_>>()?;

        let (lanes, select) = schedule(&registers, &lanes, &solver.kernel)?;
        let source_select = source_select(&lanes, &warps)?;
        let lane_map: Vec<u32> = lanes.iter().chain(&warps).map(|place| place.lane).collect_vec();
        let own_lane = lane_map.iter().enumerate().all(|(i, &basis)| basis == if i < LANE_BITS { 1 << i } else { 0 });
        let rounds = (0..1 << registers.len())
            .map(|round| Place::sum(&registers, round))
            .map(|place| Round { unit: place.unit as usize, lane: place.lane, shuffle: !own_lane || place.lane != 0 })
            .map(|round| Round { unit: round.unit ^ f2_matrix::apply(&source_select, round.lane) as usize, ..round })
            .collect_vec();
        let mut destination_select = select;
        destination_select.resize(LANE_BITS + warps.len(), 0);
        Some(ShufflePlan {
            source_units: units(&source_bits, &sources),
            destination_units: units(&destination_bits, &destinations),
            source_select,
            lane_map,
            destination_select,
            rounds,
        })
    }

    /// Returns the number of 32-bit shuffles of the plan.
    ///
    /// ```
    /// use cutlet::layout::{Conversion, Layout};
    ///
    /// // Two elements of 16 bits that travel together take one shuffle.
    /// let rows = Layout::new([64], vec![1], vec![2, 4, 8, 16, 32], vec![]);
    /// let turned = Layout::new([64], vec![1], vec![4, 2, 8, 16, 32], vec![]);
    /// let Some(Conversion::Shuffle(plan)) = Conversion::plan(&rows, &turned, 16, 0) else { panic!() };
    /// assert_eq!((plan.num_shuffles(16), plan.num_shuffles(32)), (1, 2));
    /// ```
    pub fn num_shuffles(&self, element_bits: u32) -> usize {
        let unit_bits = element_bits as usize * self.source_units[0].len();
        self.rounds.iter().filter(|round| round.shuffle).count() * unit_bits.div_ceil(32)
    }
}

/// Returns register bits (of source and destination) with the same basis that fit together into 32
/// bits.
fn packed_bits(source: &Layout, destination: &Layout, element_bits: u32) -> Vec<(usize, usize)> {
    let max_packed_bits = (32 / element_bits).max(1).ilog2() as usize;
    let (from, to) = (source.register_bases(), destination.register_bases());
    let partner = |(i, basis): (usize, &u32)| Some((i, to.iter().position(|other| *basis != 0 && other == basis)?));
    // Only bases that are linearly independent of the others, so that the pairing does not depend
    // on them.
    let free = |(i, _): &(usize, usize)| {
        let others: Vec<u32> = from.iter().enumerate().filter(|(j, _)| j != i).map(|(_, v)| *v).collect_vec();
        !Span::new(&others).contains(from[*i])
    };
    from.iter().enumerate().filter_map(partner).filter(free).take(max_packed_bits).collect_vec()
}

fn remaining(count: usize, taken: &[usize]) -> Vec<usize> {
    (0..count).filter(|bit| !taken.contains(bit)).collect_vec()
}

/// Returns the registers of each unit. Units count the bits `high`, the registers of a unit the
/// bits `low`.
fn units(high: &[usize], low: &[usize]) -> Vec<Vec<usize>> {
    let spread = |number: usize, bits: &[usize]| -> usize {
        bits.iter().enumerate().map(|(i, bit)| (number >> i & 1) << bit).sum()
    };
    (0..1 << high.len())
        .map(|unit| (0..1 << low.len()).map(|i| spread(unit, high) | spread(i, low)).collect_vec())
        .collect_vec()
}

/// Solver for source positions of elements inside of a warp.
struct Solver {
    units: usize,
    span: Span,
    registers: Span,
    /// Positions with element 0, which can be added to any solution.
    kernel: Vec<Place>,
}

impl Solver {
    fn new(unit_bases: &[u32], lane_bases: &[u32]) -> Solver {
        let bases = [unit_bases, lane_bases].concat();
        let (mut span, mut kernel) = (Span::default(), Vec::new());
        let place = |set: u64| Place {
            unit: (set & ((1 << unit_bases.len()) - 1)) as u32,
            lane: (set >> unit_bases.len()) as u32,
        };
        for (number, &basis) in bases.iter().enumerate() {
            if let Some(set) = span.solve(basis) {
                kernel.push(place(set | 1 << number));
            }
            span.insert(basis);
        }
        Solver { units: unit_bases.len(), span, registers: Span::new(unit_bases), kernel }
    }

    fn solve(&self, basis: u32) -> Option<Place> {
        let set = self.span.solve(basis)?;
        Some(Place { unit: (set & ((1 << self.units) - 1)) as u32, lane: (set >> self.units) as u32 })
    }

    /// Solves like [`Solver::solve`], with the lane's own bit if possible.
    fn solve_near(&self, basis: u32, lane_bit: usize, own_basis: u32) -> Option<Place> {
        match self.registers.solve(basis ^ own_basis) {
            Some(set) => Some(Place { unit: set as u32, lane: 1 << lane_bit }),
            None => self.solve(basis),
        }
    }
}

/// Selects F bit by bit: for each lane bit the destination unit that it adds to the round, and a
/// source position, such that equal senders send equal units. Returns the positions of the lane
/// bits along the graph of F, and F.
fn schedule(registers: &[Place], lanes: &[Place], kernel: &[Place]) -> Option<(Vec<Place>, Vec<u32>)> {
    let (mut graph, mut select): (Vec<Place>, Vec<u32>) = (Vec::new(), Vec::new());
    let kernel_sets = 1 << kernel.len().min(6);
    let mut candidates: Vec<usize> = (0..1 << registers.len()).collect_vec();
    sort::by_key(&mut candidates, |set| set.count_ones());
    for lane in lanes {
        let choices = candidates.iter().flat_map(|&set| (0..kernel_sets).map(move |more| (set, more)));
        let (set, place) = choices
            .map(|(set, more)| (set, lane.xor(Place::sum(registers, set)).xor(Place::sum(kernel, more))))
            .find(|(_, place)| {
                (0..1 << graph.len())
                    .map(|others| Place::sum(&graph, others).xor(*place))
                    .all(|sum| sum.lane != 0 || sum.unit == 0)
            })?;
        graph.push(place);
        select.push(set as u32);
    }
    Some((graph, select))
}

/// Returns the map from sender threads to sent units, from the positions along the graph.
fn source_select(lanes: &[Place], warps: &[Place]) -> Option<Vec<u32>> {
    let senders: Vec<u32> = lanes.iter().map(|place| place.lane).collect_vec();
    let units: Vec<u32> = lanes.iter().map(|place| place.unit).collect_vec();
    // Lanes that are not read may send any unit: the map is extended by independent lane bits with
    // unit 0.
    let mut extended = Span::new(&senders);
    let mut bases = units;
    for bit in 0..LANE_BITS {
        bases.push(0);
        extended.insert(1 << bit);
    }
    let unit_of = |lane: u32| Some(f2_matrix::apply64(&bases, extended.solve(lane)?));
    let mut select: Vec<u32> = (0..LANE_BITS).map(|bit| unit_of(1 << bit)).collect::<Option<_>>()?;
    for warp in warps {
        select.push(warp.unit ^ f2_matrix::apply(&select[..LANE_BITS], warp.lane));
    }
    Some(select)
}
