//! Broadcasting of the operands of an elementwise operation to one shape.
//!
//! Literals and scalars broadcast to any shape. Tiles with fewer axes receive leading axes of
//! extent 1. Axes of extent 1 are repeated.

use super::trace::{Place, Source, Trace, ValueHandle};
use crate::dtype::DType;
use crate::ir::op_table::Effect;
use crate::ir::{Opcode, Type, Value};
use crate::util::collect::CollectVec as _;

/// An operand of an elementwise operation and its element type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arg {
    pub source: Source,
    pub dtype: DType,
    /// The Rust name of the element type.
    pub elem: &'static str,
}

/// Emits the ops of an elementwise operation on values of one shape, and returns the result.
pub(crate) type ElementwiseBody<'a> = dyn FnMut(&mut Trace, &[Value], &[i64]) -> Value + 'a;

impl Trace {
    /// Broadcasts a value to `shape`: adds leading axes of extent 1, then repeats axes of extent 1.
    /// The caller has checked that the shapes are compatible.
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

    /// Returns the common shape of all operands: literals and scalars fit any, tiles are aligned at
    /// their last axes.
    fn common_shape(&mut self, place: Place, name: &str, operands: &[Arg], rank: usize) -> Option<Vec<i64>> {
        let mut common = vec![1; rank];
        let mut legal = true;
        let shapes: Vec<(&str, Vec<i64>)> = operands
            .iter()
            .filter_map(|arg| match arg.source {
                Source::Value(raw) if raw.rank != 0 => Some((arg.elem, self.shape(raw))),
                _ => None,
            })
            .collect_vec();
        for (_, shape) in &shapes {
            for (extent, &other) in common.iter_mut().rev().zip(shape.iter().rev()) {
                legal &= *extent == 1 || other == 1 || *extent == other;
                *extent = (*extent).max(other);
            }
        }
        if !legal {
            let list: Vec<String> = shapes.iter().map(|(elem, shape)| format!("{elem} {shape:?}")).collect_vec();
            self.report(
                place,
                format!("`{name}` of tiles {}", list.join(" and ")),
                &["extents must be equal or 1: use `reshape`, `permute` or `broadcast_to`"],
            );
            return None;
        }
        Some(common)
    }

    /// Records an elementwise operation: checks and broadcasts the operands, then calls `body` to
    /// emit ops on values of one shape. `rank` is the rank of the result, `out` its element type.
    ///
    /// (`body` is called at most once. It is a `dyn`, so that this function is compiled once and
    /// not for every operation and element type.)
    pub fn elementwise(
        &mut self,
        place: Place,
        name: &str,
        operands: &[Arg],
        rank: usize,
        out: DType,
        body: &mut ElementwiseBody<'_>,
    ) -> ValueHandle {
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
                Source::Value(raw) => self.check_usable(raw, place).map(Some),
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
