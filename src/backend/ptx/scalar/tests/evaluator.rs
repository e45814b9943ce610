//! Evaluator of an instruction list for one thread, on the host: the reference of the tests.
//!
//! Results of hardware approximations are exact results changed by a selectable number of ulps.

use std::collections::HashMap;

use crate::backend::ptx::isa::emit::Function;
use crate::backend::ptx::isa::inst::*;
use crate::dtype::DType;
use crate::ir::Rounding;
use crate::types::float_codec::{decode, encode};

/// The registers of one thread, by width.
pub struct Thread<'a> {
    function: &'a Function,
    labels: HashMap<Label, usize>,
    banks: [Vec<u64>; 4],
    /// Error of the approximate instructions, in ulps.
    pub approx_ulps: i32,
}

fn bank(class: RegClass) -> usize {
    match class.bits() {
        1 => 0,
        16 => 1,
        32 => 2,
        _ => 3,
    }
}

fn mask(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}

fn signed(value: u64, bits: u32) -> i128 {
    i128::from(((value << (64 - bits)) as i64) >> (64 - bits))
}

/// Returns the element type whose codec reads a PTX float type.
fn format(ty: Ty) -> DType {
    match ty {
        Ty::F16 => DType::F16,
        Ty::BF16 => DType::BF16,
        Ty::F32 => DType::F32,
        Ty::F64 => DType::F64,
        Ty::E4M3x2 => DType::F8E4M3FN,
        Ty::E5M2x2 => DType::F8E5M2,
        other => panic!("{other} is no float type here"),
    }
}

