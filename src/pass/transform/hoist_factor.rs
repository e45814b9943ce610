//! Hoisting of a constant factor out of a maximum or minimum: the reduction of the products becomes
//! the product of the reduction.
//!
//! ```text
//! reduce_max(x · factor)  →  reduce_max(x) · factor
//! ```
//!
//! The results are equal if the factor is positive and no product overflows or underflows: rounding
//! is monotone, and such a factor does not change which element is the largest. A factor is a
//! constant, a parameter of the kernel in [`POSITIVE_RANGE`], or a product of these. The back end
//! checks parameters at each launch.
//!
//! Attention that scales its scores has this reduction in each iteration. It computes the products
//! for it alone if they are fused with the subtraction of the maximum. Not part of the pipeline:
//! the PTX back end calls it for loops with MMAs.

use crate::util::collect::CollectVec as _;
use std::ops::RangeInclusive;

use super::op_writer::OpWriter;
use crate::dtype::DType;
use crate::ir::{Attr, BlockId, ConstData, Def, Module, OpId, Opcode, Substitution, Uses, Value};
use crate::pass::analysis::float_sign::constant;
use crate::pass::analysis::mma_groups::loop_blocks_with_mmas;

/// Range of the parameters that may be factors. It is that of the scale of any scores. Products of
/// up to three such numbers neither overflow nor underflow.
pub const POSITIVE_RANGE: RangeInclusive<f32> = 1e-12..=1e12;

/// Factors that are hoisted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Factors {
    Constants,
    /// Also parameters in [`POSITIVE_RANGE`].
    PositiveParams,
}

/// Returns the module with hoisted factors, or `None` if there are none.
pub fn hoist_factor(module: &Module, factors: Factors) -> Option<Module> {
    let products = Product::all(module, factors);
    let body = module.entries.first()?.body;
    if products.is_empty() {
        return None;
    }
    let mut changed = module.clone();
    let mut writer = OpWriter::new(&mut changed);
    let mut values = Substitution::new();
    for block in loop_blocks_with_mmas(module, body) {
        let (ops, outer) = writer.begin_block(block);
        for id in ops {
            match products.iter().find(|product| product.reduce == id) {
                Some(product) => {
                    let value = product.hoist(&mut writer);
                    values.replace(module.op(id).results[0], value);
                }
                None => writer.keep(id),
            }
        }
        writer.end_block(block, outer);
    }
    values.apply(&mut changed, body);
    crate::pass::optimize(&mut changed);
    Some(changed)
}

/// Returns the parameters that [`hoist_factor`] assumes to be in [`POSITIVE_RANGE`], by their
/// positions.
pub fn positive_params(module: &Module, factors: Factors) -> Vec<u32> {
    let products = Product::all(module, factors);
    let mut params: Vec<u32> = products.iter().flat_map(|product| &product.factor.params).copied().collect_vec();
    params.sort_unstable();
    params.dedup();
    params
}

/// Uniform number by which a tile is multiplied.
struct Factor {
    /// Value of one element, or of equal elements.
    value: Value,
    /// Number of a constant.
    constant: Option<f32>,
    /// Parameters that the factor depends on.
    params: Vec<u32>,
}

impl Factor {
    /// Analyzes the repeated value of a tile. Returns `None` if it may not be positive.
    fn find(module: &Module, value: Value, factors: Factors) -> Option<Factor> {
        if let Some(number) = constant(module, value).map(|number| number as f32) {
            let is_positive = number > 0.0 && number.is_finite();
            return is_positive.then_some(Factor { value, constant: Some(number), params: Vec::new() });
        }
        let value = before_repetition(module, value);
        if factors == Factors::Constants || module.shape(value).iter().any(|&extent| extent != 1) {
            return None;
        }
        let mut params = Vec::new();
        numbers_of_product(module, value, MAX_NUMBERS, &mut params)?;
        Some(Factor { value, constant: None, params })
    }
}

/// Maximum number of parameters and constants of a product.
const MAX_NUMBERS: usize = 3;

