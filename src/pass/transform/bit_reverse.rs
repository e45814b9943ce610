//! Bit reversal: a value computed by shifts, masks and ors that is the bit reversal of another
//! value becomes one `brev` instruction.
//!
//! Each bit of a value computed by `andi` and `ori` with constants, `shli` and `shri` is 0, 1, or a
//! bit of another value; otherwise the value is not analyzed. A value is a reversal if its bits are
//! all bits of one other value in the opposite order, independently of the sequence of ops. For the
//! ptx back end, after the optimization passes.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use crate::dtype::DType;
use crate::ir::{Attr, BlockId, ConstData, Module, OpId, Opcode, Sign, Substitution, Type, Value};

/// Bit of a value.
#[derive(Clone, Copy, PartialEq)]
enum Bit {
    Zero,
    One,
    /// Bit of this index of another value.
    Source(Value, u8),
}

/// Bits of the analyzed values.
type BitMap = FxHashMap<Value, Vec<Bit>>;

/// Replaces each reversed value by a `brev` instruction. Returns `None` if there is none.
pub(crate) fn expand_bit_reverse(module: &Module) -> Option<Module> {
    let body = module.entries.first()?.body;
    let mut bits_by_value = BitMap::default();
    let mut reversals: Vec<(OpId, Value)> = Vec::new();
    module.walk(body, &mut |id| {
        let Some(bits) = bits_of_result(module, id, &bits_by_value) else { return };
        reversals.extend(reversed_source(&bits).map(|source| (id, source)));
        bits_by_value.insert(module.op(id).results[0], bits);
    });
    if reversals.is_empty() {
        return None;
    }
    let mut module = module.clone();
    let mut values = Substitution::new();
    rewrite(&mut module, body, &reversals.into_iter().collect(), &mut values);
    values.apply(&mut module, body);
    crate::pass::tidy(&mut module);
    Some(module)
}

/// Returns the integer type of a tile.
fn integer(module: &Module, value: Value) -> Option<DType> {
    let Type::Tile { elem, .. } = module.ty(value) else { return None };
    elem.dtype().filter(|dtype| matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64))
}

/// Returns the bits of a splat constant.
fn splat(module: &Module, value: Value) -> Option<u64> {
    let op = module.op(module.defining_op(value)?);
    match (op.code, op.const_data()) {
        (Opcode::Constant, Some(ConstData::Splat(bits))) => Some(*bits),
        _ => None,
    }
}

/// Returns the bits of a value. The bits of a value that is not analyzed are its own.
fn bits_of(module: &Module, value: Value, width: u32, bits_by_value: &BitMap) -> Vec<Bit> {
    if let Some(constant) = splat(module, value) {
        return (0..width).map(|n| if constant >> n & 1 == 1 { Bit::One } else { Bit::Zero }).collect_vec();
    }
    bits_by_value.get(&value).cloned().unwrap_or_else(|| (0..width).map(|n| Bit::Source(value, n as u8)).collect_vec())
}

/// Returns the bits of the result of an op, if the op only moves bits.
fn bits_of_result(module: &Module, id: OpId, bits_by_value: &BitMap) -> Option<Vec<Bit>> {
    let op = module.op(id);
    if !matches!(op.code, Opcode::AndI | Opcode::OrI | Opcode::ShlI | Opcode::ShrI) {
        return None;
    }
    let width = integer(module, op.results[0])?.bits();
    let left = bits_of(module, op.operands[0], width, bits_by_value);
    let amount = || splat(module, op.operands[1]).filter(|&n| n < u64::from(width)).map(|n| n as usize);
    match op.code {
        Opcode::ShlI => {
            let n = amount()?;
            Some((0..width as usize).map(|bit| if bit < n { Bit::Zero } else { left[bit - n] }).collect_vec())
        }
        Opcode::ShrI => {
            let n = amount()?;
            let above = if op.sign() == Sign::Signed { *left.last()? } else { Bit::Zero };
            Some((0..width as usize).map(|bit| left.get(bit + n).copied().unwrap_or(above)).collect_vec())
        }
        code => {
            let right = bits_of(module, op.operands[1], width, bits_by_value);
            let (neutral, absorbing) = if code == Opcode::AndI { (Bit::One, Bit::Zero) } else { (Bit::Zero, Bit::One) };
            left.into_iter()
                .zip(right)
                .map(|(a, b)| match (a, b) {
                    (a, b) if a == b => Some(a),
                    (a, b) if a == absorbing || b == absorbing => Some(absorbing),
                    (a, b) if a == neutral => Some(b),
                    (a, b) if b == neutral => Some(a),
                    _ => None,
                })
                .collect()
        }
    }
}

