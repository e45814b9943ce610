//! Products on tensor cores: `mma.sync` on fragments from shared memory or registers.

use super::super::builder::Builder;
use super::super::inst::*;
use super::operand::{Cursor, Loop};
use super::{Kind, MmaPlan, MmaRequest, OperandPlan, Source, of_rank};
use crate::dtype::DType;
use crate::layout::{Instruction, Layout, SharedLayout, Tiling};

/// How fragments come from shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fetch {
    /// `ldmatrix`; `trans` where elements along m, n are neighbours.
    Matrix { trans: bool },
    /// One load for each register word.
    Words,
    /// One load for each element: extents below the instruction's, or 8-bit elements not along k.
    Elements,
}

/// One operand of a tiling.
#[derive(Clone, Debug)]
struct Fragments {
    /// Layout with all register bits of the tiling, shape (batch, rows, columns).
    layout: Layout,
    /// log2 of the elements of one register word, and of the words of one fragment.
    word: u32,
    words: u32,
    /// log2 of the steps along k and of the repeats along m (or n).
    steps: u32,
    repeats: u32,
    /// Register and lane bits beyond the extent of k.
    surplus: (u32, u32),
    fetch: Fetch,
    /// Element images of the rows of one 8 × 16-byte matrix.
    rows: [u32; 3],
    /// Images of the bits of k that count steps.
    step_images: Vec<u32>,
    shared: SharedLayout,
    element: Ty,
}

/// A product on tensor cores.
#[derive(Clone, Debug)]
pub(super) struct TensorPlan {
    tiling: Tiling,
    types: MmaTypes,
    left: Fragments,
    right: Fragments,
    /// The accumulator's layout with all register bits of the tiling.
    acc: Layout,
}

/// Operand type of the instruction and the type that operands are staged in.
fn operand_type(dtype: DType, signed: bool, request: &MmaRequest) -> Option<(Ty, DType)> {
    Some(match dtype {
        DType::F16 => (Ty::F16, dtype),
        DType::BF16 => (Ty::BF16, dtype),
        DType::TF32 => (Ty::TF32, dtype),
        DType::F64 => (Ty::F64, dtype),
        DType::I8 => (if signed { Ty::S8 } else { Ty::U8 }, dtype),
        DType::F8E4M3FN | DType::F8E5M2 if request.target.arch < 89 => (Ty::F16, DType::F16),
        DType::F8E4M3FN => (Ty::E4M3, dtype),
        DType::F8E5M2 => (Ty::E5M2, dtype),
        DType::I1
        | DType::I4
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::F32
        | DType::F8E8M0FNU
        | DType::F4E2M1FN
        | DType::F8E5M3FNU => return None,
    })
}

fn types(request: &MmaRequest) -> Option<(MmaTypes, [DType; 2])> {
    let (a, staged_a) = operand_type(request.a.dtype, request.a.signed, request)?;
    let (c, staged_b) = operand_type(request.b.dtype, request.b.signed, request)?;
    let small = |ty: Ty| matches!(ty, Ty::E4M3 | Ty::E5M2);
    let acc = match (a, c, request.acc) {
        (Ty::F16, Ty::F16, DType::F16) => Ty::F16,
        (Ty::F16, Ty::F16, DType::F32) => Ty::F32,
        (Ty::BF16, Ty::BF16, DType::F32) | (Ty::TF32, Ty::TF32, DType::F32) => Ty::F32,
        (Ty::F64, Ty::F64, DType::F64) => Ty::F64,
        (Ty::S8 | Ty::U8, Ty::S8 | Ty::U8, DType::I32) => Ty::S32,
        (a, c, DType::F16) if small(a) && small(c) => Ty::F16,
        (a, c, DType::F32) if small(a) && small(c) => Ty::F32,
        _ => return None,
    };
    Some((MmaTypes { d: acc, a, b: c, c: acc }, [staged_a, staged_b]))
}

