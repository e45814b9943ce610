//! Walks over kernels for many launches: grid and parameters are symbols, or any numbers that the
//! facts of the specialization key permit. Conditions of `require!` hold in all of them.

use super::interval::type_bounds;
use super::symbolic::{Symbol, SymbolExpr, SymbolicLaunch};
use super::term::{Fun, Term, Var};
use super::walk::Walk;
use crate::ir::op_table::Effect;
use crate::ir::{Attr, AttrKind, BlockId, CmpPred, Elem, MAX_GRID, Module, Opcode, Predicate, Rounding, Sign};

impl<'m> Walk<'m> {
    /// Walks over the body of an entry whose grid and parameters are symbols.
    pub fn for_all(module: &'m Module, body: BlockId, launch: &SymbolicLaunch) -> Walk<'m> {
        let mut walk = Walk::begun(module, [u32::MAX; 3]);
        let grid = launch.grid.map(|blocks| walk.symbol(blocks));
        walk.set_grid(grid, launch.grid.map(|blocks| blocks.range().1));
        for (&arg, &(word, symbol)) in module.block(body).args.iter().zip(&launch.words) {
            match symbol {
                Some(symbol) => {
                    let term = walk.symbol(symbol);
                    walk.values.set_term(arg, term);
                }
                None => walk.parameter(arg, word),
            }
        }
        walk.state_conditions(body);
        walk.block(body);
        walk
    }

    /// Walks over the body of an entry whose grid and parameters are any that the facts of the
    /// specialization key and the conditions of `require!` permit.
    pub fn of_facts(module: &'m Module, body: BlockId) -> Walk<'m> {
        let mut walk = Walk::begun(module, MAX_GRID);
        let mut number = 0;
        let mut any = |walk: &mut Walk<'m>, range: (i64, i64)| {
            let var = Var::Symbol(number);
            number += 1;
            walk.ranges.insert(var, range);
            walk.values.terms.var(var)
        };
        let grid = MAX_GRID.map(|most| any(&mut walk, (1, most.into())));
        walk.set_grid(grid, MAX_GRID.map(i64::from));
        for &arg in &module.block(body).args {
            match (module.ty(arg).as_tile(), walk.values.bits(arg)) {
                (Some((Elem::Num(_), _)), Some(bits)) => {
                    let symbol = any(&mut walk, type_bounds(bits));
                    walk.values.set_term(arg, symbol);
                }
                _ => walk.parameter(arg, 0),
            }
        }
        walk.state_facts(body);
        walk.facts = walk.required.len();
        walk.state_conditions(body);
        walk.block(body);
        walk
    }

    /// Computes the conditions of a launch with these parameters, and nothing else.
    pub fn of_conditions(module: &'m Module, body: BlockId, grid: [u32; 3], params: &[u64]) -> Walk<'m> {
        let mut walk = Walk::begun(module, grid);
        for (&arg, &word) in module.block(body).args.iter().zip(params) {
            walk.parameter(arg, word);
        }
        walk.state_conditions(body);
        walk
    }

    /// Sets the numbers of tile blocks, and their greatest values. Greater ones than those of CUDA
    /// have no launch.
    fn set_grid(&mut self, grid: [Term; 3], most: [i64; 3]) {
        self.values.blocks = Some(grid);
        for (axis, (blocks, most)) in (0..3).zip(grid.into_iter().zip(most)) {
            let limit = i64::from(MAX_GRID[axis as usize]);
            let var = Var::Block(axis);
            self.ranges.insert(var, (0, most.min(limit) - 1));
            if self.values.terms.as_constant(blocks).is_some() {
                continue;
            }
            let block = self.values.terms.var(var);
            let less = self.compare(CmpPred::Lt, 64, block, blocks);
            self.conditions.push(less);
            if most > limit {
                let limit = self.values.terms.constant(limit);
                let is_launched = self.compare(CmpPred::Le, 64, blocks, limit);
                self.required.push(is_launched);
            }
        }
    }

    fn compare(&mut self, pred: CmpPred, bits: u32, a: Term, b: Term) -> Term {
        self.values.terms.apply(Fun::Compare(pred, Sign::Signed), bits, &[a, b])
    }

    /// States the `assume` ops about parameters at the start of the body.
    fn state_facts(&mut self, body: BlockId) {
        let module = self.values.module;
        for &id in &module.block(body).ops {
            let op = module.op(id);
            if !op.regions.is_empty() || op.code.spec().effect != Effect::Pure {
                return;
            }
            self.values.op(op);
            let Some(Attr::Predicate(predicate)) = op.attr(AttrKind::Predicate).filter(|_| op.code == Opcode::Assume)
            else {
                continue;
            };
            let of = op.operands[0];
            let is_number = module
                .ty(of)
                .as_tile()
                .is_some_and(|(elem, shape)| shape.is_empty() && elem.dtype().is_some_and(|dtype| dtype.is_int()));
            let Some(bits) = self.values.bits(of).filter(|bits| is_number && *bits > 1) else { continue };
            let term = self.values.term(of);
            match *predicate {
                Predicate::Bounded { lower, upper } => {
                    for (pred, bound) in [(CmpPred::Ge, lower), (CmpPred::Le, upper)] {
                        let Some(bound) = bound else { continue };
                        let bound = self.values.terms.constant(bound);
                        let fact = self.compare(pred, bits, term, bound);
                        self.required.push(fact);
                    }
                }
                Predicate::DivBy { divisor, every: None, along: None } => {
                    let Ok(divisor) = i64::try_from(divisor) else { continue };
                    let (divisor, zero) = (self.values.terms.constant(divisor), self.values.terms.constant(0));
                    let rest = self.values.terms.apply(Fun::Rem(Sign::Signed), bits, &[term, divisor]);
                    let fact = self.compare(CmpPred::Eq, bits, rest, zero);
                    self.required.push(fact);
                }
                _ => {}
            }
        }
    }

    /// States the conditions of `require!`. They depend on parameters and the grid alone.
    fn state_conditions(&mut self, body: BlockId) {
        let module = self.values.module;
        let Some(last) = module.required.last() else { return };
        for &id in &module.block(body).ops {
            let op = module.op(id);
            if module.required.contains(&id) {
                let condition = self.values.term(op.operands[0]);
                self.required.push(condition);
            } else if op.regions.is_empty() {
                self.values.op(op);
            }
            if id == *last {
                return;
            }
        }
    }

    /// Returns the term of a symbol, and declares the ranges of its variables.
    fn symbol(&mut self, symbol: Symbol) -> Term {
        let (fun, a, b) = match symbol.expr() {
            SymbolExpr::Any { lo, hi, .. } => {
                let var = Var::Symbol(symbol.number());
                self.ranges.insert(var, (lo, hi));
                return self.values.terms.var(var);
            }
            SymbolExpr::Constant(value) => return self.values.terms.constant(value),
            SymbolExpr::Sum(a, b) => (Fun::Add, self.symbol(a), self.symbol(b)),
            SymbolExpr::Difference(a, b) => (Fun::Sub, self.symbol(a), self.symbol(b)),
            SymbolExpr::Product(a, b) => (Fun::Mul, self.symbol(a), self.symbol(b)),
            SymbolExpr::Quotient(a, by) => {
                (Fun::Div(Sign::Signed, Rounding::PosInf), self.symbol(a), self.values.terms.constant(by))
            }
        };
        self.values.terms.apply(fun, 64, &[a, b])
    }
}
