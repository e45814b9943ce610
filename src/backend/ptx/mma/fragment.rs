//! Operand fragments of `mma.sync`: loads from shared memory, or reads of registers.

use super::super::isa::builder::Builder;
use super::super::isa::inst::*;
use super::request::{OperandSource, of_rank};
use super::smem_operand::{SmemReader, round_to_tf32};
use crate::layout::{Layout, SharedLayout, Tiling};
use crate::util::collect::CollectVec as _;

/// Instructions that load fragments from shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fetch {
    /// `ldmatrix`; `trans` if elements along m, n are contiguous.
    Matrix { trans: bool },
    /// One load per register word.
    Words,
    /// Words of four adjacent elements along m, n from four rows, transposed in registers: 8-bit
    /// elements.
    Transposed,
    /// One load per element: extents below the instruction's, or 8-bit elements that are not
    /// contiguous along k.
    Elements,
}

/// One operand of a tiling.
#[derive(Clone, Debug)]
pub(super) struct Fragments {
    /// Layout with all register bits of the tiling, shape (batch, rows, columns).
    pub layout: Layout,
    /// log2 of the elements of one register word, and of the words of one fragment.
    word: u32,
    words: u32,
    /// log2 of the steps along k and of the repeats along m (or n).
    steps: u32,
    repeats: u32,
    /// log2 of the rows of a fragment that one thread holds.
    upper: u32,
    /// Register and lane bits beyond the extent of k.
    surplus: (u32, u32),
    pub fetch: Fetch,
    /// Bases of the rows of one 8 × 16-byte matrix.
    rows: [u32; 3],
    /// Bases of the bits of k that count steps.
    pub step_bases: Vec<u32>,
    pub shared: SharedLayout,
    element: Ty,
}

impl Fragments {
    pub fn new(tiling: &Tiling, is_left: bool, k_contiguous: bool, element: Ty, rank: usize) -> Fragments {
        let [batch, m, n, k] = tiling.extents;
        let layout = if is_left { tiling.left() } else { tiling.right() };
        let (surplus, outer, instruction_words, repeats) = if is_left {
            (tiling.left_surplus(), m, tiling.instruction.left_words(), tiling.repeats()[1])
        } else {
            (tiling.right_surplus(), n, tiling.instruction.right_words(), tiling.repeats()[2])
        };
        let shape = if is_left { [batch, m, k] } else { [batch, k, n] };
        let (k_axis, outer_axis) = if is_left { (2, 1) } else { (1, 2) };
        let (k_stride, outer_stride) = if is_left { (1, k) } else { (n, 1) };

        let bits = element.bits();
        let whole_words = bits >= 32 || k_contiguous;
        let chunk = i64::from(128 / bits);
        let fetch = match k_contiguous {
            true if surplus == (0, 0) && k >= chunk && bits <= 32 => Fetch::Matrix { trans: false },
            false if surplus == (0, 0) && bits == 16 && outer >= chunk => Fetch::Matrix { trans: true },
            false if surplus == (0, 0) && tiling.interleaved[if is_left { 0 } else { 1 }] => Fetch::Transposed,
            _ if surplus == (0, 0) && whole_words => Fetch::Words,
            _ => Fetch::Elements,
        };
        let axis = |stride: i64, extent: i64| {
            std::array::from_fn(|bit| if 1 << bit < extent { (stride as u32) << bit } else { 0 })
        };
        let rows = if fetch == (Fetch::Matrix { trans: true }) { axis(k_stride, k) } else { axis(outer_stride, outer) };
        let (vector_bytes, distinct_lanes) = match fetch {
            Fetch::Matrix { .. } => (16, &rows[..]),
            Fetch::Transposed => (4, layout.lane_bases()),
            Fetch::Words => (bits.max(32) as usize / 8, &layout.lane_bases()[..if bits == 64 { 4 } else { 5 }]),
            Fetch::Elements => (bits as usize / 8, layout.lane_bases()),
        };
        let distinct_lanes: Vec<u32> = distinct_lanes.iter().copied().filter(|&basis| basis != 0).collect_vec();
        let fast = if k_contiguous { [k_axis, outer_axis, 0] } else { [outer_axis, k_axis, 0] };
        let order: Vec<usize> = fast.into_iter().filter_map(|axis: usize| axis.checked_sub(3 - rank)).collect_vec();
        let element_bytes = bits as usize / 8;
        let shared =
            SharedLayout::swizzled(&of_rank(shape, rank), &order, element_bytes, vector_bytes, &distinct_lanes);
        let step_bases = (0..tiling.steps()).map(|bit| ((k_stride * tiling.instruction.k) as u32) << bit).collect_vec();
        Fragments {
            word: tiling.instruction.word_bits(),
            words: instruction_words.ilog2(),
            steps: tiling.steps(),
            repeats,
            upper: if is_left { tiling.instruction.m.ilog2() - 3 } else { 0 },
            surplus,
            fetch,
            rows,
            step_bases,
            shared,
            element,
            layout,
        }
    }

