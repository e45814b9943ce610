//! Recording of reductions and scans: the operands are checked, and the closure is traced once as
//! the body.

use crate::dtype::DType;
use crate::element::Element;
use crate::ir::op_table::Effect;
use crate::ir::{Attr, Literal, Opcode, Sign, Type, TypeId, Value};
use crate::ops::elementwise::arithmetic::sign;
use crate::ops::support::axis::{AXES_COUNT, shown};
use crate::tile::{Place, Region, Trace, ValueHandle, caller_location, in_region, record};
use crate::util::collect::CollectVec as _;
use crate::util::sort;

/// Combines accumulators with elements, one of each for each operand: a recorded closure of the
/// user, or one op.
type Combine<'a> = &'a dyn Fn(&[ValueHandle], &[ValueHandle]) -> Vec<ValueHandle>;

/// A reduction or scan, with its name in messages and its source location.
pub(crate) struct Fold<'a> {
    pub place: Place,
    pub name: &'static str,
    pub region: Region,
    /// One identity for each operand.
    pub identities: Vec<Literal>,
    pub combine: Combine<'a>,
}

impl Fold<'_> {
    /// Reduces along each axis, the last one first, and restores the axes with extent 1.
    pub fn reduce(&self, sources: &[ValueHandle], axes: Vec<usize>) -> Vec<ValueHandle> {
        let shape = record(|t| t.shape(sources[0]));
        let kept: Vec<i64> = (0..shape.len()).map(|d| if axes.contains(&d) { 1 } else { shape[d] }).collect_vec();
        let start = record(|t| self.start(t, sources, &axes));
        let mut order = axes;
        sort::by(&mut order, |a, b| b.cmp(a));
        let reduced = start.and_then(|start| {
            order.into_iter().try_fold(start, |values, axis| self.along(Opcode::Reduce, &values, axis, &[]))
        });
        record(|t| {
            let Some(values) = reduced else { return self.poisons(t, &kept) };
            let results = values.into_iter().zip(&self.identities).map(|(value, identity)| {
                let value = match t.builder.module.shape(value) == kept {
                    true => value,
                    false => t.put(Opcode::Reshape, &[value], vec![], identity.dtype, &kept),
                };
                t.raw(value)
            });
            results.collect_vec()
        })
    }

    /// Combines each element with all preceding ones along the axis, or with all following ones if
    /// `reverse` is set.
    pub fn scan(&self, sources: &[ValueHandle], axis: usize, reverse: bool) -> Vec<ValueHandle> {
        let shape = record(|t| t.shape(sources[0]));
        let start = record(|t| self.start(t, sources, &[axis]));
        let scanned = start.and_then(|start| self.along(Opcode::Scan, &start, axis, &[Attr::Reverse(reverse)]));
        record(|t| match scanned {
            Some(values) => values.into_iter().map(|value| t.raw(value)).collect_vec(),
            None => self.poisons(t, &shape),
        })
    }

    fn poisons(&self, t: &mut Trace, shape: &[i64]) -> Vec<ValueHandle> {
        self.identities.iter().map(|identity| t.poison(Type::tile(identity.dtype, shape))).collect_vec()
    }

    /// Returns the operands, or `None` after an error in them or in the axes.
    fn start(&self, t: &mut Trace, sources: &[ValueHandle], axes: &[usize]) -> Option<Vec<Value>> {
        t.at(self.place);
        // This check is the first: the shape of a poisoned operand is not one that the user has
        // written.
        let usable: Vec<Value> =
            sources.iter().map(|&source| t.check_usable(source, self.place)).collect::<Option<_>>()?;
        let shape = t.shape(sources[0]);
        if let Some(axis) = axes.iter().find(|&&axis| axis >= shape.len()) {
            let message = format!("`{}` along axis {} of a tile of shape {shape:?}", self.name, shown(*axis));
            t.report(self.place, message, &[AXES_COUNT]);
            return None;
        }
        if let Some(axis) = axes.iter().find(|&&axis| axes.iter().filter(|&&other| other == axis).count() > 1) {
            let message = format!("`{}` along axes {axes:?} names axis {axis} more than once", self.name);
            t.report(self.place, message, &["`..` stands for all axes"]);
            return None;
        }
        if let Some(other) = sources.iter().map(|&source| t.shape(source)).find(|other| *other != shape) {
            let message = format!("`{}` of tiles with shapes {shape:?} and {other:?}", self.name);
            t.report(self.place, message, &["the shapes must be equal: use `broadcast_to`"]);
            return None;
        }
        t.admits(self.place, Effect::Region, shape.len()).then_some(usable)
    }

    /// Records one op. Returns `None` after an error in the body.
    fn along(&self, code: Opcode, values: &[Value], axis: usize, more: &[Attr]) -> Option<Vec<Value>> {
        let (elements, accumulators) = record(|t| {
            let types: Vec<TypeId> = self
                .identities
                .iter()
                .flat_map(|identity| [t.builder.module.intern(Type::scalar(identity.dtype)); 2])
                .collect_vec();
            let args = t.open(self.region, &types);
            let every_second = |first: usize| args.iter().skip(first).step_by(2).map(|&arg| t.raw(arg)).collect_vec();
            let lists: (Vec<ValueHandle>, Vec<ValueHandle>) = (every_second(0), every_second(1));
            lists
        });
        let combined = in_region(|| (self.combine)(&accumulators, &elements));
        record(|t| {
            t.at(self.place);
            let combined: Option<Vec<Value>> =
                combined.into_iter().map(|raw| t.check_usable(raw, self.place)).collect();
            if let Some(combined) = &combined {
                t.emit(Opcode::Yield, &[combined], vec![], vec![], &[]);
            }
            let body = t.close();
            combined?;
            let mut shape = t.builder.module.shape(values[0]).to_vec();
            if code == Opcode::Reduce {
                shape.remove(axis);
            }
            let types: Vec<TypeId> = self
                .identities
                .iter()
                .map(|identity| t.builder.module.intern(Type::tile(identity.dtype, shape.as_slice())))
                .collect_vec();
            let mut attrs = vec![Attr::Dim(axis as u32)];
            attrs.extend_from_slice(more);
            attrs.push(Attr::Identities(self.identities.clone()));
            Some(t.emit(code, &[values], attrs, vec![body], &types))
        })
    }
}