impl<'a> Thread<'a> {
    pub fn new(function: &'a Function) -> Thread<'a> {
        let labels = function.lines.iter().enumerate();
        let labels =
            labels.filter_map(|(i, line)| if let Line::Label(label) = line { Some((*label, i)) } else { None });
        let banks = function.registers.map(|count| vec![0; count as usize]);
        Thread { function, labels: labels.collect(), banks, approx_ulps: 0 }
    }

    pub fn set(&mut self, reg: Reg, value: u64) {
        self.banks[bank(reg.class)][reg.id as usize] = value & mask(reg.class.bits());
    }

    /// Returns the bits of an operand, `bits` wide.
    pub fn get(&self, operand: Operand, bits: u32) -> u64 {
        match operand {
            Operand::Reg(reg) => self.banks[bank(reg.class)][reg.id as usize],
            Operand::Imm(value) => value as u64 & mask(bits),
            Operand::F32(value) => value.to_bits().into(),
            Operand::F64(value) => value.to_bits(),
            Operand::Table(table) => table.words.as_ptr() as u64,
            other => panic!("{other:?} has no value here"),
        }
    }

    pub fn run(&mut self) {
        let (mut at, mut steps) = (0, 0);
        while at < self.function.lines.len() {
            steps += 1;
            assert!(steps < 100_000, "endless loop");
            let Line::Inst(inst) = &self.function.lines[at] else {
                at += 1;
                continue;
            };
            at += 1;
            if let Some((pred, negated)) = inst.guard
                && (self.get(pred.into(), 1) == 1) == negated
            {
                continue;
            }
            match (&inst.op, inst.srcs.first()) {
                (Opcode::Bra { .. }, Some(Arg::Label(label))) => at = self.labels[label],
                _ => self.step(inst),
            }
        }
    }

    fn source(&self, inst: &Inst, index: usize, bits: u32) -> u64 {
        match &inst.srcs[index] {
            Arg::One(operand) => self.get(*operand, bits),
            other => panic!("{other} as a source"),
        }
    }

    fn write(&mut self, inst: &Inst, value: u64) {
        match &inst.dsts[0] {
            Arg::One(Operand::Reg(reg)) => self.set(*reg, value),
            other => panic!("{other} as a result"),
        }
    }

    fn step(&mut self, inst: &Inst) {
        let s = |index, bits| self.source(inst, index, bits);
        let value = match inst.op {
            Opcode::Mov(ty) => return self.mov(inst, ty),
            Opcode::Int(op, ty) => int(op, ty, s),
            Opcode::Mad(ty) => s(0, ty.bits()).wrapping_mul(s(1, ty.bits())).wrapping_add(s(2, ty.bits())),
            Opcode::MadWide(Ty::U32) => (s(0, 32) * s(1, 32)).wrapping_add(s(2, 64)),
            Opcode::Bfe(ty) => {
                let (field, len) = (s(0, ty.bits()) >> s(1, 32), s(2, 32) as u32);
                if ty.is_signed() { signed(field, len) as u64 } else { field & mask(len) }
            }
            Opcode::Prmt => {
                let bytes = s(0, 32) | s(1, 32) << 32;
                let byte = |i: u64| (bytes >> (8 * (s(2, 32) >> (4 * i) & 7)) & 0xff) << (8 * i);
                byte(0) | byte(1) | byte(2) | byte(3)
            }
            Opcode::Lop3(table) => {
                let [a, b, c] = [0, 1, 2].map(|i| s(i, 32));
                let row = |bit: u32| (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | c >> bit & 1;
                (0..32).map(|bit| u64::from(table >> row(bit) & 1) << bit).sum()
            }
            Opcode::Float(op, ty, mods) => {
                let sources: Vec<u64> = (0..inst.srcs.len()).map(|i| s(i, ty.bits())).collect();
                match ty {
                    Ty::F16x2 | Ty::BF16x2 => {
                        let half = if ty == Ty::F16x2 { Ty::F16 } else { Ty::BF16 };
                        let part = |shift: u32| {
                            let sources: Vec<u64> = sources.iter().map(|x| x >> shift & 0xffff).collect();
                            float(op, half, mods, &sources, 0)
                        };
                        part(0) | part(16) << 16
                    }
                    _ => float(op, ty, mods, &sources, self.approx_ulps),
                }
            }
            Opcode::Setp { cmp, ty, .. } => u64::from(compare(cmp, ty, s(0, ty.bits()), s(1, ty.bits()))),
            Opcode::Selp(ty) => s(if s(2, 1) == 1 { 0 } else { 1 }, ty.bits()),
            Opcode::Cvt { dst, src, mods } if inst.srcs.len() == 2 => {
                let part = |i| convert(dst, src, mods, s(i, src.bits()));
                part(1) | part(0) << (dst.bits() / 2)
            }
            Opcode::Cvt { dst, src, mods } => convert(dst, src, mods, s(0, src.class().bits())),
            Opcode::Ld { space: Space::Const, ty: Ty::U64, .. } => self.load(inst),
            other => panic!("the evaluator does not know {other}"),
        };
        self.write(inst, value);
    }

    fn mov(&mut self, inst: &Inst, ty: Ty) {
        let half = ty.bits() / 2;
        match (&inst.dsts[0], &inst.srcs[0]) {
            (_, Arg::Vector(parts)) => {
                let value = self.get(parts[0], half) | self.get(parts[1], half) << half;
                self.write(inst, value);
            }
            (Arg::Vector(parts), Arg::One(source)) => {
                let value = self.get(*source, ty.bits());
                self.set(parts[0].reg(), value);
                self.set(parts[1].reg(), value >> half);
            }
            _ => {
                let value = self.source(inst, 0, ty.bits());
                self.write(inst, value);
            }
        }
    }

    /// Loads from constant arrays of the function; any other address is invalid.
    fn load(&self, inst: &Inst) -> u64 {
        let Arg::Mem(addr) = &inst.srcs[0] else { panic!("a load without address") };
        let address = self.get(addr.base, 64).wrapping_add(addr.offset as u64);
        for table in &self.function.tables {
            let offset = address.wrapping_sub(table.words.as_ptr() as u64);
            if offset < 8 * table.words.len() as u64 {
                return table.words[offset as usize / 8];
            }
        }
        panic!("load outside of every table: {inst}");
    }
}

fn int(op: IntOp, ty: Ty, s: impl Fn(usize, u32) -> u64) -> u64 {
    let bits = ty.bits();
    let read = |i| if ty.is_signed() { signed(s(i, bits), bits) } else { i128::from(s(i, bits)) };
    let shift = || s(1, 32).min(127) as u32;
    let value = match op {
        IntOp::Add => read(0) + read(1),
        IntOp::Sub => read(0) - read(1),
        IntOp::MulLo | IntOp::MulWide => read(0).wrapping_mul(read(1)),
        IntOp::MulHi => ((read(0) as u128).wrapping_mul(read(1) as u128) >> bits) as i128,
        // The result for a zero divisor is unspecified.
        IntOp::Div => read(0).checked_div(read(1)).unwrap_or(-1),
        IntOp::Rem => read(0).checked_rem(read(1)).unwrap_or(-1),
        IntOp::Min => read(0).min(read(1)),
        IntOp::Max => read(0).max(read(1)),
        IntOp::And => read(0) & read(1),
        IntOp::Or => read(0) | read(1),
        IntOp::Xor => read(0) ^ read(1),
        IntOp::Shl if shift() >= bits => 0,
        IntOp::Shl => read(0) << shift(),
        IntOp::Shr => read(0) >> shift(),
        IntOp::Abs => read(0).abs(),
        IntOp::Neg => -read(0),
        IntOp::Not => !read(0),
        IntOp::Popc => i128::from(s(0, bits).count_ones()),
        IntOp::Clz => i128::from(s(0, bits).leading_zeros() - (64 - bits)),
        IntOp::Brev => i128::from(s(0, bits).reverse_bits() >> (64 - bits)),
    };
    value as u64
}

fn compare(cmp: Cmp, ty: Ty, a: u64, b: u64) -> bool {
    use std::cmp::Ordering::*;
    let order = if ty.is_int() {
        let read = |x| if ty.is_signed() { signed(x, ty.bits()) } else { i128::from(x & mask(ty.bits())) };
        Some(read(a).cmp(&read(b)))
    } else {
        decode(format(ty), a).partial_cmp(&decode(format(ty), b))
    };
    match cmp {
        Cmp::Eq => order == Some(Equal),
        Cmp::Ne => matches!(order, Some(Less | Greater)),
        Cmp::Lt => order == Some(Less),
        Cmp::Le => matches!(order, Some(Less | Equal)),
        Cmp::Gt => order == Some(Greater),
        Cmp::Ge => matches!(order, Some(Greater | Equal)),
        Cmp::Equ => matches!(order, None | Some(Equal)),
        Cmp::Neu => order != Some(Equal),
        Cmp::Ltu => matches!(order, None | Some(Less)),
        Cmp::Leu => !matches!(order, Some(Greater)),
        Cmp::Gtu => matches!(order, None | Some(Greater)),
        Cmp::Geu => !matches!(order, Some(Less)),
        Cmp::Num => order.is_some(),
        Cmp::Nan => order.is_none(),
    }
}

fn flush(x: f64, ftz: bool) -> f64 {
    if ftz && x.abs() < f64::from(f32::MIN_POSITIVE) { 0f64.copysign(x) } else { x }
}

/// Returns `value` as f32, changed by some ulps unless it is a power of two, zero or infinite.
fn nudged(value: f64, ulps: i32) -> f64 {
    let single = value as f32;
    let exact = single == 0.0 || !single.is_finite() || single.to_bits() << 9 == 0;
    if exact { value } else { f64::from(f32::from_bits(single.to_bits().wrapping_add_signed(ulps))) }
}

fn float(op: FloatOp, ty: Ty, mods: FloatMods, sources: &[u64], approx_ulps: i32) -> u64 {
    let sign = 1u64 << (ty.bits() - 1);
    match op {
        FloatOp::Abs => return sources[0] & !sign,
        FloatOp::Neg => return sources[0] ^ sign,
        FloatOp::CopySign => return (sources[1] & !sign) | (sources[0] & sign),
        _ => {}
    }
    let x: Vec<f64> = sources.iter().map(|&bits| flush(decode(format(ty), bits), mods.ftz)).collect();
    let double = ty == Ty::F64;
    let value = match op {
        FloatOp::Add => x[0] + x[1],
        FloatOp::Sub => x[0] - x[1],
        FloatOp::Mul => x[0] * x[1],
        // One rounding: to f32 through the exact sum of an f64 product.
        FloatOp::Fma if ty == Ty::F32 => f64::from((x[0] as f32).mul_add(x[1] as f32, x[2] as f32)),
        FloatOp::Fma => x[0].mul_add(x[1], x[2]),
        FloatOp::Div => x[0] / x[1],
        FloatOp::Sqrt => x[0].sqrt(),
        FloatOp::Rcp if mods.round == FloatRound::Approx => nudged(1.0 / x[0], approx_ulps),
        FloatOp::Rcp => 1.0 / x[0],
        FloatOp::Rsqrt => nudged(1.0 / x[0].sqrt(), approx_ulps),
        FloatOp::Ex2 => nudged(x[0].exp2(), approx_ulps),
        FloatOp::Tanh => x[0].tanh(),
        FloatOp::Min | FloatOp::Max => min_max(op == FloatOp::Max, mods.nan, x[0], x[1]),
        FloatOp::Lg2 | FloatOp::Sin | FloatOp::Cos => panic!("the evaluator does not know {op}"),
        FloatOp::Abs | FloatOp::Neg | FloatOp::CopySign => unreachable!(),
    };
    assert!(
        matches!(mods.round, FloatRound::None | FloatRound::Rn | FloatRound::Approx),
        "the evaluator rounds to nearest only"
    );
    let value = if double { value } else { flush(value, mods.ftz) };
    let value = if mods.sat { if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) } } else { value };
    encode(format(ty), value, Rounding::NearestEven)
}