    /// Returns the first register of a fragment.
    fn first(&self, batch: usize, repeat: usize, step: usize) -> usize {
        ((((batch << self.repeats) | repeat) << self.steps) | step) << (self.word + self.words)
    }

    fn smem_offset(&self, register: usize) -> u32 {
        self.shared.offset(self.layout.element(register, 0, 0))
    }

    /// Returns log2 of the fragments that one `ldmatrix` of at most four words reads.
    fn group(&self) -> u32 {
        (2 - self.words).min(self.repeats)
    }

    /// Returns the byte offsets of the bits of the thread number for a load.
    pub fn thread_offsets(&self) -> Vec<u32> {
        let registers = self.layout.register_bases();
        let warps = self.layout.warp_bases().iter().copied();
        let lanes: Vec<u32> = match self.fetch {
            Fetch::Matrix { .. } => {
                // Lane bits 3 and 4 select the matrix: words, then repeats.
                let words = &registers[self.word as usize..][..self.words as usize];
                let repeats = (self.word + self.words + self.steps) as usize;
                let mut lanes = [&self.rows[..], words, &registers[repeats..][..self.group() as usize]].concat();
                lanes.resize(5, 0);
                lanes
            }
            Fetch::Words | Fetch::Transposed | Fetch::Elements => self.layout.lane_bases().to_vec(),
        };
        lanes.into_iter().chain(warps).map(|basis| self.shared.offset(basis)).collect_vec()
    }

    /// Returns the approximate number of instructions that load the fragments of one step.
    pub fn step_cost(&self) -> usize {
        let words = 1 << (self.words + self.repeats);
        match self.fetch {
            Fetch::Matrix { .. } => words >> (self.words + self.group()),
            Fetch::Words => words,
            Fetch::Transposed => 3 * words,
            Fetch::Elements => words << (self.word + 1),
        }
    }
}

/// An operand during emission.
pub(super) struct FragmentOperand<'a> {
    fragments: &'a Fragments,
    from: From<'a>,
    /// Words are f32 that are converted to tf32.
    unrounded: bool,
    /// True in lanes beyond the extent of k.
    outside: Option<Reg>,
}

enum From<'a> {
    Shared(SmemReader),
    Registers(&'a [Operand]),
}