pub(super) fn plan(request: &MmaRequest) -> Result<MmaPlan, String> {
    let MmaRequest { a, b, acc, .. } = request;
    let (types, staged) =
        types(request).ok_or_else(|| format!("no matrix product of {} and {} into {acc}", a.dtype, b.dtype))?;
    let bits = types.a.bits();
    // 32 bytes of k, or half of that if there is no more.
    let full = if bits == 64 { 4 } else { 256 / i64::from(bits) };
    let k = if bits < 64 && request.extents[3] <= full / 2 { full / 2 } else { full };
    let instruction = Instruction { m: if bits == 64 { 8 } else { 16 }, n: 8, k, bits };
    let tiling = Tiling::new(instruction, request.extents, request.num_warps);
    let left = Fragments::new(&tiling, true, a.k_contiguous, types.a, request.rank);
    let right = Fragments::new(&tiling, false, b.k_contiguous, types.b, request.rank);
    let full_acc = tiling.accumulator();
    let operand = |fragments: &Fragments, dtype: DType| OperandPlan {
        dtype,
        shared: fragments.shared.clone(),
        registers: fragments.layout.canonical().reshape(&fragments.shared.shape),
    };
    let [batch, m, n, _] = request.extents;
    Ok(MmaPlan {
        a: operand(&left, staged[0]),
        b: operand(&right, staged[1]),
        acc: full_acc.canonical().reshape(&of_rank([batch, m, n], request.rank)),
        kind: Kind::Tensor(TensorPlan { tiling, types, left, right, acc: full_acc }),
    })
}

impl Fragments {
    fn new(tiling: &Tiling, is_left: bool, k_contiguous: bool, element: Ty, rank: usize) -> Fragments {
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
            _ if surplus == (0, 0) && whole_words => Fetch::Words,
            _ => Fetch::Elements,
        };
        let axis = |stride: i64, extent: i64| {
            std::array::from_fn(|bit| if 1 << bit < extent { (stride as u32) << bit } else { 0 })
        };
        let rows = if fetch == (Fetch::Matrix { trans: true }) { axis(k_stride, k) } else { axis(outer_stride, outer) };
        let (vector_bytes, told_apart) = match fetch {
            Fetch::Matrix { .. } => (16, &rows[..]),
            Fetch::Words => (bits.max(32) as usize / 8, &layout.lane_images()[..if bits == 64 { 4 } else { 5 }]),
            Fetch::Elements => (bits as usize / 8, layout.lane_images()),
        };
        let told_apart: Vec<u32> = told_apart.iter().copied().filter(|&image| image != 0).collect();
        let fast = if k_contiguous { [k_axis, outer_axis, 0] } else { [outer_axis, k_axis, 0] };
        let order: Vec<usize> = fast.into_iter().filter_map(|axis: usize| axis.checked_sub(3 - rank)).collect();
        let element_bytes = bits as usize / 8;
        let shared = SharedLayout::swizzled(&of_rank(shape, rank), &order, element_bytes, vector_bytes, &told_apart);
        let step_images = (0..tiling.steps()).map(|bit| ((k_stride * tiling.instruction.k) as u32) << bit).collect();
        Fragments {
            word: tiling.instruction.word_bits(),
            words: instruction_words.ilog2(),
            steps: tiling.steps(),
            repeats,
            surplus,
            fetch,
            rows,
            step_images,
            shared,
            element,
            layout,
        }
    }

    /// First register of a fragment.
    fn first(&self, batch: usize, repeat: usize, step: usize) -> usize {
        ((((batch << self.repeats) | repeat) << self.steps) | step) << (self.word + self.words)
    }

    fn place(&self, register: usize) -> u32 {
        self.shared.offset(self.layout.element(register, 0, 0))
    }

    /// log2 of the fragments that one `ldmatrix` reads: it has room for four words.
    fn group(&self) -> u32 {
        (2 - self.words).min(self.repeats)
    }

    /// Byte offsets of the bits of the thread number that reads.
    fn thread_places(&self) -> Vec<u32> {
        let registers = self.layout.register_images();
        let warps = self.layout.warp_images().iter().copied();
        let lanes: Vec<u32> = match self.fetch {
            Fetch::Matrix { .. } => {
                // Lane bits 3 and 4 tell the matrices apart: words, then repeats.
                let words = &registers[self.word as usize..][..self.words as usize];
                let repeats = (self.word + self.words + self.steps) as usize;
                let mut lanes = [&self.rows[..], words, &registers[repeats..][..self.group() as usize]].concat();
                lanes.resize(5, 0);
                lanes
            }
            Fetch::Words | Fetch::Elements => self.layout.lane_images().to_vec(),
        };
        lanes.into_iter().chain(warps).map(|image| self.shared.offset(image)).collect()
    }

    fn register_class(&self) -> RegClass {
        if self.element == Ty::F64 { RegClass::F64 } else { RegClass::B32 }
    }
}

/// An operand while code is emitted.
struct Feed<'a> {
    fragments: &'a Fragments,
    from: From<'a>,
    /// True in lanes that are beyond the extent of k.
    outside: Option<Reg>,
}

