//! Layout conversions through shared memory with swizzled addresses.
//!
//! The offset of an element in the buffer is an F2-linear function of its index. The columns of its
//! matrix are the elements of one vector (common to both layouts), then those of one row of banks,
//! then those of different rows. Two elements of a wavefront conflict if they differ by a
//! combination of row and vector columns that is not a combination of vector columns alone. The
//! rows are therefore a common complement of the lane spaces of both sides. Each pair of subspaces
//! of equal dimension has such a complement over any field, so neither side has bank conflicts.

use super::Layout;
use crate::layout::f2_matrix::{self, Span};
use crate::layout::linear_layout::LANE_BITS;
use crate::layout::shared_layout::{BANK_ROW_BYTES, MAX_VECTOR_BYTES, Side};
use crate::util::collect::CollectVec as _;

/// Conversion through shared memory: each thread stores its registers, a barrier follows, each
/// thread loads. With several rounds, each round transfers a part of the tile, and a further
/// barrier precedes the stores of the next round.
///
/// ```
/// use cutlet::layout::{Layout, SharedPlan};
///
/// let (rows, columns) = (Layout::blocked(&[64, 64], &[1, 0], 4, 4), Layout::blocked(&[64, 64], &[0, 1], 4, 4));
/// let plan = SharedPlan::new(&rows, &columns, 32, 8 << 10);
/// assert_eq!((plan.bytes, plan.rounds), (8 << 10, 2));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedPlan {
    /// Bytes of shared memory of one round. The buffer must be aligned to [`SharedPlan::vector`]
    /// elements. Addresses are offsets from its start.
    pub bytes: usize,
    /// Number of rounds.
    pub rounds: usize,
    /// Bytes of one element.
    pub element_bytes: usize,
    /// Elements of each access.
    pub vector: usize,
    /// Byte offset of each bit of the flat element index. Offsets of several bits are combined by
    /// exclusive or.
    pub offset_bases: Vec<u32>,
    /// Contribution of each bit of the flat element index to the number of the round, combined by
    /// exclusive or.
    pub round_bases: Vec<u32>,
    /// Stores.
    pub store: Side,
    /// Loads.
    pub load: Side,
}

impl SharedPlan {
    /// Plans the conversion for elements of `element_bits`. It uses at most `budget` bytes if the
    /// layouts allow division of the tile into rounds. The layouts must have one shape and the same
    /// number of warps.
    ///
    /// ```
    /// use cutlet::layout::{Layout, SharedPlan};
    ///
    /// let (rows, columns) = (Layout::blocked(&[32, 32], &[1, 0], 4, 1), Layout::blocked(&[32, 32], &[0, 1], 4, 1));
    /// assert_eq!(SharedPlan::new(&rows, &columns, 16, 48 << 10).bytes, 32 * 32 * 2);
    /// ```
    pub fn new(source: &Layout, destination: &Layout, element_bits: u32, budget: usize) -> SharedPlan {
        let element_bytes = element_bits.div_ceil(8) as usize;
        let columns = Columns::new(source, destination, element_bytes, budget);
        let bits = source.num_elements().ilog2();
        let offset_count = columns.offset.len();
        let all = [&columns.offset[..], &columns.round].concat();
        let span = Span::new(&all);
        let row = |bit: u32| span.solve(1 << bit).unwrap_or_else(|| unreachable!("the columns are a basis"));
        let offset_mask = (1u64 << offset_count) - 1;
        let offset_bases: Vec<u32> =
            (0..bits).map(|bit| (row(bit) & offset_mask) as u32 * element_bytes as u32).collect_vec();
        let round_bases: Vec<u32> = (0..bits).map(|bit| (row(bit) >> offset_count) as u32).collect_vec();
        let vector = &columns.offset[..columns.vector];
        let side = |layout: &Layout| Side::new(layout, vector, element_bytes, &offset_bases, &round_bases);
        SharedPlan {
            bytes: element_bytes << offset_count,
            rounds: 1 << columns.round.len(),
            element_bytes,
            vector: 1 << columns.vector,
            store: side(source),
            load: side(destination),
            offset_bases,
            round_bases,
        }
    }

    /// Returns the wavefronts of all stores and of all loads of the tile block in excess of the
    /// minimum. The minimum is one for each 128 bytes of an access of a warp.
    ///
    /// ```
    /// use cutlet::layout::{Layout, SharedPlan};
    ///
    /// let (rows, columns) = (Layout::blocked(&[32, 32], &[1, 0], 4, 1), Layout::blocked(&[32, 32], &[0, 1], 4, 1));
    /// assert_eq!(SharedPlan::new(&rows, &columns, 16, 48 << 10).bank_conflicts(), (0, 0));
    /// ```
    pub fn bank_conflicts(&self) -> (usize, usize) {
        (self.store.bank_conflicts(self.element_bytes), self.load.bank_conflicts(self.element_bytes))
    }
}