/// Returns the value of which these are all bits in the opposite order.
fn reversed_source(bits: &[Bit]) -> Option<Value> {
    let Some(&Bit::Source(source, _)) = bits.first() else { return None };
    let last = bits.len() - 1;
    let is_reversed = bits.iter().enumerate().all(|(n, &bit)| bit == Bit::Source(source, (last - n) as u8));
    is_reversed.then_some(source)
}

fn rewrite(module: &mut Module, block: BlockId, reversals: &FxHashMap<OpId, Value>, values: &mut Substitution) {
    let ops = std::mem::take(&mut module.block_mut(block).ops);
    let mut out = Vec::with_capacity(ops.len());
    for id in ops {
        for region in module.op(id).regions.clone() {
            rewrite(module, region, reversals, values);
        }
        out.push(id);
        let Some(&source) = reversals.get(&id) else { continue };
        let (old, loc) = (module.op(id).results[0], module.op(id).loc);
        let text = match module.dtype(old) {
            DType::I64 => "brev.b64 $0, $1;",
            DType::I32 => "brev.b32 $0, $1;",
            DType::I16 => "brev.b32 $0, $1; shr.u32 $0, $0, 16;",
            _ => "brev.b32 $0, $1; shr.u32 $0, $0, 24;",
        };
        let ty = module.ty_id(old);
        let groups = [source; 4].map(|value| [value]);
        let groups: Vec<&[Value]> = groups.iter().map(|group| &group[..]).collect_vec();
        let new = module.add_op(Opcode::InlinePtx, &groups, vec![Attr::Text(text.into())], vec![], &[ty], loc);
        values.replace(old, module.op(new).results[0]);
        out.push(new);
    }
    module.block_mut(block).ops = out;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::PrintOptions;

    fn rewritten(body: &str) -> Option<String> {
        let text = format!(
            "entry @k(%x: tile<i8>) {{\n{body}\n  %t = print_tko \"%d\", %r : tile<i8> -> token\n  return\n}}\n"
        );
        let module = Module::parse("test.mlir", &text).unwrap();
        expand_bit_reverse(&module).map(|module| module.to_text(PrintOptions::default()))
    }

    const CONSTANTS: &str = "  %one = constant <i8: 1> : tile<i8>
  %two = constant <i8: 2> : tile<i8>
  %four = constant <i8: 4> : tile<i8>
  %m1 = constant <i8: 85> : tile<i8>
  %m2 = constant <i8: 51> : tile<i8>
  %m4 = constant <i8: 15> : tile<i8>
";

    /// Exchanges adjacent bits, pairs and groups of four, in the given order of the steps.
    fn network(steps: [(&str, &str); 3]) -> String {
        let mut text = CONSTANTS.to_string();
        let mut x = "%x".to_string();
        for (n, (places, mask)) in steps.into_iter().enumerate() {
            let result = if n == 2 { "%r".to_string() } else { format!("%y{n}") };
            text += &format!(
                "  %a{n} = shri {x}, %{places} unsigned : tile<i8>\n  %b{n} = andi %a{n}, %{mask} : tile<i8>\n  \
                 %c{n} = andi {x}, %{mask} : tile<i8>\n  %d{n} = shli %c{n}, %{places} : tile<i8>\n  \
                 {result} = ori %b{n}, %d{n} : tile<i8>\n"
            );
            x = result;
        }
        text
    }

    #[test]
    fn bit_reversals_are_found() {
        let (one, two, four) = (("one", "m1"), ("two", "m2"), ("four", "m4"));
        for steps in [[one, two, four], [four, two, one], [two, four, one]] {
            let text = rewritten(&network(steps)).expect("a reversal");
            assert!(
                text.contains("inline_ptx \"brev.b32 $0, $1; shr.u32 $0, $0, 24;\" %arg0, %arg0, %arg0, %arg0"),
                "{text}"
            );
            assert!(!text.contains("shli") && !text.contains("andi"), "{text}");
        }
    }

    #[test]
    fn other_moves_stay() {
        let (one, two, four) = (("one", "m1"), ("two", "m2"), ("four", "m4"));
        for steps in [[one, two, two], [four, four, one], [one, two, ("four", "m2")]] {
            assert_eq!(rewritten(&network(steps)), None);
        }
    }
}
