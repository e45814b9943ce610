//! Text of a module: parameters, registers, instructions.
//!
//! A 32-bit register is declared `.b32` and a 64-bit one `.b64` for each class: PTX accepts an
//! untyped register wherever the width fits.

use crate::util::collect::CollectVec as _;
use std::fmt::{self, Display, Formatter, Write};

use super::inst::*;
use super::loc_directives::SourceLines;
use crate::backend::ptx::hardware::SWIZZLE_ATOM_BYTES;
use crate::target::Target;

/// Default PTX ISA version of the text (CUDA 13.0).
pub const PTX_VERSION: (u32, u32) = (9, 0);

/// Type of an entry parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Param {
    /// A number or address.
    Scalar(Ty),
    /// A block of bytes: a tensor map is 128 bytes at alignment 64.
    Bytes {
        /// Size in bytes.
        size: u32,
        /// Alignment in bytes.
        align: u32,
    },
}

/// Returns the name of a global of the module, by position. Names of kernels start with a letter,
/// so none is equal.
pub fn global_symbol(index: usize) -> String {
    format!("_global{index}")
}

/// An array in global memory; [`Operand::Global`] names it by position.
#[derive(Clone, Debug, PartialEq)]
pub struct GlobalArray {
    /// Alignment in bytes.
    pub align: u32,
    /// Content.
    pub bytes: Vec<u8>,
}

/// A kernel: directives, parameters, registers and body.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Function {
    /// Entry name.
    pub name: String,
    /// Parameters in order; [`Operand::Param`] names them by position.
    pub params: Vec<Param>,
    /// Threads of a CTA.
    pub threads: u32,
    /// CTAs that should fit on one SM.
    pub min_blocks: Option<u32>,
    /// Blocks of a cluster along x.
    pub cluster: Option<u32>,
    /// Virtual registers used, by width: predicate, 16, 32, 64 bits.
    pub registers: [u32; 4],
    /// Constant arrays that the body reads.
    pub tables: Vec<&'static Table>,
    /// Formats of printed text; [`Operand::Text`] names them by position.
    pub texts: Vec<String>,
    /// Bytes of a thread's frame in local memory, [`Operand::Frame`].
    pub frame_bytes: u32,
    /// The body.
    pub lines: Vec<Line>,
    /// Source locations of the instructions, if the text has `.loc` directives.
    pub source: Option<SourceLines>,
}

impl Function {
    /// Returns the numbers of the source locations of all instructions.
    pub fn locs(&self) -> impl Iterator<Item = u32> {
        self.lines.iter().filter_map(|line| if let Line::Inst(inst) = line { Some(inst.loc) } else { None })
    }
}

/// Returns a PTX module with these kernels.
pub fn module(target: Target, globals: &[GlobalArray], functions: &[Function]) -> String {
    let mut out = String::new();
    let (major, minor) = PTX_VERSION;
    let _ = writeln!(out, ".version {major}.{minor}\n.target {target}\n.address_size 64\n");
    for source in functions.iter().filter_map(|function| function.source.as_ref()) {
        out += &source.files();
    }
    let _ = writeln!(out, ".extern .shared .align {SWIZZLE_ATOM_BYTES} .b8 smem[];");
    for (index, global) in globals.iter().enumerate() {
        let (align, name, len) = (global.align, global_symbol(index), global.bytes.len());
        let _ = write!(out, ".visible .global .align {align} .b8 {name}[{len}]");
        // A global without an initializer is zero.
        if global.bytes.iter().any(|&byte| byte != 0) {
            let bytes: Vec<String> = global.bytes.iter().map(u8::to_string).collect_vec();
            let _ = write!(out, " = {{{}}}", bytes.join(","));
        }
        let _ = writeln!(out, ";");
    }
    let mut tables: Vec<&Table> = Vec::new();
    for table in functions.iter().flat_map(|function| &function.tables) {
        if !tables.contains(table) {
            tables.push(table);
        }
    }
    for Table { name, words } in tables {
        let list: Vec<String> = words.iter().map(|word| format!("0x{word:x}")).collect_vec();
        let _ = writeln!(out, ".const .align 8 .b64 {name}[{}] = {{{}}};", words.len(), list.join(","));
    }
    let texts: Vec<&String> = functions.iter().flat_map(|function| &function.texts).collect_vec();
    if !texts.is_empty() {
        let _ = writeln!(out, ".extern .func (.param .b32 count) vprintf (.param .b64 text, .param .b64 values);");
    }
    for (index, text) in texts.into_iter().enumerate() {
        // Numbers, because a text may have any characters. It ends with a NUL.
        let bytes: Vec<String> = text.bytes().chain([0]).map(|byte| byte.to_string()).collect_vec();
        let _ = writeln!(out, ".global .align 1 .b8 text{index}[{}] = {{{}}};", bytes.len(), bytes.join(","));
    }
    for function in functions {
        let _ = write!(out, "\n{function}");
    }
    out
}