enum From<'a> {
    Shared(Cursor),
    Registers(&'a [Operand]),
}

impl<'a> Feed<'a> {
    fn new(b: &mut Builder, fragments: &'a Fragments, source: Source<'a>, base: Operand, thread: Reg) -> Feed<'a> {
        let outside = (fragments.surplus.1 != 0).then(|| {
            let bits = b.and(Ty::B32, thread, fragments.surplus.1);
            b.setp(Cmp::Ne, Ty::U32, bits, 0u32)
        });
        let from = match source {
            Source::Shared(_) => From::Shared(Cursor::new(b, base, thread, &fragments.thread_places())),
            Source::Registers(values) => From::Registers(values),
        };
        Feed { fragments, from, outside }
    }

    /// The words of all fragments of a step: `words[repeat][word]`.
    fn step(&mut self, b: &mut Builder, batch: usize, step: usize) -> Vec<Vec<Operand>> {
        let fragments = self.fragments;
        let matrix = matches!(fragments.fetch, Fetch::Matrix { .. }) && matches!(self.from, From::Shared(_));
        let group = if matrix { 1 << fragments.group() } else { 1 };
        (0..1usize << fragments.repeats)
            .step_by(group)
            .flat_map(|repeat| {
                let first = fragments.first(batch, repeat, step);
                let words = match fragments.fetch {
                    Fetch::Matrix { trans } if matrix => self.matrices(b, first, group, trans),
                    _ => (0..1usize << fragments.words).map(|w| self.word(b, first + (w << fragments.word))).collect(),
                };
                words.chunks(1 << fragments.words).map(<[Operand]>::to_vec).collect::<Vec<_>>()
            })
            .collect()
    }

    fn matrices(&mut self, b: &mut Builder, first: usize, group: usize, trans: bool) -> Vec<Operand> {
        let From::Shared(cursor) = &mut self.from else { unreachable!("matrices are read from shared memory") };
        let addr = cursor.at(b, self.fragments.place(first));
        let count = group << self.fragments.words;
        b.ldmatrix(count as u32, trans, &addr).into_iter().map(Operand::Reg).collect()
    }

    /// The register word whose first element is in `register`.
    fn word(&mut self, b: &mut Builder, register: usize) -> Operand {
        let fragments = self.fragments;
        if let (Fetch::Words, From::Shared(cursor)) = (fragments.fetch, &mut self.from) {
            let addr = cursor.at(b, fragments.place(register));
            let ty = if fragments.element == Ty::F64 { Ty::F64 } else { Ty::B32 };
            return b.ld(Space::Shared, ty, &addr, MemMods::default()).into();
        }
        let elements: Vec<Operand> = (register..register + (1 << fragments.word)).map(|r| self.element(b, r)).collect();
        let word = pack(b, fragments.element, &elements);
        match self.outside {
            Some(outside) => b.select(fragments.register_class(), outside, Operand::Imm(0), word),
            None => word,
        }
    }

    /// One element: 16-bit ones in B16, narrower ones in the low bits of B32.
    fn element(&mut self, b: &mut Builder, register: usize) -> Operand {
        let fragments = self.fragments;
        if register as u32 & fragments.surplus.0 != 0 {
            return Operand::Imm(0);
        }
        match &mut self.from {
            From::Registers(values) => values[fragments.layout.canonical_register(register)],
            From::Shared(cursor) => {
                let ty = match fragments.element.bits() {
                    8 => Ty::U8,
                    16 => Ty::B16,
                    32 => Ty::B32,
                    _ => Ty::F64,
                };
                let addr = cursor.at(b, fragments.place(register));
                b.ld(Space::Shared, ty, &addr, MemMods::default()).into()
            }
        }
    }
}

/// Elements to one register word.
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

/// The accumulator in the words of the instruction: registers read, and registers written (others than
/// those read where a fragment holds an element twice).
struct Accumulator {
    read: Vec<Reg>,
    written: Vec<Reg>,
}

impl TensorPlan {
    pub(super) fn describe(&self) -> String {
        let Instruction { m, n, k, .. } = self.tiling.instruction;
        let [batch, rows, columns] = self.tiling.warps.map(|bits| 1 << bits);
        let types = self.types;
        format!(
            "mma.sync m{m}n{n}k{k}{}{}{}, {rows} x {columns} warps, batch {batch}, a {:?}, b {:?}",
            types.d, types.a, types.b, self.left.fetch, self.right.fetch
        )
    }

