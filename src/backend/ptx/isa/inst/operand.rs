//! Operands of instructions: registers, constants, addresses, and the types under which they are
//! read.

use std::fmt;

/// The class of a register. Classes of one width share a register: see [`Reg::as_class`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum RegClass {
    Pred,
    /// 16 bits: f16 and bf16.
    B16,
    /// 32 bits: integers, packed pairs of halves, shared-memory addresses.
    B32,
    /// 64 bits: integers and global addresses.
    B64,
    F32,
    F64,
}

impl RegClass {
    /// Width in bits (predicate: 1).
    pub const fn bits(self) -> u32 {
        match self {
            RegClass::Pred => 1,
            RegClass::B16 => 16,
            RegClass::B32 | RegClass::F32 => 32,
            RegClass::B64 | RegClass::F64 => 64,
        }
    }
}

/// A virtual register. The id is unique among the registers of its width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg {
    /// Its class.
    pub class: RegClass,
    /// Its number within its width.
    pub id: u32,
}

impl Reg {
    /// Returns the same register as another class of the same width: a bit cast without an
    /// instruction.
    ///
    /// # Panics
    /// If the widths differ.
    pub fn as_class(self, class: RegClass) -> Reg {
        assert_eq!(self.class.bits(), class.bits(), "bit cast of {self:?} to {class:?}");
        Reg { class, id: self.id }
    }
}

/// A special register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Special {
    TidX,
    TidY,
    TidZ,
    NTidX,
    CtaIdX,
    CtaIdY,
    CtaIdZ,
    NCtaIdX,
    NCtaIdY,
    NCtaIdZ,
    ClusterIdX,
    ClusterCtaRank,
    ClusterNCtaRank,
    LaneId,
    WarpId,
    SmId,
    Clock,
    Clock64,
    GlobalTimer,
}

impl Special {
    /// Returns the type by which it is read.
    pub const fn ty(self) -> Ty {
        match self {
            Special::Clock64 | Special::GlobalTimer => Ty::U64,
            _ => Ty::U32,
        }
    }
}

/// A constant array in constant memory, read by instruction sequences.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// Name in the module.
    pub name: &'static str,
    /// Content.
    pub words: &'static [u64],
}

/// A source of an instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operand {
    /// A register.
    Reg(Reg),
    /// An integer or bit pattern, sign-extended from the width of its use; 0 or 1 as a predicate.
    Imm(i64),
    /// An f32 constant.
    F32(f32),
    /// An f64 constant.
    F64(f64),
    /// A special register.
    Special(Special),
    /// The address of the dynamic shared memory of the kernel (32 bits).
    Smem,
    /// The address of a constant array, in constant space.
    Table(&'static Table),
    /// The address of an entry parameter in parameter space, by position.
    Param(u32),
    /// The address of a text of the kernel in global space, by position.
    Text(u32),
    /// The address of a global of the module in global space, by position.
    Global(u32),
    /// The address of the thread's frame in local space.
    Frame,
}

impl From<Reg> for Operand {
    fn from(reg: Reg) -> Operand {
        Operand::Reg(reg)
    }
}
impl From<i64> for Operand {
    fn from(value: i64) -> Operand {
        Operand::Imm(value)
    }
}
impl From<i32> for Operand {
    fn from(value: i32) -> Operand {
        Operand::Imm(i64::from(value))
    }
}
impl From<u32> for Operand {
    /// Converts a bit pattern, as a signed 32-bit number.
    fn from(value: u32) -> Operand {
        Operand::Imm(i64::from(value as i32))
    }
}
impl From<bool> for Operand {
    fn from(value: bool) -> Operand {
        Operand::Imm(i64::from(value))
    }
}
impl From<f32> for Operand {
    fn from(value: f32) -> Operand {
        Operand::F32(value)
    }
}
impl From<f64> for Operand {
    fn from(value: f64) -> Operand {
        Operand::F64(value)
    }
}

impl Operand {
    /// Returns the register.
    ///
    /// # Panics
    /// If the operand is not a register.
    pub fn reg(self) -> Reg {
        match self {
            Operand::Reg(reg) => reg,
            other => panic!("a register is needed here, not {other:?}"),
        }
    }

    /// Returns the integer constant, if it is one.
    pub fn as_imm(self) -> Option<i64> {
        match self {
            Operand::Imm(value) => Some(value),
            _ => None,
        }
    }
}

/// A jump target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Label(pub u32);

