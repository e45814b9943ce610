//! The op table: one row for each operation of CUDA Tile IR 13.1 to 13.5.
//!
//! A row defines the regular properties of an op: opcode number, first bytecode version, operands,
//! attributes, results, effect, and the class with its typing rule. Builder, verifier, printer,
//! passes, and the reader and writer of bytecode use these rows instead of lists of ops. Source:
//! the public CUDA Tile IR dialect and bytecode documentation.

use super::attr::{AttrKind, Flag};

/// Number of values of an operand group: one, at most one, or any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum Arity {
    One,
    Optional,
    Many,
}

/// Named group of operands.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct OperandSpec {
    /// Name in the public documentation.
    pub name: &'static str,
    /// Number of values.
    pub arity: Arity,
}

/// Encoding of the number of operands in bytecode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Counting {
    /// One operand after another, without a count.
    Plain,
    /// One count of all operands.
    Total,
    /// One count for each list. An optional operand has a flag bit.
    Segmented,
}

/// Attribute of an op.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AttrSpec {
    /// Kind.
    pub kind: AttrKind,
    /// Name in the public documentation.
    pub name: &'static str,
    /// The op may lack the attribute. It then has a flag bit in bytecode.
    pub optional: bool,
    /// First minor version whose bytecode has the field.
    pub since: u8,
}

/// Meaning of a bit of the flags word.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum FlagBit {
    Attr(AttrKind),
    Operand(&'static str),
}

/// Number of results, and its encoding in bytecode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Results {
    /// This number of results, without a count in bytecode.
    Fixed(u8),
    /// This number of results, with a count in bytecode.
    Counted(u8),
    /// Any number of results, with a count.
    Variable,
}

/// Effect of an op in addition to its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// None: the op may be duplicated, moved and removed.
    Pure,
    /// The effects of its regions, which execute under its control (`if`, `for`, …).
    Region,
    /// Reads memory.
    Read,
    /// Writes memory.
    Write,
    /// Reads and writes memory.
    ReadWrite,
    /// Observable outside (print, assert) or ordering: the op is not moved.
    Other,
    /// End of a block.
    Terminator,
}

/// Typing rule of an op. `Own` ops have an individual rule in the verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum Class {
    FloatUnary,
    FloatBinary,
    FloatTernary,
    IntUnary,
    IntBinary,
    CmpF,
    CmpI,
    Cast,
    Own,
}

/// Structural kind of an op, for passes that treat all ops of a kind alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpKind {
    /// Matrix multiply-accumulate.
    Mma,
    /// Executes its region any number of times.
    Loop,
    /// Executes one of its regions.
    Branch,
    /// The result has the elements of the operand in another shape.
    ShapeAlias,
    /// The result is the operand, with a stated property.
    Alias,
    /// The result is the operand in another layout.
    ConvertLayout,
    /// Describes an array or its division into tiles.
    View,
    /// Any other op.
    Other,
}

/// Row of the op table.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct OpSpec {
    /// Spelling in text, without the dialect prefix.
    pub name: &'static str,
    /// First bytecode minor version (1 for 13.1).
    pub since: u8,
    /// Results.
    pub results: Results,
    /// Meanings of the bits of the flags word, from bit 0.
    pub flags: &'static [FlagBit],
    /// First minor version with the flags word.
    pub flags_since: u8,
    /// Attributes in bytecode order, except flags.
    pub attrs: &'static [AttrSpec],
    /// Operand groups.
    pub operands: &'static [OperandSpec],
    /// Encoding of the number of operands.
    pub counting: Counting,
    /// Number of regions.
    pub regions: u8,
    /// Effect.
    pub effect: Effect,
    /// Typing rule.
    pub class: Class,
    /// Structural kind.
    pub kind: OpKind,
    /// `f(a, b) = f(b, a)`.
    pub commutative: bool,
}

