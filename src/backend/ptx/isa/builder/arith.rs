//! Arithmetic, logic, comparison and conversion instructions.

use super::super::inst::*;
use super::{Builder, fold};
use crate::util::collect::CollectVec as _;

macro_rules! int_binary {
    ($($(#[$meta:meta])* $name:ident = $op:ident;)+) => {
        $($(#[$meta])*
        pub fn $name(&mut self, ty: Ty, a: impl Into<Operand>, b: impl Into<Operand>) -> Operand {
            self.int(IntOp::$op, ty, a, b)
        })+
    };
}

macro_rules! int_unary {
    ($($(#[$meta:meta])* $name:ident = $op:ident;)+) => {
        $($(#[$meta])*
        pub fn $name(&mut self, ty: Ty, a: impl Into<Operand>) -> Operand {
            self.int1(IntOp::$op, ty, a)
        })+
    };
}

impl Builder {
    int_binary! {
        /// `a + b` of integers.
        add = Add;
        /// `a - b` of integers.
        sub = Sub;
        /// Low half of the product.
        mul = MulLo;
        /// High half of the product.
        mul_hi = MulHi;
        /// 64-bit product of 32-bit factors.
        mul_wide = MulWide;
        /// Quotient, rounded to zero; unspecified for a zero divisor.
        div = Div;
        /// Remainder with the sign of the dividend; unspecified for a zero divisor.
        rem = Rem;
        /// Minimum.
        min = Min;
        /// Maximum.
        max = Max;
        /// Bitwise and; also of predicates.
        and = And;
        /// Bitwise or; also of predicates.
        or = Or;
        /// Bitwise exclusive or; also of predicates.
        xor = Xor;
        /// Left shift by a 32-bit amount; amounts of at least the width result in 0.
        shl = Shl;
        /// Right shift by a 32-bit amount, arithmetic if `ty` is signed; amounts are clamped to the
        /// width.
        shr = Shr;
    }

    int_unary! {
        /// Absolute value.
        abs = Abs;
        /// Negation.
        neg = Neg;
        /// Bitwise complement; also of predicates.
        not = Not;
        /// Number of leading zeros, as B32.
        clz = Clz;
    }

    /// Emits an integer operation of two operands, or folds it.
    pub fn int(&mut self, op: IntOp, ty: Ty, a: impl Into<Operand>, b: impl Into<Operand>) -> Operand {
        self.int_of(op, ty, a.into(), b.into())
    }

    fn int_of(&mut self, op: IntOp, ty: Ty, a: Operand, b: Operand) -> Operand {
        if op == IntOp::Sub && ty == Ty::S32 && a == Operand::Imm(0) && b.as_imm().is_none() {
            return self.negated(b);
        }
        if let (Some(x), Some(y)) = (a.as_imm(), b.as_imm())
            && let Some(value) = fold::constant(op, ty, x, y)
        {
            return Operand::Imm(value);
        }
        if let Some(same) = fold::identity(op, ty, a, b) {
            return same;
        }
        if let Some(cheaper) = self.strength_reduced(op, ty, a, b) {
            return cheaper;
        }
        // The assembler does not merge two operations with constants into one `lop3`.
        if ty.class() == RegClass::B32
            && let (Some((word, mask)), Some(_)) = (self.masked.get(a), b.as_imm())
            && let Some(table) = fold::after_mask(op)
        {
            let result = self.lop3(word, mask, b, table);
            if let Operand::Reg(result) = result {
                self.record_bits(result, op, ty, a, b);
            }
            return result;
        }
        let class = if op == IntOp::MulWide { RegClass::B64 } else { ty.class() };
        let dst = self.fresh(class);
        self.int_to(dst, op, ty, a, b);
        if let (IntOp::And, RegClass::B32, Some(mask), false) = (op, class, b.as_imm(), self.is_guarded()) {
            self.masked.note(dst, a, mask);
        }
        self.record_bits(dst, op, ty, a, b);
        dst.into()
    }

    /// Records the bits of a result for [`Builder::pack`], unless a predicate guards it.
    fn record_bits(&mut self, result: Reg, op: IntOp, ty: Ty, a: Operand, b: Operand) {
        if !self.is_guarded() {
            self.bits.record(result, op, ty, a, b);
        }
    }

    /// Emits multiplications and unsigned divisions by powers of two as shifts and masks.
    ///
    /// Complements and negations are emitted as such. Otherwise ptxas (13.0) treats 2³¹ - 1 as
    /// loop-invariant if a loop complements it by `xor` with -1, or negates it by `mul` with -1 or
    /// by `neg`.
    fn strength_reduced(&mut self, op: IntOp, ty: Ty, a: Operand, b: Operand) -> Option<Operand> {
        let unsigned = !ty.is_signed();
        let (first, second) = (fold::is_ones(a, ty), fold::is_ones(b, ty));
        Some(match op {
            IntOp::Xor if ty.bits() >= 16 && (first || second) => self.int1(IntOp::Not, ty, if first { b } else { a }),
            IntOp::MulLo if ty.bits() == 32 && (first || second) => self.negated(if first { b } else { a }),
            IntOp::MulLo => match (fold::log2(a, ty), fold::log2(b, ty)) {
                (_, Some(log)) => self.shl(untyped(ty), a, log),
                (Some(log), _) => self.shl(untyped(ty), b, log),
                _ => return None,
            },
            IntOp::Div if unsigned => {
                let log = fold::log2(b, ty)?;
                self.shr(ty, a, log)
            }
            IntOp::Rem if unsigned => {
                let log = fold::log2(b, ty)?;
                self.and(untyped(ty), a, (1i64 << log).wrapping_sub(1))
            }
            _ => return None,
        })
    }

    /// Emits [`Builder::int`] into an existing register.
    pub fn int_to(&mut self, dst: Reg, op: IntOp, ty: Ty, a: impl Into<Operand>, b: impl Into<Operand>) {
        let (mut a, mut b) = (a.into(), b.into());
        let commutes = matches!(
            op,
            IntOp::Add
                | IntOp::MulLo
                | IntOp::MulHi
                | IntOp::MulWide
                | IntOp::Min
                | IntOp::Max
                | IntOp::And
                | IntOp::Or
                | IntOp::Xor
        );
        if commutes && a.as_imm().is_some() {
            std::mem::swap(&mut a, &mut b);
        }
        let shift = matches!(op, IntOp::Shl | IntOp::Shr);
        let ty = if matches!(op, IntOp::And | IntOp::Or | IntOp::Xor | IntOp::Shl) { untyped(ty) } else { ty };
        let a = if a.as_imm().is_some() { self.reg(a, ty.class()).into() } else { self.source(a, ty) };
        let b = self.source(b, if shift { Ty::U32 } else { ty });
        self.push(Opcode::Int(op, ty), vec![dst.into()], vec![a.into(), b.into()]);
    }

    /// Emits `-a` of 32 bits as `!a + 1`. On sm_90, ptxas (13.0) merges minima or maxima into one
    /// instruction of three operands. It then loses the sign of some negated operands.
    fn negated(&mut self, a: Operand) -> Operand {
        let complement = self.int1(IntOp::Not, Ty::B32, a);
        self.int(IntOp::Add, Ty::S32, complement, 1)
    }

    /// Emits an integer operation of one operand.
    pub fn int1(&mut self, op: IntOp, ty: Ty, a: impl Into<Operand>) -> Operand {
        let a = a.into();
        if let Some(value) = a.as_imm().and_then(|x| fold::constant(op, ty, x, 0)) {
            return Operand::Imm(value);
        }
        if op == IntOp::Neg && ty == Ty::S32 {
            return self.negated(a);
        }
        let (ty, class) = match op {
            IntOp::Popc | IntOp::Clz => (untyped(ty), RegClass::B32),
            IntOp::Not | IntOp::Brev => (untyped(ty), ty.class()),
            _ => (ty, ty.class()),
        };
        let a = self.reg(a, ty.class());
        let dst = self.fresh(class);
        self.push(Opcode::Int(op, ty), vec![dst.into()], vec![a.into()]);
        dst.into()
    }

    /// `a * b + c`, low half.
    pub fn mad(&mut self, ty: Ty, a: impl Into<Operand>, b: impl Into<Operand>, c: impl Into<Operand>) -> Operand {
        self.mad_of(ty, a.into(), b.into(), c.into())
    }

    fn mad_of(&mut self, ty: Ty, a: Operand, b: Operand, c: Operand) -> Operand {
        let trivial = |x: Operand| fold::log2(x, ty).is_some() || x.as_imm() == Some(0);
        if c.as_imm() == Some(0) || trivial(a) || trivial(b) || (a.as_imm().is_some() && b.as_imm().is_some()) {
            let product = self.mul(ty, a, b);
            return self.add(ty, product, c);
        }
        let (a, b) = if a.as_imm().is_some() { (b, a) } else { (a, b) };
        self.three(Opcode::Mad(ty), ty, ty, [a, b, c])
    }

    /// `a * b + c` of 32-bit factors and a 64-bit summand.
    pub fn mad_wide(&mut self, ty: Ty, a: impl Into<Operand>, b: impl Into<Operand>, c: impl Into<Operand>) -> Operand {
        let (a, b, c) = (a.into(), b.into(), c.into());
        let wide = if ty.is_signed() { Ty::S64 } else { Ty::U64 };
        if c.as_imm() == Some(0) || (a.as_imm().is_some() && b.as_imm().is_some()) {
            let product = self.mul_wide(ty, a, b);
            return self.add(wide, product, c);
        }
        let (a, b) = if a.as_imm().is_some() { (b, a) } else { (a, b) };
        self.three(Opcode::MadWide(ty), ty, wide, [a, b, c])
    }

    fn three(&mut self, op: Opcode, ty: Ty, wide: Ty, [a, b, c]: [Operand; 3]) -> Operand {
        let dst = self.fresh(wide.class());
        let a = if a.as_imm().is_some() { self.reg(a, ty.class()).into() } else { self.source(a, ty) };
        let (b, c) = (self.source(b, ty), self.source(c, wide));
        self.push(op, vec![dst.into()], vec![a.into(), b.into(), c.into()]);
        dst.into()
    }

    /// Extracts `len` bits from bit `pos`, extended according to `ty` (u32, s32, u64, s64).
    pub fn bfe(&mut self, ty: Ty, a: impl Into<Operand>, pos: impl Into<Operand>, len: impl Into<Operand>) -> Operand {
        self.bfe_of(ty, a.into(), pos.into(), len.into())
    }

    fn bfe_of(&mut self, ty: Ty, a: Operand, pos: Operand, len: Operand) -> Operand {
        if let (Some(value), Some(pos), Some(len)) = (a.as_imm(), pos.as_imm(), len.as_imm())
            && let Some(field) = fold::field(ty, value, pos, len)
        {
            return Operand::Imm(field);
        }
        let a = self.reg(a, ty.class());
        let (pos, len) = (self.source(pos, Ty::U32), self.source(len, Ty::U32));
        let dst = self.fresh(ty.class());
        self.push(Opcode::Bfe(ty), vec![dst.into()], vec![a.into(), pos.into(), len.into()]);
        dst.into()
    }

    /// Replaces `len` bits of `base` from bit `pos` by the low bits of `field`.
    pub fn bfi(&mut self, ty: Ty, field: impl Into<Operand>, base: impl Into<Operand>, pos: u32, len: u32) -> Operand {
        let (field, base) = (self.reg(field, ty.class()), self.source(base, ty));
        let dst = self.fresh(ty.class());
        let srcs = vec![field.into(), base.into(), Operand::from(pos).into(), Operand::from(len).into()];
        self.push(Opcode::Bfi(ty), vec![dst.into()], srcs);
        dst.into()
    }

    /// Selects four bytes of `{b, a}` by the nibbles of `selector` (a: bytes 0 to 3).
    pub fn prmt(&mut self, a: impl Into<Operand>, b: impl Into<Operand>, selector: impl Into<Operand>) -> Operand {
        let a = self.source(a, Ty::B32);
        let (b, selector) = (self.source(b, Ty::B32), self.source(selector, Ty::B32));
        let dst = self.fresh(RegClass::B32);
        self.push(Opcode::Prmt, vec![dst.into()], vec![a.into(), b.into(), selector.into()]);
        dst.into()
    }

    /// Emits a bitwise function of three words; bit `4a + 2b + c` of `table` is its value.
    pub fn lop3(&mut self, a: impl Into<Operand>, b: impl Into<Operand>, c: impl Into<Operand>, table: u8) -> Operand {
        let (a, b, c) = (self.source(a, Ty::B32), self.source(b, Ty::B32), self.source(c, Ty::B32));
        let dst = self.fresh(RegClass::B32);
        let table_arg = Operand::Imm(table.into());
        self.push(Opcode::Lop3(table), vec![dst.into()], vec![a.into(), b.into(), c.into(), table_arg.into()]);
        dst.into()
    }

    // Floats.

    /// Emits a float operation of one to three operands. Halves are B16, packed halves B32.
    pub fn float(&mut self, op: FloatOp, ty: Ty, mods: FloatMods, operands: &[Operand]) -> Operand {
        let dst = self.fresh(ty.class());
        self.float_to(dst, op, ty, mods, operands);
        dst.into()
    }

    /// Emits [`Builder::float`] into an existing register.
    pub fn float_to(&mut self, dst: Reg, op: FloatOp, ty: Ty, mods: FloatMods, operands: &[Operand]) {
        assert_eq!(dst.class, ty.class(), "result of {op}{ty}");
        let srcs = operands.iter().map(|&x| self.source(x, ty).into()).collect_vec();
        self.push(Opcode::Float(op, ty, mods), vec![dst.into()], srcs);
    }

    /// `a * b + c` with one rounding to nearest, of any float type.
    pub fn fma(&mut self, ty: Ty, a: impl Into<Operand>, b: impl Into<Operand>, c: impl Into<Operand>) -> Operand {
        self.float(FloatOp::Fma, ty, FloatMods::RN, &[a.into(), b.into(), c.into()])
    }

    /// `a + b`, rounded to nearest.
    pub fn fadd(&mut self, ty: Ty, a: impl Into<Operand>, b: impl Into<Operand>) -> Operand {
        self.float(FloatOp::Add, ty, FloatMods::RN, &[a.into(), b.into()])
    }

    /// `a - b`, rounded to nearest.
    pub fn fsub(&mut self, ty: Ty, a: impl Into<Operand>, b: impl Into<Operand>) -> Operand {
        self.float(FloatOp::Sub, ty, FloatMods::RN, &[a.into(), b.into()])
    }

    /// `a * b`, rounded to nearest.
    pub fn fmul(&mut self, ty: Ty, a: impl Into<Operand>, b: impl Into<Operand>) -> Operand {
        self.float(FloatOp::Mul, ty, FloatMods::RN, &[a.into(), b.into()])
    }

    /// `|a|`: clears the sign bit.
    pub fn fabs(&mut self, ty: Ty, a: impl Into<Operand>) -> Operand {
        self.float(FloatOp::Abs, ty, FloatMods::NONE, &[a.into()])
    }

    /// `-a`: flips the sign bit.
    pub fn fneg(&mut self, ty: Ty, a: impl Into<Operand>) -> Operand {
        self.float(FloatOp::Neg, ty, FloatMods::NONE, &[a.into()])
    }

    // Comparison and selection.

    /// Emits `cmp(a, b)` as a predicate.
    pub fn setp(&mut self, cmp: Cmp, ty: Ty, a: impl Into<Operand>, b: impl Into<Operand>) -> Reg {
        let dst = self.fresh(RegClass::Pred);
        self.setp_to(dst, cmp, ty, a, b);
        dst
    }

    /// Emits [`Builder::setp`] into an existing predicate.
    ///
    /// For f32, `a < b` is emitted as not (`a >= b` or unordered), without a further instruction.
    /// Reason: ptxas derives that squares, magnitudes and powers are not negative, ignores NaN, and
    /// folds `a >= 0` of them to true.
    pub fn setp_to(&mut self, dst: Reg, cmp: Cmp, ty: Ty, a: impl Into<Operand>, b: impl Into<Operand>) {
        self.setp_of(dst, cmp, ty, a.into(), b.into());
    }

    fn setp_of(&mut self, dst: Reg, cmp: Cmp, ty: Ty, a: Operand, b: Operand) {
        let opposite = match cmp {
            Cmp::Lt => Cmp::Geu,
            Cmp::Le => Cmp::Gtu,
            Cmp::Gt => Cmp::Leu,
            Cmp::Ge => Cmp::Ltu,
            _ => return self.compare_to(dst, cmp, ty, a, b),
        };
        if ty != Ty::F32 {
            return self.compare_to(dst, cmp, ty, a, b);
        }
        let not = self.fresh(RegClass::Pred);
        self.compare_to(not, opposite, ty, a, b);
        self.push(Opcode::Int(IntOp::Not, Ty::Pred), vec![dst.into()], vec![not.into()]);
    }

    fn compare_to(&mut self, dst: Reg, cmp: Cmp, ty: Ty, a: Operand, b: Operand) {
        let a = if a.as_imm().is_some() { self.reg(a, ty.class()).into() } else { self.source(a, ty) };
        let b = self.source(b, ty);
        self.push(Opcode::Setp { cmp, ty, ftz: false }, vec![dst.into()], vec![a.into(), b.into()]);
    }

    /// Emits `cond ? a : b`; for predicates by logic.
    pub fn select(
        &mut self,
        class: RegClass,
        cond: impl Into<Operand>,
        a: impl Into<Operand>,
        b: impl Into<Operand>,
    ) -> Operand {
        self.select_of(class, cond.into(), a.into(), b.into())
    }

    fn select_of(&mut self, class: RegClass, cond: Operand, a: Operand, b: Operand) -> Operand {
        if let Some(value) = cond.as_imm() {
            return if value & 1 == 1 { a } else { b };
        }
        if a == b {
            return a;
        }
        let dst = self.fresh(class);
        self.select_to(dst, cond.reg(), a, b);
        dst.into()
    }

    /// Emits [`Builder::select`] into an existing register.
    pub fn select_to(&mut self, dst: Reg, cond: Reg, a: impl Into<Operand>, b: impl Into<Operand>) {
        let (a, b) = (a.into(), b.into());
        let ty = match dst.class {
            RegClass::Pred => {
                let (a, b) = (self.reg(a, RegClass::Pred), self.reg(b, RegClass::Pred));
                let taken = self.and(Ty::Pred, cond, a);
                let other = self.not(Ty::Pred, cond);
                let other = self.and(Ty::Pred, other, b);
                return self.int_to(dst, IntOp::Or, Ty::Pred, taken, other);
            }
            RegClass::B16 => Ty::B16,
            RegClass::B32 => Ty::B32,
            RegClass::B64 => Ty::B64,
            RegClass::F32 => Ty::F32,
            RegClass::F64 => Ty::F64,
        };
        let (a, b) = (self.source(a, ty), self.source(b, ty));
        self.push(Opcode::Selp(ty), vec![dst.into()], vec![a.into(), b.into(), cond.into()]);
    }

    /// Converts a predicate to 0 or 1 in B32.
    pub fn pred_to_int(&mut self, pred: impl Into<Operand>) -> Operand {
        self.select(RegClass::B32, pred, 1i64, 0i64)
    }

    // Conversion.

    /// Emits `cvt`. Register classes follow from the types; 8-bit integers are in B32.
    pub fn cvt(&mut self, dst_ty: Ty, src_ty: Ty, mods: impl Into<CvtMods>, a: impl Into<Operand>) -> Operand {
        let (mods, a) = (mods.into(), a.into());
        if mods == CvtMods::default()
            && let Some(value) = a.as_imm().and_then(|value| fold::conversion(dst_ty, src_ty, value))
        {
            return Operand::Imm(value);
        }
        let dst = self.fresh(dst_ty.class());
        let a = self.reg(a, src_ty.class());
        self.push(Opcode::Cvt { dst: dst_ty, src: src_ty, mods }, vec![dst.into()], vec![a.into()]);
        dst.into()
    }

    /// Converts two f32 into one packed pair (`F16x2`, `BF16x2` as B32; `E4M3x2`, `E5M2x2` as B16).
    pub fn cvt_pack(
        &mut self,
        dst_ty: Ty,
        mods: impl Into<CvtMods>,
        lo: impl Into<Operand>,
        hi: impl Into<Operand>,
    ) -> Operand {
        let (lo, hi) = (self.source(lo, Ty::F32), self.source(hi, Ty::F32));
        let dst = self.fresh(dst_ty.class());
        let op = Opcode::Cvt { dst: dst_ty, src: Ty::F32, mods: mods.into() };
        self.push(op, vec![dst.into()], vec![hi.into(), lo.into()]);
        dst.into()
    }
}

/// Returns the untyped form of an integer type.
fn untyped(ty: Ty) -> Ty {
    match ty.class() {
        RegClass::Pred => Ty::Pred,
        RegClass::B16 => Ty::B16,
        RegClass::B64 | RegClass::F64 => Ty::B64,
        RegClass::B32 | RegClass::F32 => Ty::B32,
    }
}