/// Returns the number of factors of a product of parameters of f32 and of constants in
/// [`POSITIVE_RANGE`], at most `limit`. Appends the parameters.
fn numbers_of_product(module: &Module, value: Value, limit: usize, params: &mut Vec<u32>) -> Option<usize> {
    let value = before_repetition(module, value);
    if let Some(number) = constant(module, value) {
        return (limit > 0 && POSITIVE_RANGE.contains(&(number as f32))).then_some(1);
    }
    match module.def(value) {
        Def::Arg(block, position) => {
            params.push(position);
            let is_param = module.entries[0].body == block && module.dtype(value) == DType::F32;
            (limit > 0 && is_param).then_some(1)
        }
        Def::Result(id, _) => {
            let op = module.op(id);
            let &[a, b] = &op.operands[..] else { return None };
            if op.code != Opcode::MulF {
                return None;
            }
            let first = numbers_of_product(module, a, limit, params)?;
            Some(first + numbers_of_product(module, b, limit - first, params)?)
        }
    }
}

/// Returns the value whose elements a chain of shape ops repeats.
fn before_repetition(module: &Module, value: Value) -> Value {
    match module.defining_op(value).map(|id| module.op(id)) {
        Some(op) if matches!(op.code, Opcode::Broadcast | Opcode::Reshape) => before_repetition(module, op.operands[0]),
        _ => value,
    }
}

/// A reduction of products with one factor.
struct Product<'m> {
    module: &'m Module,
    reduce: OpId,
    product: OpId,
    elements: Value,
    factor: Factor,
}

impl<'m> Product<'m> {
    /// Returns the products of loops with MMAs.
    fn all(module: &'m Module, factors: Factors) -> Vec<Product<'m>> {
        let Some(entry) = module.entries.first() else { return Vec::new() };
        let blocks = loop_blocks_with_mmas(module, entry.body);
        let uses = Uses::new(module, entry.body);
        let ops = blocks.iter().flat_map(|&block| &module.block(block).ops);
        ops.filter_map(|&id| Product::find(module, &uses, id, factors)).collect_vec()
    }

    fn find(module: &'m Module, uses: &Uses, reduce: OpId, factors: Factors) -> Option<Product<'m>> {
        let op = module.op(reduce);
        let is_reduction = op.code == Opcode::Reduce && is_extremum(module, op.regions[0]);
        let &[products] = &op.operands[..] else { return None };
        if !is_reduction || uses.count(products) != 1 || module.dtype(products) != DType::F32 {
            return None;
        }
        let product = module.defining_op(products).filter(|&id| module.op(id).code == Opcode::MulF)?;
        let &[a, b] = &module.op(product).operands[..] else { return None };
        let (elements, factor) = match Factor::find(module, b, factors) {
            Some(factor) => (a, factor),
            None => (b, Factor::find(module, a, factors)?),
        };
        Some(Product { module, reduce, product, elements, factor })
    }

    fn hoist(&self, writer: &mut OpWriter<'_>) -> Value {
        let op = self.module.op(self.reduce);
        writer.begin(op);
        let region = writer.module.clone_block(op.regions[0], &mut Substitution::new());
        let ty = self.module.ty_id(op.results[0]);
        let reduced = writer.emit(Opcode::Reduce, &[&[self.elements]], op.attrs.clone(), vec![region], &[ty]);
        let reduced = writer.module.op(reduced).results[0];
        let (elem, shape) = (writer.elem(reduced), writer.shape(reduced));
        let factor = match self.factor.constant {
            Some(number) => {
                let bits = Attr::Value(ConstData::Splat(number.to_bits().into()));
                writer.emit_one(Opcode::Constant, &[], vec![bits], elem, &shape)
            }
            None => {
                let one = writer.reshape(self.factor.value, &vec![1; shape.len()]);
                writer.broadcast(one, &shape)
            }
        };
        writer.emit_one(Opcode::MulF, &[reduced, factor], self.module.op(self.product).attrs.clone(), elem, &shape)
    }
}

/// Returns true for a region that returns the larger or smaller one of its arguments.
fn is_extremum(module: &Module, region: BlockId) -> bool {
    let [combiner, _] = module.block(region).ops[..] else { return false };
    let (op, args) = (module.op(combiner), &module.block(region).args);
    matches!(op.code, Opcode::MaxF | Opcode::MinF) && args.iter().all(|arg| op.operands.contains(arg))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::verify;

    /// Returns a loop with an MMA and the maximum of products with `%f`, which the text computes
    /// from the parameters `%c` and `%d`.
    fn kernel(factor: &str) -> Module {
        let text = format!(
            "entry @k(%n: tile<i32>, %c: tile<f32>, %d: tile<f32>) {{
  %a = constant <f16: 1.0> : tile<16x16xf16>
  %one = constant <i32: 1> : tile<i32>
  %z = constant <f32: 0.0> : tile<16x16xf32>
  %m = constant <f32: 0.0> : tile<16xf32>
  %half = constant <f32: 0.5> : tile<f32>
  %minus = constant <f32: -0.5> : tile<f32>
{factor}  %r = reshape %f : tile<f32> -> tile<1x1xf32>
  %b = broadcast %r : tile<1x1xf32> -> tile<16x16xf32>
  %for = for %i in (%one to %n, step %one) : tile<i32> iter_values(%acc = %m) -> (tile<16xf32>) {{
    %s = mmaf %a, %a, %z : tile<16x16xf16>, tile<16x16xf16>, tile<16x16xf32>
    %p = mulf %s, %b : tile<16x16xf32>
    %red = reduce %p dim=1 identities=[0xFF800000 : f32] : tile<16x16xf32> -> tile<16xf32>
      (%x: tile<f32>, %y: tile<f32>) {{
      %l = maxf %x, %y : tile<f32>
      yield %l : tile<f32>
    }}
    %w = maxf %acc, %red : tile<16xf32>
    continue %w : tile<16xf32>
  }}
  print_tko \"%f\", %for : tile<16xf32>
  return
}}
"
        );
        Module::parse("k", &text).unwrap_or_else(|problem| panic!("{problem:?}\n{text}"))
    }