/// Basis of the element space, in the order of the offset bits, and of its complement outside of
/// one round.
struct Columns {
    offset: Vec<u32>,
    /// Number of offset columns that form one vector.
    vector: usize,
    round: Vec<u32>,
}

impl Columns {
    fn new(source: &Layout, destination: &Layout, element_bytes: usize, budget: usize) -> Columns {
        let units: Vec<u32> = (0..source.num_elements().ilog2()).map(|bit| 1 << bit).collect_vec();
        let lanes = [source.lane_bases(), destination.lane_bases()].concat();
        let warps = [source.warp_bases(), destination.warp_bases()].concat();
        let vector = common_vector(source, destination, &[&lanes[..], &warps].concat(), element_bytes);
        let vector_bytes = element_bytes << vector.len();

        // Elements that differ in lanes are in one round. Rounds differ in registers, or otherwise
        // in warps.
        let tile_bytes = source.num_elements() * element_bytes;
        let wanted_rounds = tile_bytes.div_ceil(budget.max(1)).next_power_of_two().ilog2() as usize;
        let fixed = linearly_independent(&vector, &lanes);
        let extension = linearly_independent(&[&vector[..], &fixed].concat(), &[&warps[..], &units].concat());
        let kept = extension.len().saturating_sub(wanted_rounds);
        let round = extension[kept..].to_vec();
        // A complement of the vector that contains the thread bases, so that addresses of vectors
        // are aligned.
        let basis = [&fixed[..], &extension[..kept]].concat();
        let inside = Span::new(&basis);
        let mut generators: Vec<u32> = units.iter().copied().filter(|&unit| inside.contains(unit)).collect_vec();
        generators.extend(&basis);

        // Vectors narrower than a bank are combined to words, which lanes may share.
        let word_bits = (4 / vector_bytes).max(1).ilog2() as usize;
        let word: Vec<u32> = basis.iter().copied().take(word_bits).collect_vec();
        let over_word = |vectors: &[u32]| linearly_independent(&word, vectors);
        // Lanes of one wavefront.
        let active = LANE_BITS - (vector_bytes / 4).max(1).ilog2() as usize;
        let (from, to) = (over_word(&source.lane_bases()[..active]), over_word(&destination.lane_bases()[..active]));
        let both = [&word[..], &from, &to].concat();
        let mut rows = linearly_independent(&both, &generators);
        // Modulo the common part of both lane spaces, the sum of one vector of each is in neither
        // of them.
        let only_from = linearly_independent(&[&word[..], &to].concat(), &from);
        let only_to = linearly_independent(&[&word[..], &from].concat(), &to);
        rows.extend(only_from.iter().zip(&only_to).map(|(a, b)| a ^ b));
        let bank_bits = (BANK_ROW_BYTES / vector_bytes.max(4)).ilog2() as usize;
        rows.truncate(basis.len().saturating_sub(word.len() + bank_bits));
        let banks = linearly_independent(&[&word[..], &rows].concat(), &generators);
        Columns { vector: vector.len(), offset: [vector, word, banks, rows].concat(), round }
    }
}

/// Returns a basis of the elements that both layouts have in registers, in register order of the
/// source, up to the widest access.
fn common_vector(source: &Layout, destination: &Layout, threads: &[u32], element_bytes: usize) -> Vec<u32> {
    let max_vector_bits = (MAX_VECTOR_BYTES / element_bytes).ilog2() as usize;
    let other = Span::new(destination.register_bases());
    let mut candidates: Vec<u32> =
        source.register_bases().iter().copied().filter(|&own| other.contains(own)).collect_vec();
    candidates.extend(f2_matrix::intersection(source.register_bases(), destination.register_bases()));
    // No combination of threads may change the position inside of a vector.
    let mut vector = linearly_independent(threads, &candidates);
    vector.truncate(max_vector_bits);
    vector
}

/// Returns the vectors that are linearly independent of `base` and of the vectors before them.
fn linearly_independent(base: &[u32], vectors: &[u32]) -> Vec<u32> {
    let mut span = Span::new(base);
    vectors.iter().copied().filter(|&vector| span.insert(vector)).collect_vec()
}
