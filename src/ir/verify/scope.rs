//! Rules of the structure of an entry: blocks, terminators, and the scope of each use.

use super::op::check_op;
use super::rule;
use super::verifier::Verifier;
use crate::ir::op_table::Effect;
use crate::ir::{BlockId, Def, Entry, MAX_NESTING, Op, OpId, Opcode, Type, Value};
use crate::util::collect::CollectVec as _;

/// Owner of a block.
#[derive(Clone, Copy)]
enum Owner {
    Entry,
    /// Op, and the index of its region.
    Region(OpId, usize),
}

/// State of a traversal of an entry in program order.
struct Walk {
    /// By value: it is in scope.
    visible: Vec<bool>,
    seen_blocks: Vec<bool>,
    seen_ops: Vec<bool>,
    /// Enclosing ops of the current block, outermost first.
    stack: Vec<OpId>,
}

impl Verifier<'_> {
    pub(super) fn scopes(&mut self, entry: &Entry) {
        let module = self.module;
        let mut walk = Walk {
            visible: vec![false; module.num_values()],
            seen_blocks: vec![false; module.num_blocks()],
            seen_ops: vec![false; module.num_ops()],
            stack: Vec::new(),
        };
        self.block(&mut walk, entry.body, Owner::Entry, Some(entry));
    }

    fn block(&mut self, walk: &mut Walk, id: BlockId, owner: Owner, entry: Option<&Entry>) {
        let module = self.module;
        if walk.stack.len() > MAX_NESTING {
            let deepest = walk.stack.last().map(|&op| module.op(op));
            self.structure(deepest, entry, &format!("more than {MAX_NESTING} regions in one another"));
            return;
        }
        let block = module.block(id);
        let owner_op = match owner {
            Owner::Entry => None,
            Owner::Region(op, _) => Some(module.op(op)),
        };
        if std::mem::replace(&mut walk.seen_blocks[id.index()], true) {
            self.structure(owner_op, entry, "a block belongs to two regions");
            return;
        }
        if block.ops.is_empty() && !may_be_empty(owner_op, owner) {
            self.structure(owner_op, entry, "an empty block: it must end with a terminator");
        }
        for (i, &arg) in block.args.iter().enumerate() {
            if module.def(arg) != Def::Arg(id, i as u32) || walk.visible[arg.index()] {
                self.structure(owner_op, entry, "a block argument is also something else");
            }
            if let Err(e) = super::types::check(module, module.ty(arg)) {
                let message = format!("a block argument is {}: {e}", rule::text(module, arg));
                self.structure(owner_op, entry, &message);
            }
            walk.visible[arg.index()] = true;
        }
        for (i, &op) in block.ops.iter().enumerate() {
            self.placed_op(walk, op, i + 1 == block.ops.len(), owner);
        }
        for &arg in &block.args {
            walk.visible[arg.index()] = false;
        }
        for &op in &block.ops {
            for &result in &module.op(op).results {
                walk.visible[result.index()] = false;
            }
        }
    }

    fn structure(&mut self, owner: Option<&Op>, entry: Option<&Entry>, message: &str) {
        match (owner, entry) {
            (Some(op), _) => self.report_op(op, message),
            (None, Some(entry)) => {
                let location = self.module.location(entry.loc);
                self.report(format!("entry `{}`: {message}", entry.name), location);
            }
            (None, None) => self.report(message.to_string(), None),
        }
    }

    fn placed_op(&mut self, walk: &mut Walk, id: OpId, last: bool, owner: Owner) {
        let module = self.module;
        let op = module.op(id);
        if std::mem::replace(&mut walk.seen_ops[id.index()], true) {
            self.report_op(op, "is in two blocks");
            return;
        }
        let in_scope = self.uses(walk, op);
        let terminator = op.code.spec().effect == Effect::Terminator;
        match (terminator, last) {
            (true, false) => self.report_op(op, "ops follow in the same block, but it ends the block"),
            (false, true) => self.report_op(op, "is the last op of its block, which must end with a terminator"),
            _ => {}
        }
        if in_scope && let Err(message) = check_op(module, op) {
            self.report_op(op, &message);
        }
        if terminator
            && in_scope
            && op.matches_row().is_ok()
            && let Err(message) = self.terminator(walk, op, owner)
        {
            self.report_op(op, &message);
        }
        self.effects(walk, op);
        walk.stack.push(id);
        for (i, &region) in op.regions.iter().enumerate() {
            self.block(walk, region, Owner::Region(id, i), None);
        }
        walk.stack.pop();
        for (i, &result) in op.results.iter().enumerate() {
            if module.def(result) != Def::Result(id, i as u32) || walk.visible[result.index()] {
                self.report_op(op, "a result is also something else");
            }
            walk.visible[result.index()] = true;
        }
    }

    /// Returns true if all operands are in scope.
    fn uses(&mut self, walk: &Walk, op: &Op) -> bool {
        let mut fine = true;
        for &value in &op.operands {
            if !walk.visible[value.index()] {
                fine = false;
                self.report_out_of_scope(op, value);
            }
        }
        fine
    }

    fn report_out_of_scope(&mut self, op: &Op, value: Value) {
        let module = self.module;
        self.report_op(op, &format!("uses a value of type {} outside of its scope", rule::text(module, value)));
        let origin = match module.def(value) {
            Def::Result(def, _) => Some(module.op(def)),
            Def::Arg(block, _) => module.block(block).parent.map(|parent| module.op(parent)),
        };
        if let (Some(def), Some(error)) = (origin, self.errors.pop()) {
            let note = format!(
                "it is defined by `{}`, and may be used after it in the same block or deeper",
                def.code.spec().name
            );
            self.errors.push(error.note_at(note, module.location(def.loc).cloned()));
        }
    }

    /// Checks that bodies of reductions and scans are functions, without memory effects and output.
    fn effects(&mut self, walk: &Walk, op: &Op) {
        let allowed = matches!(op.code.spec().effect, Effect::Pure | Effect::Region | Effect::Terminator);
        let inside = walk.stack.iter().map(|&id| self.module.op(id)).find(|o| is_function(o.code));
        if let (false, Some(reduction)) = (allowed, inside) {
            let message = format!("has an effect, which the body of `{}` must not have", reduction.code.spec().name);
            self.report_op(op, &message);
        }
    }

    /// Checks the position of a terminator and the types of its operands.
    fn terminator(&self, walk: &Walk, op: &Op, owner: Owner) -> rule::Rule {
        let module = self.module;
        let enclosing = || walk.stack.iter().rev().map(|&id| module.op(id));
        let owner = match owner {
            Owner::Entry => None,
            Owner::Region(id, _) => Some(module.op(id)),
        };
        let code = owner.map(|o| o.code);
        // Only branches may be between a `break` or `continue` and its loop.
        let target = enclosing().find(|o| o.code != Opcode::If);
        let innermost = target.map(|o| o.code);
        match (op.code, code) {
            (Opcode::Yield, Some(Opcode::If)) => check_passed_types(
                self,
                op,
                &types(self, &owner.expect("an owner").results),
                "yield the results of its branch",
            ),
            (Opcode::Yield, Some(Opcode::Reduce | Opcode::Scan)) => {
                let scalars = owner.expect("an owner").operands.iter().map(|&v| match module.ty(v) {
                    Type::Tile { elem, .. } => Type::Tile { elem: *elem, shape: Vec::new() },
                    other => other.clone(),
                });
                check_passed_types(self, op, &scalars.collect_vec(), "yield one combined value per operand")
            }
            (Opcode::Continue, Some(Opcode::For | Opcode::Loop | Opcode::If)) => match target {
                Some(o) if o.matches_row().is_ok() && o.code == Opcode::For => {
                    check_passed_types(self, op, &types(self, o.group(3)), "pass on the carried values")
                }
                Some(o) if o.code == Opcode::Loop => {
                    check_passed_types(self, op, &types(self, &o.operands), "pass on the carried values")
                }
                Some(o) if o.code == Opcode::For => Ok(()),
                _ => Err("there is no loop around it".to_string()),
            },
            (Opcode::Break, Some(Opcode::Loop | Opcode::If)) if innermost == Some(Opcode::Loop) => check_passed_types(
                self,
                op,
                &types(self, &target.expect("a loop").results),
                "give the results of the loop",
            ),
            (Opcode::Break, Some(_)) if innermost == Some(Opcode::For) => {
                Err("a `for` cannot be left early".to_string())
            }
            (Opcode::Return, None | Some(Opcode::If | Opcode::Loop)) => {
                if enclosing().any(|o| o.code == Opcode::For) {
                    return Err("a `for` cannot be left early, not even by `return`".to_string());
                }
                if enclosing().any(|o| is_function(o.code)) {
                    return Err("the body of a reduction ends with `yield`".to_string());
                }
                check_passed_types(self, op, &[], "return nothing")
            }
            (_, None) => Err("an entry ends with `return`".to_string()),
            (_, Some(code)) => Err(format!("cannot end a block of `{}` here", code.spec().name)),
        }
    }
}

fn is_function(code: Opcode) -> bool {
    matches!(code, Opcode::Reduce | Opcode::Scan)
}

fn may_be_empty(owner_op: Option<&Op>, owner: Owner) -> bool {
    let else_region = matches!(owner, Owner::Region(_, 1));
    owner_op.is_some_and(|op| op.code == Opcode::If && op.results.is_empty() && else_region)
}

fn types(verifier: &Verifier, values: &[Value]) -> Vec<Type> {
    values.iter().map(|&v| verifier.module.ty(v).clone()).collect_vec()
}

fn check_passed_types(verifier: &Verifier, op: &Op, expected: &[Type], what: &str) -> rule::Rule {
    let module = verifier.module;
    let given = types(verifier, &op.operands);
    rule::demand(given == expected, || {
        let list = |types: &[Type]| {
            let all: Vec<String> = types.iter().map(|t| rule::type_text(module, t)).collect_vec();
            if all.is_empty() { "nothing".to_string() } else { all.join(", ") }
        };
        format!("must {what}, {}, but has {}", list(expected), list(&given))
    })
}