impl OpSpec {
    const fn new(name: &'static str, since: u8) -> OpSpec {
        OpSpec {
            name,
            since,
            results: Results::Fixed(1),
            flags: &[],
            flags_since: since,
            attrs: &[],
            operands: &[],
            counting: Counting::Plain,
            regions: 0,
            effect: Effect::Pure,
            class: Class::Own,
            kind: OpKind::Other,
            commutative: false,
        }
    }
    const fn results(mut self, results: Results) -> Self {
        self.results = results;
        self
    }
    const fn operands(mut self, operands: &'static [OperandSpec]) -> Self {
        self.operands = operands;
        self
    }
    const fn total(mut self) -> Self {
        self.counting = Counting::Total;
        self
    }
    const fn segmented(mut self) -> Self {
        self.counting = Counting::Segmented;
        self
    }
    const fn attrs(mut self, attrs: &'static [AttrSpec]) -> Self {
        self.attrs = attrs;
        self
    }
    const fn flags(mut self, flags: &'static [FlagBit]) -> Self {
        self.flags = flags;
        self
    }
    const fn flags_since(mut self, minor: u8) -> Self {
        self.flags_since = minor;
        self
    }
    const fn effect(mut self, effect: Effect) -> Self {
        self.effect = effect;
        self
    }
    const fn class(mut self, class: Class) -> Self {
        self.class = class;
        self
    }
    const fn kind(mut self, kind: OpKind) -> Self {
        self.kind = kind;
        self
    }
    const fn regions(mut self, count: u8) -> Self {
        self.regions = count;
        self
    }
    const fn commutative(mut self) -> Self {
        self.commutative = true;
        self
    }
    const fn unary(self, class: Class) -> Self {
        self.operands(SOURCE).class(class)
    }
    const fn binary(self, class: Class) -> Self {
        self.operands(LHS_RHS).class(class)
    }
    const fn cast(self) -> Self {
        self.operands(FROM).class(Class::Cast)
    }
    const fn terminator(self) -> Self {
        self.results(Results::Counted(0)).operands(LIST).total().effect(Effect::Terminator)
    }
}

const fn one(name: &'static str) -> OperandSpec {
    OperandSpec { name, arity: Arity::One }
}
const fn opt(name: &'static str) -> OperandSpec {
    OperandSpec { name, arity: Arity::Optional }
}
const fn many(name: &'static str) -> OperandSpec {
    OperandSpec { name, arity: Arity::Many }
}
const fn attr(kind: AttrKind, name: &'static str) -> AttrSpec {
    AttrSpec { kind, name, optional: false, since: 1 }
}
const fn attr_opt(kind: AttrKind, name: &'static str) -> AttrSpec {
    AttrSpec { kind, name, optional: true, since: 1 }
}
const fn attr_since(kind: AttrKind, name: &'static str, since: u8) -> AttrSpec {
    AttrSpec { kind, name, optional: false, since }
}

use AttrKind as K;
use Effect::{Other, Read, ReadWrite, Region, Write};
use FlagBit::{Attr as BitAttr, Operand as BitOperand};
use Results::{Counted, Fixed, Variable};

const SOURCE: &[OperandSpec] = &[one("source")];
const LHS_RHS: &[OperandSpec] = &[one("lhs"), one("rhs")];
const FROM: &[OperandSpec] = &[one("from")];
const LIST: &[OperandSpec] = &[many("operands")];
const ROUNDING: AttrSpec = attr(K::Rounding, "rounding_mode");
const OVERFLOW: AttrSpec = attr(K::Overflow, "overflow");
const SIGN: AttrSpec = attr(K::Sign, "signedness");
const ORDER: AttrSpec = attr(K::MemOrder, "memory_ordering_semantics");
const SCOPE: AttrSpec = attr(K::MemScope, "memory_scope");
const SCOPE_OPT: AttrSpec = attr_opt(K::MemScope, "memory_scope");
const HINTS_OPT: AttrSpec = attr_opt(K::Hints, "optimization_hints");
/// Extension for the back ends of this crate, in no version of the bytecode.
const EXTENSION_ROUNDING: AttrSpec =
    AttrSpec { kind: K::Rounding, name: "rounding_mode", optional: true, since: u8::MAX };
/// Extension, as above.
const EXTENSION_HINTS: AttrSpec =
    AttrSpec { kind: K::Hints, name: "optimization_hints", optional: true, since: u8::MAX };