    pub(super) fn lower(&self, b: &mut Builder, thread: Reg, left: Source<'_>, right: Source<'_>, acc: &[Reg]) {
        let words = self.open(b, acc);
        let [batches, rows, columns] = self.tiling.repeats();
        for batch in 0..1usize << batches {
            let (trips, bases) = self.k_loop(left, right, rows + columns);
            trips.emit(b, bases, |b, [base_a, base_b]| {
                let mut a = Feed::new(b, &self.left, left, base_a, thread);
                let mut c = Feed::new(b, &self.right, right, base_b, thread);
                for step in 0..1usize << (self.tiling.steps() - trips.trips) {
                    let (a, c) = (a.step(b, batch, step), c.step(b, batch, step));
                    self.step(b, &a, &c, &words, batch);
                }
            });
        }
        self.close(b, acc, &words);
    }

    /// All instructions of one step along k.
    fn step(&self, b: &mut Builder, a: &[Vec<Operand>], c: &[Vec<Operand>], words: &Accumulator, batch: usize) {
        let Instruction { m, n, k, .. } = self.tiling.instruction;
        let shape = MmaShape { m: m as u32, n: n as u32, k: k as u32 };
        let count = words.read.len() / (a.len() * c.len()) >> self.tiling.repeats()[0];
        for (i, left) in a.iter().enumerate() {
            for (j, right) in c.iter().enumerate() {
                let first = ((batch * a.len() + i) * c.len() + j) * count;
                let sums: Vec<Operand> = words.read[first..][..count].iter().map(|&r| r.into()).collect();
                b.mma(shape, self.types, &words.written[first..][..count], left, right, &sums);
            }
        }
    }

    /// Cuts the sum along k; operands in registers cannot be counted through at run time.
    fn k_loop(&self, left: Source<'_>, right: Source<'_>, repeats: u32) -> (Loop, [Operand; 2]) {
        let none = Loop { trips: 0, strides: [0, 0] };
        match (left, right) {
            (Source::Shared(a), Source::Shared(c)) => {
                let places =
                    |f: &Fragments| -> Vec<u32> { f.step_images.iter().map(|&x| f.shared.offset(x)).collect() };
                let bits: Vec<[u32; 2]> =
                    places(&self.left).into_iter().zip(places(&self.right)).map(|(a, c)| [a, c]).collect();
                let masks = [&self.left, &self.right].map(|f| f.thread_places().iter().fold(0, |all, x| all | x));
                (Loop::new(&bits, masks, 4 << repeats), [a, c])
            }
            (Source::Shared(a), Source::Registers(_)) | (Source::Registers(_), Source::Shared(a)) => (none, [a, a]),
            (Source::Registers(_), Source::Registers(_)) => (none, [Operand::Imm(0); 2]),
        }
    }

    /// Pairs f16 elements into words; other accumulators are used where they are.
    fn open(&self, b: &mut Builder, acc: &[Reg]) -> Accumulator {
        let mut words = Accumulator { read: Vec::new(), written: Vec::new() };
        let packed = self.types.d == Ty::F16;
        let mut seen: Vec<(usize, Reg)> = Vec::new();
        for register in (0..self.acc.num_registers()).step_by(if packed { 2 } else { 1 }) {
            let slot = self.acc.canonical_register(register);
            if let Some((_, word)) = seen.iter().find(|(other, _)| *other == slot) {
                words.read.push(*word);
                words.written.push(b.fresh(word.class));
                continue;
            }
            let word = match packed {
                true => b.pack(acc[slot], acc[self.acc.canonical_register(register + 1)]).reg(),
                false => acc[slot],
            };
            if self.is_repeated(register) {
                seen.push((slot, word));
            }
            words.read.push(word);
            words.written.push(word);
        }
        words
    }

    /// May another register of the fragment hold the same element?
    fn is_repeated(&self, register: usize) -> bool {
        let images = self.acc.register_images();
        images.iter().enumerate().any(|(bit, &image)| image == 0 && register >> bit & 1 == 0)
    }

    fn close(&self, b: &mut Builder, acc: &[Reg], words: &Accumulator) {
        if self.types.d != Ty::F16 {
            return;
        }
        for (pair, (&word, &written)) in words.read.iter().zip(&words.written).enumerate() {
            if word != written {
                continue;
            }
            let (lo, hi) = b.unpack(word);
            b.mov_to(acc[self.acc.canonical_register(2 * pair)], lo);
            let high = self.acc.canonical_register(2 * pair + 1);
            if high != self.acc.canonical_register(2 * pair) {
                b.mov_to(acc[high], hi);
            }
        }
    }
}
