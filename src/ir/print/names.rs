//! Names of values as in MLIR: the hint of the op if it has one, otherwise a number.
//!
//! * All values of a block are named before those of its nested blocks.
//! * A hint that is already used gets a suffix from a counter. Nested blocks inherit the names and
//!   counters of the enclosing blocks. Sibling blocks are independent.
//! * Results without a hint belong to the group of the result before them (`%for:2`, used as
//!   `%for#1`).

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashSet;

use super::literal;
use crate::dtype::DType;
use crate::ir::{BlockId, Module, Op, OpId, Opcode, Type, Value};
use crate::types::float_codec;

/// Names of all values of the entries.
pub(super) struct Names {
    values: Vec<Option<String>>,
    /// Hint of a value whose op has hints, empty for a result without one.
    hints: Vec<Option<String>>,
    headers: Vec<String>,
}

impl Names {
    /// Names the values of each entry.
    pub fn new(module: &Module) -> Names {
        let none = vec![None; module.num_values()];
        let mut names = Names { values: none.clone(), hints: none, headers: vec![String::new(); module.num_ops()] };
        for entry in &module.entries {
            names.block(module, entry.body, None, Scope::default());
        }
        names
    }

    /// Names the values of each entry by their numbers in the module.
    pub fn stable(module: &Module) -> Names {
        let mut names = Names { values: Vec::new(), hints: Vec::new(), headers: vec![String::new(); module.num_ops()] };
        names.values = (0..module.num_values()).map(|number| Some(format!("v{number}"))).collect_vec();
        for entry in &module.entries {
            module.walk(entry.body, &mut |id| {
                let results: Vec<String> = module.op(id).results.iter().map(|&value| names.value(value)).collect_vec();
                if !results.is_empty() {
                    names.headers[id.index()] = results.join(", ") + " = ";
                }
            });
        }
        names
    }

    /// Returns the `%name` of a use of a value.
    pub fn value(&self, value: Value) -> String {
        match self.values.get(value.index()) {
            Some(Some(name)) => format!("%{name}"),
            _ => "%<undefined>".to_string(),
        }
    }

    /// Returns the left side of an op with ` = `, empty for an op without results.
    pub fn header(&self, op: OpId) -> &str {
        &self.headers[op.index()]
    }

    fn block(&mut self, module: &Module, block: BlockId, owner: Option<&Op>, mut scope: Scope) {
        let args = &module.block(block).args;
        for (i, &arg) in args.iter().enumerate() {
            let name = match arg_hint(owner, i, args.len()) {
                Some(hint) => scope.unique(&hint),
                None => {
                    let hint = format!("arg{}", scope.next_arg);
                    scope.next_arg += 1;
                    scope.unique(&hint)
                }
            };
            self.set(arg, name);
        }
        for &op in &module.block(block).ops {
            self.results(module, op, &mut scope);
        }
        for &id in &module.block(block).ops {
            let op = module.op(id);
            for &region in &op.regions {
                self.block(module, region, Some(op), scope.clone());
            }
        }
    }

    fn results(&mut self, module: &Module, id: OpId, scope: &mut Scope) {
        let op = module.op(id);
        if op.results.is_empty() {
            return;
        }
        let mut groups: Vec<(usize, String)> = Vec::new();
        if let Some(hints) = self.op_hints(module, op) {
            for &result in &op.results {
                self.hints[result.index()] = Some(String::new());
            }
            for (index, hint) in hints.into_iter().filter(|(index, _)| *index < op.results.len()) {
                groups.push((index, scope.unique(&hint)));
                self.hints[op.results[index].index()] = Some(hint);
            }
        }
        if groups.first().is_none_or(|(start, _)| *start != 0) {
            groups.insert(0, (0, scope.next_value.to_string()));
            scope.next_value += 1;
        }
        let mut header = Vec::new();
        for (g, (start, name)) in groups.iter().enumerate() {
            let end = groups.get(g + 1).map_or(op.results.len(), |next| next.0);
            if end - start == 1 {
                header.push(format!("%{name}"));
                self.set(op.results[*start], name.clone());
            } else {
                header.push(format!("%{name}:{}", end - start));
                for i in *start..end {
                    self.set(op.results[i], format!("{name}#{}", i - start));
                }
            }
        }
        self.headers[id.index()] = header.join(", ") + " = ";
    }