/// A memory operand: `[base + offset]`, with tile coordinates for tensor maps.
#[derive(Clone, Debug, PartialEq)]
pub struct Addr {
    /// Register, shared memory symbol, parameter or constant.
    pub base: Operand,
    /// Bytes added to the base.
    pub offset: i64,
    /// Coordinates of a bulk tensor copy; empty otherwise.
    pub coords: Vec<Operand>,
}

impl Addr {
    /// Returns `[base + offset]`; `offset` in bytes.
    pub fn new(base: impl Into<Operand>, offset: i64) -> Addr {
        Addr { base: base.into(), offset, coords: Vec::new() }
    }

    /// Returns `[map, {coords}]`: a box of a tensor map.
    pub fn tensor(map: impl Into<Operand>, coords: &[Operand]) -> Addr {
        Addr { base: map.into(), offset: 0, coords: coords.to_vec() }
    }

    /// Returns the address increased by `bytes`.
    pub fn plus(&self, bytes: i64) -> Addr {
        Addr { offset: self.offset + bytes, ..self.clone() }
    }
}

impl From<Reg> for Addr {
    fn from(reg: Reg) -> Addr {
        Addr::new(reg, 0)
    }
}
impl From<Operand> for Addr {
    fn from(base: Operand) -> Addr {
        Addr::new(base, 0)
    }
}

/// One argument of an instruction as written in PTX.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// A plain operand.
    One(Operand),
    /// `{a, b, …}`.
    Vector(Vec<Operand>),
    /// `[…]`.
    Mem(Addr),
    /// `value|pred`; the value is `_` when absent.
    WithPred(Option<Reg>, Reg),
    /// `!pred`.
    Not(Reg),
    /// `_`: the result is discarded.
    Sink,
    /// A jump target.
    Label(Label),
}

impl Arg {
    /// Returns true if the argument, as a destination, writes an operand that satisfies the
    /// predicate.
    pub fn has_destination(&self, is: impl Fn(&Operand) -> bool) -> bool {
        match self {
            Arg::One(operand) => is(operand),
            Arg::Vector(operands) => operands.iter().any(is),
            Arg::WithPred(Some(reg), _) => is(&Operand::Reg(*reg)),
            _ => false,
        }
    }
}

impl<T: Into<Operand>> From<T> for Arg {
    fn from(operand: T) -> Arg {
        Arg::One(operand.into())
    }
}

/// Type suffix of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Ty {
    Pred,
    B8,
    B16,
    B32,
    B64,
    U4,
    U8,
    U16,
    U32,
    U64,
    S4,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    BF16,
    BF16x2,
    TF32,
    F32,
    F64,
    E4M3,
    E5M2,
    E4M3x2,
    E5M2x2,
}

impl Ty {
    /// Returns the register class of an operand of this type. 8-bit integers of loads and stores
    /// are in B32 (PTX allows a wider register), pairs of 8-bit floats in B16.
    pub const fn class(self) -> RegClass {
        match self {
            Ty::Pred => RegClass::Pred,
            Ty::B16 | Ty::U16 | Ty::S16 | Ty::F16 | Ty::BF16 | Ty::E4M3x2 | Ty::E5M2x2 => RegClass::B16,
            Ty::B8 | Ty::U8 | Ty::S8 | Ty::U4 | Ty::S4 | Ty::E4M3 | Ty::E5M2 => RegClass::B32,
            Ty::B32 | Ty::U32 | Ty::S32 | Ty::F16x2 | Ty::BF16x2 | Ty::TF32 => RegClass::B32,
            Ty::B64 | Ty::U64 | Ty::S64 => RegClass::B64,
            Ty::F32 => RegClass::F32,
            Ty::F64 => RegClass::F64,
        }
    }

    /// Returns the width in bits.
    pub const fn bits(self) -> u32 {
        match self {
            Ty::Pred => 1,
            Ty::U4 | Ty::S4 => 4,
            Ty::B8 | Ty::U8 | Ty::S8 | Ty::E4M3 | Ty::E5M2 => 8,
            _ => self.class().bits(),
        }
    }

    /// Returns true for a signed integer type.
    pub const fn is_signed(self) -> bool {
        matches!(self, Ty::S4 | Ty::S8 | Ty::S16 | Ty::S32 | Ty::S64)
    }

    /// Returns true for an integer or untyped type.
    pub const fn is_int(self) -> bool {
        matches!(
            self,
            Ty::B8
                | Ty::B16
                | Ty::B32
                | Ty::B64
                | Ty::U4
                | Ty::U8
                | Ty::U16
                | Ty::U32
                | Ty::U64
                | Ty::S4
                | Ty::S8
                | Ty::S16
                | Ty::S32
                | Ty::S64
        )
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "$L{}", self.0)
    }
}