    #[test]
    fn positive_parameters_are_factors_after_the_maximum() {
        let cases = [
            ("  %f = mulf %c, %half : tile<f32>\n", &[1][..]),
            ("  %e = mulf %d, %half : tile<f32>\n  %f = mulf %e, %c : tile<f32>\n", &[1, 2]),
            ("  %f = mulf %c, %minus : tile<f32>\n", &[]),
            ("  %f = addf %c, %half : tile<f32>\n", &[]),
            // Four factors may overflow.
            ("  %e = mulf %c, %d : tile<f32>\n  %f = mulf %e, %e : tile<f32>\n", &[]),
        ];
        for (factor, params) in cases {
            let module = kernel(factor);
            assert_eq!(positive_params(&module, Factors::PositiveParams), params, "{factor}");
            assert!(positive_params(&module, Factors::Constants).is_empty());
            assert!(hoist_factor(&module, Factors::Constants).is_none());
            let Some(changed) = hoist_factor(&module, Factors::PositiveParams) else {
                assert!(params.is_empty(), "{factor}");
                continue;
            };
            assert!(verify(&changed).is_ok(), "{changed}");
            let text = changed.to_string();
            let products: Vec<&str> = text.lines().filter(|line| line.contains("mulf ")).collect();
            assert!(products.iter().any(|line| line.ends_with("tile<16xf32>")), "{text}");
            assert!(!products.iter().any(|line| line.ends_with("tile<16x16xf32>")), "{text}");
        }
    }

    #[test]
    fn rounded_products_keep_the_order() {
        let mut state = 1u32;
        let mut number = || {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            f32::from_bits(state)
        };
        let largest = |x: f32, y: f32| if x.total_cmp(&y).is_ge() { x } else { y };
        for _ in 0..200_000 {
            let (x, y, c) = (number(), number(), number().abs());
            if x.is_nan() || y.is_nan() || !c.is_finite() || c == 0.0 {
                continue;
            }
            assert_eq!(largest(x * c, y * c).to_bits(), (largest(x, y) * c).to_bits(), "{x} {y} {c}");
        }
    }
}