const FTZ: &[FlagBit] = &[BitAttr(K::Flag(Flag::FlushToZero))];
const NAN_FTZ: &[FlagBit] = &[BitAttr(K::Flag(Flag::PropagateNan)), BitAttr(K::Flag(Flag::FlushToZero))];
const MASK_TOKEN: &[FlagBit] = &[BitOperand("mask"), BitOperand("token")];
const SCOPE_HINTS_TOKEN: &[FlagBit] = &[BitAttr(K::MemScope), BitAttr(K::Hints), BitOperand("token")];

macro_rules! ops {
    ($($variant:ident $code:literal $name:literal $since:literal => $($build:ident($($arg:expr),*))*;)+) => {
        /// Opcode of an operation of Tile IR.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)]
        #[non_exhaustive]
        pub enum Opcode { $($variant = $code),+ }

        impl Opcode {
            /// All ops, by opcode number.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$variant),+];

            /// Returns true if each element of the result depends only on the elements of the
            /// operands at the same index, with one shape for all.
            pub fn is_elementwise(self) -> bool {
                self.spec().class != Class::Own || matches!(self, Opcode::Select | Opcode::PowI | Opcode::Offset | Opcode::InlinePtx)
            }

            /// Returns true for ops whose results are the state of the machine: they may differ
            /// between two executions.
            pub const fn is_machine_query(self) -> bool {
                matches!(self, Opcode::Clock | Opcode::GlobalTimer | Opcode::Multiprocessor)
            }

            /// Returns true for matrix multiply-accumulate.
            pub const fn is_mma(self) -> bool {
                matches!(self.spec().kind, OpKind::Mma)
            }

            /// Returns true for `for` and `loop`.
            pub const fn is_loop(self) -> bool {
                matches!(self.spec().kind, OpKind::Loop)
            }

            /// Returns true for loops and branches, whose terminators pass values on.
            pub const fn is_control_flow(self) -> bool {
                matches!(self.spec().kind, OpKind::Loop | OpKind::Branch)
            }

            /// Returns true if the result has the elements of the operand in another shape:
            /// `broadcast`, `reshape` and `permute`.
            pub const fn is_shape_alias(self) -> bool {
                matches!(self.spec().kind, OpKind::ShapeAlias)
            }

            /// Returns true if the op needs no instructions: shape aliases and `assume`.
            pub const fn is_alias(self) -> bool {
                matches!(self.spec().kind, OpKind::ShapeAlias | OpKind::Alias)
            }

            /// Returns true for aliases that repeat no element: all except `broadcast`.
            pub const fn is_bijective_alias(self) -> bool {
                self.is_alias() && !matches!(self, Opcode::Broadcast)
            }

            /// Returns true if each element of the result is an element of the operand: aliases and
            /// `with_layout`.
            pub const fn has_operand_elements(self) -> bool {
                self.is_alias() || matches!(self.spec().kind, OpKind::ConvertLayout)
            }

            /// Returns true for ops that describe an array or its division into tiles.
            pub const fn is_view(self) -> bool {
                matches!(self.spec().kind, OpKind::View)
            }

            /// Returns the row of this op.
            pub const fn spec(self) -> &'static OpSpec {
                match self {
                    $(Opcode::$variant => {
                        const SPEC: &OpSpec = &OpSpec::new($name, $since)$(.$build($($arg),*))*;
                        SPEC
                    })+
                }
            }

            /// Returns the op with this bytecode number.
            pub fn from_code(code: u64) -> Option<Opcode> {
                match code {
                    $($code => Some(Opcode::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

ops! {
    AbsF 0 "absf" 1 => unary(Class::FloatUnary);
    AbsI 1 "absi" 1 => unary(Class::IntUnary);
    AddF 2 "addf" 1 => binary(Class::FloatBinary) flags(FTZ) attrs(&[ROUNDING]) commutative();
    AddI 3 "addi" 1 => binary(Class::IntBinary) attrs(&[OVERFLOW]) commutative();
    AndI 4 "andi" 1 => binary(Class::IntBinary) commutative();
    // The values of the message are an extension. For Tile IR, a print op before the assertion
    // shows them (see `backend/tileir/legalize`).
    Assert 5 "assert" 1 => results(Fixed(0)) attrs(&[attr(K::Text, "message")])
        operands(&[one("condition"), many("args")]) effect(Other);
    Assume 6 "assume" 1 => kind(OpKind::Alias) attrs(&[attr(K::Predicate, "predicate")]) operands(&[one("value")]);
    AtomicCas 7 "atomic_cas_tko" 1 => results(Fixed(2)) flags(MASK_TOKEN) attrs(&[ORDER, SCOPE])
        operands(&[one("pointers"), one("cmp"), one("val"), opt("mask"), opt("token")]) segmented() effect(ReadWrite);
    AtomicRmw 8 "atomic_rmw_tko" 1 => results(Fixed(2)) flags(MASK_TOKEN)
        attrs(&[ORDER, SCOPE, attr(K::AtomicMode, "mode")])
        operands(&[one("pointers"), one("arg"), opt("mask"), opt("token")]) segmented() effect(ReadWrite);
    Bitcast 9 "bitcast" 1 => unary(Class::Cast);
    Break 10 "break" 1 => terminator();
    Broadcast 11 "broadcast" 1 => kind(OpKind::ShapeAlias) operands(&[one("source")]);
    Cat 12 "cat" 1 => attrs(&[attr(K::Dim, "dim")]) operands(&[one("lhs"), one("rhs")]);
    Ceil 13 "ceil" 1 => unary(Class::FloatUnary);
    CmpF 14 "cmpf" 1 => binary(Class::CmpF)
        attrs(&[attr(K::CmpPred, "comparison_predicate"), attr(K::CmpOrder, "comparison_ordering")]);
    CmpI 15 "cmpi" 1 => binary(Class::CmpI) attrs(&[attr(K::CmpPred, "comparison_predicate"), SIGN]);
    Constant 16 "constant" 1 => attrs(&[attr(K::Value, "value")]);
    Continue 17 "continue" 1 => terminator();
    Cos 18 "cos" 1 => unary(Class::FloatUnary) attrs(&[EXTENSION_ROUNDING]);
    Cosh 19 "cosh" 1 => unary(Class::FloatUnary);
    DivF 20 "divf" 1 => binary(Class::FloatBinary) flags(FTZ) attrs(&[ROUNDING]);
    DivI 21 "divi" 1 => binary(Class::IntBinary) attrs(&[SIGN, attr(K::Rounding, "rounding")]);
    Exp 23 "exp" 1 => unary(Class::FloatUnary) attrs(&[attr_since(K::Rounding, "rounding_mode", 3)]);
    Exp2 24 "exp2" 1 => unary(Class::FloatUnary) flags(FTZ);
    ExtI 37 "exti" 1 => cast() attrs(&[SIGN]);
    Extract 38 "extract" 1 => results(Counted(1)) operands(&[one("source"), many("indices")]) total();
    Floor 39 "floor" 1 => unary(Class::FloatUnary);
    Fma 40 "fma" 1 => operands(&[one("lhs"), one("rhs"), one("acc")]) class(Class::FloatTernary)
        flags(FTZ) attrs(&[ROUNDING]);
    For 41 "for" 1 => kind(OpKind::Loop) results(Variable) flags(&[BitAttr(K::Flag(Flag::UnsignedCmp))]) flags_since(2)
        attrs(&[EXTENSION_HINTS])
        operands(&[one("lower_bound"), one("upper_bound"), one("step"), many("init_values")]) total()
        regions(1) effect(Region);
    FToF 42 "ftof" 1 => cast() attrs(&[ROUNDING]);
    FToI 43 "ftoi" 1 => cast() flags(&[BitAttr(K::Flag(Flag::Saturating))]) flags_since(4) attrs(&[SIGN, ROUNDING]);
    GetGlobal 44 "get_global" 1 => attrs(&[attr(K::Text, "name")]);
    GetIndexSpaceShape 45 "get_index_space_shape" 1 => results(Variable) operands(&[one("src")]);
    GetNumTileBlocks 46 "get_num_tile_blocks" 1 => results(Fixed(3));
    GetTensorShape 47 "get_tensor_shape" 1 => results(Variable) operands(&[one("src")]);
    GetTileBlockId 48 "get_tile_block_id" 1 => results(Fixed(3));
    If 50 "if" 1 => kind(OpKind::Branch) results(Variable) operands(&[one("condition")]) regions(2) effect(Region);
    IntToPtr 51 "int_to_ptr" 1 => unary(Class::Cast);
    Iota 58 "iota" 1 => results(Fixed(1));
    IToF 59 "itof" 1 => cast() attrs(&[SIGN, ROUNDING]);
    JoinTokens 60 "join_tokens" 1 => results(Counted(1)) operands(&[many("tokens")]) total();
    LoadPtr 61 "load_ptr_tko" 1 => results(Fixed(2))
        flags(&[BitAttr(K::MemScope), BitAttr(K::Hints), BitOperand("mask"), BitOperand("padding_value"), BitOperand("token")])
        attrs(&[ORDER, SCOPE_OPT, HINTS_OPT])
        operands(&[one("source"), opt("mask"), opt("padding_value"), opt("token")]) segmented() effect(Read);
    LoadView 62 "load_view_tko" 1 => results(Counted(2)) flags(SCOPE_HINTS_TOKEN)
        attrs(&[ORDER, SCOPE_OPT, HINTS_OPT, attr_since(K::Inbounds, "inbounds", 4)])
        operands(&[one("view"), many("index"), opt("token")]) segmented() effect(Read);
    Log 63 "log" 1 => unary(Class::FloatUnary) attrs(&[EXTENSION_ROUNDING]);
    Log2 64 "log2" 1 => unary(Class::FloatUnary) attrs(&[EXTENSION_ROUNDING]);
    Loop 65 "loop" 1 => kind(OpKind::Loop) results(Variable) attrs(&[EXTENSION_HINTS]) operands(&[many("init_values")]) total() regions(1) effect(Region);
    MakePartitionView 66 "make_partition_view" 1 => kind(OpKind::View) operands(&[one("tensor_view")]);
    MakeTensorView 67 "make_tensor_view" 1 => kind(OpKind::View) results(Counted(1))
        operands(&[one("base"), many("dynamic_shape"), many("dynamic_strides")]) segmented();
    MakeToken 68 "make_token" 1 => results(Fixed(1));
    MaxF 69 "maxf" 1 => binary(Class::FloatBinary) flags(NAN_FTZ) commutative();
    MaxI 70 "maxi" 1 => binary(Class::IntBinary) attrs(&[SIGN]) commutative();
    MinF 71 "minf" 1 => binary(Class::FloatBinary) flags(NAN_FTZ) commutative();
    MinI 72 "mini" 1 => binary(Class::IntBinary) attrs(&[SIGN]) commutative();
    MmaF 73 "mmaf" 1 => kind(OpKind::Mma) flags(&[BitAttr(K::Flag(Flag::FastAcc))]) flags_since(3)
        operands(&[one("lhs"), one("rhs"), one("acc")]);
    MmaI 74 "mmai" 1 => kind(OpKind::Mma) attrs(&[attr(K::SignLhs, "signedness_lhs"), attr(K::SignRhs, "signedness_rhs")])
        operands(&[one("lhs"), one("rhs"), one("acc")]);
    MulF 76 "mulf" 1 => binary(Class::FloatBinary) flags(FTZ) attrs(&[ROUNDING]) commutative();
    MulHiI 77 "mulhii" 1 => operands(&[one("x"), one("y")]) class(Class::IntBinary) commutative();
    MulI 78 "muli" 1 => binary(Class::IntBinary) attrs(&[OVERFLOW]) commutative();
    NegF 79 "negf" 1 => unary(Class::FloatUnary);
    NegI 80 "negi" 1 => unary(Class::IntUnary) attrs(&[attr_since(K::Overflow, "overflow", 2)]);
    Offset 81 "offset" 1 => operands(&[one("ptr"), one("offset")]);
    OrI 82 "ori" 1 => binary(Class::IntBinary) commutative();
    Permute 83 "permute" 1 => kind(OpKind::ShapeAlias) attrs(&[attr(K::Permutation, "permutation")]) operands(&[one("source")]);
    PowF 84 "fpowf" 1 => operands(&[one("source"), one("exponent")]) class(Class::FloatBinary);
    Print 85 "print_tko" 1 => results(Variable) flags(&[BitOperand("token")]) flags_since(2)
        attrs(&[attr(K::Text, "str")]) operands(&[many("args"), opt("token")]) segmented() effect(Other);
    PtrToInt 86 "ptr_to_int" 1 => unary(Class::Cast);
    PtrToPtr 87 "ptr_to_ptr" 1 => unary(Class::Cast);
    Reduce 88 "reduce" 1 => results(Variable) attrs(&[attr(K::Dim, "dim"), attr(K::Identities, "identities")])
        operands(&[many("operands")]) total() regions(1) effect(Region);
    RemF 89 "remf" 1 => binary(Class::FloatBinary);
    RemI 90 "remi" 1 => binary(Class::IntBinary) attrs(&[SIGN]);
    Reshape 91 "reshape" 1 => kind(OpKind::ShapeAlias) operands(&[one("source")]);
    Return 92 "return" 1 => terminator();
    Rsqrt 93 "rsqrt" 1 => unary(Class::FloatUnary) flags(FTZ);
    Scan 94 "scan" 1 => results(Variable)
        attrs(&[attr(K::Dim, "dim"), attr(K::Reverse, "reverse"), attr(K::Identities, "identities")])
        operands(&[many("operands")]) total() regions(1) effect(Region);
    Select 95 "select" 1 => operands(&[one("cond"), one("val_if_true"), one("val_if_false")]);
    ShlI 96 "shli" 1 => binary(Class::IntBinary) attrs(&[OVERFLOW]);
    ShrI 97 "shri" 1 => binary(Class::IntBinary) attrs(&[SIGN]);
    Sin 98 "sin" 1 => unary(Class::FloatUnary) attrs(&[EXTENSION_ROUNDING]);
    Sinh 99 "sinh" 1 => unary(Class::FloatUnary);
    Sqrt 100 "sqrt" 1 => unary(Class::FloatUnary) flags(FTZ) attrs(&[ROUNDING]);
    StorePtr 101 "store_ptr_tko" 1 => results(Fixed(1))
        flags(&[BitAttr(K::MemScope), BitAttr(K::Hints), BitOperand("mask"), BitOperand("token")])
        attrs(&[ORDER, SCOPE_OPT, HINTS_OPT])
        operands(&[one("destination"), one("value"), opt("mask"), opt("token")]) segmented() effect(Write);
    StoreView 102 "store_view_tko" 1 => results(Counted(1)) flags(SCOPE_HINTS_TOKEN)
        attrs(&[ORDER, SCOPE_OPT, HINTS_OPT, attr_since(K::Inbounds, "inbounds", 4)])
        operands(&[one("tile"), one("view"), many("index"), opt("token")]) segmented() effect(Write);
    SubF 103 "subf" 1 => binary(Class::FloatBinary) flags(FTZ) attrs(&[ROUNDING]);
    SubI 104 "subi" 1 => binary(Class::IntBinary) attrs(&[OVERFLOW]);
    Tan 105 "tan" 1 => unary(Class::FloatUnary);
    Tanh 106 "tanh" 1 => unary(Class::FloatUnary) attrs(&[attr_since(K::Rounding, "rounding_mode", 2)]);
    TruncI 107 "trunci" 1 => cast() attrs(&[OVERFLOW]);
    XorI 108 "xori" 1 => binary(Class::IntBinary) commutative();
    Yield 109 "yield" 1 => terminator();
    Atan2 110 "atan2" 2 => operands(&[one("x"), one("y")]) class(Class::FloatBinary);
    Pack 111 "pack" 3 => operands(&[one("source")]);
    Unpack 112 "unpack" 3 => operands(&[one("source")]);
    Alloca 113 "alloca" 3 => flags(&[BitAttr(K::Flag(Flag::Global))])
        attrs(&[attr(K::NumElem, "num_elem"), attr(K::Alignment, "alignment")]) effect(Other);
    MmaFScaled 114 "mmaf_scaled" 3 => kind(OpKind::Mma)
        operands(&[one("lhs"), one("rhs"), one("acc"), one("lhs_scale"), one("rhs_scale")]);
    MakeGatherScatterView 115 "make_gather_scatter_view" 3 => kind(OpKind::View) operands(&[one("tensor_view")]);
    MakeStridedView 116 "make_strided_view" 3 => kind(OpKind::View) operands(&[one("tensor_view")]);
    AtomicRedView 117 "atomic_red_view_tko" 3 => results(Counted(1)) flags(&[BitOperand("token")])
        attrs(&[ORDER, SCOPE, attr(K::AtomicMode, "mode"), attr_since(K::Inbounds, "inbounds", 5)])
        operands(&[one("view"), many("index"), one("value"), opt("token")]) segmented() effect(ReadWrite);
    Insert 118 "insert" 4 => results(Counted(1)) operands(&[one("source"), one("destination"), many("indices")]) total();
    GdcLaunchDependents 119 "gdc_launch_dependents_tko" 4 => operands(&[opt("token")]) total() effect(Other);
    GdcWait 120 "gdc_wait_tko" 4 => operands(&[opt("token")]) total() effect(Other);
    PowI 121 "fpowi" 4 => operands(&[one("source"), one("exponent")]);
    MemoryFenceAlias 122 "memory_fence_alias_tko" 4 => operands(&[one("token")]) effect(Other);
    MultimemLoadReduce 123 "multimem_load_reduce_view_tko" 5 => results(Counted(2))
        flags(&[BitAttr(K::MemScope), BitOperand("token")])
        attrs(&[ORDER, SCOPE_OPT, attr(K::MultimemKind, "reduction"), attr(K::Inbounds, "inbounds")])
        operands(&[one("view"), many("index"), opt("token")]) segmented() effect(Read);
    MultimemReduce 124 "multimem_reduce_view_tko" 5 => results(Counted(1)) flags(&[BitOperand("token")])
        attrs(&[ORDER, SCOPE, attr(K::MultimemKind, "reduction"), attr(K::Inbounds, "inbounds")])
        operands(&[one("view"), one("tile"), many("index"), opt("token")]) segmented() effect(ReadWrite);
    MultimemStore 125 "multimem_store_view_tko" 5 => results(Counted(1))
        flags(&[BitAttr(K::MemScope), BitOperand("token")])
        attrs(&[ORDER, SCOPE_OPT, attr(K::Inbounds, "inbounds")])
        operands(&[one("view"), one("tile"), many("index"), opt("token")]) segmented() effect(Write);
    // Extension, in no version of the bytecode: PTX instructions with up to three operands. The
    // last operand is an equivalent value computed by other ops, which the other back ends use (see
    // `pass/legalize/inline_ptx`). If there are fewer operands, the last one is repeated.
    InlinePtx 1000 "inline_ptx" 255 => attrs(&[attr(K::Text, "text")])
        operands(&[one("a"), one("b"), one("c"), one("meaning")]);
    // Extensions: the elements at positions along an axis, clamped to the extent; the number of
    // elements equal to each number from 0 on. For Tile IR they are expanded (see
    // `pass/legalize/expand_gather`).
    Gather 1001 "gather" 255 => attrs(&[attr(K::Dim, "dim")]) operands(&[one("source"), one("positions")]);
    Histogram 1002 "histogram" 255 => operands(&[one("source")]);
    // Extension: the operand in this layout.
    WithLayout 1003 "with_layout" 255 => kind(OpKind::ConvertLayout) attrs(&[attr(K::Distribution, "layout")]) operands(&[one("source")]);
    // Extension: the index of the data partition of the executing consumer group (see
    // `pass/data_partition`).
    DataPartitionId 1004 "data_partition_id" 255 => attrs(&[attr(K::NumElem, "count")]);
    // Extension: for each number from 0 to `bins` - 1, how many earlier elements are equal; 0 for
    // other numbers. For Tile IR it is expanded (see `pass/legalize/expand_gather`).
    Ranks 1005 "ranks" 255 => attrs(&[attr(K::NumElem, "bins")]) operands(&[one("source")]);
    // Extension: the tiles that the tile blocks of a cluster have, along a new leading axis. All
    // tile blocks of the cluster execute it.
    ClusterAllGather 1006 "cluster_all_gather" 255 => operands(&[one("source")]) effect(Other);
    // Extensions: cycles of a counter of the multiprocessor, nanoseconds of the global timer, and
    // the number of the multiprocessor.
    Clock 1007 "clock" 255 => effect(Other);
    GlobalTimer 1008 "global_timer" 255 => effect(Other);
    Multiprocessor 1009 "multiprocessor" 255 => effect(Other);
}
