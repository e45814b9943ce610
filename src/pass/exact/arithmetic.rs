//! Elementwise operations of floats in the ring, and casts.

use super::ring::INFINITE_EXPONENT;
use super::state::{Exact, Site};
use super::types::pattern_type;
use crate::dtype::DType;
use crate::ir::{Attr, CmpOrder, CmpPred, ConstData, Opcode, Sign, Value};
use crate::types::float_codec;

impl Exact<'_> {
    /// Rewrites an op whose operands and result are floats. Returns `None` for other ops. A test
    /// (`each_elementwise_op_of_floats_has_a_form`) fails for a float op without an arm.
    pub fn arithmetic(&mut self, site: &Site) -> Option<Value> {
        let x = |index: usize| site.op.operands[index];
        let result = match site.op.code {
            Opcode::AddF => self.add(x(0), x(1)),
            Opcode::SubF => self.sub(x(0), x(1)),
            Opcode::MulF => self.mul(x(0), x(1)),
            Opcode::Fma => {
                let product = self.mul(x(0), x(1));
                self.add(product, x(2))
            }
            Opcode::DivF => {
                let inverse = self.inverse(x(1));
                self.mul(x(0), inverse)
            }
            Opcode::NegF => self.negate(x(0)),
            Opcode::AbsF => {
                let minus = self.negate(x(0));
                self.extremum(Opcode::MaxI, x(0), minus)
            }
            Opcode::MaxF => match [0, 1].map(|index| self.is_tiny(site.old.operands[index])) {
                [true, false] => x(1),
                [false, true] => x(0),
                _ => self.extremum(Opcode::MaxI, x(0), x(1)),
            },
            Opcode::MinF => self.extremum(Opcode::MinI, x(0), x(1)),
            Opcode::Exp => {
                let rate = self.ring.number(std::f32::consts::LOG2_E.into());
                let scaled = self.mul_constant(x(0), rate);
                self.power(site, scaled)
            }
            Opcode::Exp2 => self.power(site, x(0)),
            Opcode::Rsqrt => {
                let root = self.tag(Opcode::Sqrt, x(0));
                self.inverse(root)
            }
            Opcode::Tan => {
                let [sine, cosine] = [Opcode::Sin, Opcode::Cos].map(|code| self.tag(code, x(0)));
                let inverse = self.inverse(cosine);
                self.mul(sine, inverse)
            }
            code @ (Opcode::Sqrt
            | Opcode::Log
            | Opcode::Log2
            | Opcode::Sin
            | Opcode::Cos
            | Opcode::Sinh
            | Opcode::Cosh
            | Opcode::Tanh
            | Opcode::Floor
            | Opcode::Ceil) => self.tag(code, x(0)),
            code @ (Opcode::PowF | Opcode::RemF | Opcode::Atan2) => self.tag_of_two(code, x(0), x(1)),
            Opcode::PowI => {
                let exponent = self.resize(x(1), self.ring.0, Sign::Signed);
                self.tag_of_two(Opcode::PowI, x(0), exponent)
            }
            _ => return None,
        };
        Some(self.absorbed(site, result))
    }

    /// Returns true for a positive constant of at most 2^-99. As a lower bound it guards a division
    /// by zero or a logarithm.
    fn is_tiny(&self, old: Value) -> bool {
        let module = &self.ops.module;
        let Some(op) = module.defining_op(old).map(|id| module.op(id)) else { return false };
        match (op.code, op.const_data()) {
            (Opcode::Broadcast | Opcode::Reshape, _) => self.is_tiny(op.operands[0]),
            (_, Some(ConstData::Splat(bits))) => {
                let number = self.float(old).map_or(0.0, |dtype| float_codec::decode(dtype, *bits));
                number > 0.0 && number <= 2f64.powi(-INFINITE_EXPONENT)
            }
            _ => false,
        }
    }

    /// Replaces the elements of a sum or product by negative infinity where an operand is. It
    /// absorbs every other number, so that a masked score stays masked.
    fn absorbed(&mut self, site: &Site, mut result: Value) -> Value {
        let count = match site.op.code {
            Opcode::SubF | Opcode::DivF => 1,
            Opcode::AddF | Opcode::MulF => 2,
            Opcode::Fma => 3,
            _ => 0,
        };
        for (&old, &operand) in site.old.operands[..count].iter().zip(&site.op.operands) {
            if self.may_be_infinite(old) {
                let smallest = self.constant(operand, self.ring.negative_infinity());
                let is_infinite = self.compare(CmpPred::Eq, Sign::Signed, operand, smallest);
                result = self.select(is_infinite, smallest, result);
            }
        }
        result
    }

    /// Emits `exp2`; the power of negative infinity is zero. `scaled`: the exponent.
    fn power(&mut self, site: &Site, scaled: Value) -> Value {
        let power = self.exp2(scaled);
        if !self.may_be_infinite(site.old.operands[0]) {
            return power;
        }
        let is_infinite = self.is_equal_to(site.op.operands[0], self.ring.negative_infinity());
        let zero = self.constant(power, 0);
        self.select(is_infinite, zero, power)
    }

    /// Rewrites a comparison: the order is that of signed integers.
    pub fn comparison(&mut self, site: &Site) -> Value {
        let [a, b] = [site.op.operands[0], site.op.operands[1]];
        debug_assert!(matches!(site.op.cmp_order(), CmpOrder::Ordered | CmpOrder::Unordered));
        self.compare(site.op.cmp_pred(), Sign::Signed, a, b)
    }

    /// Rewrites a conversion between numbers. Conversions between float types are the identity.
    pub fn cast(&mut self, site: &Site) -> Value {
        let (value, result) = (site.op.operands[0], site.old.results[0]);
        match site.op.code {
            Opcode::FToF => value,
            Opcode::IToF => self.resize(value, self.ring.0, site.op.sign()),
            _ => {
                let to = self.ops.module.dtype(result);
                self.resize(value, to, Sign::Signed)
            }
        }
    }

    /// Rewrites a reinterpretation, through the pattern in memory.
    pub fn bitcast(&mut self, site: &Site) -> Value {
        let mut value = site.op.operands[0];
        if let Some(dtype) = self.float(site.old.operands[0]) {
            value = self.unembed(value, dtype);
        }
        match self.float(site.old.results[0]) {
            Some(dtype) => self.embed(value, dtype),
            None => value,
        }
    }

    /// Rewrites a packing to bytes, of rank 1, through the patterns in memory.
    pub fn pack(&mut self, site: &Site, dtype: DType) -> Value {
        let pattern = self.unembed(site.op.operands[0], dtype);
        let ty = self.ops.module.ty_id(site.old.results[0]);
        self.ops.emit_typed(Opcode::Pack, &[pattern], vec![], ty)
    }

    /// Rewrites an unpacking of bytes.
    pub fn unpack(&mut self, site: &Site, dtype: DType) -> Value {
        let shape = self.ops.shape(site.old.results[0]);
        let elem = crate::ir::Elem::Num(pattern_type(dtype));
        let pattern = self.ops.emit_one(Opcode::Unpack, &site.op.operands, vec![], elem, &shape);
        self.embed(pattern, dtype)
    }

    /// Rewrites a constant.
    pub fn float_constant(&mut self, site: &Site, dtype: DType) -> Value {
        let number = |bits: u64| self.ring.number(float_codec::decode(dtype, bits));
        let data = match site.op.const_data() {
            Some(ConstData::Splat(bits)) => ConstData::Splat(number(*bits)),
            Some(ConstData::Dense(words)) => ConstData::Dense(words.iter().map(|&bits| number(bits)).collect()),
            None => ConstData::Splat(0),
        };
        let ty = self.ops.module.ty_id(site.old.results[0]);
        self.ops.emit_typed(Opcode::Constant, &[], vec![Attr::Value(data)], ty)
    }
}