impl<'a> FragmentOperand<'a> {
    pub fn new(
        b: &mut Builder,
        fragments: &'a Fragments,
        source: OperandSource<'a>,
        base: Operand,
        thread: Reg,
    ) -> FragmentOperand<'a> {
        let outside = (fragments.surplus.1 != 0).then(|| {
            let bits = b.and(Ty::B32, thread, fragments.surplus.1);
            b.setp(Cmp::Ne, Ty::U32, bits, 0u32)
        });
        let from = match source {
            OperandSource::Shared(_) | OperandSource::Unrounded(_) => {
                From::Shared(SmemReader::new(b, base, thread, &fragments.thread_offsets()))
            }
            OperandSource::Registers(values) => From::Registers(values),
            OperandSource::Panels(..) => unreachable!("panels are for descriptors"),
        };
        FragmentOperand { fragments, from, unrounded: matches!(source, OperandSource::Unrounded(_)), outside }
    }

    /// Returns the words of all fragments of a step: `words[repeat][word]`.
    pub fn step(&mut self, b: &mut Builder, batch: usize, step: usize) -> Vec<Vec<Operand>> {
        let fragments = self.fragments;
        let shared = matches!(self.from, From::Shared(_));
        let group = match fragments.fetch {
            Fetch::Matrix { .. } if shared => 1 << fragments.group(),
            // Four adjacent rows: the upper and lower rows of two left fragments, or four right
            // ones.
            Fetch::Transposed if shared => 4 >> fragments.upper,
            _ => 1,
        };
        (0..1usize << fragments.repeats)
            .step_by(group)
            .flat_map(|repeat| {
                let first = fragments.first(batch, repeat, step);
                let mut words: Vec<Operand> = match fragments.fetch {
                    Fetch::Matrix { trans } if shared => self.matrices(b, first, group, trans),
                    Fetch::Transposed if shared => self.transposed(b, first),
                    _ => self.words(b, first),
                };
                if self.unrounded {
                    words.iter_mut().for_each(|word| *word = self.round(b, *word));
                }
                words.chunks(1 << fragments.words).map(<[Operand]>::to_vec).collect_vec()
            })
            .collect_vec()
    }

    /// Returns the words of one fragment of f64 elements.
    pub fn fragment(&mut self, b: &mut Builder, batch: usize, repeat: usize, step: usize) -> Vec<Operand> {
        self.words(b, self.fragments.first(batch, repeat, step))
    }

    /// Returns the words of the fragment that begins at a register.
    fn words(&mut self, b: &mut Builder, first: usize) -> Vec<Operand> {
        (0..1usize << self.fragments.words).map(|w| self.word(b, first + (w << self.fragments.word))).collect_vec()
    }

    fn round(&self, b: &mut Builder, word: Operand) -> Operand {
        let number = b.bitcast(word, RegClass::F32);
        round_to_tf32(b, number).into()
    }

    /// Returns the words of the fragments with four adjacent rows along m (or n).
    fn transposed(&mut self, b: &mut Builder, first: usize) -> Vec<Operand> {
        let From::Shared(reader) = &mut self.from else { unreachable!("rows are read from shared memory") };
        let fragments = self.fragments;
        let upper = fragments.upper;
        let chunks = 1usize << (fragments.words - upper);
        let mut words = vec![Operand::Imm(0); 4 * chunks];
        for chunk in 0..chunks {
            let chunk_first = first + (chunk << (fragments.word + upper));
            let rows = [0, 1, 2, 3].map(|k| {
                let addr = reader.at(b, fragments.smem_offset(chunk_first + k));
                b.ld(Space::Shared, Ty::B32, &addr, MemMods::default())
            });
            for (neighbour, word) in
                transpose_bytes(b, rows, [0x5410u32, 0x7632].map(Operand::from)).into_iter().enumerate()
            {
                // The lowest bits of the number of an adjacent row select the upper rows, then the
                // repeats.
                let (high, repeat) = (neighbour & ((1 << upper) - 1), neighbour >> upper);
                words[(repeat << fragments.words) + (chunk << upper) + high] = word;
            }
        }
        words
    }

    fn matrices(&mut self, b: &mut Builder, first: usize, group: usize, trans: bool) -> Vec<Operand> {
        let From::Shared(reader) = &mut self.from else { unreachable!("matrices are read from shared memory") };
        let addr = reader.at(b, self.fragments.smem_offset(first));
        let count = group << self.fragments.words;
        b.ldmatrix(count as u32, trans, &addr).into_iter().map(Operand::Reg).collect_vec()
    }

    /// Returns the register word whose first element is in `register`.
    fn word(&mut self, b: &mut Builder, register: usize) -> Operand {
        let fragments = self.fragments;
        let ty = if fragments.element == Ty::F64 { Ty::F64 } else { Ty::B32 };
        if let (Fetch::Words, From::Shared(reader)) = (fragments.fetch, &mut self.from) {
            let addr = reader.at(b, fragments.smem_offset(register));
            return b.ld(Space::Shared, ty, &addr, MemMods::default()).into();
        }
        let elements: Vec<Operand> =
            (register..register + (1 << fragments.word)).map(|r| self.element(b, r)).collect_vec();
        let word = pack(b, fragments.element, &elements);
        match self.outside {
            Some(outside) => b.select(ty.class(), outside, Operand::Imm(0), word),
            None => word,
        }
    }

    /// Returns one element: 16-bit ones in B16, narrower ones in the low bits of B32.
    fn element(&mut self, b: &mut Builder, register: usize) -> Operand {
        let fragments = self.fragments;
        if register as u32 & fragments.surplus.0 != 0 {
            return Operand::Imm(0);
        }
        match &mut self.from {
            From::Registers(values) => values[fragments.layout.canonical_register(register)],
            From::Shared(reader) => {
                let ty = match fragments.element.bits() {
                    8 => Ty::U8,
                    16 => Ty::B16,
                    32 => Ty::B32,
                    _ => Ty::F64,
                };
                let addr = reader.at(b, fragments.smem_offset(register));
                b.ld(Space::Shared, ty, &addr, MemMods::default()).into()
            }
        }
    }
}

/// Transposes bytes: word `j` of the result has byte `j` of each row, in order. `joins` are the
/// selectors that combine the halves of even and of odd words: 0x5410 and 0x7632. XOR 0x4444
/// exchanges the halves, for threads whose last two rows are first.
pub(super) fn transpose_bytes(b: &mut Builder, [r0, r1, r2, r3]: [Reg; 4], joins: [Operand; 2]) -> [Operand; 4] {
    let mut halves = |selector: u32| (b.prmt(r0, r1, selector), b.prmt(r2, r3, selector));
    let (low, high) = (halves(0x5140), halves(0x7362));
    [(low, joins[0]), (low, joins[1]), (high, joins[0]), (high, joins[1])]
        .map(|((first, second), join)| b.prmt(first, second, join))
}

/// Packs elements into one register word.
fn pack(b: &mut Builder, element: Ty, elements: &[Operand]) -> Operand {
    match (element.bits(), elements) {
        (16, &[lo, hi]) => {
            let (lo, hi) = (b.reg(lo, RegClass::B16), b.reg(hi, RegClass::B16));
            b.pack(lo, hi)
        }
        (8, &[a, c, d, e]) => {
            let (low, high) = (b.prmt(a, c, 0x0040u32), b.prmt(d, e, 0x0040u32));
            b.prmt(low, high, 0x5410u32)
        }
        (64, &[one]) => b.bitcast(one, RegClass::F64),
        (_, &[one]) => b.bitcast(one, RegClass::B32),
        (bits, others) => unreachable!("{} elements of {bits} bits", others.len()),
    }
}