impl Display for Function {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, ".visible .entry {}(", self.name)?;
        for (i, param) in self.params.iter().enumerate() {
            let comma = if i + 1 < self.params.len() { "," } else { "" };
            match param {
                Param::Scalar(ty) => writeln!(f, "    .param {ty} arg{i}{comma}")?,
                Param::Bytes { size, align } => writeln!(f, "    .param .align {align} .b8 arg{i}[{size}]{comma}")?,
            }
        }
        writeln!(f, ")\n.reqntid {}, 1, 1", self.threads)?;
        if let Some(blocks) = self.min_blocks {
            writeln!(f, ".minnctapersm {blocks}")?;
        }
        if let Some(cluster) = self.cluster {
            writeln!(f, ".reqnctapercluster {cluster}, 1, 1")?;
        }
        writeln!(f, "{{")?;
        for (count, ty, letter) in self
            .registers
            .iter()
            .zip(["pred", "b16", "b32", "b64"])
            .zip(["p", "h", "r", "d"])
            .map(|((c, t), l)| (c, t, l))
        {
            if *count > 0 {
                writeln!(f, "    .reg .{ty} %{letter}<{count}>;")?;
            }
        }
        if self.frame_bytes > 0 {
            writeln!(f, "    .local .align 8 .b8 frame[{}];", self.frame_bytes)?;
        }
        let mut loc = 0;
        for line in &self.lines {
            if let (Some(source), Line::Inst(inst)) = (&self.source, line)
                && std::mem::replace(&mut loc, inst.loc) != inst.loc
            {
                source.write(inst.loc, f)?;
            }
            writeln!(f, "{line}")?;
        }
        writeln!(f, "}}")
    }
}

impl Display for Line {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Line::Inst(inst) => write!(f, "    {inst}"),
            Line::Label(label) => write!(f, "{label}:"),
            Line::Pragma(text) => write!(f, "    .pragma \"{text}\";"),
        }
    }
}

impl Display for Inst {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let (Opcode::Printf, [text, values]) = (self.op, &self.srcs[..]) {
            // Parameters of a call are declared in a separate scope.
            write!(f, "{{ .param .b64 text; .param .b64 values; .param .b32 count; ")?;
            write!(f, "st.param.b64 [text], {text}; st.param.b64 [values], {values}; ")?;
            return write!(f, "call (count), vprintf, (text, values); }}");
        }
        if let Opcode::Inline(text) = self.op {
            return self.inline(text, f);
        }
        if let Some((pred, negated)) = self.guard {
            write!(f, "@{}{pred} ", if negated { "!" } else { "" })?;
        }
        write!(f, "{}", self.op)?;
        for (i, arg) in self.dsts.iter().chain(&self.srcs).enumerate() {
            write!(f, "{}{arg}", if i == 0 { " " } else { ", " })?;
        }
        f.write_str(";")
    }
}

impl Inst {
    /// Writes inline PTX of the user in a separate scope, since it may declare registers. It has no
    /// effects, so a guard is unnecessary.
    fn inline(&self, text: &str, f: &mut Formatter<'_>) -> fmt::Result {
        let mut parts = text.split('$');
        write!(f, "{{ {}", parts.next().unwrap_or_default())?;
        for part in parts {
            let number = part.chars().next().and_then(|digit| digit.to_digit(10)).unwrap_or(0) as usize;
            let arg = self.dsts.iter().chain(&self.srcs).nth(number).expect("a number that was checked");
            write!(f, "{arg}{}", part.get(1..).unwrap_or_default())?;
        }
        f.write_str(" }")
    }
}

impl Display for Arg {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Arg::One(operand) => operand.fmt(f),
            Arg::Vector(list) => write!(f, "{{{}}}", OperandList(list)),
            Arg::Mem(addr) => addr.fmt(f),
            Arg::WithPred(Some(value), pred) => write!(f, "{value}|{pred}"),
            Arg::WithPred(None, pred) => write!(f, "_|{pred}"),
            Arg::Not(pred) => write!(f, "!{pred}"),
            Arg::Sink => f.write_str("_"),
            Arg::Label(label) => label.fmt(f),
        }
    }
}

struct OperandList<'a>(&'a [Operand]);

impl Display for OperandList<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (i, operand) in self.0.iter().enumerate() {
            write!(f, "{}{operand}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl Display for Addr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "[{}", self.base)?;
        if self.offset != 0 {
            write!(f, "{:+}", self.offset)?;
        }
        if !self.coords.is_empty() {
            write!(f, ", {{{}}}", OperandList(&self.coords))?;
        }
        f.write_str("]")
    }
}

impl Display for Operand {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Reg(reg) => reg.fmt(f),
            Operand::Imm(value) => value.fmt(f),
            Operand::F32(value) => write!(f, "0f{:08X}", value.to_bits()),
            Operand::F64(value) => write!(f, "0d{:016X}", value.to_bits()),
            Operand::Special(special) => special.fmt(f),
            Operand::Smem => f.write_str("smem"),
            Operand::Table(table) => f.write_str(table.name),
            Operand::Param(index) => write!(f, "arg{index}"),
            Operand::Text(index) => write!(f, "text{index}"),
            Operand::Global(index) => f.write_str(&global_symbol(*index as usize)),
            Operand::Frame => f.write_str("frame"),
        }
    }
}

impl Display for Reg {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let letter = match self.class {
            RegClass::Pred => 'p',
            RegClass::B16 => 'h',
            RegClass::B32 | RegClass::F32 => 'r',
            RegClass::B64 | RegClass::F64 => 'd',
        };
        write!(f, "%{letter}{}", self.id)
    }
}