    /// Returns the hints of the results. The hint of an `assume` is derived from that of its
    /// operand.
    fn op_hints(&self, module: &Module, op: &Op) -> Option<Vec<(usize, String)>> {
        if op.code != Opcode::Assume {
            return result_hints(module, op);
        }
        let inner = op.operands.first().and_then(|v| self.hints.get(v.index())?.as_ref());
        Some(vec![(0, inner.map_or_else(|| "assume".to_string(), |hint| format!("assume_{hint}")))])
    }

    fn set(&mut self, value: Value, name: String) {
        if let Some(slot) = self.values.get_mut(value.index()) {
            *slot = Some(name);
        }
    }
}

#[derive(Clone, Default)]
struct Scope {
    used: FxHashSet<String>,
    next_value: usize,
    next_arg: usize,
    next_conflict: usize,
}

impl Scope {
    fn unique(&mut self, hint: &str) -> String {
        let mut name = hint.to_string();
        while !self.used.insert(name.clone()) {
            name = format!("{hint}_{}", self.next_conflict);
            self.next_conflict += 1;
        }
        name
    }
}

fn arg_hint(owner: Option<&Op>, index: usize, count: usize) -> Option<String> {
    match owner?.code {
        Opcode::For if index == 0 => Some("loopIdx".to_string()),
        Opcode::For => Some(format!("iterArg{}", index - 1)),
        Opcode::Reduce => {
            let side = if index.is_multiple_of(2) { "reduce_lhs" } else { "reduce_rhs" };
            Some(if count > 2 { format!("{side}{}", index / 2) } else { side.to_string() })
        }
        _ => None,
    }
}

/// Returns the hints of the results of an op, by position. Results without a hint are numbered.
/// `None` if the op has no hints.
fn result_hints(module: &Module, op: &Op) -> Option<Vec<(usize, String)>> {
    let fixed: &[&str] = match op.code {
        Opcode::Constant => return Some(constant_hint(module, op).map(|hint| (0, hint)).into_iter().collect_vec()),
        Opcode::If | Opcode::Loop | Opcode::Scan => &[],
        Opcode::Broadcast => &["bcast"],
        Opcode::For => &["for"],
        Opcode::Reduce => &["reduce"],
        Opcode::Reshape => &["reshape"],
        Opcode::MakeTensorView => &["tview"],
        Opcode::MakePartitionView => &["pview"],
        Opcode::MakeStridedView => &["sview"],
        Opcode::MakeGatherScatterView => &["gsview"],
        Opcode::GetTileBlockId => &["blockId_x", "blockId_y", "blockId_z"],
        Opcode::GetNumTileBlocks => &["gridSize_x", "gridSize_y", "gridSize_z"],
        Opcode::LoadPtr | Opcode::AtomicCas | Opcode::AtomicRmw => &["result", "result_token"],
        Opcode::LoadView => &["tile", "result_token"],
        Opcode::MultimemLoadReduce => &["reduced_values", "result_token"],
        _ => return None,
    };
    Some(fixed.iter().enumerate().map(|(i, name)| (i, name.to_string())).collect_vec())
}

fn constant_hint(module: &Module, op: &Op) -> Option<String> {
    let ty = module.ty(*op.results.first()?);
    let dtype = match ty {
        Type::Tile { elem, .. } => elem.dtype()?,
        _ => return None,
    };
    let splat = op.const_data().and_then(literal::splat_bits);
    Some(match (dtype, splat) {
        (DType::I1, Some(bits)) => if bits & 1 == 1 { "true" } else { "false" }.to_string(),
        (_, None) => format!("cst_{dtype}"),
        (_, Some(bits)) if dtype.is_int() => format!("cst_{}_{dtype}", literal::signed(dtype, bits)),
        (_, Some(bits)) => match float_codec::decode(dtype, bits) {
            value if value.is_nan() => format!("cst_NaN_{dtype}"),
            value if value == value.trunc() && value < 2f64.powi(64) && value.is_sign_positive() => {
                format!("cst_{}_{dtype}", value as u64)
            }
            _ => format!("cst_{dtype}"),
        },
    })
}
