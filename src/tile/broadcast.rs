//! Operands of one operation brought to one shape: the broadcasting rule.
//!
//! Literals and scalars go with any shape; tiles with fewer axes get axes of extent 1 in front; extents of 1 are stretched.

use super::trace::{Place, Raw, Source, Trace};
use crate::dtype::DType;
use crate::ir::op_table::Effect;
use crate::ir::{Opcode, Type, Value};

/// An operand of an elementwise operation with its element type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arg {
    pub source: Source,
    pub dtype: DType,
    /// The Rust name of the element type.
    pub elem: &'static str,
}

/// Puts the ops of an elementwise operation on values of one shape; gives the result.
pub(crate) type ElementwiseBody<'a> = dyn FnMut(&mut Trace, &[Value], &[i64]) -> Value + 'a;

impl Trace {
    /// Stretches a value to `shape`: axes of extent 1 are put in front, extents of 1 stretched.
    /// The caller has checked that it fits.
    pub fn stretch(&mut self, value: Value, shape: &[i64]) -> Value {
        let dtype = self.builder.module.dtype(value);
        let from = self.builder.module.shape(value).to_vec();
        if from == shape {
            return value;
        }
        let mut value = value;
        if from.len() != shape.len() {
            let mut fitted = vec![1; shape.len() - from.len()];
            fitted.extend(from);
            value = self.put(Opcode::Reshape, &[value], Vec::new(), dtype, &fitted);
            if fitted == shape {
                return value;
            }
        }
        self.put(Opcode::Broadcast, &[value], Vec::new(), dtype, shape)
    }

    /// The shape that all operands broadcast to: literals and scalars to any, tiles by their last axes.
    fn common_shape(&mut self, place: Place, name: &str, operands: &[Arg], rank: usize) -> Option<Vec<i64>> {
        let mut common = vec![1; rank];
        let mut legal = true;
        let shapes: Vec<(&str, Vec<i64>)> = operands
            .iter()
            .filter_map(|arg| match arg.source {
                Source::Value(raw) if raw.rank != 0 => Some((arg.elem, self.shape(raw))),
                _ => None,
            })
            .collect();
        for (_, shape) in &shapes {
            for (extent, &other) in common.iter_mut().rev().zip(shape.iter().rev()) {
                legal &= *extent == 1 || other == 1 || *extent == other;
                *extent = (*extent).max(other);
            }
        }
        if !legal {
            let list: Vec<String> = shapes.iter().map(|(elem, shape)| format!("{elem} {shape:?}")).collect();
            self.report(
                place,
                format!("`{name}` of tiles {}", list.join(" and ")),
                &["extents must be equal or 1: use `reshape`, `permute` or `broadcast_to`"],
            );
            return None;
        }
        Some(common)
    }

    /// Records an elementwise operation: checks and broadcasts the operands, then lets `body` put ops on
    /// values of one shape. `rank` is the rank of the result, `out` its element type.
    ///
    /// (`body` is called at most once. It is a `dyn` because every operation of every element type comes
    /// through here: this function is compiled once, not for each of them.)
    pub fn elementwise(
        &mut self,
        place: Place,
        name: &str,
        operands: &[Arg],
        rank: usize,
        out: DType,
        body: &mut ElementwiseBody<'_>,
    ) -> Raw {
        self.at(place);
        let Some(shape) = self.common_shape(place, name, operands, rank) else {
            let largest = operands.iter().find_map(|arg| match arg.source {
                Source::Value(raw) if usize::from(raw.rank) == rank => Some(self.shape(raw)),
                _ => None,
            });
            return self.poison(Type::tile(out, largest.unwrap_or_else(|| vec![1; rank])));
        };
        let ty = Type::tile(out, shape.as_slice());
        let usable: Option<Vec<Option<Value>>> = operands
            .iter()
            .map(|arg| match arg.source {
                Source::Value(raw) => self.usable(raw, place).map(Some),
                Source::Literal(_) | Source::Extent(_) => Some(None),
            })
            .collect();
        let Some(usable) = usable else { return self.poison(ty) };
        if !self.admits(place, Effect::Pure, rank) {
            return self.poison(ty);
        }
        let mut values = Vec::with_capacity(operands.len());
        for (found, &Arg { source, dtype, .. }) in usable.iter().zip(operands) {
            values.push(match (found, source) {
                (Some(value), _) => self.stretch(*value, &shape),
                (None, Source::Literal(bits)) => self.splat(dtype, bits, &shape),
                (None, Source::Extent(n)) => self.splat_extent(place, n, &shape),
                (None, Source::Value(_)) => unreachable!("values were found usable"),
            });
        }
        let result = body(self, &values, &shape);
        self.raw(result)
    }
}
