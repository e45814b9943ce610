//! Terms: integer expressions of a kernel over the numbers of tile blocks, loop iterations and
//! elements of tiles.
//!
//! Terms are hash-consed, so equal expressions have one handle. Arithmetic has the semantics of the
//! IR: results wrap to the width of the type, a quotient by zero is 0, and a remainder by zero is
//! the dividend. The value of a term is the signed number of its bits; a condition is 0 or 1.

use crate::util::collect::CollectVec as _;
use std::sync::Arc;

use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::ir::{CmpPred, Rounding, Sign, Value};

/// Maximum number of nodes of a term.
const MAX_NODES: u32 = 1 << 16;

/// Maximum number of nodes of a term that depends on data.
const MAX_NODES_WITH_DATA: u32 = 256;

/// Handle of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Term(u32);

/// Variable of terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Var {
    /// Number of the tile block along an axis of the grid.
    Block(u8),
    /// Number of the iteration of a loop, by the order of the loops.
    Iteration(u32),
    /// Position in the tile along an axis.
    Lane(u8),
    /// Number that a launch leaves open.
    Symbol(u32),
}

/// Function of a term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fun {
    Add,
    Sub,
    Mul,
    MulHigh,
    And,
    Or,
    Xor,
    Min(Sign),
    Max(Sign),
    ShiftLeft,
    ShiftRight(Sign),
    Div(Sign, Rounding),
    Rem(Sign),
    Compare(CmpPred, Sign),
    Negate,
    Absolute,
    /// Extension from this width.
    Extend(Sign, u32),
    Truncate,
    /// The second operand if the first one is not 0, else the third one.
    Select,
    /// Element of a constant tile.
    Table(Arc<[i64]>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Node {
    Constant(i64),
    Var(Var),
    /// An unknown function of these terms, such as a loaded element.
    Data(Value, Vec<Term>),
    /// A function, the width of its operands, and the operands.
    Apply(Fun, u32, Vec<Term>),
}

/// Properties of a term.
#[derive(Clone, Debug, Default)]
struct Facts {
    /// Variables in increasing order.
    vars: Arc<[Var]>,
    /// Unknown value that the term depends on.
    data: Option<Value>,
    /// Number of nodes of the term as a tree.
    size: u32,
}

/// Table of terms.
#[derive(Default)]
pub(super) struct Terms {
    nodes: IndexSet<Node, FxBuildHasher>,
    facts: Vec<Facts>,
}

impl Terms {
    fn intern(&mut self, node: Node) -> Term {
        let (index, is_new) = self.nodes.insert_full(node);
        if is_new {
            let mut facts = Facts::default();
            match &self.nodes[index] {
                Node::Constant(_) => facts.size = 1,
                Node::Var(var) => facts.vars = Arc::new([*var]),
                Node::Data(value, args) => {
                    facts.vars = self.union(args);
                    facts.data = Some(*value);
                }
                Node::Apply(_, _, args) => {
                    facts.vars = self.union(args);
                    facts.data = args.iter().find_map(|arg| self.facts[arg.0 as usize].data);
                }
            }
            if let Node::Data(_, args) | Node::Apply(_, _, args) = &self.nodes[index] {
                let sizes = args.iter().map(|&arg| self.facts[arg.0 as usize].size);
                facts.size = sizes.fold(1, u32::saturating_add);
            }
            self.facts.push(facts);
        }
        Term(index as u32)
    }

    fn union(&self, args: &[Term]) -> Arc<[Var]> {
        let mut all: Vec<Var> = args.iter().flat_map(|&arg| self.vars(arg).iter().copied()).collect_vec();
        all.sort_unstable();
        all.dedup();
        all.into()
    }

    pub fn node(&self, term: Term) -> &Node {
        &self.nodes[term.0 as usize]
    }

    /// Returns the variables of a term, in increasing order.
    pub fn vars(&self, term: Term) -> &[Var] {
        &self.facts[term.0 as usize].vars
    }

    /// Returns an unknown value that the term depends on.
    pub fn data_of(&self, term: Term) -> Option<Value> {
        self.facts[term.0 as usize].data
    }

    /// Returns true if a term is too large to be of use: those that depend on data are not
    /// computed.
    pub fn is_too_large(&self, term: Term) -> bool {
        let facts = &self.facts[term.0 as usize];
        facts.size > if facts.data.is_some() { MAX_NODES_WITH_DATA } else { MAX_NODES }
    }

    pub fn constant(&mut self, value: i64) -> Term {
        self.intern(Node::Constant(value))
    }

    /// Returns the term of a constant that is in the table.
    pub fn find_constant(&self, value: i64) -> Option<Term> {
        self.nodes.get_index_of(&Node::Constant(value)).map(|index| Term(index as u32))
    }

    /// Returns the term of a variable that is in the table.
    pub fn find_var(&self, var: Var) -> Option<Term> {
        self.nodes.get_index_of(&Node::Var(var)).map(|index| Term(index as u32))
    }

    pub fn var(&mut self, var: Var) -> Term {
        self.intern(Node::Var(var))
    }

    pub fn data(&mut self, value: Value, args: Vec<Term>) -> Term {
        self.intern(Node::Data(value, args))
    }

    /// Returns the number of a constant term.
    pub fn as_constant(&self, term: Term) -> Option<i64> {
        match self.node(term) {
            Node::Constant(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns the application of a function to operands of this width.
    pub fn apply(&mut self, fun: Fun, bits: u32, args: &[Term]) -> Term {
        let known: Option<Vec<i64>> = args.iter().map(|&arg| self.as_constant(arg)).collect();
        if let Some(known) = known {
            return self.constant(evaluate(&fun, bits, &known));
        }
        let at = |index: usize| args.get(index).and_then(|&arg| self.as_constant(arg));
        match (&fun, at(0), at(1)) {
            (Fun::Add | Fun::Or | Fun::Xor, Some(0), _) => return args[1],
            (Fun::Add | Fun::Sub | Fun::Or | Fun::Xor | Fun::ShiftLeft | Fun::ShiftRight(_), _, Some(0)) => {
                return args[0];
            }
            (Fun::Mul, Some(1), _) | (Fun::And, Some(-1), _) => return args[1],
            (Fun::Mul | Fun::Div(..), _, Some(1)) | (Fun::And, _, Some(-1)) => return args[0],
            (Fun::Mul | Fun::And, Some(0), _) | (Fun::Mul | Fun::And, _, Some(0)) => return self.constant(0),
            (Fun::And, Some(1), _) if bits == 1 => return args[1],
            (Fun::And, _, Some(1)) if bits == 1 => return args[0],
            (Fun::Select, Some(condition), _) => return args[if condition != 0 { 1 } else { 2 }],
            (Fun::Select, ..) if args[1] == args[2] => return args[1],
            (Fun::And | Fun::Or | Fun::Min(_) | Fun::Max(_), ..) if args[0] == args[1] => return args[0],
            (Fun::Sub, ..) if args[0] == args[1] => return self.constant(0),
            _ => {}
        }
        self.intern(Node::Apply(fun, bits, args.to_vec()))
    }

    /// Returns the sum of a term and the product of another one with a constant, in 64 bits.
    pub fn add_scaled(&mut self, sum: Term, term: Term, factor: i64) -> Term {
        let factor = self.constant(factor);
        let product = self.apply(Fun::Mul, 64, &[term, factor]);
        self.apply(Fun::Add, 64, &[sum, product])
    }

    /// Returns the conjunction of conditions.
    pub fn all(&mut self, conditions: &[Term]) -> Term {
        let mut all = self.constant(1);
        for &condition in conditions {
            all = self.apply(Fun::And, 1, &[all, condition]);
        }
        all
    }

    /// Returns the negation of a condition.
    pub fn not(&mut self, condition: Term) -> Term {
        let one = self.constant(1);
        self.apply(Fun::Xor, 1, &[condition, one])
    }

    /// Replaces variables by terms.
    pub fn substitute(&mut self, term: Term, by: &FxHashMap<Var, Term>) -> Term {
        self.substitute_with(term, by, &mut FxHashMap::default())
    }

    fn substitute_with(&mut self, term: Term, by: &FxHashMap<Var, Term>, done: &mut FxHashMap<Term, Term>) -> Term {
        if !self.vars(term).iter().any(|var| by.contains_key(var)) {
            return term;
        }
        if let Some(&result) = done.get(&term) {
            return result;
        }
        let result = match self.node(term).clone() {
            Node::Constant(_) => term,
            Node::Var(var) => by[&var],
            Node::Data(value, args) => {
                let args = args.into_iter().map(|arg| self.substitute_with(arg, by, done)).collect_vec();
                self.data(value, args)
            }
            Node::Apply(fun, bits, args) => {
                let args: Vec<Term> = args.into_iter().map(|arg| self.substitute_with(arg, by, done)).collect_vec();
                self.apply(fun, bits, &args)
            }
        };
        done.insert(term, result);
        result
    }
}

/// Returns the signed number of the low bits; a condition is 0 or 1.
pub(super) fn wrapped(value: i128, bits: u32) -> i64 {
    match bits {
        1 => (value & 1) as i64,
        64.. => value as i64,
        _ => ((value as i64) << (64 - bits)) >> (64 - bits),
    }
}

fn read(sign: Sign, value: i64, bits: u32) -> i128 {
    match sign {
        Sign::Signed if bits == 1 => -i128::from(value & 1),
        Sign::Signed => i128::from(value),
        Sign::Unsigned => i128::from(value as u64 & u64::MAX >> (64 - bits.min(64))),
    }
}

/// Computes a function of operands of this width.
pub(super) fn evaluate(fun: &Fun, bits: u32, args: &[i64]) -> i64 {
    let sign = match fun {
        Fun::Min(sign)
        | Fun::Max(sign)
        | Fun::ShiftRight(sign)
        | Fun::Div(sign, _)
        | Fun::Rem(sign)
        | Fun::Compare(_, sign) => *sign,
        _ => Sign::Signed,
    };
    let operand = |index: usize| read(sign, args[index], bits);
    let amount = || read(Sign::Unsigned, args[1], bits).min(127) as u32;
    let wide = match fun {
        Fun::Add => operand(0) + operand(1),
        Fun::Sub => operand(0) - operand(1),
        Fun::Mul => operand(0).wrapping_mul(operand(1)),
        Fun::MulHigh => {
            let factor = |index| read(Sign::Unsigned, args[index], bits) as u128;
            ((factor(0) * factor(1)) >> bits) as i128
        }
        Fun::And => operand(0) & operand(1),
        Fun::Or => operand(0) | operand(1),
        Fun::Xor => operand(0) ^ operand(1),
        Fun::Min(_) => operand(0).min(operand(1)),
        Fun::Max(_) => operand(0).max(operand(1)),
        Fun::ShiftLeft if amount() >= bits => 0,
        Fun::ShiftLeft => operand(0) << amount(),
        Fun::ShiftRight(_) => operand(0) >> amount(),
        Fun::Div(..) if operand(1) == 0 => 0,
        Fun::Rem(_) if operand(1) == 0 => operand(0),
        Fun::Div(_, rounding) => rounding.quotient(operand(0), operand(1)),
        Fun::Rem(_) => operand(0) % operand(1),
        Fun::Compare(pred, _) => return i64::from(pred.holds(operand(0), operand(1))),
        Fun::Negate => -operand(0),
        Fun::Absolute => operand(0).abs(),
        Fun::Extend(sign, from) => read(*sign, args[0], *from),
        Fun::Truncate => i128::from(args[0]),
        Fun::Select => return args[if args[0] != 0 { 1 } else { 2 }],
        Fun::Table(table) => {
            return usize::try_from(args[0]).ok().and_then(|index| table.get(index)).copied().unwrap_or(0);
        }
    };
    wrapped(wide, bits)
}
