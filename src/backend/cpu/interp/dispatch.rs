//! Execution of the ops without regions: one arm per op, which also defines the elementwise ones.

use crate::util::collect::CollectVec as _;
use std::sync::atomic::{AtomicU64, Ordering};

use std::rc::Rc;

use super::cluster_exchange::Gather;
use super::machine::{Fault, Machine};
use super::op_family::{Conversion, Environment, FloatMultiary, FloatUnary, Integer, MatrixProduct, Movement};
use super::slot::Slot;
use super::value::{Word, Words, each_width, zip3};
use crate::backend::cpu::checks::assume;
use crate::backend::cpu::ops::directed_rounding;
use crate::backend::cpu::ops::directed_rounding::Unrounded;
use crate::backend::cpu::ops::float;
use crate::backend::cpu::ops::float::Mode;
use crate::backend::cpu::ops::int;
use crate::backend::cpu::ops::int::Towards;
use crate::backend::cpu::ops::mma;
use crate::backend::cpu::ops::mma::Extents;
use crate::backend::cpu::ops::printf::Printed;
use crate::backend::cpu::ops::{cast, printf, shape};
use crate::ir::{Attr, AttrKind, Elem, Flag, Op, OpId, Opcode, Overflow, Rounding, Sign, Type, Value};

impl Machine<'_> {
    /// Runs float arithmetic on one operand.
    pub fn float_of_one(&mut self, which: FloatUnary, op: &Op) {
        use FloatUnary as O;
        match which {
            O::AbsF => self.sign_bit(op, false),
            O::NegF => self.sign_bit(op, true),
            O::Ceil => self.float1(op, f32::ceil, f64::ceil),
            O::Floor => self.float1(op, f32::floor, f64::floor),
            O::Cos => self.float1(op, f32::cos, f64::cos),
            O::Cosh => self.float1(op, f32::cosh, f64::cosh),
            O::Exp => self.float1(op, f32::exp, f64::exp),
            O::Exp2 => self.float1(op, f32::exp2, f64::exp2),
            O::Log => self.float1(op, f32::ln, f64::ln),
            O::Log2 => self.float1(op, f32::log2, f64::log2),
            O::Rsqrt => self.float1(op, |x| (1.0 / (x as f64).sqrt()) as f32, |x| 1.0 / x.sqrt()),
            O::Sin => self.float1(op, f32::sin, f64::sin),
            O::Sinh => self.float1(op, f32::sinh, f64::sinh),
            O::Tan => self.float1(op, f32::tan, f64::tan),
            O::Tanh => self.float1(op, f32::tanh, f64::tanh),
            O::Sqrt => {
                let x = self.tile(op.operands[0]);
                let words =
                    float::unary_rounded(self.dtype(op), mode(op), x, f32::sqrt, f64::sqrt, directed_rounding::sqrt);
                self.put(op, words)
            }
        }
    }

    /// Runs float arithmetic on two or three operands, and comparisons.
    pub fn float_of_more(&mut self, which: FloatMultiary, op: &Op) {
        use FloatMultiary as O;
        match which {
            O::AddF => self.rounded2(op, |x, y| x + y, |x, y| x + y, directed_rounding::add),
            O::SubF => self.rounded2(op, |x, y| x - y, |x, y| x - y, directed_rounding::sub),
            O::MulF => self.rounded2(op, |x, y| x * y, |x, y| x * y, directed_rounding::mul),
            O::DivF => self.rounded2(op, |x, y| x / y, |x, y| x / y, directed_rounding::div),
            O::Fma => {
                let words = float::fma(self.dtype(op), mode(op), [0, 1, 2].map(|i| &**self.tile(op.operands[i])));
                self.put(op, words)
            }
            O::MaxF => {
                let nan = op.flag(Flag::PropagateNan);
                self.float2(op, |x, y| float::max(x, y, nan), |x, y| float::max(x, y, nan))
            }
            O::MinF => {
                let nan = op.flag(Flag::PropagateNan);
                self.float2(op, |x, y| float::min(x, y, nan), |x, y| float::min(x, y, nan))
            }
            O::RemF => self.float2(op, |x, y| x % y, |x, y| x % y),
            O::PowF => self.float2(op, f32::powf, f64::powf),
            O::Atan2 => self.float2(op, f32::atan2, f64::atan2),
            O::CmpF => {
                let dtype = self.module().dtype(op.operands[0]);
                let words = float::compare(dtype, op.cmp_pred(), op.cmp_order(), self.pair(op));
                self.put(op, words)
            }
        }
    }

    /// Runs integer arithmetic and comparisons.
    pub fn integers(&mut self, which: Integer, op: &Op) -> Result<(), String> {
        use Integer as O;
        use Sign::{Signed, Unsigned};
        let [bits, _] = self.element_bits(op);
        if op.overflow() != Overflow::None && op.operands.len() == 2 {
            assume::check_overflow(op, self.dtype(op), self.pair(op))?;
        }
        match which {
            O::AbsI => self.int1(op, |x| (x as i64).unsigned_abs()),
            O::NegI => self.int1(op, |x| (x as i64).wrapping_neg() as u64),
            O::AddI => self.int2(op, Signed, u64::wrapping_add),
            O::SubI => self.int2(op, Signed, u64::wrapping_sub),
            O::MulI => self.int2(op, Signed, u64::wrapping_mul),
            O::MulHiI => self.int2(op, Unsigned, |x, y| ((x as u128 * y as u128) >> bits) as u64),
            O::AndI => self.int2(op, Unsigned, |x, y| x & y),
            O::OrI => self.int2(op, Unsigned, |x, y| x | y),
            O::XorI => self.int2(op, Unsigned, |x, y| x ^ y),
            O::ShlI => self.int2(op, Unsigned, |x, n| if n < bits { x << n } else { 0 }),
            O::ShrI => self.shift_right(op, bits),
            O::MaxI => match op.sign() {
                Signed => self.int2(op, Signed, |x, y| (x as i64).max(y as i64) as u64),
                Unsigned => self.int2(op, Unsigned, u64::max),
            },
            O::MinI => match op.sign() {
                Signed => self.int2(op, Signed, |x, y| (x as i64).min(y as i64) as u64),
                Unsigned => self.int2(op, Unsigned, u64::min),
            },
            O::DivI => self.divide(op)?,
            O::RemI => match op.sign() {
                Signed => self.int2(op, Signed, |x, y| int::rem_signed(x as i64, y as i64) as u64),
                Unsigned => self.int2(op, Unsigned, |x, y| x.checked_rem(y).unwrap_or(x)),
            },
            O::CmpI => {
                let dtype = self.module().dtype(op.operands[0]);
                let words = int::compare(dtype, op.sign(), op.cmp_pred(), self.pair(op));
                self.put(op, words)
            }
        }
        Ok(())
    }

    /// Runs conversions of the element type, and reinterpretations of the same words.
    pub fn conversion(&mut self, which: Conversion, id: OpId, op: &Op) {
        use Conversion as O;
        use Sign::Unsigned;
        let [bits, from_bits] = self.element_bits(op);
        match which {
            O::ExtI => self.cast(op, |from, to, x| cast::int_to_int(from, to, op.sign(), x)),
            O::TruncI => self.cast(op, |from, to, x| cast::int_to_int(from, to, Unsigned, x)),
            O::IToF => self.cast(op, |from, to, x| cast::int_to_float(from, to, op.sign(), x)),
            O::FToI => self.cast(op, |from, to, x| cast::float_to_int(from, to, op.sign(), x)),
            O::FToF => self.cast(op, |from, to, x| cast::float_to_float(from, to, op.rounding(), x)),
            O::Pack => self.cast(op, |from, _, x| cast::pack(from, x)),
            O::Unpack => self.cast(op, |_, to, x| cast::unpack(to, x)),
            // The words do not change.
            O::Bitcast | O::IntToPtr | O::PtrToInt | O::PtrToPtr | O::Reshape | O::WithLayout => {
                debug_assert!(matches!(which, O::Reshape | O::WithLayout) || bits == from_bits);
                let val = self.take(id, 0);
                self.set(op.results[0], val);
            }
        }
    }

    /// Runs ops that make tiles from other tiles, by element or by movement of elements; constants.
    pub fn movement(&mut self, which: Movement, id: OpId, op: &Op) -> Result<(), String> {
        use Movement as O;
        use Sign::{Signed, Unsigned};
        match which {
            O::Select => {
                let [c, x, y] = [0, 1, 2].map(|i| &**self.tile(op.operands[i]));
                let choose = each_width!(x, x => Word::list(zip3(u8::of(c), x, Word::of(y), |c, x, y| {
                    if c != 0 { x } else { y }
                })));
                self.put(op, choose)
            }

            O::PowI => {
                let [x, n] = self.pair(op);
                let exponents = int::read(self.module().dtype(op.operands[1]), Signed, n);
                let exponents: Vec<i64> = exponents.into_iter().map(|n| n as i64).collect_vec();
                let words = float::powi(self.dtype(op), x, &exponents);
                self.put(op, words)
            }
            O::InlinePtx => {
                let meant = Words::clone(self.tile(op.operands[3]));
                self.put(op, meant)
            }
            O::Constant => {
                let data = op.const_data().ok_or_else(|| "a constant without data".to_string())?;
                let words = Words::from_data(self.width(op.results[0]), data, self.count(op.results[0]));
                self.put(op, words)
            }
            O::Iota => {
                let words = int::write(
                    self.module().dtype(op.results[0]),
                    &Vec::from_iter(0..self.count(op.results[0]) as u64),
                );
                self.put(op, words)
            }
            O::Broadcast => {
                let words =
                    shape::broadcast(self.tile(op.operands[0]), &self.dims(op.operands[0]), &self.dims(op.results[0]));
                self.put(op, words)
            }
            O::Permute => {
                let words = shape::permute(self.tile(op.operands[0]), &self.dims(op.operands[0]), op.permutation());
                self.put(op, words)
            }
            O::Cat => {
                let shapes = [self.dims(op.operands[0]), self.dims(op.operands[1])];
                let words = shape::cat(self.pair(op), [&shapes[0], &shapes[1]], op.dim() as usize);
                self.put(op, words)
            }
            O::Extract => {
                let (from, block) = (self.dims(op.operands[0]), self.dims(op.results[0]));
                let start = shape::block_start(&from, &block, &self.indices(op.group(1), Unsigned))?;
                let words = shape::extract(self.tile(op.operands[0]), &from, &block, start);
                self.put(op, words)
            }
            O::Insert => {
                let (block, to) = (self.dims(op.operands[0]), self.dims(op.operands[1]));
                let start = shape::block_start(&to, &block, &self.indices(op.group(2), Unsigned))?;
                let mut words = self.take_words(id, 1);
                shape::insert(&mut words, &to, self.tile(op.operands[0]), &block, start);
                self.put(op, words)
            }
            O::Gather => {
                let shapes = [self.dims(op.operands[0]), self.dims(op.results[0])];
                let words = shape::gather(self.pair(op), [&shapes[0], &shapes[1]], op.dim() as usize);
                self.put(op, words)
            }
            O::Ranks => {
                let words = shape::ranks(self.tile(op.operands[0]), op.bins());
                self.put(op, words)
            }
            O::Histogram => {
                let words = shape::histogram(self.tile(op.operands[0]), self.count(op.results[0]));
                self.put(op, words)
            }
        }
        Ok(())
    }

    /// Runs matrix products.
    pub fn matrix_product(&mut self, which: MatrixProduct, id: OpId, op: &Op) {
        use MatrixProduct as O;
        match which {
            O::MmaF => {
                let types = [self.module().dtype(op.operands[0]), self.dtype(op)];
                let acc = self.take_words(id, 2);
                let words = mma::mma_float(self.extents(op), types, self.pair(op), acc);
                self.put(op, words)
            }
            O::MmaI => {
                let acc = self.take_words(id, 2);
                let words = mma::mma_int(self.extents(op), mma_signs(op), self.pair(op), acc);
                self.put(op, words)
            }
            O::MmaFScaled => {
                let types = [0, 1, 3].map(|i| self.module().dtype(op.operands[i]));
                let acc = self.take_words(id, 2);
                let inputs = [0, 1, 3, 4].map(|i| &**self.tile(op.operands[i]));
                let words = mma::mma_scaled(self.extents(op), types, inputs, acc);
                self.put(op, words)
            }
        }
    }

    /// Runs `cluster_all_gather`.
    fn cluster_all_gather(&mut self, op: &Op) -> Result<(), Fault> {
        let Some(exchange) = self.exchange else {
            return Err("a tile block without the other blocks of its cluster".to_owned().into());
        };
        let size = self.dims(op.results[0])[0];
        let [x, y, z] = self.id;
        let gather = Gather { cluster: [x / size as u32, y, z], sequence: self.gathers };
        self.gathers += 1;
        let tile = Rc::clone(self.tile(op.operands[0]));
        exchange.deposit(gather, x as usize % size, size, Words::clone(&tile));
        loop {
            if let Some(all) = exchange.read(gather) {
                self.put(op, all);
                return Ok(());
            }
            self.in_time()?;
            if !(self.wait)() {
                return Err(Fault::abandoned());
            }
        }
    }

    /// Runs ops on the grid, memory, tokens, checks and texts.
    pub fn environment(&mut self, which: Environment, id: OpId, op: &Op) -> Result<(), Fault> {
        use Environment as O;
        match which {
            O::GetTileBlockId => self.put_three(op, self.id),
            O::GetNumTileBlocks => self.put_three(op, self.grid),
            O::ClusterAllGather => self.cluster_all_gather(op)?,
            // A counter of the process increases with each read, as a clock does.
            O::Clock | O::GlobalTimer => {
                static READS: AtomicU64 = AtomicU64::new(1);
                self.put(op, Words::W64(vec![READS.fetch_add(1, Ordering::Relaxed)]))
            }
            O::Multiprocessor => self.put(op, Words::W32(vec![0])),
            O::DataPartitionId => self.put(op, Words::W32(vec![self.data_partition])),

            // Memory.
            O::Offset => self.offset(op),
            O::GetGlobal => {
                let address = self.program.globals.address(op.attr(AttrKind::Text))?;
                self.put(op, Words::W64(vec![address]))
            }
            O::Alloca => self.allocate(op)?,
            O::MakeTensorView => self.make_tensor_view(op),
            O::MakePartitionView | O::MakeStridedView | O::MakeGatherScatterView => {
                let array = self.array(op.operands[0]).clone();
                self.set(op.results[0], Slot::View(array))
            }
            O::GetTensorShape => {
                let shape = self.array(op.operands[0]).shape.clone();
                self.put_counts(op, &shape)?
            }
            O::GetIndexSpaceShape => {
                let view = self.module().ty(op.operands[0]);
                let space = crate::backend::cpu::memory::view::index_space(view, self.array(op.operands[0]));
                self.put_counts(op, &space)?
            }
            O::LoadView => self.load_view(op)?,
            O::StoreView => self.store_view(op)?,
            O::AtomicRedView => self.atomic_red_view(op)?,
            O::LoadPtr => self.load_ptr(op)?,
            O::StorePtr => self.store_ptr(op)?,
            O::AtomicRmw => self.atomic_rmw(op)?,
            O::AtomicCas => self.atomic_cas(op)?,
            O::MultimemLoadReduce | O::MultimemReduce | O::MultimemStore => {
                return Err(format!("{} needs several GPUs", op.code.spec().name).into());
            }

            // Execution in program order needs no tokens. Dependent launches do not exist here.
            O::MakeToken | O::JoinTokens | O::MemoryFenceAlias | O::GdcLaunchDependents | O::GdcWait => {
                self.set_token(op)
            }

            // Checks and texts.
            O::Assume => {
                self.check_promise(op)?;
                let val = self.take(id, 0);
                self.set(op.results[0], val);
            }
            O::Assert => self.check_assertion(op)?,
            O::Print => {
                self.print(op)?;
                self.set_token(op)
            }
        }
        Ok(())
    }

    // Access.

    /// Returns the number type of the first result.
    fn dtype(&self, op: &Op) -> crate::dtype::DType {
        self.module().dtype(op.results[0])
    }

    /// Returns the bits of an element of the first result and of the first operand: those of
    /// numbers or pointers if the value is a tile, else 64.
    fn element_bits(&self, op: &Op) -> [u64; 2] {
        [op.results.first(), op.operands.first()].map(|value| {
            let elem = value.and_then(|&v| self.module().ty(v).as_tile());
            elem.and_then(|(elem, _)| elem.dtype()).map_or(64, |dtype| dtype.bits() as u64)
        })
    }

    fn count(&self, value: Value) -> usize {
        self.module().shape(value).iter().product::<i64>() as usize
    }

    fn pair(&self, op: &Op) -> [&Words; 2] {
        [self.tile(op.operands[0]), self.tile(op.operands[1])]
    }

    fn indices(&self, values: &[Value], sign: Sign) -> Vec<i64> {
        values.iter().map(|&v| self.scalar(v, sign)).collect_vec()
    }

    fn put_three(&mut self, op: &Op, numbers: [u32; 3]) {
        for (&result, number) in op.results.iter().zip(numbers) {
            self.set(result, Slot::tile(Words::W32(vec![number])));
        }
    }

    fn put_ints(&mut self, op: &Op, numbers: &[i64]) {
        for (&result, &number) in op.results.iter().zip(numbers) {
            let words = int::write(self.module().dtype(result), &[number as u64]);
            self.set(result, Slot::tile(words));
        }
    }

    /// Sets results that are extents or numbers of tiles; an error if the type cannot represent
    /// them.
    fn put_counts(&mut self, op: &Op, numbers: &[i64]) -> Result<(), String> {
        for (axis, (&result, &number)) in op.results.iter().zip(numbers).enumerate() {
            let dtype = self.module().dtype(result);
            if number >> (dtype.bits() - 1) != 0 {
                let what = if op.code == Opcode::GetTensorShape { "elements" } else { "tiles" };
                return Err(format!("{number} {what} along axis {axis}, which {dtype} cannot represent"));
            }
        }
        self.put_ints(op, numbers);
        Ok(())
    }

    // Elementwise.

    fn float1(&mut self, op: &Op, single: impl Fn(f32) -> f32, double: impl Fn(f64) -> f64) {
        let words = float::unary(self.dtype(op), mode(op), self.tile(op.operands[0]), single, double);
        self.put(op, words);
    }

    fn float2(&mut self, op: &Op, single: impl Fn(f32, f32) -> f32, double: impl Fn(f64, f64) -> f64) {
        let words = float::binary(self.dtype(op), mode(op), self.pair(op), single, double);
        self.put(op, words);
    }

    fn rounded2(
        &mut self,
        op: &Op,
        single: impl Fn(f32, f32) -> f32,
        double: impl Fn(f64, f64) -> f64,
        exact: impl Fn(f64, f64) -> Unrounded,
    ) {
        let words = float::binary_rounded(self.dtype(op), mode(op), self.pair(op), single, double, exact);
        self.put(op, words);
    }

    fn sign_bit(&mut self, op: &Op, flip: bool) {
        let words = float::sign_bit(self.dtype(op), self.tile(op.operands[0]), flip);
        self.put(op, words);
    }

    fn int1(&mut self, op: &Op, f: impl Fn(u64) -> u64) {
        let words = int::unary(self.dtype(op), self.tile(op.operands[0]), f);
        self.put(op, words);
    }

    fn int2(&mut self, op: &Op, sign: Sign, f: impl Fn(u64, u64) -> u64) {
        let words = int::binary(self.dtype(op), sign, self.pair(op), f);
        self.put(op, words);
    }

    fn cast(&mut self, op: &Op, f: impl Fn(crate::dtype::DType, crate::dtype::DType, &Words) -> Words) {
        let from = self.module().dtype(op.operands[0]);
        let words = f(from, self.dtype(op), self.tile(op.operands[0]));
        self.put(op, words);
    }

    /// Shifts right by an amount that is read as unsigned for both signs. At the width or beyond,
    /// only the sign remains.
    fn shift_right(&mut self, op: &Op, bits: u64) {
        let amount_mask = u64::MAX >> (64 - bits);
        match op.sign() {
            Sign::Signed => {
                self.int2(op, Sign::Signed, |x, n| ((x as i64) >> (n & amount_mask).min(63)) as u64);
            }
            Sign::Unsigned => self.int2(op, Sign::Unsigned, |x, n| if n < bits { x >> n } else { 0 }),
        }
    }

    fn divide(&mut self, op: &Op) -> Result<(), String> {
        let towards = match op.rounding() {
            Rounding::NegInf => Towards::Down,
            Rounding::PosInf => Towards::Up,
            Rounding::Zero | Rounding::IntToZero => Towards::Zero,
            Rounding::NearestEven | Rounding::NearestAway | Rounding::Approx | Rounding::Full => {
                return Err(format!("divi does not round {}", op.rounding().name()));
            }
        };
        match op.sign() {
            Sign::Signed => {
                self.int2(op, Sign::Signed, |x, y| int::div_signed(x as i64, y as i64, towards) as u64);
            }
            Sign::Unsigned => self.int2(op, Sign::Unsigned, |x, y| int::div_unsigned(x, y, towards)),
        }
        Ok(())
    }

    fn extents(&self, op: &Op) -> Extents {
        Extents::new(&self.dims(op.operands[0]), &self.dims(op.operands[1]))
    }

    // Checks and texts.

    fn check_promise(&self, op: &Op) -> Result<(), String> {
        let Some(Attr::Predicate(predicate)) = op.attr(AttrKind::Predicate) else {
            return Err("an assume without a predicate".into());
        };
        let value = op.operands[0];
        match self.module().ty(value) {
            Type::Tile { elem, .. } => assume::check(predicate, *elem, &self.dims(value), self.tile(value)),
            Type::TensorView { elem, ptr_attr, .. } => {
                let base = Words::W64(vec![self.array(value).base]);
                assume::check(predicate, Elem::Ptr { pointee: *elem, attr: *ptr_attr }, &[], &base)
            }
            Type::PartitionView { .. } | Type::StridedView { .. } | Type::GatherScatterView { .. } | Type::Token => {
                Err("an assume about neither a tile nor a tensor view".into())
            }
        }
    }

    fn check_assertion(&self, op: &Op) -> Result<(), String> {
        let words = u8::of(self.tile(op.operands[0]));
        let Some(index) = words.iter().position(|&w| w == 0) else { return Ok(()) };
        let text = match op.attr(AttrKind::Text) {
            Some(Attr::Text(text)) => &**text,
            _ => "",
        };
        let element = |&value: &Value| {
            let words = self.tile(value);
            (self.module().dtype(value), words.get(if words.len() == 1 { 0 } else { index }))
        };
        let values: Vec<_> = op.group(1).iter().map(element).collect_vec();
        let extents = self.dims(op.operands[0]);
        let strides = shape::strides_of(&extents);
        let place: Vec<usize> =
            strides.iter().zip(&extents).map(|(stride, extent)| index / stride % extent).collect_vec();
        Err(printf::failure(text, &values, (words.len() > 1).then_some(&*place))?)
    }

    fn print(&mut self, op: &Op) -> Result<(), String> {
        let Some(Attr::Text(text)) = op.attr(AttrKind::Text) else { return Err("a print without a format".into()) };
        let values = op.operand_group("args");
        let shapes: Vec<Vec<usize>> = values.iter().map(|&v| self.dims(v)).collect_vec();
        let tile =
            |(&value, shape): (&Value, &'_ Vec<usize>)| (self.elem(value), self.tile(value).clone(), shape.clone());
        let tiles: Vec<_> = values.iter().zip(&shapes).map(tile).collect_vec();
        let printed: Vec<Printed> =
            tiles.iter().map(|(elem, words, shape)| Printed { elem: *elem, shape, words }).collect_vec();
        let text = printf::format(text, &printed)?;
        self.printed.push_str(&text);
        Ok(())
    }
}

fn mode(op: &Op) -> Mode {
    Mode { rounding: op.rounding(), flush: op.flag(Flag::FlushToZero) }
}

fn mma_signs(op: &Op) -> [Sign; 2] {
    let sign = |kind| match op.attr(kind) {
        Some(Attr::SignLhs(sign) | Attr::SignRhs(sign)) => *sign,
        _ => Sign::Signed,
    };
    [sign(AttrKind::SignLhs), sign(AttrKind::SignRhs)]
}