fn min_max(max: bool, nan: bool, a: f64, b: f64) -> f64 {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => f64::NAN,
        (true, false) | (false, true) if nan => f64::NAN,
        (true, false) => b,
        (false, true) => a,
        (false, false) => {
            let less = a < b || (a == b && a.is_sign_negative());
            if less != max { a } else { b }
        }
    }
}

fn convert(dst: Ty, src: Ty, mods: CvtMods, bits: u64) -> u64 {
    let rounding = match mods.round {
        CvtRound::None | CvtRound::Rn => Rounding::NearestEven,
        CvtRound::Rz => Rounding::Zero,
        CvtRound::Rm => Rounding::NegInf,
        CvtRound::Rp => Rounding::PosInf,
        CvtRound::Rna => Rounding::NearestAway,
        CvtRound::Rni | CvtRound::Rzi | CvtRound::Rmi | CvtRound::Rpi => Rounding::IntToZero,
    };
    match (dst.is_int(), src.is_int()) {
        (true, true) if src.is_signed() => signed(bits, src.bits()) as u64 & mask(dst.bits()),
        (true, true) => bits & mask(src.bits()) & mask(dst.bits()),
        (false, true) => {
            let value = if src.is_signed() { signed(bits, src.bits()) } else { i128::from(bits & mask(src.bits())) };
            match value {
                0 => 0,
                value => crate::types::float_codec::round(
                    format(dst),
                    crate::types::float_codec::Exact::of_integer(value),
                    rounding,
                ),
            }
        }
        (true, false) => float_to_int(dst, src, decode(format(src), bits)),
        (false, false) if matches!(src, Ty::E4M3x2 | Ty::E5M2x2) => {
            let part = |code: u64| encode(DType::F16, decode(format(src), code & 0xff), Rounding::NearestEven);
            part(bits) | part(bits >> 8) << 16
        }
        (false, false) if dst == src => {
            let x = decode(format(src), bits);
            let value = match mods.round {
                CvtRound::Rmi => x.floor(),
                CvtRound::Rpi => x.ceil(),
                CvtRound::Rzi => x.trunc(),
                other => panic!("{other:?} to an integral value"),
            };
            encode(format(dst), value, Rounding::NearestEven)
        }
        (false, false) => {
            let dtype = match dst {
                Ty::F16x2 => DType::F16,
                Ty::BF16x2 => DType::BF16,
                other => format(other),
            };
            encode(dtype, decode(format(src), bits), rounding)
        }
    }
}

/// Converts as defined by PTX, including its values for NaN.
fn float_to_int(dst: Ty, src: Ty, x: f64) -> u64 {
    let bits = dst.bits();
    if x.is_nan() {
        let wide = src == Ty::F64 || bits == 64;
        return if wide { 1 << (bits - 1) } else { 0 };
    }
    let value = match dst {
        Ty::S32 => i128::from(x as i32),
        Ty::U32 => i128::from(x as u32),
        Ty::S64 => i128::from(x as i64),
        _ => i128::from(x as u64),
    };
    value as u64 & mask(bits)
}