/// A body of one op, for operands of one type.
#[track_caller]
pub(super) fn by_op(
    place: Place,
    (dtype, sign): (DType, Sign),
    code: Opcode,
    attrs: &[Attr],
) -> impl Fn(&[ValueHandle], &[ValueHandle]) -> Vec<ValueHandle> {
    move |accumulators: &[ValueHandle], elements: &[ValueHandle]| {
        record(|t| {
            // The operands have the order of the body's arguments. The ops are commutative.
            let operands =
                [elements[0], accumulators[0]].map(|raw| t.check_usable(raw, place).expect("arguments of the body"));
            let value = t.put(code, &operands, attrs.to_vec(), dtype, &[]);
            if matches!(code, Opcode::AddI | Opcode::MulI) {
                t.written(value, [sign; 2]);
            }
            vec![t.raw(value)]
        })
    }
}

/// An op as the body of a reduction or scan, with its attributes and identity.
pub(crate) struct ByOp<'a, T> {
    pub name: &'static str,
    pub code: Opcode,
    pub attrs: &'a [Attr],
    pub identity: T,
}

impl<T: Element> ByOp<'_, T> {
    /// Calls `work` with the fold that combines by this op.
    #[track_caller]
    pub fn fold<X>(&self, what: &'static str, work: impl FnOnce(&Fold<'_>) -> X) -> X {
        let place = caller_location();
        let combine = by_op(place, (T::DTYPE, sign::<T>()), self.code, self.attrs);
        let region = Region { what, place, scalar_only: true };
        let identities = vec![crate::ops::support::tile_set::literal(self.identity)];
        work(&Fold { place, name: self.name, region, identities, combine: &combine })
    }
}
